//! A mobile that uses several links together.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::HashSet;
use std::io::Write;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lasthop_control::{self as control, PathReport};
use lasthop_kernel::netns::Netns;
use lasthop_lab::arrivals::Received;
use lasthop_lab::bond::{self, Bond, Load, Way, longest_gap};
use lasthop_lab::client::Stop;
use lasthop_lab::topology::{Family, RADIO, Topology, link};
use lasthop_lab::transfer::Direction;
use lasthop_radio::{Errors, Loss, RadioConfig};
use lasthop_testing::wait_until;
use lasthop_units::Rate;

/// Scenes that were started.
static STARTED: AtomicUsize = AtomicUsize::new(0);

const PATIENCE: Duration = Duration::from_secs(30);

/// A radio of so many Mbit/s and so many milliseconds one way, which loses this share.
fn radio(mbps: u64, ms: u64, loss: f64) -> RadioConfig {
    let mut link = link(Rate::from_mbps(mbps), Duration::from_millis(ms), 200);
    if loss > 0.0 {
        link.losses.push(Loss::lose(Errors::Uniform(loss)));
    }
    RadioConfig::both(link)
}

/// A mobile with two radios, and what is running there.
struct Scene {
    bond: Bond,
    control: ControlSocket,
}

/// Where the mobile's control socket is. It is gone with this.
struct ControlSocket(PathBuf);

