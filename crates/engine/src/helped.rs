//! Mobiles that are helped: which they are, by what, and at which bases their surrogates live.

use lasthop_hop::{Discipline, HopConfig, Policy, Window, mobile_tcp};
use lasthop_scenario::{
    Flow, HandoffMode, LinkIndex, MOST_HELD, MobileTcpSettings, NodeIndex, NodeKind, RunError,
    Scenario, Srp, SrpWindow,
};
use lasthop_session::{Config as SessionConfig, handoff};
use lasthop_sim::schemes::{BaseConfig, Carriage, HopKind, MobileConfig};
use lasthop_tcp::Config as TcpConfig;
use lasthop_units::{Bytes, Duration, Scheme};

use super::addresses::port;
use super::mtu::{least_of, wired_mtu};
use super::tcp::config;

/// Bytes of the IP and UDP headers in front of SRP (SRP-12).
const UDP_HEADERS: u64 = 28;
/// The longest datagram payload that SRP tries on a link that carries any.
const LONGEST: u64 = 1472;
/// What every hop is expected to carry, unless its link says that it carries less.
const EXPECTED: u64 = 1200;
/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A helped mobile.
#[derive(Clone, Debug)]
pub(super) struct Helped {
    pub(super) mobile: NodeIndex,
    /// The base of each cell, in the order of the handoff's cells; one if it stays.
    pub(super) bases: Vec<NodeIndex>,
    /// The links that carry its hop beside the first, where the scheme uses several.
    pub(super) beside: Vec<LinkIndex>,
    hop: HopKind,
    carriage: Carriage,
    wired: TcpConfig,
    /// Wired halves stay when the mobile leaves.
    anchors: bool,
}

impl Helped {
    /// The base in whose cell the mobile is at first.
    pub(super) fn first_base(&self) -> NodeIndex {
        self.bases.first().copied().unwrap_or(self.mobile)
    }

    pub(super) fn mobile_config(&self) -> MobileConfig {
        MobileConfig {
            hop: self.hop.clone(),
            carriage: self.carriage.clone(),
            session: self.patient(SessionConfig::mobile()),
            handoff: handoff::Config::mobile(),
        }
    }

    pub(super) fn base_config(&self) -> BaseConfig {
        BaseConfig {
            hop: self.hop.clone(),
            carriage: self.carriage.clone(),
            wired: self.wired,
            session: self.patient(SessionConfig::base()),
            handoff: handoff::Config::base(),
            anchors: self.anchors,
        }
    }

    /// A session opens connections as patiently as the TCP of its wired halves, which may never give
    /// up: without help the scenario's would not either.
    fn patient(&self, config: SessionConfig) -> SessionConfig {
        match self.wired.rto.give_up_after {
            Some(_) => config,
            None => SessionConfig { opening_timeout: FOR_EVER, ..config },
        }
    }
}

/// The helped mobiles of a scenario.
///
/// # Errors
///
/// What the scenario asks for cannot be built, and why.
pub(super) fn helped(scenario: &Scenario) -> Result<Vec<Helped>, RunError> {
    let mut all: Vec<(Helped, &Flow)> = Vec::new();
    for flow in scenario.flows.iter().filter(|f| f.schemes.surrogate().is_some()) {
        let mobile = mobile_of(scenario, flow)?;
        match all.iter().find(|(h, _)| h.mobile == mobile) {
            Some((_, first)) => same_help(first, flow)?,
            None => all.push((build(scenario, flow, mobile)?, flow)),
        }
    }
    one_help_for_each_base(scenario, &all)?;
    no_agents_beside_surrogates(scenario, &all)?;
    for flow in scenario.flows.iter().filter(|f| f.schemes.surrogate().is_none()) {
        if let Some((h, other)) = all.iter().find(|(h, _)| [flow.from, flow.to].contains(&h.mobile))
        {
            return refuse(&format!(
                "flow `{}` is not helped, but flow `{}` of the same mobile `{}` is; give them one \
                 scheme, or a mobile each",
                flow.name,
                other.name,
                scenario.node(h.mobile).name
            ));
        }
    }
    Ok(all.into_iter().map(|(h, _)| h).collect())
}

fn refuse<T>(why: &str) -> Result<T, RunError> {
    Err(RunError::Unsupported(why.to_owned()))
}

/// The end of a flow that is helped.
fn mobile_of(scenario: &Scenario, flow: &Flow) -> Result<NodeIndex, RunError> {
    let is_mobile = |n: NodeIndex| scenario.node(n).kind == NodeKind::MobileHost;
    match (is_mobile(flow.from), is_mobile(flow.to)) {
        (true, false) => Ok(flow.from),
        (false, true) => Ok(flow.to),
        (false, false) => refuse(&format!(
            "flow `{}`: scheme {} helps a mobile host, and neither end is one",
            flow.name,
            flow.schemes.name()
        )),
        (true, true) => refuse(&format!(
            "flow `{}`: both ends are mobile hosts; give it scheme none, or let one end be fixed",
            flow.name
        )),
    }
}

