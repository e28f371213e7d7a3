//! Servers on the mobile, reached by fixed hosts through the base (MOB-8).

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lasthop_daemon::config::{HopKind, SealKind};

use crate::harness::{
    self, PATIENCE, Pair, Setting, closed_port, echo_server, free_port, pattern, read_all,
    serve_once,
};

/// Every hop, and Mobile TCP both ways that it goes.
fn with_each(test: impl Fn(Setting)) {
    test(Setting::new(HopKind::Srp));
    test(Setting::new(HopKind::MobileTcp));
    test(Setting { seal: SealKind::None, ..Setting::new(HopKind::MobileTcp) });
    test(Setting::new(HopKind::SplitTcp));
}

/// A pair whose mobile serves `server`, and where a fixed host reaches it once the mobile is here.
fn serving(setting: &Setting, server: Option<SocketAddr>, ipv6: bool) -> (Pair, SocketAddr) {
    let door = free_port(ipv6);
    let pair = Pair::start(Setting { published: vec![(door, server)], ..setting.clone() });
    // Something of the mobile's own has crossed: by then the base knows it, and its ports.
    drop(pair.connect(echo_server()));
    harness::wait_until("the door opens", || TcpStream::connect(door).is_ok());
    (pair, door)
}

/// MOB-8, MHP-6
#[test]
fn a_fixed_host_reaches_a_server_on_the_mobile_and_half_closes() {
    with_each(|setting| {
        for ipv6 in [false, true] {
            let (_pair, door) = serving(&setting, Some(echo_server()), ipv6);
            let mut client = TcpStream::connect(door).unwrap();
            let sent = pattern(500_000);
            let mut writer = client.try_clone().unwrap();
            let data = sent.clone();
            let sending = thread::spawn(move || {
                writer.write_all(&data).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            assert!(read_all(&mut client) == sent, "{:?}", setting.hop);
            sending.join().unwrap();
        }
    });
}

#[test]
fn a_server_on_the_mobile_may_speak_first_and_end_first() {
    with_each(|setting| {
        let server = harness::serve_all(|mut stream| {
            stream.write_all(b"hello").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let (_pair, door) = serving(&setting, Some(server), false);
        let mut client = TcpStream::connect(door).unwrap();
        assert_eq!(read_all(&mut client), b"hello");
        client.write_all(b"still heard").unwrap();
    });
}

/// What reading a connection that must be reset comes to.
fn is_reset(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let result = stream.read_to_end(&mut Vec::new());
    matches!(&result, Err(e) if e.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn resets_pass_both_ways() {
    with_each(|setting| {
        let server = harness::serve_all(|mut stream| {
            let _ = stream.read(&mut [0]);
            harness::reset(&stream);
        });
        let (_pair, door) = serving(&setting, Some(server), false);
        let mut client = TcpStream::connect(door).unwrap();
        client.write_all(b"x").unwrap();
        assert!(is_reset(&mut client), "{:?}", setting.hop);

        let (tell, told) = mpsc::channel();
        let server = harness::serve_all(move |mut stream| {
            // The probe that waited for the door has nothing to say.
            if matches!(stream.read(&mut [0]), Ok(1)) {
                let _ = tell.send(false);
                let _ = tell.send(is_reset(&mut stream));
            }
        });
        let (_pair, door) = serving(&setting, Some(server), false);
        let mut client = TcpStream::connect(door).unwrap();
        client.write_all(b"x").unwrap();
        // Until it has arrived, a reset would be all that the mobile gets of it.
        assert!(!told.recv_timeout(PATIENCE).unwrap());
        harness::reset(&client);
        drop(client);
        assert!(told.recv_timeout(PATIENCE).unwrap(), "{:?}", setting.hop);
    });
}

/// MOB-8: a port that the mobile does not serve, or whose server is not there, is no connection.
#[test]
fn what_the_mobile_does_not_serve_is_reset() {
    with_each(|setting| {
        for server in [None, Some(closed_port())] {
            let (_pair, door) = serving(&setting, server, false);
            let mut client = TcpStream::connect(door).unwrap();
            assert!(is_reset(&mut client), "{:?}", setting.hop);
        }
    });
}

/// MOB-9: the base has accepted, and then the mobile is gone.
#[test]
fn when_the_mobile_goes_the_fixed_host_is_reset_and_the_door_shuts() {
    with_each(|setting| {
        let (mut pair, door) = serving(&setting, Some(echo_server()), false);
        let mut client = TcpStream::connect(door).unwrap();
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        pair.stop_mobile();
        assert!(is_reset(&mut client), "{:?}", setting.hop);
        pair.join_mobile();
        harness::wait_until("the door is shut", || TcpStream::connect(door).is_err());
    });
}

#[test]
fn before_the_mobile_has_come_the_door_is_shut() {
    let door = free_port(false);
    let setting = Setting::new(HopKind::Srp);
    let published = vec![(door, Some(serve_once(drop)))];
    let _pair = Pair::start(Setting { allow_mobile: false, published, ..setting });
    thread::sleep(Duration::from_millis(300));
    let refused = TcpStream::connect(door).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}
