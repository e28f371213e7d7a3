//! Flows of packets at a mobile: the programs that they belong to, and what they are worth by these.

use std::collections::BTreeMap;
use std::time::Duration;

use lasthop_control::priority::{Flow, Priorities, Program, USUAL};
use lasthop_kernel::netlink::Ends;
use lasthop_session::Layer;
use lasthop_session::flow_worth::{FlowEnds, FlowWorth};
use lasthop_units::Time;
use lasthop_wire::ip::Protocol;
use lasthop_wire::packet::Packet;

use super::policies::Policies;
use crate::packets::{Sorting, Worth, flow_ends};
use crate::program_lookup::ProgramLookup;

/// Flows at once; of more nothing is said for the base.
pub(super) const FLOWS_MAX: usize = 1024;
/// A flow that has sent nothing for so long is over, and how often that is looked for.
const IDLE: Duration = Duration::from_secs(60);
const SWEEP: Duration = Duration::from_secs(10);
/// The base is told again, should it have forgotten; and no more often, should it change all the time.
const TELL_EVERY: Duration = Duration::from_secs(5);
const TELL_PAUSE: Duration = Duration::from_millis(100);
/// Numbers of flows are from here on, those of connections below.
const NUMBERS: u64 = 1 << 63;

#[derive(Debug)]
struct Known {
    number: u64,
    program: Option<Program>,
    asked: bool,
    /// The code point of its last packet.
    dscp: u8,
    worth: Worth,
    told: Worth,
    told_at: Option<Time>,
    used: Time,
}

impl Known {
    fn find_worth(
        &self,
        ends: FlowEnds,
        sorting: &Sorting,
        priorities: &Priorities,
        policies: &Policies,
    ) -> Worth {
        let flow = priorities.flows().get(&self.number);
        Worth {
            class: sorting.said(ends, self.dscp, self.program.as_ref()),
            priority: priorities.priority(self.number).unwrap_or(USUAL),
            policy: flow.map(|flow| policies.of(self.number, flow)).unwrap_or_default(),
        }
    }

    /// When the base is to be told.
    fn due(&self) -> Option<Time> {
        let pause = match self.told_at {
            None => Duration::ZERO,
            Some(_) if self.worth != self.told => TELL_PAUSE,
            Some(_) => TELL_EVERY,
        };
        let is_said = self.worth != self.told || self.worth != Worth::default();
        is_said.then(|| self.told_at.unwrap_or(Time::ZERO) + pause)
    }
}

/// The flows of packets that have some.
#[derive(Debug, Default)]
pub(super) struct PacketFlows {
    flows: BTreeMap<FlowEnds, Known>,
    begun: u64,
    swept: Time,
    /// The hop by which the base was told.
    at: u32,
    /// When it is to be told something.
    due: Option<Time>,
}

impl PacketFlows {
    /// What a packet of this host, or of one behind it, is worth by its flow.
    pub(super) fn worth_of(
        &mut self,
        now: Time,
        packet: &Packet,
        sorting: &Sorting,
        (priorities, policies): (&mut Priorities, &mut Policies),
        programs: Option<&ProgramLookup>,
    ) -> Worth {
        let by_program =
            sorting.name_programs() || priorities.name_programs() || policies.name_programs();
        let said = by_program
            || priorities.say_something()
            || policies.say_something()
            || !self.flows.is_empty();
        let ends = flow_ends(packet, packet.source()).filter(|_| said);
        let Some(ends) = ends else { return Worth::default() };
        let of = (&mut *priorities, &mut *policies);
        let Some(known) = self.begin(now, ends, of) else { return Worth::default() };
        (known.used, known.dscp) = (now, packet.dscp());
        if let Some(programs) = programs.filter(|_| by_program && !known.asked) {
            known.asked = true;
            let FlowEnds { protocol, mobile, fixed } = ends;
            let udp = protocol == Protocol::UDP.0;
            programs.request(known.number, Ends { udp, client: mobile, server: fixed });
        }
        let worth = known.find_worth(ends, sorting, priorities, policies);
        if known.worth != worth {
            known.worth = worth;
            self.due = Some(now);
        }
        worth
    }

    /// When [`tell`](Self::tell) is to be called.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// The program of a flow is known, the user has said something, or the base is another: it may have to be told.
    pub(super) fn change(&mut self, now: Time) {
        self.due = Some(now).filter(|_| !self.flows.is_empty());
    }

