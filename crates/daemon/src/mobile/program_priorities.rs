//! The programs that connections and flows of packets belong to, and the priorities that follow from them.

use std::io;
use std::net::SocketAddr;

use lasthop_control::priority::{Flow, Priorities, Rules, USUAL};
use lasthop_control::{self as control, PriorityReport, Report};
use lasthop_hop::Policy;
use lasthop_kernel::netlink::Ends;
use lasthop_kernel::reactor::Reactor;
use lasthop_kernel::slab::Key;
use lasthop_kernel::turn::Source;
use lasthop_session::flow_worth::FlowWorth;
use lasthop_session::{FeedbackConfig, Layer, Setting, Target};
use lasthop_units::Time;
use lasthop_wire::packet::Packet;

use super::Core;
use super::links::Links;
use super::packet_flows::{FLOWS_MAX, PacketFlows};
use super::policies::{self, Policies};
use crate::packets::{Sorting, Worth};
use crate::program_lookup::ProgramLookup;

/// Priorities of connections, by program, fixed host and port.
#[derive(Debug)]
pub(super) struct ProgramPriorities {
    priorities: Priorities,
    /// None before the loop runs, and where there is no thread for it.
    programs: Option<ProgramLookup>,
    packets: PacketFlows,
    /// Which links carry them.
    policies: Policies,
}

impl ProgramPriorities {
    /// No connections yet, and never more than `connections` at once.
    pub(super) fn new(rules: Rules, policies: Policies, connections: usize) -> Self {
        let flows_max = connections + FLOWS_MAX;
        let feedback = FeedbackConfig { flows_max, ..FeedbackConfig::default() };
        let priorities = Priorities::new(rules, feedback);
        Self { priorities, programs: None, packets: PacketFlows::default(), policies }
    }

    /// Watches for programs that are recognised; that is `source`'s.
    pub(super) fn watch(
        &mut self,
        reactor: &mut Reactor<Source>,
        source: Source,
    ) -> io::Result<()> {
        self.programs = reactor.add_optional(
            ProgramLookup::start(),
            source,
            "tell which program a connection belongs to",
        )?;
        Ok(())
    }

    /// Asks which program an application's connection is of; `ends` are that connection's.
    pub(super) fn identify_program(&self, core: &mut Core, key: Key, ends: Ends) {
        let Some(connection) = core.connections.get_mut(key) else { return };
        connection.who.client = Some(ends.client);
        if let Some(programs) = &self.programs {
            programs.request(connection.who.number, ends);
        }
    }

    /// The application asks for `target`.
    pub(super) fn begin(&mut self, core: &mut Core, key: Key, target: &Target) {
        let flow = match target {
            Target::Addr(addr) => Flow::to(*addr),
            // Most who ask by name ask for an address in text form now and then.
            Target::Name(name, port) => {
                Flow { host: name.as_str().parse().ok(), port: *port, program: None }
            }
        };
        self.apply_rules(core, key, flow);
    }

    /// The fixed host `caller` has come to `port`, on which a server here is published.
    pub(super) fn begin_called(
        &mut self,
        core: &mut Core,
        key: Key,
        caller: Option<SocketAddr>,
        port: u16,
    ) {
        if let Some(connection) = core.connections.get_mut(key) {
            connection.who.client = caller;
        }
        let host = caller.map(|caller| caller.ip().to_canonical());
        self.apply_rules(core, key, Flow { program: None, host, port });
    }

    /// What a packet is worth by its flow.
    pub(super) fn worth_of(&mut self, now: Time, packet: &Packet, sorting: &Sorting) -> Worth {
        let Self { priorities, programs, packets, policies } = self;
        packets.worth_of(now, packet, sorting, (priorities, policies), programs.as_ref())
    }

    /// The flows of packets that have some worth.
    pub(super) fn packet_flows(&mut self) -> &mut PacketFlows {
        &mut self.packets
    }

    /// When the base is to be [told](Self::tell) what flows of packets are worth.
    pub(super) fn tell_at(&self) -> Option<Time> {
        self.packets.due()
    }

    /// Tells the base at the other end of hop `at` what flows of packets are worth.
    pub(super) fn tell(&mut self, of: (Time, u32), sorting: &Sorting, tell: impl FnMut(FlowWorth)) {
        self.packets.tell(of, sorting, (&mut self.priorities, &mut self.policies), tell);
    }

