//! A scenario as its file describes it, before names are looked up and defaults filled in.

use lasthop_radio::{LinkSettings, Share, Span};
use lasthop_sim::signals::SignalsConfig;
use serde::Deserialize;

use super::agents::AgentSettings;
use super::mobile::MobileSettings;
use super::mobile_tcp::MobileTcpSettings;
use super::model::{HandoffMode, Headers, Node, Traffic};
use super::scheme::Schemes;
use super::tcp::{TcpGroups, TcpSettings};
use super::tree::{self, Entry, Table, Value};
use crate::ordered::Ordered;

/// The keys at the top of a file, those of a sweep included.
pub(crate) const TOP: [&str; 21] = [
    "name",
    "about",
    "runs",
    "seed",
    "sweep",
    "scheme",
    "duration",
    "give-up",
    "headers",
    "node",
    "link",
    "flow",
    "tcp",
    "srp",
    "mobile-tcp",
    "agent",
    "mobile",
    "rwc",
    "handoff",
    "signals",
    "measure",
];

/// Keys at the top that say how often to run, not what.
pub(crate) const AROUND: [&str; 5] = ["name", "about", "runs", "seed", "sweep"];

/// The keys of a link beside those of its directions.
pub(crate) const LINK: [&str; 5] =
    ["between", "forward", "backward", "shared-fades", "half-duplex"];

/// The groups of TCP end points.
pub(crate) const TCP: [&str; 4] = ["fixed", "mobile", "wired", "hop"];

/// The whole scenario.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ScenarioFile {
    #[serde(default)]
    pub(crate) scheme: Schemes,
    pub(crate) duration: Option<Span>,
    pub(crate) give_up: Option<Span>,
    #[serde(default)]
    pub(crate) headers: Headers,
    pub(crate) node: Ordered<Node>,
    pub(crate) link: Ordered<LinkFile>,
    pub(crate) flow: Ordered<FlowFile>,
    #[serde(default)]
    pub(crate) tcp: TcpGroups,
    #[serde(default)]
    pub(crate) srp: SrpFile,
    #[serde(default)]
    pub(crate) mobile_tcp: MobileTcpSettings,
    #[serde(default)]
    pub(crate) agent: AgentSettings,
    #[serde(default)]
    pub(crate) mobile: MobileSettings,
    #[serde(default)]
    pub(crate) rwc: RwcFile,
    pub(crate) handoff: Option<HandoffFile>,
    #[serde(default)]
    pub(crate) signals: SignalsConfig,
    #[serde(default)]
    pub(crate) measure: MeasureFile,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct LinkFile {
    pub(crate) between: Vec<String>,
    #[serde(default)]
    pub(crate) both: LinkSettings,
    #[serde(default)]
    pub(crate) forward: LinkSettings,
    #[serde(default)]
    pub(crate) backward: LinkSettings,
    #[serde(default)]
    pub(crate) shared_fades: bool,
    #[serde(default)]
    pub(crate) half_duplex: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct FlowFile {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) start: Option<Span>,
    #[serde(default)]
    pub(crate) traffic: Traffic,
    pub(crate) scheme: Option<Schemes>,
    #[serde(default)]
    pub(crate) encrypted: bool,
    #[serde(default)]
    pub(crate) once: bool,
    #[serde(default)]
    pub(crate) tcp: TcpSettings,
}

#[derive(Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct SrpFile {
    pub(crate) profile: Option<String>,
    pub(crate) window: Option<u32>,
    pub(crate) ack_every: Option<u32>,
    pub(crate) initial_rto: Option<Span>,
    pub(crate) min_rto: Option<Span>,
    pub(crate) max_rto: Option<Span>,
    pub(crate) tick: Option<Span>,
}

/// Receiver window control: the `[rwc]` table.
#[derive(Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RwcFile {
    pub(crate) packets: Option<u32>,
    pub(crate) priorities: Option<Ordered<u32>>,
    pub(crate) changes: Vec<RwcChangeFile>,
}

/// A user's change of mind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RwcChangeFile {
    pub(crate) at: Span,
    pub(crate) flow: String,
    pub(crate) priority: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct HandoffFile {
    pub(crate) mobile: Option<String>,
    pub(crate) cells: Vec<String>,
    pub(crate) first: Span,
    pub(crate) pause: Span,
    pub(crate) pause_spread: Option<Share>,
    pub(crate) every: Option<Span>,
    pub(crate) start_spread: Option<Span>,
    pub(crate) count: Option<u32>,
    pub(crate) registration: Option<Span>,
    #[serde(default)]
    pub(crate) mode: HandoffMode,
}

#[derive(Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct MeasureFile {
    pub(crate) from: Option<Span>,
    pub(crate) series: Option<Span>,
    pub(crate) bins: Option<Span>,
    pub(crate) bytes: bool,
    pub(crate) captures: Vec<String>,
}

/// Brings the short forms that people write into the one form that is read: a node that is only
/// its kind, `[[flow]]` without names, a link's and TCP's settings that hold for all.
pub(crate) fn normalise(tree: &mut tree::Node) {
    let Some(top) = tree.as_table_mut() else { return };
    if let Some(nodes) = top.get_mut("node").and_then(|e| e.node.as_table_mut()) {
        for node in nodes.entries_mut() {
            if let Value::Text(_) = node.node.value {
                let place = node.node.place.clone();
                let kind = entry_at("kind", &node.key_place, node.node.clone());
                let mut table = Table::default();
                table.insert(kind);
                node.node = tree::Node::table(table, place);
            }
        }
    }
    if let Some(flows) = top.get_mut("flow")
        && let Value::List(list) = &mut flows.node.value
    {
        let mut table = Table::default();
        for (i, flow) in list.drain(..).enumerate() {
            table.insert(entry_at(&i.to_string(), &flow.place.clone(), flow));
        }
        flows.node.value = Value::Table(table);
    }
    if let Some(links) = top.get_mut("link").and_then(|e| e.node.as_table_mut()) {
        for link in links.entries_mut() {
            gather(&mut link.node, "both", &LINK);
        }
    }
    if let Some(tcp) = top.get_mut("tcp") {
        gather(&mut tcp.node, "all", &TCP);
    }
}

/// Moves every key but `own` into a table of its own.
fn gather(node: &mut tree::Node, into: &str, own: &[&str]) {
    let place = node.place.clone();
    let Some(table) = node.as_table_mut() else { return };
    let rest = table.take_if(|e| !own.contains(&e.key.as_str()));
    table.insert(entry_at(into, &place, tree::Node::table(rest, place.clone())));
}

fn entry_at(key: &str, place: &tree::Span, node: tree::Node) -> Entry {
    Entry { key: key.to_string(), key_place: place.clone(), node }
}
