//! `lasthop base` at each base and `lasthop mobile` at the mobile.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub use lasthop_daemon::base::Mode;
use lasthop_kernel::netns::Netns;
use lasthop_units::Duration;
use rustix::process::{Pid, Signal, kill_process};

use super::{BASES, Roam, WIRED, base_address, hop_address, index, own_address};
use super::{peer_address, radios};
use crate::client::Via;
use crate::error::LabError;
use crate::folder::Folder;
use crate::key::{Key, Secret};
use crate::process::{self, Daemon};
use crate::scheme::{PACKET_ADDRESSES, PACKET_ROUTERS, packet_settings};
use crate::topology::Family;
use crate::wait::{wait_for, wait_for_listener};

const PROXY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);

/// How the way to the mobile's own address follows it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Routing {
    /// The base that has it tells its neighbours on the segment.
    #[default]
    Announce,
    /// A base that has it no more leads it to the base that has it.
    Route,
    /// A command of the operator.
    Hook(Vec<String>),
}

/// What the bases do about handoffs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Handoff {
    /// What becomes of wired connections.
    pub mode: Mode,
    /// How the mobile's own address follows it.
    pub routing: Routing,
    /// Bases that no other base knows as one; numbers from 1 on.
    pub strangers: Vec<usize>,
    /// What becomes of a connection that cannot be moved, in the command's own word.
    pub fallback: Option<String>,
    /// Each base has a helper that is a process of its own, to be killed and started again.
    pub helpers: bool,
    /// Bases take over from one that is dead.
    pub takes_over: bool,
}

/// How the processes are started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// What crosses the hop, in the command's own word.
    pub hop: String,
    /// By which addresses mobile, bases and server meet.
    pub family: Family,
    /// The mobile intercepts what its own programs send, too.
    pub transparent: bool,
    /// Handoffs between three bases; none: there is the first base only.
    pub handoff: Option<Handoff>,
    /// Packets that are not TCP's go too, by TUN devices. Each base masquerades them; where connections migrate, they are the
    /// mobile's own address's, and follow it.
    pub packets: bool,
    /// The mobile's radios are links that it uses together, each of which leads to its base.
    pub links: bool,
    /// Fixed hosts are acknowledged what the mobile has, where it has addresses of its own.
    pub acknowledge: bool,
    /// The mobile's file names the first base alone, and no radio; it learns of the others.
    pub learns: bool,
    /// What a process says is logged, in the command's own words (`debug`).
    pub log: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hop: "srp".into(),
            family: Family::V4,
            transparent: false,
            handoff: Some(Handoff::default()),
            packets: false,
            links: false,
            acknowledge: false,
            learns: false,
            log: None,
        }
    }
}

/// The processes, until this is dropped.
///
/// They end with the thread that started them at the latest.
#[derive(Debug)]
pub struct Fleet {
    // First: a base waits for mobiles to leave.
    mobile: Option<Daemon>,
    bases: Vec<Option<Daemon>>,
    helpers: Vec<Option<Daemon>>,
    files: Vec<PathBuf>,
    program: PathBuf,
    settings: Settings,
    hosts: Vec<Netns>,
    at_mobile: Netns,
    keys: Keys,
    // Removed last: the processes read it.
    folder: Folder,
}

#[derive(Debug)]
struct Keys {
    bases: Vec<Key>,
    mobile: Key,
    /// A mobile that never comes.
    other: Key,
    /// What any two of them share.
    psk: Secret,
}

impl Fleet {
    /// Starts them in `roam`, from the `lasthop` command at `program`.
    ///
    /// # Errors
    ///
    /// A process ended, or was not ready within `patience`.
    pub fn start(
        roam: &Roam,
        settings: &Settings,
        program: &Path,
        patience: Duration,
    ) -> Result<Self, LabError> {
        let folder = Folder::new()?;
        let count = if settings.handoff.is_some() { BASES } else { 1 };
        let bases = (0..count).map(|_| Key::generate()).collect::<Result<_, _>>()?;
        let keys = Keys {
            bases,
            mobile: Key::generate()?,
            other: Key::generate()?,
            psk: Secret::preshared()?,
        };
        let mut fleet = Self {
            bases: Vec::new(),
            helpers: (0..count).map(|_| None).collect(),
            mobile: None,
            files: Vec::new(),
            program: program.to_owned(),
            settings: settings.clone(),
            hosts: roam.bases.to_vec(),
            at_mobile: roam.mobile.clone(),
            keys,
            folder,
        };
        for number in 1..=count {
            let file =
                fleet.folder.write(&format!("base{number}.toml"), &fleet.base_file(number))?;
            fleet.files.push(file);
            fleet.bases.push(None);
            if fleet.has_helpers() {
                fleet.start_helper(number, patience)?;
            }
            fleet.start_base(number)?;
        }
        fleet.start_mobile()?;
        let (mobile, what) = (&roam.mobile, "the start of bases and mobile");
        wait_for_listener(mobile, PROXY, patience, what, || fleet.check())?;
        for number in 1..=count {
            wait_for(patience, "the start of a base", || {
                fleet.check()?;
                Ok(fleet.base_said(number).contains("serving mobiles").then_some(()))
            })?;
        }
        Ok(fleet)
    }

