//! From what the file says to what is run: names looked up, defaults filled in, ranges checked.

mod handoff;
mod rwc;

use std::time::Duration;

use lasthop_radio::{LinkSettings, QueueLimit, RadioConfig, Span};
use lasthop_sim::signals::{Quality, SignalsConfig};
use lasthop_units::{Bytes, Rate, Scheme};

use super::complaint::Complaints;
use super::file::{FlowFile, LinkFile, MeasureFile, ScenarioFile, SrpFile};
use super::link_sets;
use super::model::{
    Capture, End, Flow, FlowTcp, Link, LinkIndex, Measure, Node, NodeIndex, NodeKind, Scenario,
    Srp, SrpWindow, Traffic,
};
use super::path;
use super::problem::suggest;
use super::scheme::Schemes;
use super::tcp::{TcpGroups, TcpSettings};
use super::topology;
use crate::ordered::Ordered;

/// Gives the text of a trace by name.
pub(crate) type Load<'a> = &'a mut dyn FnMut(&str) -> Result<String, String>;

/// The smallest MTU that IPv4 allows (RFC 791).
const MTU_MIN: u32 = 68;

/// Bytes of payload of a datagram that has a number in it, and of one that Ethernet carries.
const DATAGRAM_LEAST: Bytes = Bytes::new(25);
const DATAGRAM_MOST: Bytes = Bytes::new(1472);

/// The lead of a prediction where a scheme lives by warnings and the scenario says nothing of them:
/// about a round trip (FRZ-1, LLT-3).
const WARNING: Duration = Duration::from_millis(100);

const MOST_NODES: usize = 1000;
const MOST_LINKS: usize = 4000;
const MOST_FLOWS: usize = 10_000;

/// Builds the scenario.
///
/// # Errors
///
/// Everything that does not hold.
pub(crate) fn resolve(file: &ScenarioFile, load: Load<'_>) -> Result<Scenario, Complaints> {
    let mut build = Builder { wrong: Complaints::default(), load };
    let scenario = build.scenario(file);
    match scenario {
        Some(scenario) if build.wrong.is_empty() => Ok(scenario),
        _ => Err(build.wrong),
    }
}

struct Builder<'a> {
    wrong: Complaints,
    load: Load<'a>,
}