    /// The base cannot be told now.
    pub(super) fn defer(&mut self, now: Time) {
        self.due = Some(now + TELL_EVERY);
    }

    /// Tells the base at the other end of hop `at` what is due.
    pub(super) fn tell(
        &mut self,
        (now, at): (Time, u32),
        sorting: &Sorting,
        (priorities, policies): (&mut Priorities, &mut Policies),
        mut tell: impl FnMut(FlowWorth),
    ) {
        self.sweep(now, (priorities, policies));
        if std::mem::replace(&mut self.at, at) != at {
            // Another base knows nothing yet.
            self.flows.values_mut().for_each(|known| known.told_at = None);
        }
        self.due = None;
        for (ends, known) in &mut self.flows {
            known.worth = known.find_worth(*ends, sorting, priorities, policies);
            if known.due().is_some_and(|due| due <= now) {
                (known.told, known.told_at) = (known.worth, Some(now));
                tell(known.worth.told(*ends));
            }
            self.due = self.due.into_iter().chain(known.due()).min();
        }
    }

    /// The flow, which begins if it is not known and there are not too many.
    fn begin(
        &mut self,
        now: Time,
        ends: FlowEnds,
        (priorities, policies): (&mut Priorities, &mut Policies),
    ) -> Option<&mut Known> {
        if !self.flows.contains_key(&ends) {
            self.sweep(now, (priorities, policies));
            if self.flows.len() >= FLOWS_MAX {
                return None;
            }
            let number = NUMBERS + self.begun;
            self.begun += 1;
            priorities.begin(number, Flow::to(ends.fixed), Layer::Hop);
            self.flows.insert(
                ends,
                Known {
                    number,
                    program: None,
                    asked: false,
                    dscp: 0,
                    worth: Worth::default(),
                    told: Worth::default(),
                    told_at: None,
                    used: now,
                },
            );
        }
        self.flows.get_mut(&ends)
    }

    /// Ends those that have sent nothing for long, now and then.
    fn sweep(&mut self, now: Time, (priorities, policies): (&mut Priorities, &mut Policies)) {
        if now.since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        self.flows.retain(|_, known| {
            let stays = now.since(known.used) < IDLE;
            if !stays {
                priorities.end(known.number);
                policies.words().end(known.number);
            }
            stays
        });
    }

    /// The program of a flow is known; false if there is no such flow.
    pub(super) fn recognise(&mut self, now: Time, number: u64, program: &Program) -> bool {
        let flow = self.flows.values_mut().find(|known| known.number == number);
        let is_known = flow.map(|known| known.program = Some(program.clone())).is_some();
        if is_known {
            self.change(now);
        }
        is_known
    }
}

#[cfg(test)]
mod tests {
    use lasthop_control::priority::Rules;
    use lasthop_control::{Target, config};
    use lasthop_hop::Policy;
    use lasthop_session::FeedbackConfig;

    use super::*;
    use crate::packets::PacketRule;

    #[derive(serde::Deserialize)]
    struct File {
        packets: Vec<PacketRule>,
    }

    /// A UDP packet from 10.9.0.7, port 9, to that port of 192.0.2.7.
    fn packet(port: u16) -> Packet {
        let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        bytes.extend([10, 9, 0, 7, 192, 0, 2, 7, 0, 9]);
        bytes.extend(port.to_be_bytes());
        bytes.extend([0, 8, 0, 0]);
        Packet::inspect(&bytes).unwrap()
    }

    struct World {
        flows: PacketFlows,
        priorities: Priorities,
        policies: Policies,
        sorting: Sorting,
    }

    impl World {
        fn new(rules: &str) -> Self {
            let file: File = config::parse("x.toml".as_ref(), rules).unwrap();
            let feedback = FeedbackConfig { flows_max: 2000, ..FeedbackConfig::default() };
            Self {
                flows: PacketFlows::default(),
                priorities: Priorities::new(Rules::default(), feedback),
                policies: Policies::default(),
                sorting: Sorting::new(1, &file.packets, []),
            }
        }

        /// The priority of a packet, and that and the number of the class that the base is told.
        fn send(&mut self, ms: u64, at: u32, port: u16) -> (u32, Option<(u32, u8)>) {
            let Self { flows, priorities, policies, sorting } = self;
            let now = Time::from_millis(ms);
            let of = (priorities, policies);
            let worth = flows.worth_of(now, &packet(port), sorting, of, None);
            (worth.priority, self.told(ms, at))
        }

