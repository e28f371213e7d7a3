//! Several workers are one base.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::world::{PATIENCE, World, echo_server, free_ports, is_reset, pattern, source};

const HOPS: [&str; 2] = ["srp", "mobile-tcp"];
const WORKERS: u64 = 3;
const MOBILES: usize = 7;

fn echo(stream: &mut TcpStream, sent: &[u8]) {
    let mut writer = stream.try_clone().unwrap();
    let data = sent.to_vec();
    let writing = std::thread::spawn(move || writer.write_all(&data).unwrap());
    let mut got = vec![0; sent.len()];
    stream.read_exact(&mut got).unwrap();
    writing.join().unwrap();
    assert!(got == sent, "bytes were lost, changed or doubled");
}

/// SCL-6: a mobile is served, and its servers are reached, whichever worker it has; status, numbers and the bound of
/// connections are of the whole base.
#[test]
fn several_workers_are_one_base() {
    for hop in HOPS {
        let doors: Vec<_> = free_ports::<MOBILES>().into_iter().zip(0..).collect();
        let more = format!("workers = {WORKERS}\nlimits.connections_total = {}\n", 2 * MOBILES);
        let world = World::start_with(hop, &more, MOBILES, MOBILES, &doors);
        world.await_mobiles(&[0, 1, 2, 3, 4, 5, 6]);
        let mut streams: Vec<_> = (0..MOBILES).map(|n| world.connect(n, echo_server())).collect();
        for (door, _) in &doors {
            let stream = TcpStream::connect(door).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            streams.push(stream);
        }
        let sent = pattern(200_000);
        streams.iter_mut().for_each(|stream| echo(stream, &sent));

        let report = world.report();
        // Their names tell the workers that gave them.
        let mut of_worker = [0; WORKERS as usize];
        report.associations.iter().for_each(|a| of_worker[(a.id % WORKERS) as usize] += 1);
        assert_eq!(of_worker, [3, 2, 2], "{hop}");
        let keys: BTreeSet<u64> = report.connections.iter().map(|c| c.key).collect();
        assert_eq!((report.connections.len(), keys.len()), (2 * MOBILES, 2 * MOBILES), "{hop}");
        assert_eq!(report.counters.opened, 2 * MOBILES as u64, "{hop}");
        assert_eq!(report.past, None, "nobody has asked");
        let carried = (2 * MOBILES * sent.len()) as u64;
        lasthop_testing::wait_until("what all have carried is remembered", PATIENCE, || {
            world.remembered().iter().all(|bytes| *bytes >= carried)
        });
        for n in 0..MOBILES {
            let Err(status) = world.try_connect(n, echo_server()) else {
                panic!("{hop}: there were as many as there may be");
            };
            assert!(status.contains("503"), "{hop}: {status}");
        }
    }
}

/// SCL-6: a base with workers reads its configuration again as one: who leaves is out, who comes finds a worker, and
/// nobody else notices.
#[test]
fn several_workers_read_the_configuration_again() {
    for hop in HOPS {
        let more = format!("workers = {WORKERS}\n");
        let world = World::start_with(hop, &more, MOBILES, 5, &[]);
        world.await_mobiles(&[0, 1, 2, 3, 4]);
        let (source, ends) = source();
        let mut leaving: Vec<_> = (0..3).map(|n| world.connect(n, source)).collect();
        leaving.iter_mut().for_each(|stream| stream.read_exact(&mut [0; 5000]).unwrap());
        let mut staying = [3, 4].map(|n| world.connect(n, echo_server()));
        staying.iter_mut().for_each(|stream| echo(stream, &pattern(10_000)));

        world.allow(&[3, 4, 5, 6]);
        let reloaded = world.reload().unwrap();
        assert_eq!((reloaded.added, reloaded.removed), (2, 3), "{hop}");
        for _ in 0..3 {
            assert!(is_reset(ends.recv_timeout(PATIENCE).unwrap()), "{hop}");
        }
        world.await_mobiles(&[3, 4, 5, 6]);
        staying.iter_mut().for_each(|stream| echo(stream, &pattern(10_000)));
        echo(&mut world.connect(6, echo_server()), &pattern(10_000));
    }
}

/// SCL-6: an address that another process has is not shared with it.
#[test]
fn workers_share_their_port_with_nobody_else() {
    let world = World::start_with("srp", "workers = 2\n", 1, 1, &[]);
    world.await_mobiles(&[0]);
    let text = std::fs::read_to_string(world.file()).unwrap();
    let taken = text.replace("127.0.0.1:0", &world.address);
    let Err(error) = World::bind(&taken) else { panic!("two bases have one port") };
    assert!(error.to_string().contains(&world.address), "{error}");
}