impl Builder<'_> {
    fn scenario(&mut self, file: &ScenarioFile) -> Option<Scenario> {
        let end = self.end(file);
        let nodes = self.nodes(&file.node);
        let links = self.links(&file.link, &nodes);
        self.tcp(&file.tcp);
        let flows = self.flows(file, &nodes);
        let handoff = file.handoff.as_ref().map(|h| self.handoff(h, end, &nodes, links.as_deref()));
        let measure = self.measure(&file.measure, end, &nodes, links.as_deref());
        file.agent.check(&mut self.wrong);
        file.mobile_tcp.check(&mut self.wrong);
        let signals = self.signals(file.signals, flows.as_deref().unwrap_or_default());
        file.mobile.check(&mut self.wrong);
        let rwc = file.rwc.resolve(flows.as_deref().unwrap_or_default(), &mut self.wrong);
        let srp = self.srp(&file.srp);
        // Everything above is checked before anything that is missing ends it here.
        let (end, links, flows) = (end?, links?, flows?);
        let handoff = match handoff {
            Some(handoff) => handoff?,
            None => None,
        };
        let cells = file.handoff.as_ref().map(|h| (h, self.cells(h, &links)));
        let served = cells.and_then(|(_, cells)| cells);
        let link_sets = link_sets::find(&nodes, &links, served.as_deref(), &mut self.wrong);
        if self.wrong.is_empty() {
            topology::check(&nodes, &links, &flows, served.as_deref(), &link_sets, &mut self.wrong);
        }
        let (measure, srp, rwc) = (measure?, srp?, rwc?);
        let scenario = Scenario {
            links: if flows.iter().any(|f| f.schemes.contains(Scheme::CongestionCoherence)) {
                links.into_iter().map(marking).collect()
            } else {
                links
            },
            end,
            headers: file.headers,
            nodes,
            link_sets,
            flows,
            handoff,
            signals,
            srp,
            mobile_tcp: file.mobile_tcp,
            agent: file.agent.clone(),
            mobile: file.mobile.clone(),
            rwc,
            measure,
        };
        if self.wrong.is_empty() {
            path::check(&scenario, &mut self.wrong);
        }
        Some(scenario)
    }

    fn end(&mut self, file: &ScenarioFile) -> Option<End> {
        let (key, time) = match (file.duration, file.give_up) {
            (Some(time), None) => ("duration", time.0),
            (None, Some(time)) => ("give-up", time.0),
            (Some(_), Some(_)) => {
                let remedy = "keep `duration` to run for that time, or `give-up` to run until every \
                              flow has completed";
                self.wrong.add(&["give-up"], "stands beside `duration`", remedy);
                return None;
            }
            (None, None) => {
                let remedy = "write `duration = \"100s\"` to run for that time, or `give-up = \
                              \"600s\"` to run until every flow has completed, at most so long";
                self.wrong.add(&[], "nothing says when a run ends", remedy);
                return None;
            }
        };
        let most = Duration::from_secs(365 * 86_400);
        self.within(&[key], time, Duration::from_nanos(1), most).then_some(if key == "duration" {
            End::After(time)
        } else {
            End::Complete(time)
        })
    }

    fn nodes(&mut self, named: &Ordered<Node>) -> Vec<Node> {
        self.names("node", named, MOST_NODES);
        let node = |(name, node): &(String, Node)| Node { name: name.clone(), ..node.clone() };
        let nodes: Vec<Node> = named.0.iter().map(node).collect();
        for node in &nodes {
            if node.supervisor && !matches!(node.kind, NodeKind::Router | NodeKind::Base) {
                let path = ["node", &node.name, "supervisor"];
                let remedy = "give the role to a router or a base";
                self.wrong.add(&path, "only what connects bases can supervise them", remedy);
            }
        }
        nodes
    }

    /// Complains about names that could not be told apart in a path, and about too many.
    fn names<T>(&mut self, what: &str, named: &Ordered<T>, most: usize) {
        if named.0.is_empty() {
            self.wrong.add(&[what], format!("there is no {what}"), "");
        }
        if named.0.len() > most {
            self.wrong.add(&[what], format!("more than {most}"), "");
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        for (name, _) in &named.0 {
            if name.is_empty() || !name.chars().all(plain) {
                let remedy = "use letters, digits, `-` and `_`";
                self.wrong.add(&[what, name], format!("`{name}` is no name"), remedy);
            }
        }
    }

    fn links(&mut self, named: &Ordered<LinkFile>, nodes: &[Node]) -> Option<Vec<Link>> {
        self.names("link", named, MOST_LINKS);
        let links: Vec<Option<Link>> =
            named.0.iter().map(|(name, file)| self.link(name, file, nodes)).collect();
        links.into_iter().collect()
    }

    fn link(&mut self, name: &str, file: &LinkFile, nodes: &[Node]) -> Option<Link> {
        let between = ["link", name, "between"];
        let ends = match file.between.as_slice() {
            [a, b] => {
                let ends = [self.node_at(&between, a, nodes), self.node_at(&between, b, nodes)];
                if a == b {
                    let remedy = "a link joins two different nodes";
                    self.wrong.add(&between, format!("`{a}` is joined to itself"), remedy);
                }
                Some([ends[0]?, ends[1]?])
            }
            other => {
                let message = format!("names {} nodes, expected 2", other.len());
                self.wrong.add(&between, message, "write `between = [\"one\", \"other\"]`");
                None
            }
        };
        let unlike = |own: &LinkSettings| *own != LinkSettings::default();
        for (key, said) in [
            ("forward", unlike(&file.forward)),
            ("backward", unlike(&file.backward)),
            ("shared-fades", file.shared_fades),
        ] {
            if said && file.half_duplex {
                let remedy = "set it for the link as a whole, or leave `half-duplex` out";
                self.wrong.add(&["link", name, key], "both directions are one channel", remedy);
            }
        }
        let up = self.direction(name, "forward", &file.forward, &file.both);
        let down = self.direction(name, "backward", &file.backward, &file.both);
        let radio = RadioConfig { up: up?, down: down?, shared_fades: file.shared_fades };
        Some(Link { name: name.to_string(), ends: ends?, radio, half_duplex: file.half_duplex })
    }

    fn direction(
        &mut self,
        name: &str,
        direction: &str,
        own: &LinkSettings,
        both: &LinkSettings,
    ) -> Option<lasthop_radio::LinkConfig> {
        let settings = own.clone().over(both);
        // A fault stands where the file sets it: in the direction's own table, or beside it.
        let path = |key: &str, said_here: bool| {
            let mut path = vec!["link".to_string(), name.to_string()];
            path.extend(said_here.then(|| direction.to_string()));
            path.push(key.to_string());
            path
        };
        let mut at = |key: &str, said_here: bool, message: String, remedy: &str| {
            let path = path(key, said_here);
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            self.wrong.add_once(&path, message, remedy);
        };
        if settings.rate == Some(Rate::ZERO) {
            let remedy = "a link that carries nothing has a `pause`; `unlimited` has no limit";
            at("rate", own.rate.is_some(), "a rate of zero carries nothing".into(), remedy);
            return None;
        }
        if let Some(mtu) = settings.mtu.filter(|mtu| *mtu < MTU_MIN) {
            let message = format!("{mtu} is less than {MTU_MIN} bytes, the least that IPv4 allows");
            at("mtu", own.mtu.is_some(), message, "the MTU counts the whole IP datagram");
        }
        match settings.resolve(self.load) {
            Ok(config) => Some(config),
            Err(e) => {
                let (key, said_here) = blame(&e, own);
                at(key, said_here, e.to_string(), "docs/radio.md describes a link's settings");
                None
            }
        }
    }

    fn node_at(&mut self, path: &[&str], name: &str, nodes: &[Node]) -> Option<NodeIndex> {
        let found = nodes.iter().position(|n| n.name == name);
        if found.is_none() {
            let known = nodes.iter().map(|n| n.name.as_str());
            self.wrong.add(path, format!("there is no node `{name}`"), suggest(name, known));
        }
        found.map(NodeIndex)
    }

    fn tcp(&mut self, tcp: &TcpGroups) {
        tcp.all.check(&["tcp"], &mut self.wrong);
        for (group, settings) in [
            ("fixed", &tcp.fixed),
            ("mobile", &tcp.mobile),
            ("wired", &tcp.wired),
            ("hop", &tcp.hop),
        ] {
            settings.check(&["tcp", group], &mut self.wrong);
        }
    }

    fn flows(&mut self, file: &ScenarioFile, nodes: &[Node]) -> Option<Vec<Flow>> {
        self.names("flow", &file.flow, MOST_FLOWS);
        let flows: Vec<Option<Flow>> =
            file.flow.0.iter().map(|(name, flow)| self.flow(file, name, flow, nodes)).collect();
        let flows: Vec<Flow> = flows.into_iter().collect::<Option<_>>()?;
        if file.give_up.is_some() {
            for flow in flows.iter().filter(|f| !f.traffic.ends()) {
                let remedy = "give `duration` in place of `give-up`, or traffic that ends";
                let path = ["flow", &flow.name, "traffic"];
                self.wrong.add(&path, "never completes, so that every run would give up", remedy);
            }
        }
        Some(flows)
    }

    fn flow(
        &mut self,
        file: &ScenarioFile,
        name: &str,
        flow: &FlowFile,
        nodes: &[Node],
    ) -> Option<Flow> {
        let from = self.host_at(&["flow", name, "from"], &flow.from, nodes);
        let to = self.host_at(&["flow", name, "to"], &flow.to, nodes);
        if flow.from == flow.to {
            let remedy = "a flow joins two different hosts";
            self.wrong.add(&["flow", name, "to"], "is the host that it comes from", remedy);
        }
        flow.tcp.check(&["flow", name, "tcp"], &mut self.wrong);
        self.traffic(name, flow.traffic);
        let (from, to) = (from?, to?);
        let group = |host: NodeIndex| {
            let group = match nodes[host.0].kind {
                NodeKind::MobileHost => &file.tcp.mobile,
                _ => &file.tcp.fixed,
            };
            flow.tcp.over(group).over(&file.tcp.all)
        };
        let half = |group: &TcpSettings| group.over(&file.tcp.all);
        let schemes = flow.scheme.unwrap_or(file.scheme);
        if let Some(surrogate) = schemes.surrogate().filter(|_| flow.encrypted) {
            let message =
                format!("hides TCP from the surrogate of `{surrogate}`, which must end it");
            let remedy = "use a scheme that splits no connection, or leave `encrypted` out";
            self.wrong.add(&["flow", name, "encrypted"], message, remedy);
        }
        if flow.once && !flow.traffic.is_datagrams() {
            let message =
                "is for datagrams, and these are a connection's bytes, each of which arrives";
            let remedy = "leave it out, or let the traffic be udp, voice or quic-like";
            self.wrong.add(&["flow", name, "once"], message, remedy);
        }
        Some(Flow {
            name: name.to_string(),
            from,
            to,
            start: or_zero(flow.start),
            traffic: flow.traffic,
            schemes: self.schemes(name, schemes, from, to, nodes),
            encrypted: flow.encrypted,
            once: flow.once,
            tcp: FlowTcp {
                from: group(from),
                to: group(to),
                wired: half(&file.tcp.wired),
                hop: half(&file.tcp.hop),
            },
        })
    }

    fn schemes(
        &mut self,
        name: &str,
        schemes: Schemes,
        from: NodeIndex,
        to: NodeIndex,
        nodes: &[Node],
    ) -> Schemes {
        let mobile = [from, to].iter().any(|n| nodes[n.0].kind == NodeKind::MobileHost);
        if !schemes.is_none() && !mobile {
            let message = format!("{} helps a mobile host, and neither end is one", schemes.name());
            let remedy = "use scheme `none` for this flow";
            self.wrong.add(&["flow", name, "scheme"], message, remedy);
        }
        schemes
    }

    fn host_at(&mut self, path: &[&str], name: &str, nodes: &[Node]) -> Option<NodeIndex> {
        let index = self.node_at(path, name, nodes)?;
        if !nodes[index.0].kind.is_host() {
            let remedy = "flows end at nodes of kind `fixed-host` or `mobile-host`";
            self.wrong.add(path, format!("`{name}` is no host"), remedy);
        }
        Some(index)
    }

    fn traffic(&mut self, flow: &str, traffic: Traffic) {
        let path = |kind, key| ["flow", flow, "traffic", kind, key];
        let mut some = |kind, key, size| {
            if size == Bytes::ZERO {
                let remedy = "give one byte or more";
                self.wrong.add(&path(kind, key), "nothing would be sent", remedy);
            }
        };
        let tick = Duration::from_micros(1);
        match traffic {
            Traffic::Bulk | Traffic::Voice | Traffic::QuicLike => {}
            Traffic::Udp { rate, size } => {
                if !(DATAGRAM_LEAST..=DATAGRAM_MOST).contains(&size) {
                    let message = "fits into no datagram, or holds not what tells it apart";
                    self.wrong.add(&path("udp", "size"), message, "give 25 to 1472 bytes");
                }
                if rate == Rate::ZERO || rate == Rate::UNLIMITED {
                    let message = "is neither above zero nor limited";
                    let remedy =
                        "give a rate such as `64kbit/s`; `quic-like` sends all that will go";
                    self.wrong.add(&path("udp", "rate"), message, remedy);
                }
            }
            Traffic::File { size } => some("file", "size", size),
            Traffic::RequestResponse { request, response, .. } => {
                some("request-response", "request", request);
                some("request-response", "response", response);
            }
            Traffic::Interactive { every, .. } => {
                self.within(&path("interactive", "every"), every, tick, Duration::MAX);
            }
            Traffic::OnOff { rate, on, .. } => {
                self.within(&path("on-off", "on"), on, tick, Duration::MAX);
                if rate == Rate::ZERO || rate == Rate::UNLIMITED {
                    let remedy = "give a rate such as `64kbit/s`; `bulk` sends all that will go";
                    let message = "is neither above zero nor limited";
                    self.wrong.add(&path("on-off", "rate"), message, remedy);
                }
            }
        }
    }

    fn signals(&mut self, said: SignalsConfig, flows: &[Flow]) -> SignalsConfig {
        for (kind, after) in [("down", said.down), ("up", said.up), ("complete", said.complete)] {
            if after.lead.is_some() {
                let remedy = "`predicted` and `imminent` have one";
                let message = format!("`{kind}` cannot be known before it happens");
                self.wrong.add(&["signals", kind, "lead"], message, remedy);
            }
        }
        let warned = |f: &Flow| f.schemes.mobile().is_some_and(Scheme::needs_warning);
        let warning =
            Some(WARNING).filter(|_| said.imminent.lead.is_none() && flows.iter().any(warned));
        let predicted = Quality { lead: said.predicted.lead.or(warning), ..said.predicted };
        SignalsConfig { predicted, ..said }
    }

    fn srp(&mut self, file: &SrpFile) -> Option<Srp> {
        let span = |s: Option<Span>| s.map(|s| s.0);
        let window = SrpWindow {
            segments: file.window,
            ack_every: file.ack_every,
            initial_rto: span(file.initial_rto),
            min_rto: span(file.min_rto),
            max_rto: span(file.max_rto),
            tick: span(file.tick),
        };
        if file.window == Some(0) || file.ack_every == Some(0) {
            let key = if file.window == Some(0) { "window" } else { "ack-every" };
            self.wrong.add(&["srp", key], "0 moves nothing", "give 1 or more");
        }
        if let (Some(min), Some(max)) = (window.min_rto, window.max_rto)
            && min > max
        {
            let message = format!("{max:?} is shorter than min-rto, {min:?}");
            self.wrong.add(&["srp", "max-rto"], message, "raise it, or lower min-rto");
        }
        match file.profile.as_deref().unwrap_or("today") {
            "1994" => Some(Srp::Paper(window)),
            "today" if window == SrpWindow::default() => Some(Srp::Today),
            "today" => {
                let message = "today's SRP has no window and no timer to set";
                self.wrong.add(&["srp", "profile"], message, "write `profile = \"1994\"`");
                None
            }
            other => {
                let remedy = suggest(other, ["today", "1994"]);
                self.wrong.add(
                    &["srp", "profile"],
                    format!("there is no profile `{other}`"),
                    remedy,
                );
                None
            }
        }
    }

    fn measure(
        &mut self,
        file: &MeasureFile,
        end: Option<End>,
        nodes: &[Node],
        links: Option<&[Link]>,
    ) -> Option<Measure> {
        let tick = Duration::from_micros(1);
        for (key, span) in [("series", file.series), ("bins", file.bins)] {
            if let Some(span) = span {
                self.within(&["measure", key], span.0, tick, Duration::MAX);
            }
        }
        let from = or_zero(file.from);
        if let Some(End::After(end)) = end.filter(|e| e.latest() <= from) {
            let message = format!("{from:?} is not before the run's end, {end:?}");
            self.wrong.add(&["measure", "from"], message, "begin earlier, or run longer");
        }
        let links = links?;
        let capture = |this: &mut Self, name: &String| {
            let node = nodes.iter().position(|n| n.name == *name).map(NodeIndex);
            let link = links.iter().position(|l| l.name == *name).map(LinkIndex);
            let point = node.map(Capture::Node).or(link.map(Capture::Link));
            if point.is_none() {
                let known = nodes.iter().map(|n| n.name.as_str());
                let known = known.chain(links.iter().map(|l| l.name.as_str()));
                let message = format!("there is no node and no link `{name}`");
                this.wrong.add(&["measure", "captures"], message, suggest(name, known));
            }
            point
        };
        let captures: Vec<Option<Capture>> =
            file.captures.iter().map(|name| capture(self, name)).collect();
        Some(Measure {
            from,
            series: file.series.map(|s| s.0),
            bins: file.bins.map(|s| s.0),
            bytes: file.bytes,
            captures: captures.into_iter().collect::<Option<_>>()?,
        })
    }

    fn within(&mut self, path: &[&str], found: Duration, least: Duration, most: Duration) -> bool {
        let outside = found < least || found > most;
        if outside {
            let message = match (found < least, least == Duration::from_nanos(1)) {
                (true, true) => "is zero, expected a time above it".to_string(),
                (true, false) => format!("{found:?} is shorter than {least:?}"),
                (false, _) => format!("{found:?} is longer than {most:?}"),
            };
            self.wrong.add(path, message, "");
        }
        !outside
    }
}