    fn apply_rules(&mut self, core: &mut Core, key: Key, flow: Flow) {
        let Some(connection) = core.connections.get_mut(key) else { return };
        let (number, program) = (connection.who.number, connection.who.program.clone());
        let flow = Flow { program, ..flow };
        connection.who.policy = self.policies.of(number, &flow);
        self.priorities.begin(number, flow, Layer::Hop);
        connection.who.priority = self.priorities.priority(number);
    }

    /// The connection has a new name in a session: there it has the priority and the policy that it had.
    pub(super) fn reapply(&self, core: &mut Core, key: Key) {
        let Some(connection) = core.connections.get(key) else { return };
        let (who, name) = (&connection.who, connection.name);
        let told = who.priority.filter(|priority| *priority != USUAL);
        let policy = who.policy;
        if let Some((id, conn)) = name
            && let Some((session, mut streams)) = core.session(id)
        {
            if let Some(priority) = told {
                session.set_priority(&mut streams, conn, priority);
            }
            session.set_policy(&mut streams, conn, policy);
        }
    }

    /// Programs were recognised.
    pub(super) fn handle_ready(&mut self, core: &mut Core) {
        let Some(programs) = &self.programs else { return };
        programs.drain();
        while let Some((number, program)) = programs.poll() {
            let is_known = match core.numbered(number) {
                Some(connection) => {
                    connection.who.program = Some(program.clone());
                    true
                }
                None => self.packets.recognise(core.now, number, &program),
            };
            if is_known {
                self.priorities.recognise(number, program);
                self.renew_policy(core, number);
            }
        }
    }

    /// More is known or said of a connection.
    fn renew_policy(&self, core: &mut Core, number: u64) {
        let Some(flow) = self.priorities.flows().get(&number) else { return };
        let Some(connection) = core.numbered(number) else { return };
        let policy = self.policies.of(number, flow);
        if std::mem::replace(&mut connection.who.policy, policy) == policy {
            return;
        }
        let name = connection.name;
        if let Some((id, conn)) = name
            && let Some((session, mut streams)) = core.session(id)
        {
            session.set_policy(&mut streams, conn, policy);
        }
    }

    /// A connection is over.
    pub(super) fn end(&mut self, number: u64) {
        self.priorities.end(number);
        self.policies.words().end(number);
    }

    /// Sets the priority of a program, host or port, or removes it.
    pub(super) fn set(
        &mut self,
        of: &control::Target,
        priority: Option<u32>,
    ) -> Result<usize, String> {
        self.priorities.set(of, priority)
    }

    /// Sets the policy of a program, host or port, or removes it.
    pub(super) fn set_policy(
        &mut self,
        core: &mut Core,
        of: &control::Target,
        policy: Option<Policy>,
    ) -> Result<(), String> {
        let meant = self.policies.words().set(of, policy, self.priorities.flows())?;
        meant.into_iter().for_each(|number| self.renew_policy(core, number));
        self.packets.change(core.now);
        Ok(())
    }

    /// Hands new priorities to the hop; true if there were any.
    pub(super) fn apply(&mut self, core: &mut Core) -> bool {
        let mut some = false;
        while let Some(setting) = self.priorities.poll_setting() {
            let Setting::Priority { flow, priority } = setting else { continue };
            let Some(connection) = core.numbered(flow) else {
                // It is a flow of packets.
                self.packets.change(core.now);
                continue;
            };
            connection.who.priority = Some(priority);
            let Some((id, conn)) = connection.name else { continue };
            if let Some((session, mut streams)) = core.session(id) {
                some |= session.set_priority(&mut streams, conn, priority);
            }
        }
        some
    }

    pub(super) fn add_to_report(&self, core: &Core, links: &Links, report: &mut Report) {
        let said =
            |(of, priority): (&control::Target, u32)| PriorityReport { of: of.clone(), priority };
        report.priorities = self.priorities.words().map(said).collect();
        report.policies = self.policies.said(links);
        for ((_, connection), reported) in core.connections.iter().zip(&mut report.connections) {
            let policy = connection.who.policy;
            reported.policy = (policy != Policy::default()).then(|| policies::text(policy, links));
        }
    }
}