fn same_help(first: &Flow, flow: &Flow) -> Result<(), RunError> {
    if first.schemes == flow.schemes
        && first.tcp.hop == flow.tcp.hop
        && first.tcp.wired == flow.tcp.wired
    {
        return Ok(());
    }
    refuse(&format!(
        "flows `{}` and `{}` share a mobile, whose hop has one scheme and one set of TCP settings; \
         give both the same",
        first.name, flow.name
    ))
}

/// A base runs one transport on its hops.
fn one_help_for_each_base(scenario: &Scenario, all: &[(Helped, &Flow)]) -> Result<(), RunError> {
    for (n, (helped, flow)) in all.iter().enumerate() {
        for (other, earlier) in &all[..n] {
            if let Some(base) = helped.bases.iter().find(|b| other.bases.contains(b)) {
                same_help(earlier, flow).or_else(|_| {
                    refuse(&format!(
                        "flows `{}` and `{}` meet at base `{}`, which has one scheme; give both the \
                         same, or a base each",
                        earlier.name,
                        flow.name,
                        scenario.node(*base).name
                    ))
                })?;
            }
        }
    }
    Ok(())
}

/// A base that ends connections lets no other agent see their packets.
fn no_agents_beside_surrogates(
    scenario: &Scenario,
    all: &[(Helped, &Flow)],
) -> Result<(), RunError> {
    for help in scenario.path_help() {
        for station in &help.stations {
            let taken = [Some(station.base), station.router].into_iter().flatten();
            let beside = |base: NodeIndex| all.iter().find(|(h, _)| h.bases.contains(&base));
            if let Some((base, (_, flow))) = taken.filter_map(|b| Some((b, beside(b)?))).next() {
                return refuse(&format!(
                    "base `{}` has the surrogates of flow `{}` ({}), and flow `{}` wants agents of {} \
                     there; give each a base of its own",
                    scenario.node(base).name,
                    flow.name,
                    flow.schemes.name(),
                    scenario.flows[help.flow].name,
                    help.scheme,
                ));
            }
        }
    }
    Ok(())
}

fn build(scenario: &Scenario, flow: &Flow, mobile: NodeIndex) -> Result<Helped, RunError> {
    let set = scenario.link_set(mobile);
    let cells = match set {
        Some(set) => set.used.iter().take(1).copied().collect(),
        None => cells(scenario, mobile),
    };
    let mut bases = Vec::new();
    for &cell in &cells {
        let link = scenario.link(cell);
        let base = link.far_end(mobile);
        if scenario.node(base).kind != NodeKind::Base {
            return refuse(&format!(
                "flow `{}`: scheme {} needs a base at the other end of link `{}`, and `{}` is none",
                flow.name,
                flow.schemes.name(),
                link.name,
                scenario.node(base).name
            ));
        }
        bases.push(base);
    }
    let beside: Vec<LinkIndex> =
        set.into_iter().flat_map(|set| set.used.iter().skip(1)).copied().collect();
    let all_links = cells.iter().chain(&beside);
    let mtus = all_links.map(|link| least_of(&scenario.link(*link).radio));
    let all = mtus.clone().min().unwrap_or(u32::MAX);
    // A mobile that changes its link keeps to what every one of them carries.
    let some = mtus.max().filter(|_| !beside.is_empty()).unwrap_or(all);
    let wired_mtu = wired_mtu(scenario, flow, &bases, mobile);
    let buffer = scenario.agent.buffer();
    let wired = TcpConfig {
        recv_buffer: buffer,
        send_buffer: buffer,
        ..config(&flow.tcp.wired, wired_mtu)
    };
    let anchors = scenario.handoff.as_ref().is_some_and(|h| h.mode == HandoffMode::Anchor);
    Ok(Helped {
        mobile,
        bases,
        beside,
        hop: hop(scenario, flow, Carried { all, some }),
        carriage: carriage(scenario, flow),
        wired,
        anchors,
    })
}

/// How the hop carries what a flow's scheme helps.
fn carriage(scenario: &Scenario, flow: &Flow) -> Carriage {
    let policy = match flow.schemes.surrogate() {
        Some(Scheme::BondRedundant) => Policy::Redundant,
        _ => Policy::Speed,
    };
    let once = scenario.flows.iter().enumerate().filter(|(_, flow)| flow.once);
    Carriage { policy, once: once.map(|(number, _)| port(number)).collect() }
}

/// The links that serve a mobile.
fn cells(scenario: &Scenario, mobile: NodeIndex) -> Vec<LinkIndex> {
    match scenario.handoff.as_ref().filter(|h| h.mobile == mobile) {
        Some(handoff) => handoff.cells.clone(),
        None => {
            let links = scenario.links.iter().enumerate();
            links.filter(|(_, l)| l.ends.contains(&mobile)).map(|(i, _)| LinkIndex(i)).collect()
        }
    }
}