impl ControlSocket {
    fn new() -> Self {
        let (process, n) = (std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(format!("lasthop-bond-{process}-{n}.sock")))
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Scene {
    /// Starts an endless transfer by these links; `None` where the machine cannot have it.
    fn start(
        radios: [RadioConfig; 2],
        links: Vec<String>,
        how: (Direction, Family),
    ) -> Option<Self> {
        Self::start_by("speed", radios, links, how)
    }

    /// The same by this policy.
    fn start_by(
        policy: &str,
        radios: [RadioConfig; 2],
        links: Vec<String>,
        (direction, family): (Direction, Family),
    ) -> Option<Self> {
        let load = Load::of(direction, family);
        Self::start_with(["--policy", policy], radios, links, &load)
    }

    /// A mobile that is configured so, whose load these links carry.
    fn configured(config: &str, radios: [RadioConfig; 2], load: &Load) -> Option<Self> {
        let mut file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
        file.write_all(config.as_bytes()).unwrap();
        let path = file.path().to_string_lossy();
        // It is read before the first byte comes.
        Self::start_with(["--config", &path], radios, Vec::new(), load)
    }

    fn start_with(
        flag: [&str; 2],
        [first, second]: [RadioConfig; 2],
        links: Vec<String>,
        load: &Load,
    ) -> Option<Self> {
        let program = common::program()?;
        common::prefer_this_thread();
        let topology = Topology { radio: first, beside: vec![second], ..Topology::default() };
        let control = ControlSocket::new();
        let socket = control.0.to_string_lossy();
        let mobile = ["--control", &socket].into_iter().chain(flag).map(str::to_owned).collect();
        let way = Way::Srp(links);
        let bond = Bond::start(topology, &way, load, &program, (mobile, PATIENCE));
        Some(Self { bond: common::permitted(bond)?, control })
    }

    /// Runs for so long; when that began and ended.
    fn run(&mut self, time: Duration) -> (Instant, Instant) {
        self.bond.run(time).unwrap()
    }

    /// The mobile's links that carried something, and whether each answers.
    fn paths(&self) -> Vec<(String, bool)> {
        let answers = |path: &PathReport| path.state == "up" && path.bytes_received > 0;
        self.reports().into_iter().map(|path| (path.name.clone(), answers(&path))).collect()
    }

    /// What is reported of the mobile's links.
    fn reports(&self) -> Vec<PathReport> {
        let report = control::query(&self.control.0).unwrap();
        report.associations.into_iter().flat_map(|association| association.paths).collect()
    }

    /// What each of them has carried, in bytes.
    fn carried(&self) -> Vec<u64> {
        self.reports().into_iter().map(|path| path.bytes_received + path.bytes_sent).collect()
    }

    /// The same of the time that it runs now.
    fn carries(&mut self, time: Duration) -> [u64; 2] {
        let before = self.carried();
        self.run(time);
        let carried = self.carried();
        [0, 1].map(|link| carried[link] - before[link])
    }

    /// `lasthop policy` with these words.
    fn policy(&self, words: &[&str]) -> Output {
        let mut command = Command::new(common::program().unwrap());
        command.arg("policy").args(words).arg("--control").arg(&self.control.0);
        command.output().unwrap()
    }

    /// The same, which is done; what it says.
    fn say(&self, words: &[&str]) -> String {
        let output = self.policy(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, which is refused; why.
    fn refused(&self, words: &[&str]) -> String {
        let output = self.policy(words);
        assert!(!output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The policies of the connections, where they are not usual.
    fn policies(&self) -> Vec<Option<String>> {
        let report = control::query(&self.control.0).unwrap();
        report.connections.into_iter().map(|connection| connection.policy).collect()
    }

    /// Checks every byte that came.
    fn end(self) -> Received {
        let ended = self.bond.end().unwrap().remove(0);
        assert!(ended.is_right, "other bytes came than were sent");
        ended.received
    }
}

/// A rate in Mbit/s.
fn goodput(received: &Received, (from, to): (Instant, Instant)) -> f64 {
    Rate::of(received.between(from, to), to - from).as_bps() as f64 / 1e6
}

/// Two links carry together what neither could alone, whatever their delays are and whatever one loses.
fn add_up(radios: [RadioConfig; 2], how: (Direction, Family), least: f64) {
    let Some(mut scene) = Scene::start(radios, bond::interfaces(2), how) else { return };
    scene.run(Duration::from_secs(4));
    let measured = scene.run(Duration::from_secs(6));
    let received = scene.end();
    let got = goodput(&received, measured);
    assert!(got >= least, "{got} of at least {least} Mbit/s");
}

#[test]
fn two_links_add_up() {
    add_up([radio(20, 20, 0.0), radio(20, 20, 0.0)], (Direction::Download, Family::V4), 30.0);
}

#[test]
fn two_links_add_up_for_uploads_by_ipv6() {
    add_up([radio(20, 20, 0.0), radio(10, 60, 0.02)], (Direction::Upload, Family::V6), 22.0);
}

/// One link falls silent without a word, and comes back.
#[test]
fn a_link_that_goes_dark_is_left_and_used_again() {
    let radios = [radio(20, 20, 0.0), radio(10, 20, 0.0)];
    let how = (Direction::Download, Family::V4);
    let Some(mut scene) = Scene::start(radios, bond::interfaces(2), how) else { return };
    scene.run(Duration::from_secs(3));
    scene.bond.lab.radio.control.pause(Duration::from_secs(4));
    let dark = scene.run(Duration::from_secs(4));
    scene.run(Duration::from_secs(2));
    let back = scene.run(Duration::from_secs(3));
    let received = scene.end();
    assert!(
        longest_gap(&received, dark) < Duration::from_secs(1),
        "{:?}",
        longest_gap(&received, dark)
    );
    let (in_dark, after) = (goodput(&received, dark), goodput(&received, back));
    assert!(in_dark > 6.0 && after > 18.0, "{in_dark} and then {after} Mbit/s");
}

/// A link's interface goes down and up again, with another address; one of the links is never there.
#[test]
fn an_interface_goes_and_comes_back_elsewhere() {
    let radios = [radio(20, 20, 0.0), radio(10, 20, 0.0)];
    let mut links = bond::interfaces(2);
    links.push("missing0".to_owned());
    let how = (Direction::Download, Family::V4);
    let Some(mut scene) = Scene::start(radios, links, how) else { return };
    scene.run(Duration::from_secs(3));
    scene.bond.lab.mobile.ip("link set dev radio1 down\n").unwrap();
    let down = scene.run(Duration::from_secs(3));
    let elsewhere = "addr flush dev radio1\naddr add 10.0.3.77/24 dev radio1\nlink set dev radio1 up\n\
                     addr add fd00:3::77/64 dev radio1 nodad\n";
    scene.bond.lab.mobile.ip(elsewhere).unwrap();
    scene.bond.lab.route_beside(1).unwrap();
    scene.run(Duration::from_secs(3));
    let back = scene.run(Duration::from_secs(3));
    let expected = [(RADIO, true), ("radio1", true), ("missing0", false)];
    assert_eq!(scene.paths(), expected.map(|(name, answers)| (name.to_owned(), answers)));
    let received = scene.end();
    assert!(
        longest_gap(&received, down) < Duration::from_secs(1),
        "{:?}",
        longest_gap(&received, down)
    );
    let (alone, after) = (goodput(&received, down), goodput(&received, back));
    assert!(alone > 13.0 && after > alone + 4.0, "{alone} and then {after} Mbit/s");
}

/// What is to go by one link alone goes by no other, both ways, and waits where that one is dark.
#[test]
fn a_link_carries_alone_what_is_to_go_by_it_alone() {
    for direction in [Direction::Download, Direction::Upload] {
        let radios = [radio(20, 20, 0.0), radio(10, 40, 0.01)];
        let how = (direction, Family::V4);
        let links = bond::interfaces(2);
        let Some(mut scene) = Scene::start_by("only radio1", radios, links, how) else { return };
        let alone = scene.run(Duration::from_secs(4));
        let carried = scene.carried();
        let [first, second] = carried[..] else { panic!("{carried:?}") };
        let received = scene.end();
        let rate = goodput(&received, alone);
        assert!(rate > 7.0 && rate < 10.0, "{direction:?}: {rate} Mbit/s");
        assert!(first < second / 20, "{direction:?}: {carried:?}");
    }
}

/// The tables of both links, of which the second costs.
fn links_with_costs() -> String {
    let names = bond::interfaces(2);
    format!(
        "[[links]]\ninterface = {:?}\n[[links]]\ninterface = {:?}\ncost = 5\n",
        names[0], names[1]
    )
}

/// What is to be cheap goes by the link that costs less, by the other while that one is dark, and then by the first again.
#[test]
fn a_link_that_costs_is_spared_while_another_answers() {
    let config = format!("policy = \"cheap\"\n{}", links_with_costs());
    let radios = [radio(20, 20, 0.0), radio(20, 20, 0.0)];
    let load = Load::of(Direction::Download, Family::V4);
    let Some(mut scene) = Scene::configured(&config, radios, &load) else { return };
    let alone = scene.carries(Duration::from_secs(4));
    scene.bond.lab.radio.control.pause(Duration::from_secs(5));
    scene.run(Duration::from_secs(1));
    let dark = scene.carries(Duration::from_secs(3));
    wait_until("the link that was dark", PATIENCE, || scene.paths().iter().all(|(_, up)| *up));
    scene.run(Duration::from_secs(2));
    let back = scene.carries(Duration::from_secs(3));
    scene.end();
    // Whoever stands still for a moment is taken for dark, and the other carries it then.
    for [first, second] in [alone, back] {
        assert!(first > 1_000_000 && second < first / 4, "{alone:?}, {dark:?}, {back:?}");
    }
    assert!(dark[1] > 1_000_000 && dark[0] < dark[1] / 20, "{alone:?}, {dark:?}, {back:?}");
}

/// A link that has carried all that it may in a day carries nothing more, and nothing after a restart.
#[test]
fn a_link_carries_its_cap_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let (names, cap) = (bond::interfaces(2), 2 << 20);
    let config = format!(
        "state = {:?}\n[[links]]\ninterface = {:?}\n[[links]]\ninterface = {:?}\ncap = \"2MiB\"\n",
        directory.path(),
        names[0],
        names[1]
    );
    let mut used = Vec::new();
    for most in [2 * cap, cap / 8] {
        let load = Load::of(Direction::Download, Family::V4);
        let radios = [radio(20, 20, 0.0), radio(10, 20, 0.0)];
        let Some(mut scene) = Scene::configured(&config, radios, &load) else { return };
        let is_used_up = || scene.reports().get(1).is_some_and(|path| path.state == "used-up");
        wait_until("the cap", PATIENCE, is_used_up);
        scene.run(Duration::from_secs(1));
        let later = scene.carries(Duration::from_secs(2));
        let path = scene.reports().remove(1);
        scene.end();
        assert_eq!(path.cap, Some(cap));
        assert!(later[0] > 1_000_000 && later[1] < later[0] / 20, "{later:?}");
        assert!(path.bytes_sent + path.bytes_received < most, "{path:?}");
        used.push(path.used_today.unwrap());
    }
    assert!(used[0] >= cap && used[1] > used[0], "{used:?}");
}

/// The command's word counts at once for a connection that lasts, and until it is taken back.
#[test]
fn a_connection_goes_by_the_link_that_is_said_while_it_lasts() {
    let radios = [radio(20, 20, 0.0), radio(20, 40, 0.0)];
    let (links, how) = (bond::interfaces(2), (Direction::Download, Family::V4));
    let first = format!("only {}", links[0]);
    let Some(mut scene) = Scene::start_by(&first, radios, links, how) else { return };
    let configured = scene.carries(Duration::from_secs(2));
    assert_eq!(scene.policies(), [Some(first.clone())]);

    let said = |scene: &mut Scene, words: &[&str]| {
        scene.say(words);
        // What was on its way still comes.
        scene.run(Duration::from_secs(1));
        scene.carries(Duration::from_secs(2))
    };
    let port = format!(":{}", scene.bond.server_address().port());
    let set = said(&mut scene, &["set", &port, "only", "radio1"]);
    assert_eq!(scene.policies(), [Some("only radio1".to_owned())]);
    let listed = scene.say(&["list", "--json"]);
    let expected = format!(r#""kind":"said","of":"port {}","policy":"only radio1""#, &port[1..]);
    assert!(listed.contains(&expected), "{listed}");
    for (words, why) in [
        (&["set", &port, "only", "radio9"][..], "no link in [[links]] is called `radio9`"),
        (&["set", &port, "slow"], "`slow` is no policy"),
        (&["set", "999", "cheap"], "no connection has the number 999"),
    ] {
        let said = scene.refused(words);
        assert!(said.contains(why), "{words:?}: {said}");
    }
    let cleared = said(&mut scene, &["clear", &port]);
    assert_eq!(scene.policies(), [Some(first)]);
    scene.end();
    for (most, least) in
        [(configured[0], configured[1]), (set[1], set[0]), (cleared[0], cleared[1])]
    {
        assert!(most > 500_000 && least < most / 10, "{configured:?}, {set:?}, {cleared:?}");
    }
}

const ECHO: u16 = 7;
const DATAGRAM: usize = 200;

/// Datagrams that the mobile sends at a pace and the fixed host sends back.
struct Echo {
    mobile: UdpSocket,
    fixed: UdpSocket,
    sent: u64,
}

impl Echo {
    fn new(scene: &Scene) -> Self {
        let bind = |netns: &Netns, port| {
            let socket = netns.enter(|| UdpSocket::bind(("0.0.0.0", port)).unwrap()).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            socket
        };
        let lab = &scene.bond.lab;
        let echo = Self { mobile: bind(&lab.mobile, 0), fixed: bind(&lab.fixed, ECHO), sent: 0 };
        let server = lab.server_address(Family::V4).ip();
        echo.mobile.connect((server, ECHO)).unwrap();
        echo
    }

    /// The shares of so many that are lost on their way there, and back of those that were there.
    fn lose(&mut self, count: u64) -> [f64; 2] {
        let Self { mobile, fixed, sent } = self;
        let (over, first) = (Stop::default(), *sent);
        let [there, back] = [(); 2].map(|()| Mutex::new(HashSet::new()));
        let number = |datagram: &[u8]| u64::from_be_bytes(datagram[..8].try_into().unwrap());
        let take = |socket: &UdpSocket, heard: &Mutex<HashSet<u64>>, answer: bool| {
            let mut datagram = [0; 2 * DATAGRAM];
            while !over.is_set() {
                let Ok((DATAGRAM, from)) = socket.recv_from(&mut datagram) else { continue };
                heard.lock().unwrap().insert(number(&datagram));
                if answer {
                    let _ = socket.send_to(&datagram[..DATAGRAM], from);
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| take(fixed, &there, true));
            scope.spawn(|| take(mobile, &back, false));
            for _ in 0..count {
                let mut datagram = [0; DATAGRAM];
                datagram[..8].copy_from_slice(&sent.to_be_bytes());
                let _ = mobile.send(&datagram);
                *sent += 1;
                // Who was late does not hurry: a burst would be another thing to carry.
                thread::sleep(Duration::from_millis(4));
            }
            thread::sleep(Duration::from_secs(2));
            over.set();
        });
        let came = |heard: Mutex<HashSet<u64>>| {
            let heard = heard.into_inner().unwrap();
            heard.into_iter().filter(|n| *n >= first).count() as f64
        };
        let (there, back) = (came(there), came(back));
        [1.0 - there / count as f64, 1.0 - back / there.max(1.0)]
    }
}

/// Of packets that are sent once, by two links that lose a fifth each: what is redundant is lost where both lose it, both ways;
/// and what the command says of packets counts as well.
#[test]
fn what_goes_by_two_links_is_lost_where_both_lose_it() {
    let config = format!(
        "[[packets]]\nport = {ECHO}\nclass = \"once\"\n\
         [[policies]]\nport = {ECHO}\npolicy = \"redundant\"\n{}",
        links_with_costs()
    );
    let radios = [radio(20, 20, 0.2), radio(20, 20, 0.2)];
    let load = Load { transfers: Vec::new(), family: Family::V4, call: true };
    let Some(scene) = Scene::configured(&config, radios, &load) else { return };
    let mut echo = Echo::new(&scene);
    let mut lose = || {
        // The base is told what they are worth, and both ends know both links.
        echo.lose(500);
        echo.lose(1_500)
    };
    let twice = lose();
    scene.say(&["set", &format!(":{ECHO}"), "only", "radio1"]);
    let once = lose();
    assert!(twice.iter().all(|lost| *lost < 0.08), "{twice:?} and then {once:?}");
    assert!(once.iter().all(|lost| (0.15..0.25).contains(lost)), "{twice:?} and then {once:?}");
}

/// Where links are found by their default routes, one that comes later is used too.
#[test]
fn links_are_found() {
    let radios = [radio(20, 20, 0.0), radio(10, 20, 0.0)];
    let how = (Direction::Download, Family::V4);
    let Some(mut scene) = Scene::start(radios, vec!["auto".to_owned()], how) else { return };
    scene.run(Duration::from_secs(3));
    let both = scene.run(Duration::from_secs(3));
    let elsewhere =
        "link set dev radio1 down\nlink set dev radio1 name late0\nlink set dev late0 up\n";
    scene.bond.lab.mobile.ip(elsewhere).unwrap();
    let alone = scene.run(Duration::from_secs(3));
    let route = "route add default via 10.0.3.1 dev late0 metric 3000\n";
    scene.bond.lab.mobile.ip(route).unwrap();
    scene.run(Duration::from_secs(3));
    let later = scene.run(Duration::from_secs(3));
    let expected = [(RADIO, true), ("radio1", false), ("late0", true)];
    assert_eq!(scene.paths(), expected.map(|(name, answers)| (name.to_owned(), answers)));
    let received = scene.end();
    let got = [both, alone, later].map(|time| goodput(&received, time));
    assert!(got[0] > 22.0 && (13.0..21.0).contains(&got[1]) && got[2] > 22.0, "{got:?} Mbit/s");
}