    fn base_file(&self, number: usize) -> String {
        let Settings { hop, family, handoff, .. } = &self.settings;
        let Keys { bases, mobile, other, psk } = &self.keys;
        let psk = psk.path();
        let of_mobile = match self.settings.learns {
            // With a base of which it learns it shares nothing.
            true => format!("\"{}\"", mobile.public),
            false => format!("{{ key = \"{}\", psk = {psk:?} }}", mobile.public),
        };
        let mut allow = [of_mobile, format!("\"{}\"", other.public)];
        // The mobile has one worker here and another there.
        allow.rotate_left(number % 2);
        let mut text = format!(
            "listen = [\"{}\"]\nkey = {:?}\nallow = [{}]\nhop = \"{hop}\"\ncontrol = {:?}\n",
            hop_address(*family, number),
            bases[index(number)].secret.path(),
            allow.join(", "),
            self.control_of_base(number),
        );
        if hop != "split-tcp" {
            text += "workers = 2\n";
        }
        if self.settings.packets {
            text += &match self.own_addresses() {
                Some(_) => format!("[tun]\naddress = {PACKET_ROUTERS:?}\n"),
                None => packet_settings(&mobile.public, "masquerade = true\n"),
            };
        }
        let Some(handoff) = handoff else { return text };
        let _ = write!(
            text,
            "[handoff]\nmode = \"{}\"\nlisten = [\"{}\"]\n",
            handoff.mode,
            peer_address(*family, number)
        );
        if let Some(fallback) = &handoff.fallback {
            let _ = writeln!(text, "fallback = \"{fallback}\"");
        }
        if handoff.takes_over {
            let _ = writeln!(text, "fleet_keys = [{psk:?}]");
        }
        if handoff.helpers {
            let _ = writeln!(text, "helper = {:?}", self.helper_socket(number));
        }
        if handoff.mode == Mode::Migrate {
            let _ = writeln!(text, "{}", routing(&handoff.routing));
        }
        let is_known = |peer: &usize| !handoff.strangers.contains(peer);
        for peer in (1..=BASES).filter(|peer| *peer != number && is_known(peer)) {
            let _ = write!(
                text,
                "[[peers]]\nname = \"b{peer}\"\nkey = \"{}\"\npsk = {psk:?}\naddress = \"{}\"\nvia = \"{}\"\n",
                bases[index(peer)].public,
                peer_address(*family, peer),
                base_address(*family, peer),
            );
        }
        if let Some(own) = self.own_addresses() {
            let _ = write!(text, "[[mobiles]]\nkey = \"{}\"\naddress = {own:?}\n", mobile.public);
            if self.settings.acknowledge {
                let _ = writeln!(text, "acknowledge = \"mobile\"");
            }
        }
        text
    }

    /// The mobile's own addresses, where it has some.
    fn own_addresses(&self) -> Option<[String; 2]> {
        let migrates = self.settings.handoff.as_ref().is_some_and(|of| of.mode == Mode::Migrate);
        migrates.then(|| Family::ALL.map(|family| own_address(family).to_string()))
    }

    fn mobile_file(&self) -> String {
        let Settings { hop, family, transparent, handoff, .. } = &self.settings;
        let psk = self.keys.psk.path();
        let mut text = format!(
            "key = {:?}\nproxy = [\"{PROXY}\"]\nhop = \"{hop}\"\ncontrol = {:?}\n",
            self.keys.mobile.secret.path(),
            self.control(),
        );
        if self.settings.learns {
            let (address, public) = (hop_address(*family, 1), &self.keys.bases[0].public);
            let _ = write!(
                text,
                "[[bases]]\nname = \"b1\"\naddress = \"{address}\"\nkey = \"{public}\"\n"
            );
        }
        let named = if self.settings.learns { 0 } else { BASES };
        for (number, Key { public, .. }) in (1..).zip(&self.keys.bases).take(named) {
            let address = hop_address(*family, number);
            let _ = match handoff {
                None => {
                    write!(text, "base = \"{address}\"\nbase_key = \"{public}\"\npsk = {psk:?}\n")
                }
                Some(_) => write!(
                    text,
                    "[[bases]]\nname = \"b{number}\"\naddress = \"{address}\"\n\
                     key = \"{public}\"\npsk = {psk:?}\n",
                ),
            };
            let radio = radios::name(number);
            let _ = match (handoff, self.settings.links) {
                (None, _) => Ok(()),
                (Some(_), false) => writeln!(text, "interface = \"{radio}\""),
                (Some(_), true) => {
                    writeln!(text, "[[links]]\ninterface = \"{radio}\"\nbase = \"b{number}\"")
                }
            };
        }
        if self.settings.packets {
            let of_packets = || PACKET_ADDRESSES.map(str::to_owned);
            let addresses = self.own_addresses().unwrap_or_else(of_packets);
            let _ = writeln!(text, "[tun]\naddress = {addresses:?}");
        }
        if *transparent {
            text.push_str("[transparent]\nhost = true\n");
        }
        text
    }