/// The link with marks at half of its queue, where nothing else is said (CC-2, CC-8).
fn marking(mut link: Link) -> Link {
    for way in [&mut link.radio.up, &mut link.radio.down] {
        let half = match way.queue {
            QueueLimit::Packets(n) => QueueLimit::Packets(n / 2),
            QueueLimit::Bytes(n) => QueueLimit::Bytes(Bytes::new(n.get() / 2)),
            QueueLimit::Time(time) => QueueLimit::Time(time / 2),
        };
        way.ecn_mark = way.ecn_mark.or(Some(half).filter(|half| *half != way.queue));
    }
    link
}

fn or_zero(span: Option<Span>) -> Duration {
    span.map_or(Duration::ZERO, |s| s.0)
}

/// Which key a radio's complaint is about, and whether the direction sets it itself.
fn blame(error: &lasthop_radio::ConfigError, own: &LinkSettings) -> (&'static str, bool) {
    let text = error.to_string();
    let keys = [
        ("ecn-mark", own.ecn_mark.is_some()),
        ("trace", own.trace.is_some()),
        ("steps", own.steps.is_some()),
        ("burst", own.loss.is_some()),
        ("fade", own.loss.is_some()),
        ("loss", own.loss.is_some()),
        ("pauses", own.pause.is_some()),
        ("mtu", own.mtu.is_some()),
        ("capacity", own.capacity.is_some()),
        ("duplicate", own.duplicate.is_some()),
        ("reorder", own.reorder.is_some()),
    ];
    let found = keys.into_iter().find(|(word, _)| text.contains(word));
    match found {
        Some(("burst" | "fade", here)) => ("loss", here),
        Some(("pauses", here)) => ("pause", here),
        Some(known) => known,
        None => ("between", false),
    }
}