        /// The first of what the base is told.
        fn told(&mut self, ms: u64, at: u32) -> Option<(u32, u8)> {
            let Self { flows, priorities, policies, sorting } = self;
            let (now, mut told) = (Time::from_millis(ms), None);
            if flows.at != at || flows.due().is_some_and(|due| due <= now) {
                flows.tell((now, at), sorting, (priorities, policies), |worth| {
                    told.get_or_insert((worth.priority, worth.class));
                });
            }
            told
        }
    }

    #[test]
    fn a_base_is_told_what_is_said_of_a_flow_and_again_now_and_then() {
        let mut w = World::new("[[packets]]\nprogram = \"dig\"\nport = 53\nclass = \"once\"\n");
        assert_eq!(w.send(0, 1, 53), (1, None), "its program is not known");
        let (now, dig) = (Time::from_millis(10), Program { name: "dig".to_owned(), binary: None });
        assert!(w.flows.recognise(now, NUMBERS, &dig) && !w.flows.recognise(now, 7, &dig));
        assert_eq!(w.told(10, 1), Some((1, 4)), "without another packet");
        assert_eq!(w.send(20, 1, 53), (1, None));
        assert_eq!(w.told(5010, 1), Some((1, 4)), "should it have forgotten");
        assert_eq!(w.told(6000, 2), Some((1, 4)), "another base");
        assert_eq!(w.send(6001, 2, 54), (1, None));
        let told = (7..100).filter(|s| w.told(s * 1000, 2).is_some()).count();
        assert!((8..15).contains(&told), "told {told} times");
        assert_eq!(w.flows.due(), None, "nobody sends any more");
    }

    #[test]
    fn a_users_word_holds_for_packets_until_it_is_taken_back() {
        let mut w = World::new("packets = []\n");
        assert_eq!((w.send(0, 1, 53), w.flows.flows.len()), ((1, None), 0), "nothing is said");
        w.priorities.set(&Target::Port(53), Some(7)).unwrap();
        assert_eq!(w.send(1, 1, 53), (7, Some((7, 0))));
        w.priorities.set(&Target::Port(53), None).unwrap();
        w.flows.change(Time::from_millis(2));
        assert_eq!(w.told(2, 1), None, "too soon to tell again");
        assert_eq!(w.send(101, 1, 53), (1, Some((1, 0))));
        assert_eq!(w.send(20_000, 1, 53), (1, None));
    }

    #[test]
    fn a_users_word_on_links_holds_for_packets_and_ends_with_their_flow() {
        let mut w = World::new("packets = []\n");
        let policy = |w: &mut World, ms| {
            let World { flows, priorities, policies, sorting } = w;
            let (now, of) = (Time::from_millis(ms), (priorities, policies));
            flows.worth_of(now, &packet(53), sorting, of, None).policy
        };
        let said = |w: &mut World, of, policy| {
            w.policies.words().set(&of, policy, w.priorities.flows()).unwrap().len()
        };
        assert_eq!(said(&mut w, Target::Port(53), Some(Policy::Redundant)), 0);
        assert_eq!(policy(&mut w, 0), Policy::Redundant);
        assert_eq!(said(&mut w, Target::Connection(NUMBERS), Some(Policy::Cheap)), 1);
        assert_eq!(policy(&mut w, 1), Policy::Cheap);
        assert_eq!(w.told(1, 1), Some((1, 0)), "the base is told");
        assert_eq!(policy(&mut w, 80_000), Policy::Cheap);
        w.send(160_000, 1, 54);
        assert_eq!(policy(&mut w, 160_001), Policy::Redundant, "it is another flow");
        assert_eq!(said(&mut w, Target::Port(53), None), 1);
        assert_eq!(policy(&mut w, 160_002), Policy::Speed);
    }

    #[test]
    fn flows_end_by_idleness_and_are_never_too_many() {
        let mut w = World::new("packets = []\n");
        w.priorities.set(&Target::Port(9999), Some(7)).unwrap();
        for port in 1..3000 {
            w.send(u64::from(port), 1, port);
            assert!(w.flows.flows.len() <= FLOWS_MAX);
        }
        assert_eq!(w.send(4000, 1, 9999), (1, None));
        assert_eq!(w.send(80_000, 1, 9999), (7, Some((7, 0))));
        assert_eq!(w.flows.flows.len(), 1);
    }
}
