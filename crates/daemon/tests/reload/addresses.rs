//! Mobiles have other addresses from a reload on.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::thread;

use lasthop_control::{Changes, Reloaded};
use lasthop_kernel::netns::{Netns, NetnsError};
use lasthop_migrate::helper;

use crate::world::{PATIENCE, Running, TARGETS, World};

const WORKERS: usize = 2;

fn loopback(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// Tells each client from where it comes, and then waits for its end.
fn mirror() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        while let Ok((mut stream, from)) = listener.accept() {
            thread::spawn(move || {
                let _ = stream.write_all(format!("{}\n", from.ip()).as_bytes());
                let _ = stream.read(&mut [0]);
            });
        }
    });
    at
}

/// A base with a helper that works for three addresses, in a network of its own.
struct Place {
    world: World,
    mirror: SocketAddr,
    /// What the file says beside `allow`.
    head: String,
    // Ends after the base.
    _helper: Running,
}

impl Place {
    fn start(path: PathBuf) -> Self {
        let addresses = [8, 9, 10].map(|last| loopback(last).into()).to_vec();
        let config = helper::Config { addresses, users: Vec::new() };
        let at = path.clone();
        let helper = Running::start(move |stop| helper::serve_path(&at, &config, stop).unwrap());
        lasthop_testing::wait_until("a helper", PATIENCE, || path.exists());
        let more = format!(
            "workers = {WORKERS}\nfleet = \"members.toml\"\n\
             handoff = {{ mode = \"migrate\", helper = {path:?}, listen = [\"127.0.0.1:0\"] }}\n"
        );
        let world = World::start_with("srp", &more, 2, 1, &[]);
        world.await_mobiles(&[0]);
        let head = world.head.clone();
        Self { world, mirror: mirror(), head, _helper: helper }
    }

    /// These mobiles have these addresses, and both are served.
    fn write(&self, addresses: &[(usize, u8)]) {
        let keys = self.world.mobiles.iter().map(|mobile| &mobile.key).collect::<Vec<_>>();
        let mobiles: String = addresses
            .iter()
            .map(|(n, last)| {
                format!("{{ key = {:?}, address = [\"{}\"] }}, ", keys[*n], loopback(*last))
            })
            .collect();
        let text = format!("{}allow = {keys:?}\nmobiles = [{mobiles}]\n{TARGETS}", self.head);
        std::fs::write(self.world.file(), text).unwrap();
    }

    fn reload(&self, addresses: &[(usize, u8)]) -> Reloaded {
        self.write(addresses);
        self.world.reload().unwrap()
    }

    /// Another connection of a mobile's, and from where it leaves.
    fn connect(&self, mobile: usize) -> (std::net::TcpStream, IpAddr) {
        let mut stream = self.world.connect(mobile, self.mirror);
        let mut told = Vec::new();
        while !told.ends_with(b"\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            told.push(byte[0]);
        }
        (stream, String::from_utf8(told).unwrap().trim().parse().unwrap())
    }
}

/// FLT-1, FLT-3, FLT-4, SEC-30, SCL-6: whichever worker has a mobile, its connections leave from the address that it has by a reload; with one that it
/// has not any more they end, and what the helper was not started for nobody has.
#[test]
fn a_mobile_has_other_addresses_from_a_reload_on() {
    let Some(netns) = lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable)
    else {
        return;
    };
    netns.ip("link set lo up\n").unwrap();
    let dir = std::env::temp_dir().join(format!("lasthop-addresses-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    netns
        .enter(|| {
            let place = Place::start(dir.join("helper.sock"));
            let world = &place.world;
            let (mut own, from) = place.connect(0);
            assert_eq!(from, loopback(1));
            // One that is new has an address; one that was there has one too.
            let reloaded = place.reload(&[(0, 8), (1, 9)]);
            let addresses = Changes { added: 2, ..Changes::default() };
            assert_eq!(reloaded, Reloaded { added: 1, addresses, ..Reloaded::default() });
            world.await_mobiles(&[0, 1]);
            let (mut first, from) = place.connect(0);
            assert_eq!(from, loopback(8));
            let (mut second, from) = place.connect(1);
            assert_eq!(from, loopback(9));

            // A file that is wrong changes nothing.
            place.write(&[(0, 8), (1, 8)]);
            let why = world.reload().unwrap_err();
            assert!(why.contains("127.0.0.8 is another mobile's"), "{why}");
            assert!(why.contains("base.toml"), "{why}");

            // Another address: connections from the one before end, and nobody else's.
            let reloaded = place.reload(&[(0, 8), (1, 10)]);
            let addresses = Changes { added: 1, removed: 1, changed: 0 };
            let anew = Reloaded { added: 1, removed: 1, addresses, ..Reloaded::default() };
            assert_eq!(reloaded, anew);
            assert_eq!(second.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
            world.await_mobiles(&[0, 1]);
            let (_, from) = place.connect(1);
            assert_eq!(from, loopback(10));

            // The helper was not started for it.
            place.reload(&[(0, 8), (1, 11)]);
            world.await_mobiles(&[0, 1]);
            assert!(world.try_connect(1, place.mirror).is_err());
            let (_, from) = place.connect(0);
            assert_eq!(from, loopback(8));

            place.reload(&[(0, 8)]);
            world.await_mobiles(&[0, 1]);
            assert_eq!(place.connect(1).1, loopback(1));
            for stream in [&mut own, &mut first] {
                stream.set_nonblocking(true).unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            }
        })
        .unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}
