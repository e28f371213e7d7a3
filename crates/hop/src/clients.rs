//! Whose turn it is: hosts behind a mobile share the rate before their flows do, and packets and streams share what is a
//! host's, by their flows' priorities.

use alloc::vec::Vec;

/// Hosts that are told apart. Those whose names fall together are one.
pub(crate) const CLIENTS: usize = 256;
/// What packets and streams of a host were served is counted in this part of a byte.
const UNIT: u64 = 1024;
/// A flow that sends little may be so much ahead of the others: two full packets.
const AHEAD: u64 = 2 * 1514;

/// The bucket of a host's name.
pub(crate) fn bucket(name: u64) -> u16 {
    (name % CLIENTS as u64) as u16
}

/// What a host has had.
#[derive(Clone, Copy, Default, Debug)]
struct Served {
    /// Bytes in all. Who comes back has had no less than whoever is served at that moment.
    all: u64,
    /// What packets and streams have had, each divided by the priorities of the flows that shared it.
    packets: u64,
    streams: u64,
}

/// What each host has had.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// By bucket, as far as there is any.
    of: Vec<Served>,
    /// What the one that was served last had had before.
    now: u64,
}

impl Clients {
    fn of(&mut self, client: u16) -> &mut Served {
        let at = usize::from(client);
        if self.of.len() <= at {
            self.of.resize(at + 1, Served::default());
        }
        &mut self.of[at]
    }

    fn served(&self, client: u16) -> Served {
        self.of.get(usize::from(client)).copied().unwrap_or_default()
    }

    /// The one of those that wait that has had least.
    pub(crate) fn next(&mut self, waiting: impl Iterator<Item = u16>) -> Option<u16> {
        let next = self.advance(waiting)?;
        self.of(next).all = self.now;
        Some(next)
    }

    /// The same, and it need not be served now: nobody who waits has had less.
    pub(crate) fn advance(&mut self, waiting: impl Iterator<Item = u16>) -> Option<u16> {
        let had = |client: &u16| self.served(*client).all.max(self.now);
        let next = waiting.min_by_key(had)?;
        self.now = had(&next);
        Some(next)
    }

    /// Whether a host's packets are next, of whose flows those that have some have these priorities together, beside
    /// those of its streams.
    pub(crate) fn are_packets_next(&mut self, client: u16, flows: u64, streams: u64) -> bool {
        let of = self.of(client);
        // Who had nothing to send for a while has saved up nothing.
        if streams == 0 {
            of.streams = of.streams.max(of.packets);
        } else if flows == 0 {
            of.packets = of.packets.max(of.streams);
        }
        flows > 0 && (streams == 0 || of.packets <= of.streams)
    }

    /// Whether a packet of a flow that sends little may go before all else.
    pub(crate) fn may_go_first(&self, client: u16) -> bool {
        let of = self.served(client);
        of.all <= self.now + AHEAD && of.packets <= of.streams + AHEAD * UNIT
    }

    /// So many bytes of packets leave, of a host whose flows with some have these priorities together.
    pub(crate) fn charge_packets(&mut self, client: u16, bytes: usize, flows: u64) {
        self.charge(client, bytes).packets += share(bytes, flows);
    }

    /// So many bytes of streams leave, of a host whose streams with some have these priorities together.
    pub(crate) fn charge_streams(&mut self, client: u16, bytes: usize, streams: u64) {
        self.charge(client, bytes).streams += share(bytes, streams);
    }

    fn charge(&mut self, client: u16, bytes: usize) -> &mut Served {
        let now = self.now;
        let of = self.of(client);
        of.all = of.all.max(now) + bytes as u64;
        of
    }
}

/// What each of so many has of that, in [`UNIT`]ths of a byte.
fn share(bytes: usize, among: u64) -> u64 {
    bytes as u64 * UNIT / among.max(1)
}

/// Some of the hosts.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Hosts([u64; CLIENTS / 64]);

impl Hosts {
    pub(crate) fn has(&self, client: u16) -> bool {
        let client = usize::from(client) % CLIENTS;
        self.0[client / 64] >> (client % 64) & 1 == 1
    }

    pub(crate) fn add(&mut self, client: u16) {
        let client = usize::from(client) % CLIENTS;
        self.0[client / 64] |= 1 << (client % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves those that wait for so many turns of 1000 bytes; what each has had.
    fn serve(clients: &mut Clients, turns: usize, waiting: &[u16]) -> [usize; 4] {
        let mut had = [0; 4];
        for _ in 0..turns {
            let next = clients.next(waiting.iter().copied()).unwrap();
            clients.charge_streams(next, 1000, 1);
            had[usize::from(next)] += 1;
        }
        had
    }

    /// SRP-35: hosts that wait share, and who comes back has saved up nothing and owes nothing.
    #[test]
    fn hosts_share_and_who_was_away_is_one_of_them() {
        let mut clients = Clients::default();
        assert_eq!(serve(&mut clients, 100, &[1]), [0, 100, 0, 0]);
        assert_eq!(serve(&mut clients, 100, &[1, 2]), [0, 50, 50, 0]);
        let had = serve(&mut clients, 30, &[2, 1, 3]);
        assert!(had[1..].iter().all(|turns| (9..=11).contains(turns)), "{had:?}");
        assert_eq!(clients.next([].into_iter()), None);
    }

    /// SRP-33: packets and streams of a host share by the flows that each have.
    #[test]
    fn packets_and_streams_of_a_host_share_by_flows() {
        let mut clients = Clients::default();
        let mut packets = 0;
        for _ in 0..400 {
            assert_eq!(clients.next([0].into_iter()), Some(0));
            match clients.are_packets_next(0, 1, 3) {
                true => {
                    clients.charge_packets(0, 1000, 1);
                    packets += 1;
                }
                false => clients.charge_streams(0, 1000, 3),
            }
        }
        assert!((99..=101).contains(&packets), "{packets} of 400");
        assert!(clients.are_packets_next(0, 1, 0) && !clients.are_packets_next(0, 0, 1));
        assert!(clients.may_go_first(0) && clients.may_go_first(9));
        clients.charge_packets(0, 4000, 1);
        assert!(!clients.may_go_first(0));
    }
}