    /// Starts base `number`, or starts it again after [`kill_base`](Self::kill_base).
    ///
    /// # Errors
    ///
    /// It could not be started.
    pub fn start_base(&mut self, number: usize) -> Result<(), LabError> {
        let at = index(number);
        self.bases[at] = Some(self.spawn(&self.hosts[at], "base", &self.files[at])?);
        Ok(())
    }

    fn has_helpers(&self) -> bool {
        self.settings.handoff.as_ref().is_some_and(|handoff| handoff.helpers)
    }

    fn helper_socket(&self, number: usize) -> PathBuf {
        self.folder.path(&format!("helper{number}.sock"))
    }

    /// Starts the helper of base `number`, or starts it again, and waits until it serves.
    ///
    /// # Errors
    ///
    /// It could not be started, or does not serve within `patience`.
    pub fn start_helper(&mut self, number: usize, patience: Duration) -> Result<(), LabError> {
        let (socket, at) = (self.helper_socket(number), index(number));
        let mut command = self.hosts[at].command(&self.program);
        command.arg("helper").arg("--socket").arg(&socket).env("NO_COLOR", "1");
        for family in Family::ALL {
            command.args(["--address", &own_address(family).to_string()]);
        }
        // One that was killed leaves its socket, which nobody serves.
        let _ = fs::remove_file(&socket);
        let mut helper = Daemon::spawn(command)?;
        wait_for(patience, "the start of a helper", || {
            helper.check().map(|()| socket.exists().then_some(()))
        })?;
        self.helpers[at] = Some(helper);
        Ok(())
    }

    /// Kills the helper of base `number` without a word to anybody.
    pub fn kill_helper(&mut self, number: usize) {
        if let Some(mut helper) = self.helpers[index(number)].take() {
            helper.kill();
        }
    }

    /// Ends the helper of base `number` in good order: it takes back what it did.
    pub fn stop_helper(&mut self, number: usize) {
        self.helpers[index(number)].take();
    }

    /// Stops the helper of base `number` where it is, or has it go on: it does not answer meanwhile.
    pub fn pause_helper(&mut self, number: usize, pause: bool) {
        if let Some(helper) = &mut self.helpers[index(number)] {
            if pause { helper.pause() } else { helper.go_on() }
        }
    }

