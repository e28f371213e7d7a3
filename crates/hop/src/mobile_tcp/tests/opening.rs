//! Openings, answers, refusals, and the ends of connections.

use core::net::Ipv6Addr;

use super::*;

/// MOB-5, MOB-6, MOB-7, MOB-10, MOB-16: a control packet asks, the base gets it and waits for the fixed
/// host, its answer has the surrogate's address and completes the exchange of identifiers, and an
/// ordinary data packet is the third.
#[test]
fn an_opening_takes_three_packets_and_waits_for_the_fixed_host() {
    let mut world = Pair::new();
    let id = world.mobile.open().unwrap();
    let asked = open_to(v4(1, 80), Opening::Faithful);
    // The message comes in pieces; nothing leaves before it is whole.
    world.mobile.write(id, &asked[..5]).unwrap();
    assert_eq!(poll(&mut world.mobile, world.now), None);
    world.mobile.write(id, &asked[5..]).unwrap();
    let syn = poll(&mut world.mobile, world.now).unwrap();
    assert_eq!(syn.len(), 28);
    let said = control(&syn);
    assert_eq!((said.code, said.cid, said.destination), (Code::SYN, Cid::NONE, v4(1, 80)));
    assert!(!said.reverse.is_none() && said.max_packet == 1460 && said.max_buffer > 16_000);

    world.base.handle(world.now, &syn).unwrap();
    assert_eq!(events(&mut world.base)[0], StreamEvent::Incoming(id));
    assert_eq!(read(&mut world.base, id), asked);
    let pending = poll(&mut world.base, world.now).unwrap();
    assert_eq!(control(&pending).code, Code::PENDING.with(Code::ACK));
    assert_eq!(control(&pending).cid, said.reverse);
    world.mobile.handle(world.now, &pending).unwrap();
    let cid = world.mobile.cid_of(id).unwrap();
    let next = world.mobile.entries[&cid].repeat.next;
    assert_eq!(next, Some(ms(5000)), "heard, so asked again but seldom");
    assert_eq!(poll(&mut world.base, world.now), None);

    world.base.write(id, &opened(v4(9, 4321))).unwrap();
    let answer = poll(&mut world.base, world.now).unwrap();
    let answered = control(&answer);
    assert_eq!((answer.len(), answered.code), (28, Code::SYN.with(Code::ACK)));
    assert_eq!((answered.cid, answered.ack), (said.reverse, said.seq + 1));
    assert_eq!((answered.destination, answered.source), (v4(1, 80), v4(9, 4321)));
    world.mobile.handle(world.now, &answer).unwrap();
    assert_eq!(events(&mut world.mobile), [StreamEvent::Readable(id)]);
    assert_eq!(read(&mut world.mobile, id), opened(v4(9, 4321)));

    let third = poll(&mut world.mobile, world.now).unwrap();
    assert_eq!((third.len(), data(&third).cid), (16, answered.reverse));
    assert_eq!((data(&third).seq, data(&third).ack), (said.seq + 1, answered.seq + 1));
    world.base.handle(world.now, &third).unwrap();
    world.pass(Duration::from_secs(1));
    assert_eq!((world.mobile.next_timeout(), world.base.next_timeout()), (None, None));

    world.base.write(id, b"welcome").unwrap();
    world.settle();
    assert_eq!(read(&mut world.mobile, id), b"welcome");
}

/// MOB-17: each of the three is repeated until the next comes, so any may be lost, again and again.
#[test]
fn every_packet_of_an_opening_may_be_lost() {
    for lost in 0..3 {
        let mut world = Pair::new();
        let id = world.mobile.open().unwrap();
        world.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
        world.mobile.write(id, b"hello").unwrap();
        for step in 0..=lost {
            // Lost twice, and each time repeated.
            for _ in 0..2 * usize::from(step == lost) {
                let from = if step == 1 { &mut world.base } else { &mut world.mobile };
                wait_for_word(from, &mut world.now);
            }
            match step {
                0 => {
                    let packets = wait_for_word(&mut world.mobile, &mut world.now);
                    packets.iter().for_each(|p| world.base.handle(world.now, p).unwrap());
                    world.base.write(id, &opened(v4(9, 1))).unwrap();
                }
                1 => {
                    let packets = wait_for_word(&mut world.base, &mut world.now);
                    packets.iter().for_each(|p| world.mobile.handle(world.now, p).unwrap());
                }
                _ => {}
            }
        }
        world.pass(Duration::from_secs(10));
        assert_eq!(read(&mut world.mobile, id), opened(v4(9, 1)));
        assert!(read(&mut world.base, id).ends_with(b"hello"));
    }
}

