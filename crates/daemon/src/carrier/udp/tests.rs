use std::collections::VecDeque;

use lasthop_kernel::reactor::Reactor;
use lasthop_kernel::slab::Slab;

use super::*;

fn loopback() -> Udp {
    Udp::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap()
}

fn send_all(udp: &mut Udp, route: carrier::Route, datagrams: &[Vec<u8>]) {
    let mut waiting: VecDeque<_> = datagrams.iter().collect();
    let mut reactor = Reactor::new().unwrap();
    let mut turn = Turn::new(Time::ZERO, Clock::start(), &mut reactor);
    udp.send(&mut turn, &mut |out| {
        let datagram = waiting.pop_front()?;
        out[..datagram.len()].copy_from_slice(datagram);
        Some((route, datagram.len()))
    });
    assert!(waiting.is_empty());
}

fn receive_count(udp: &mut Udp, count: usize) -> Vec<Vec<u8>> {
    let mut reactor = Reactor::new().unwrap();
    let clock = Clock::start();
    let mut turn = Turn::new(Time::ZERO, clock, &mut reactor);
    let key = Slab::new().insert(());
    udp.watch(&mut turn, &mut |_| key).unwrap();
    let (mut got, mut ready) = (Vec::new(), Vec::new());
    while got.len() < count {
        reactor.wait(Some(Duration::from_secs(5)), &mut ready).unwrap();
        assert!(!ready.is_empty(), "{} of {count} came", got.len());
        let mut turn = Turn::new(Time::ZERO, clock, &mut reactor);
        udp.ready(&mut turn, 0, ready[0].1);
        udp.receive(&clock, &mut |_, _, datagram| got.push(datagram.to_vec()));
    }
    got
}

#[test]
fn datagrams_of_all_lengths_arrive_as_they_were_sent() {
    let (mut a, mut b) = (loopback(), loopback());
    let lengths = [1200, 1200, 1200, 700, 1200, 1, 1400, 1400, 9000, 20, 20];
    let datagrams: Vec<Vec<u8>> =
        lengths.iter().enumerate().map(|(i, len)| vec![i as u8; *len]).collect();
    let route = a.route_to(b.places()[0].parse().unwrap()).unwrap();
    send_all(&mut a, route, &datagrams);
    assert_eq!(receive_count(&mut b, datagrams.len()), datagrams);
}

#[test]
fn a_datagram_that_waited_came_when_it_came() {
    let (mut a, mut b) = (loopback(), loopback());
    let (mut reactor, clock) = (Reactor::new().unwrap(), Clock::start());
    let key = Slab::new().insert(());
    b.watch(&mut Turn::new(Time::ZERO, clock, &mut reactor), &mut |_| key).unwrap();
    let route = a.route_to(b.places()[0].parse().unwrap()).unwrap();
    send_all(&mut a, route, &[vec![1; 100]]);
    let sent = clock.now();
    std::thread::sleep(Duration::from_millis(50));
    let mut ready = Vec::new();
    reactor.wait(Some(Duration::from_secs(5)), &mut ready).unwrap();
    b.ready(&mut Turn::new(clock.now(), clock, &mut reactor), 0, ready[0].1);
    let mut came = Time::NEVER;
    b.receive(&clock, &mut |at, _, _| came = at);
    assert!(came < sent + Duration::from_millis(40), "{came} is not {sent}");
}

#[test]
fn a_long_row_is_cut_into_batches() {
    let (mut a, mut b) = (loopback(), loopback());
    let datagrams: Vec<Vec<u8>> = (0..500u32).map(|i| vec![i as u8; 1300]).collect();
    let route = a.route_to(b.places()[0].parse().unwrap()).unwrap();
    send_all(&mut a, route, &datagrams);
    assert_eq!(receive_count(&mut b, datagrams.len()), datagrams);
}

#[test]
fn what_goes_nowhere_is_dropped() {
    let mut a = loopback();
    send_all(&mut a, carrier::Route::Nowhere, &[vec![1; 100], vec![2; 200]]);
}