    /// Kills the helper that base `number` has started itself.
    pub fn kill_own_helper(&self, number: usize) {
        let Some(base) = self.base(number) else { return };
        // It is the child of whichever thread has started it.
        let threads = fs::read_dir(format!("/proc/{}/task", base.id())).into_iter().flatten();
        let children = threads.flatten().map(|thread| thread.path().join("children"));
        let children: String = children.filter_map(|path| fs::read_to_string(path).ok()).collect();
        for child in children.split_ascii_whitespace() {
            if let Some(pid) = child.parse().ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    fn start_mobile(&mut self) -> Result<(), LabError> {
        let file = self.folder.write("mobile.toml", &self.mobile_file())?;
        self.mobile = Some(self.spawn(&self.at_mobile, "mobile", &file)?);
        Ok(())
    }

    fn spawn(&self, host: &Netns, role: &str, file: &Path) -> Result<Daemon, LabError> {
        let mut command = host.command(&self.program);
        command.arg(role).arg("--config").arg(file).env("NO_COLOR", "1");
        if let Some(log) = &self.settings.log {
            command.args(["--log", log]);
        }
        Daemon::spawn(command)
    }

    /// Kills base `number` without a word to anybody.
    pub fn kill_base(&mut self, number: usize) {
        if let Some(mut base) = self.bases[index(number)].take() {
            base.kill();
        }
    }

    /// Asks base `number` to end.
    pub fn ask_base_to_end(&mut self, number: usize) {
        self.bases[index(number)].iter_mut().for_each(Daemon::ask_to_end);
    }

    /// Asks base `number` to end, once, and waits.
    ///
    /// # Errors
    ///
    /// It did not end within `patience`, or not in good order.
    pub fn end_base(&mut self, number: usize, patience: Duration) -> Result<(), LabError> {
        self.ask_base_to_end(number);
        let Some(base) = &mut self.bases[index(number)] else { return Ok(()) };
        wait_for(patience, "the end of a base", || base.ended())?;
        self.bases[index(number)] = None;
        Ok(())
    }

    fn base(&self, number: usize) -> Option<&Daemon> {
        self.bases.get(index(number))?.as_ref()
    }

    /// The processes that run, each behind those that it needs: `helper1`, `base1`, `mobile` and the like, and
    /// the number of each.
    pub fn processes(&self) -> impl Iterator<Item = (String, u32)> {
        self.daemons().map(|(name, daemon)| (name, daemon.id()))
    }

    /// The last that base `number` said.
    pub fn base_said(&self, number: usize) -> String {
        self.base(number).map(Daemon::said).unwrap_or_default()
    }

    /// The last that the mobile said.
    pub fn mobile_said(&self) -> String {
        self.mobile.as_ref().map(Daemon::said).unwrap_or_default()
    }

    /// When base `number` first said something with `text` in it, from `moment` on.
    pub fn base_said_at(&self, number: usize, moment: Instant, text: &str) -> Option<Instant> {
        self.base(number)?.said_at(moment, text)
    }

    /// When the mobile did.
    pub fn mobile_said_at(&self, moment: Instant, text: &str) -> Option<Instant> {
        self.mobile.as_ref()?.said_at(moment, text)
    }

    /// The last that every process said.
    pub fn said(&self) -> String {
        let words = |(name, daemon): (String, &Daemon)| format!("{name}:\n{}\n", daemon.said());
        self.daemons().map(words).collect()
    }

    /// The processes that run and their names, in the order of [`processes`](Self::processes).
    fn daemons(&self) -> impl Iterator<Item = (String, &Daemon)> {
        let helpers = numbered("helper", &self.helpers);
        let mobile = self.mobile.as_ref().map(|mobile| ("mobile".to_owned(), mobile));
        helpers.chain(numbered("base", &self.bases)).chain(mobile)
    }

    /// The mobile's control socket.
    pub fn control(&self) -> PathBuf {
        self.folder.path("mobile.sock")
    }

    /// The control socket of base `number`.
    pub fn control_of_base(&self, number: usize) -> PathBuf {
        self.folder.path(&format!("base{number}.sock"))
    }

    /// Runs a command that speaks to the mobile, such as `handoff --to b2`, and returns what it
    /// printed.
    ///
    /// # Errors
    ///
    /// [`LabError::Ended`] with what it said if it failed.
    pub fn ask(&self, args: &[&str]) -> Result<String, LabError> {
        let mut command = self.at_mobile.command(&self.program);
        command.args(args).arg("--control").arg(self.control());
        process::run(command)
    }

    /// Runs a command that speaks to base `number`, such as `status`, and returns what it printed.
    ///
    /// # Errors
    ///
    /// [`LabError::Ended`] with what it said if it failed.
    pub fn ask_base(&self, number: usize, args: &[&str]) -> Result<String, LabError> {
        let mut command = self.hosts[index(number)].command(&self.program);
        command.args(args).arg("--control").arg(self.control_of_base(number));
        process::run(command)
    }

    /// How a client at the mobile uses it.
    pub fn via(&self) -> Via {
        Via::Socks5(PROXY)
    }

    /// Whether everything that was not killed still runs.
    ///
    /// # Errors
    ///
    /// [`LabError::Ended`] with the last words of what does not.
    pub fn check(&mut self) -> Result<(), LabError> {
        let all = self.bases.iter_mut().chain(&mut self.helpers).chain([&mut self.mobile]);
        all.flatten().try_for_each(Daemon::check)
    }
}

/// Those that run.
fn numbered<'a>(
    name: &'static str,
    all: &'a [Option<Daemon>],
) -> impl Iterator<Item = (String, &'a Daemon)> {
    let all = (1..).zip(all);
    all.filter_map(move |(n, one): (usize, _)| Some((format!("{name}{n}"), one.as_ref()?)))
}

fn routing(routing: &Routing) -> String {
    match routing {
        Routing::Announce => format!("route = \"announce\"\ninterface = \"{WIRED}\""),
        Routing::Route => format!("route = \"route\"\ninterface = \"{WIRED}\""),
        Routing::Hook(command) => {
            let words: Vec<String> = command.iter().map(|word| format!("{word:?}")).collect();
            format!("route = \"hook\"\nhook = [{}]", words.join(", "))
        }
    }
}
