use lasthop_hop::seal::Keypair;
use lasthop_kernel::netns::{Netns, NetnsError};
use lasthop_kernel::stop::Stop;
use lasthop_migrate::Worker;
use lasthop_units::Seed;

use super::*;
use crate::base::mobiles::Addresses;
use crate::base::source_addresses::SourceAddresses;
use crate::base::{Base, BaseFile};
use crate::keyfile::{self, Existing};

/// A base in a namespace and a folder of its own, where mobiles are announced on the loopback interface.
/// What another one bound may be held for a moment by a process that some other test starts: a child has
/// its parent's sockets until it executes its program.
fn base(forwarding: &str, fallback: &str) -> Option<Result<Base, RunError>> {
    let netns = lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable)?;
    netns.sysctl("ipv4.conf.lo.forwarding", forwarding).unwrap();
    let name = format!("lasthop-unrouted-{}-{forwarding}-{fallback}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let keys = keyfile::generate().unwrap();
    let (mobile, peer) = (keyfile::generate().unwrap(), keyfile::generate().unwrap());
    let key = folder.join("base.key");
    keyfile::store(&key, &keys, Existing::Replace).unwrap();
    let text = format!(
        "key = \"{}\"\nallow = [\"{mobile}\"]\nlisten = [\"127.0.0.1:4433\"]\n\
         control = \"{}\"\n\
         [handoff]\nmode = \"migrate\"\nroute = \"announce\"\ninterface = \"lo\"\n\
         fallback = \"{fallback}\"\nlisten = [\"127.0.0.1:4434\"]\n\
         [[peers]]\nkey = \"{}\"\naddress = \"127.0.0.2:4434\"\n\
         [[mobiles]]\nkey = \"{mobile}\"\naddress = [\"10.9.0.7\"]\n",
        key.display(),
        folder.join("base.sock").display(),
        peer.public(),
        mobile = mobile.public(),
    );
    let file: BaseFile = toml::from_str(&text).unwrap();
    let config: BaseConfig = file.try_into().unwrap();
    let made = netns.enter(|| Base::bind(config)).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    Some(made)
}

/// SEC-8: a base that gives a session gives no socket of somebody else's address with it.
#[test]
fn a_connection_whose_address_is_not_the_mobiles_is_not_made() {
    let Some(netns) = lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable)
    else {
        return;
    };
    netns.ip("link set lo up\n").unwrap();
    let path = std::env::temp_dir().join(format!("lasthop-foreign-{}", std::process::id()));
    let [own, other] = ["127.0.0.1", "127.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
    let stop = Stop::new().unwrap();
    let (of_helper, stops, at) = (netns.clone(), stop.clone(), path.clone());
    let helper = std::thread::spawn(move || {
        let addresses = vec![own.into(), other.into()];
        let config = migrate::helper::Config { addresses, users: Vec::new() };
        of_helper.enter(|| migrate::helper::serve_path(&at, &config, &stops)).unwrap()
    });
    netns
        .enter(|| {
            let mut helped = None;
            let answers = || {
                helped = Admin::connect(&path).ok();
                helped.is_some()
            };
            let patience = std::time::Duration::from_secs(30);
            lasthop_testing::wait_or(patience, answers, || "no helper".to_owned());
            let mut admin = helped.unwrap();
            migrate::probe(&mut admin, own).unwrap();
            let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let socket = std::net::TcpStream::connect(host.local_addr().unwrap()).unwrap();
            let _fixed_host = host.accept().unwrap();
            let image = migrate::dump_all(&mut admin, vec![socket.into()]).pop().unwrap();
            let Dumped::Image(image) = image.map_err(|failed| failed.error).unwrap() else {
                panic!("it is a connection");
            };
            let worker = Worker::start(admin).unwrap();
            let [its, another] = [1, 2].map(|n| *Keypair::generate(Seed::from_u64(n)).public());
            let of = |own| {
                let sources = SourceAddresses::new(vec![own], Vec::new());
                Addresses { sources, ..Addresses::default() }
            };
            let book = BTreeMap::from([(its, of(own)), (another, of(other))]);
            let mobiles = Mobiles::default().with(book);
            let mut migration = Migration {
                helper: worker.handle().clone(),
                routing: Routing::new(RouteMode::None, None, vec![]).unwrap(),
                mobiles: Arc::new(mobiles),
                here: BTreeSet::new(),
                whole: BTreeMap::new(),
                leaving: BTreeMap::new(),
                dumping: VecDeque::new(),
            };
            let mut restored = |mobile, images| {
                migration.restore(SessionId(7), mobile, images);
                let (mut done, start) = (None, std::time::Instant::now());
                while done.is_none() && start.elapsed() < patience {
                    done = worker.poll();
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                let Some(Done::Restored(SessionId(7), made)) = done else {
                    panic!("nothing was made: {done:?}");
                };
                made
            };
            let image = image.encode();
            for refused in restored(another, vec![image.clone(), image.clone()]) {
                let why = refused.map(drop).unwrap_err();
                assert_eq!(why, "its address is not one of the mobile's");
            }
            assert!(restored(its, vec![image])[0].is_ok());
        })
        .unwrap();
    stop.request();
    helper.join().unwrap().unwrap();
}

#[test]
fn what_cannot_be_announced_keeps_a_base_from_starting_that_has_nothing_else() {
    let Some(bound) = base("0", "reset") else {
        return;
    };
    let Err(refused) = bound else {
        panic!("it binds connections to addresses that nobody finds");
    };
    let refused = refused.to_string();
    for said in ["net.ipv4.conf.lo.forwarding to 1", "10.9.0.7", "reset"] {
        assert!(refused.contains(said), "{refused}");
    }
    // Connections leave from the base's own address.
    base("0", "anchor").unwrap().unwrap();
    base("1", "reset").unwrap().unwrap();
}
