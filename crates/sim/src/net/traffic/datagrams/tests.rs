use lasthop_units::Rate;

use super::*;

const PORT: u16 = 7000;

/// Two hosts over a path of some rate and one-way delay, which loses every `n`th datagram of one direction.
fn cross(work: DatagramWork, rate: Rate, loses: u64, until: Time) -> [DatagramRecord; 2] {
    let [near, far] = [1, 2].map(|n| Ipv4Addr::new(10, 0, 0, n));
    let mut ends = [Datagrams::default(), Datagrams::default()];
    ends[0].send(Time::from_millis(5), (far, PORT), work);
    ends[1].take(PORT);
    let delay = Duration::from_millis(20);
    let mut flying: Vec<(Time, usize, SocketAddrV4, Vec<u8>)> = Vec::new();
    let (mut now, mut free, mut count) = (Time::ZERO, [Time::ZERO; 2], 0);
    while now < until {
        for (n, end) in ends.iter_mut().enumerate() {
            end.handle_timeout(now);
            while let Some(out) = end.poll(now) {
                count += u64::from(n == 0);
                // A queue of 100 ms.
                let start = free[n].max(now);
                if (n == 0 && count.is_multiple_of(loses))
                    || start.since(now) > Duration::from_millis(100)
                {
                    continue;
                }
                free[n] = start + rate.time_for(Bytes::from(out.bytes.len() + 28));
                let from = SocketAddrV4::new([near, far][n], out.from);
                flying.push((free[n] + delay, 1 - n, from, out.bytes));
            }
        }
        let next = flying.iter().map(|(at, ..)| *at).min();
        let timers = ends.iter().filter_map(Datagrams::next_timeout);
        now = timers.chain(next).min().unwrap_or(until).max(now).min(until);
        let due = flying.extract_if(.., |(at, ..)| *at <= now).collect::<Vec<_>>();
        for (_, to, from, bytes) in due {
            assert!(ends[to].handle(now, from, PORT, &bytes));
        }
    }
    [(0, true), (1, false)].map(|(n, sends)| ends[n].record(PORT, sends).unwrap().clone())
}

#[test]
fn a_constant_rate_is_sent_and_counted() {
    let voice = DatagramWork::Constant { every: Duration::from_millis(20), size: Bytes::new(160) };
    let [near, far] = cross(voice, Rate::from_mbps(2), 10, Time::from_secs(10));
    assert_eq!((near.sent.len(), near.arrived.len()), (500, 0));
    assert!((449..=451).contains(&far.arrived.len()), "{}", far.arrived.len());
    assert!(far.arrived.iter().all(|(_, took)| *took < Duration::from_millis(21)));
    assert_eq!((far.repeated, far.received.get()), (0, far.arrived.len() as u64 * 160));
}

#[test]
fn a_transfer_fills_a_clean_path_and_its_queue_alone_takes_from_it() {
    let [near, far] = cross(DatagramWork::Quic, Rate::from_mbps(2), u64::MAX, Time::from_secs(20));
    let rate = far.received.get() as f64 * 8.0 / 20.0;
    assert!(rate > 1.8e6 && near.timeouts == 0, "{rate} {near:?}", near = near.timeouts);
    assert!(near.lost > 0 && near.lost < near.sent.len() as u64 / 20, "{}", near.lost);
}

/// RFC 9002 section 7: what is lost at random shrinks the window as congestion would; all of it arrives.
#[test]
fn random_loss_costs_a_transfer_much_of_a_path() {
    let [near, far] = cross(DatagramWork::Quic, Rate::from_mbps(20), 20, Time::from_secs(20));
    let rate = far.received.get() as f64 * 8.0 / 20.0;
    assert!((0.5e6..4e6).contains(&rate), "{rate}");
    // Nothing but what is on its way has not come.
    let pieces = far.received.get() / 1252;
    let distinct = near.sent.len() as u64 - near.lost;
    assert!(pieces + 40 > distinct, "{pieces} of {distinct}");
}
