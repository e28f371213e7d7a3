//! Congestion marks and what stands on them, from end to end.

use core::net::SocketAddr;

use lasthop_wire::agent;

use super::*;

/// A radio whose queue marks what finds ten packets.
fn marking() -> LinkConfig {
    LinkConfig { ecn_mark: Some(QueueLimit::Packets(10)), ..radio() }
}

fn capable() -> tcp::Config {
    tcp::Config { ecn: true, cwnd_max: None, ..reno() }
}

fn coherent() -> tcp::Config {
    let hold = Duration::from_millis(200);
    tcp::Config { coherence: Some(tcp::Coherence::new(hold)), ..capable() }
}

/// A file that takes long, from the fixed host (0) or from the mobile (1), whose `config` it is; the
/// other end has the same but for coherence.
fn transfer(radio: &LinkConfig, config: tcp::Config, from: usize) -> Path {
    let dst = ([MH, FH][from], PORT);
    let work = Work::File(Bytes::new(10_000_000));
    let at = Time::from_secs(1);
    let client = nothing().start(Client { at, dst, config, work });
    let service = {
        let config = tcp::Config { coherence: None, ..config };
        nothing().serve(PORT, config, Service::Discard)
    };
    let [fixed, mobile] = if from == 0 { [client, service] } else { [service, client] };
    Path::new(1, radio, fixed, mobile)
}

fn stats(path: &Path, which: usize) -> tcp::Stats {
    *path.host(which).connections().next().expect("a connection").1.stats()
}

/// CC-2: a queue marks packets whose transport takes part, the sender slows down and nothing is
/// dropped; of others it marks none, and fills.
#[test]
fn a_queue_that_marks_need_not_drop() {
    let mut path = transfer(&marking(), capable(), 0);
    path.run(20);
    let link = path.network.link_stats(path.down);
    assert!(link.marked.packets > 10 && link.queue.packets_max < 60, "{link:?}");
    assert_eq!(link.dropped.queue.packets, 0);
    let (sender, receiver) = (stats(&path, 0), stats(&path, 1));
    assert!(sender.echo_cuts > 3 && sender.retransmits == 0, "{sender:?}");
    assert!(receiver.marks_received > 10 && receiver.marks_received <= link.marked.packets);

    let mut path = transfer(&marking(), tcp::Config { ecn: false, ..capable() }, 0);
    path.run(20);
    let link = path.network.link_stats(path.down);
    assert_eq!(link.marked.packets, 0);
    assert!(link.dropped.queue.packets > 0);
}

/// CC-2: that a queue marked a packet is part of what happened.
#[test]
fn marks_are_in_the_trace() {
    let hash = |radio: &LinkConfig| {
        let mut path = transfer(radio, capable(), 0);
        // The first mark is on the radio, and no echo of it has come back.
        path.run(1);
        let mut now = Time::from_secs(1);
        while path.network.link_stats(path.down).queue.packets_max <= 10 {
            now += Duration::from_millis(1);
            path.network.run_until(now).expect("no halt");
        }
        path.network.run_until(now + Duration::from_millis(100)).expect("no halt");
        path.network.trace().hash()
    };
    assert_eq!(hash(&marking()), hash(&marking()));
    assert_ne!(hash(&marking()), hash(&radio()));
}

/// CC-1, CC-6: on a radio that loses packets without any congestion a mobile sender gives up no window,
/// and is faster than Reno for it.
#[test]
fn losses_without_marks_cost_a_mobile_sender_no_window() {
    let lossy = LinkConfig { losses: vec![Loss::lose(Errors::Uniform(0.02))], ..marking() };
    let received = |config| {
        let mut path = transfer(&lossy, config, 1);
        path.run(20);
        (stats(&path, 1), path.record(0).received)
    };
    let (reno, slow) = received(capable());
    let (coherent, fast) = received(coherent());
    // Without coherence a loss is spared only where an echo has cost the window already.
    assert!(reno.spared_losses <= reno.echo_cuts, "{reno:?}");
    assert!(coherent.spared_losses > 10, "{coherent:?}");
    assert!(fast.get() > slow.get() * 6 / 5, "{fast:?} {slow:?}");
}

/// Says to the fixed host that the hop of its connection is bad.
fn notify(path: &mut Path) {
    let ports = path.host(0).connections().next().expect("a connection").1.ports();
    let connection = agent::Connection {
        fixed: SocketAddr::from((FH, ports.local)),
        mobile: SocketAddr::from((MH, ports.remote)),
    };
    let mut bytes = [0; agent::Message::MAX_LEN];
    let message = agent::Message::BadState { connection };
    let len = message.emit(&mut bytes).expect("room");
    path.network.with_node(path.hosts[1], |_, ctx| {
        let body = Body::Udp { src_port: agent::PORT, dst_port: agent::PORT };
        let mut packet = ctx.packet(MH, FH, body);
        packet.set_bytes(&bytes[..len]);
        ctx.send(packet).expect("a way");
    });
}

/// EBS-2: while it hears that the hop is bad the source's timer does not expire.
#[test]
fn a_source_that_hears_of_a_bad_hop_waits() {
    let timeouts = |notified: bool| {
        let mut path = transfer(&radio(), reno(), 0);
        let down = Time::from_secs(3);
        path.network.schedule(down, net::Event::LinkDown(path.down));
        let mut now = down;
        path.network.run_until(now).expect("no halt");
        while now < Time::from_secs(6) {
            now += Duration::from_millis(100);
            path.network.run_until(now).expect("no halt");
            if notified {
                notify(&mut path);
            }
        }
        let stats = stats(&path, 0);
        (stats.timeouts, stats.bad_states, path.host(0).stats().stray)
    };
    // The last one is still on its way.
    assert_eq!(timeouts(true), (0, 29, 0));
    assert!(timeouts(false).0 > 1);
}