/// The longest datagrams that the links of a hop carry: all of them, and the one that carries the longest.
#[derive(Clone, Copy)]
struct Carried {
    all: u32,
    some: u32,
}

fn hop(scenario: &Scenario, flow: &Flow, carried: Carried) -> HopKind {
    let mtu = carried.all;
    match flow.schemes.surrogate() {
        Some(Scheme::SplitTcp) => HopKind::SplitTcp(hop_tcp(scenario, flow, mtu)),
        Some(Scheme::ITcp) => HopKind::ITcp(hop_tcp(scenario, flow, mtu)),
        Some(Scheme::MobileTcp) => HopKind::MobileTcp(mobile_tcp(scenario, mtu)),
        _ => HopKind::Srp(srp(scenario, carried)),
    }
}

/// What a surrogate has written and the mobile has not acknowledged counts as held by it (MHP-11),
/// unless the scenario says how much that may be. What it says of all end points may be more than a
/// surrogate's memory.
fn hop_tcp(scenario: &Scenario, flow: &Flow, mtu: u32) -> TcpConfig {
    let said = config(&flow.tcp.hop, mtu);
    match flow.tcp.hop.send_buffer {
        Some(_) => TcpConfig { send_buffer: said.send_buffer.min(MOST_HELD), ..said },
        None => TcpConfig { send_buffer: scenario.agent.buffer(), ..said },
    }
}

/// Packets are frames of the hop, so that its MTU bounds header, data and padding.
fn mobile_tcp(scenario: &Scenario, mtu: u32) -> mobile_tcp::Config {
    let (said, usual) = (&scenario.mobile_tcp, mobile_tcp::Config::default());
    let buffer = scenario.agent.buffer();
    let pad = Bytes::new(u64::from(said.pad.unwrap_or(0)));
    let room = Bytes::new(u64::from(mtu.saturating_sub(MobileTcpSettings::HEADER)));
    let packet = said.packet.map_or(usual.max_packet, |n| Bytes::new(u64::from(n)));
    let packet = packet.min(room.saturating_sub(pad));
    // In whole packets: each time that a buffer fills, what is left over goes by itself.
    let packets = buffer.get() / packet.get().max(1);
    let whole = Bytes::new(packets * packet.get()).max(buffer.min(packet));
    mobile_tcp::Config {
        window: said.window.unwrap_or(buffer).min(MobileTcpSettings::MOST_WINDOW),
        send_buffer: said.send_buffer.unwrap_or(whole),
        max_packet: packet,
        tick: said.tick.map_or(usual.tick, |s| s.0),
        rto_initial: said.rto.map_or(usual.rto_initial, |s| s.0),
        backoff_max: said.backoff.map_or(usual.backoff_max, |s| s.0),
        give_up_after: match said.give_up {
            Some(0) => u32::MAX,
            Some(expiries) => expiries,
            None => usual.give_up_after,
        },
        silence_limit: match said.give_up {
            Some(0) => FOR_EVER,
            _ => usual.silence_limit,
        },
        ack_every: said.ack_every.unwrap_or(usual.ack_every),
        nagle: said.nagle.unwrap_or(usual.nagle),
        inflight: said.inflight,
        pad,
        ..usual
    }
}

/// A hop whose datagrams are expected to carry what every hop does, and are tried up to what any link of
/// this one carries, with the agent's buffer at either end, and an eighth of all for streams that hold little.
fn srp(scenario: &Scenario, Carried { all, some }: Carried) -> HopConfig {
    let [all, some] =
        [all, some].map(|mtu| u64::from(mtu).saturating_sub(UDP_HEADERS).min(LONGEST));
    let buffer = scenario.agent.buffer();
    let (expected, most, discipline) = match scenario.srp {
        Srp::Today => (all.min(EXPECTED), some, Discipline::Paced),
        // The paper's has segments of one size.
        Srp::Paper(window) => (all, all, Discipline::Windowed(windowed(window))),
    };
    HopConfig {
        datagram_base: Bytes::new(expected),
        datagram_max: Bytes::new(most),
        carrier_overhead: Bytes::new(UDP_HEADERS),
        stream_window: buffer,
        stream_memory: buffer,
        association_window: buffer,
        association_memory: Bytes::new(buffer.get() + buffer.get() / 7),
        discipline,
        ..HopConfig::default()
    }
}

fn windowed(said: SrpWindow) -> Window {
    let usual = Window::default();
    Window {
        segments: said.segments.unwrap_or(usual.segments),
        ack_every: said.ack_every.unwrap_or(usual.ack_every),
        rto_initial: said.initial_rto.unwrap_or(usual.rto_initial),
        rto_min: said.min_rto.unwrap_or(usual.rto_min),
        rto_max: said.max_rto.unwrap_or(usual.rto_max),
        granularity: said.tick.unwrap_or(usual.granularity),
        ..usual
    }
}