/// MOB-7: a refusal is a reset with the session's code, of any length, and both ends remove the stream.
#[test]
fn a_refusal_arrives_as_a_reset_with_its_code() {
    for refusal in [Refusal::Refused, Refusal::Other(99)] {
        let mut world = Pair::new();
        let id = world.mobile.open().unwrap();
        world.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
        world.settle();
        events(&mut world.base);
        world.base.write(id, &encoded(&Message::Refused(refusal))).unwrap();
        assert_eq!(events(&mut world.base), [StreamEvent::Closed(id)]);
        // The refusal is lost, and repeated.
        assert_eq!(poll_all(&mut world.base, world.now).len(), 1);
        world.pass(Duration::from_secs(3));
        let told = [StreamEvent::Readable(id), StreamEvent::Closed(id)];
        assert_eq!(world.mobile.poll_event(), Some(told[0]));
        let code = ResetReason::Refused(refusal).code();
        assert_eq!(world.mobile.recv_state(id), RecvState::Reset(code));
        assert_eq!(world.mobile.send_space(id), Err(StreamError::Reset(code)));
        assert_eq!(world.mobile.poll_event(), Some(told[1]));
        assert_eq!(world.mobile.recv_state(id), RecvState::Finished);
        world.pass(Duration::from_secs(90));
        assert_eq!(world.mobile.stats().streams + world.base.stats().streams, 0);
        assert_eq!((world.mobile.next_timeout(), world.base.next_timeout()), (None, None));
        assert_eq!((world.mobile.entries.len(), world.base.entries.len()), (0, 0));
    }
}

/// MOB-8: the base opens towards the mobile in the same way, with the fixed host's address.
#[test]
fn a_base_opens_towards_the_mobile() {
    let mut world = Pair::new();
    let id = world.base.open().unwrap();
    assert_eq!(id, StreamId(1));
    let offer = Message::Offer { to: v4(1, 22).into(), from: v4(8, 5555).into(), connection: None };
    world.base.write(id, &encoded(&offer)).unwrap();
    let syn = poll(&mut world.base, world.now).unwrap();
    assert_eq!((syn.len(), control(&syn).source), (28, v4(8, 5555)));
    world.mobile.handle(world.now, &syn).unwrap();
    assert_eq!(read(&mut world.mobile, id), encoded(&offer));
    world.mobile.write(id, &opened(v4(1, 22))).unwrap();
    world.settle();
    assert_eq!(read(&mut world.base, id), opened(v4(1, 22)));
    world.mobile.write(id, b"up").unwrap();
    world.base.write(id, b"down").unwrap();
    world.settle();
    assert_eq!(read(&mut world.base, id), b"up");
    assert_eq!(read(&mut world.mobile, id), b"down");
}

/// MOB-8: the base knows the ports on which the mobile listens, each as long as it does, and is notified
/// anew after it has lost its state.
#[test]
fn a_base_knows_where_the_mobile_listens() {
    let mut world = Pair::new();
    world.mobile.listen(22);
    world.mobile.listen(80);
    assert_eq!(world.mobile.listening(22), None);
    // Lost, and repeated with the tick.
    assert_eq!(poll_all(&mut world.mobile, world.now).len(), 2);
    world.pass(Duration::from_millis(400));
    assert!(world.base.peer_listens(22) && world.base.peer_listens(80));
    assert_eq!((world.mobile.listening(22), world.mobile.listening(23)), (Some(true), Some(false)));
    world.mobile.unlisten(22);
    world.settle();
    assert!(!world.base.peer_listens(22) && world.base.peer_listens(80));
    assert_eq!(world.mobile.next_timeout(), None);

    let limits = MobileTcp::limits(&Config::default());
    for end in [&mut world.mobile, &mut world.base] {
        end.restart(world.now);
        end.establish(world.now, &limits);
    }
    assert!(!world.base.peer_listens(80));
    world.settle();
    assert!(world.base.peer_listens(80) && !world.base.peer_listens(22));
    // A base has no ports.
    world.base.listen(5);
    world.settle();
    assert_eq!(world.base.listening(5), Some(false));
}

/// What the paper's packet cannot say travels by version 1, and arrives as it was written. Who does
/// not wait for the fixed host sends its bytes behind the opening.
#[test]
fn openings_that_the_paper_does_not_have_travel_too() {
    let far = SocketAddr::from((Ipv6Addr::LOCALHOST, 443));
    let early = open_to(v4(1, 80), Opening::Early);
    for (first, waits) in [
        (open_to(far, Opening::Faithful), true),
        (early, false),
        (b"GET / HTTP/1.0".to_vec(), false),
        (vec![1], false),
    ] {
        let mut world = Pair::new();
        let id = world.mobile.open().unwrap();
        world.mobile.write(id, &first).unwrap();
        if first.len() == 1 {
            world.mobile.finish(id);
        }
        world.settle();
        let got = read(&mut world.base, id);
        assert_eq!(got, first);
        if !waits && first.len() > 1 {
            world.mobile.write(id, b"early").unwrap();
            world.settle();
            assert_eq!(read(&mut world.base, id), b"early");
        }
        world.base.write(id, &opened(far)).unwrap();
        world.base.write(id, b"answer").unwrap();
        world.settle();
        assert_eq!(read(&mut world.mobile, id), [opened(far), b"answer".to_vec()].concat());
    }
}

/// MOB-5: both directions end by themselves, both ends report it, and both remove it; only then is the
/// identifier free again.
#[test]
fn a_connection_ends_when_both_directions_have() {
    let mut world = Pair::new();
    let id = world.connection();
    world.mobile.write(id, b"question").unwrap();
    world.mobile.finish(id);
    assert_eq!(world.mobile.send_space(id), Err(StreamError::Finished));
    world.settle();
    assert_eq!(events(&mut world.mobile), [StreamEvent::Finished(id)]);
    assert_eq!(events(&mut world.base), [StreamEvent::Readable(id)]);
    assert_eq!(world.base.recv_state(id), RecvState::Open);
    assert_eq!(read(&mut world.base, id), b"question");
    assert_eq!(world.base.recv_state(id), RecvState::Finished);
    world.base.write(id, b"answer").unwrap();
    world.base.finish(id);
    world.settle();
    let told = [StreamEvent::Finished(id), StreamEvent::Closed(id)];
    assert_eq!(events(&mut world.base), told);
    assert_eq!(events(&mut world.mobile), [StreamEvent::Readable(id)]);
    assert_eq!(read(&mut world.mobile, id), b"answer");
    assert_eq!(events(&mut world.mobile), [StreamEvent::Closed(id)]);
    assert_eq!(world.mobile.received(id), b"");
    assert_eq!((world.mobile.stats().streams, world.mobile.stats().memory), (0, Bytes::ZERO));
    assert_eq!((world.mobile.entries.len(), world.base.entries.len()), (1, 1), "identifiers rest");
    world.pass(Duration::from_secs(61));
    assert_eq!((world.mobile.entries.len(), world.base.entries.len()), (0, 0));
}

/// A reset is repeated until the peer acknowledges it, whoever sends.
#[test]
fn a_reset_arrives_although_packets_are_lost_and_nobody_talks() {
    for by_base in [false, true] {
        let mut world = Pair::new();
        let id = world.connection();
        world.mobile.write(id, b"unread").unwrap();
        world.settle();
        let (from, to) = match by_base {
            true => (&mut world.base, &mut world.mobile),
            false => (&mut world.mobile, &mut world.base),
        };
        events(from);
        events(to);
        from.reset(id, 77);
        from.reset(id, 78);
        assert_eq!(events(from), [StreamEvent::Closed(id)]);
        assert_eq!(from.send_space(id), Err(StreamError::Unknown));
        assert_eq!(poll_all(from, world.now).len(), 1);
        world.pass(Duration::from_secs(1));
        let to = if by_base { &mut world.mobile } else { &mut world.base };
        assert_eq!(to.poll_event(), Some(StreamEvent::Readable(id)));
        assert_eq!((to.recv_state(id), to.received(id)), (RecvState::Reset(77), &b""[..]));
        assert_eq!(events(to), [StreamEvent::Closed(id)]);
        world.pass(Duration::from_secs(62));
        assert_eq!((world.mobile.next_timeout(), world.base.next_timeout()), (None, None));
        assert_eq!(world.mobile.entries.len() + world.base.entries.len(), 0);
    }
}

/// An opening that is given up before it was answered ends at the base too.
#[test]
fn an_opening_can_be_given_up() {
    let mut world = Pair::new();
    let id = world.mobile.open().unwrap();
    world.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
    world.settle();
    events(&mut world.base);
    world.mobile.reset(id, ResetReason::Aborted.code());
    world.settle();
    assert_eq!(world.base.poll_event(), Some(StreamEvent::Readable(id)));
    assert_eq!(world.base.recv_state(id), RecvState::Reset(ResetReason::Aborted.code()));
    // One that was never reported ends without an event.
    let id = world.mobile.open().unwrap();
    world.mobile.reset(id, 1);
    assert_eq!(poll(&mut world.mobile, world.now), None);
}
