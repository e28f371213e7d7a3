//! Rules: which table a packet is routed by (ip-rule(8)).

use std::fmt;

use netlink_packet_route::IpProtocol;
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleHeader, RuleMessage};

use super::{PROTOCOL, Prefix, everything, family};

/// What is done with packets that a rule applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// They are routed by this table; where it has no route, the next rule is asked.
    Lookup(u32),
    /// The rule of this priority is asked next.
    Goto(u32),
    /// The next rule is asked.
    Nop,
    /// They are refused, as where there is no route.
    Unreachable,
}

/// Says which packets are routed by a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// For IPv6 instead of IPv4.
    pub ipv6: bool,
    /// The less, the earlier it is asked; the main table has 32766.
    pub priority: u32,
    /// What is done.
    pub action: Action,
    /// Only for TCP.
    pub tcp: bool,
    /// Only for packets with a firewall mark of this value under this mask.
    pub mark: Option<(u32, u32)>,
    /// Only for packets from here. A connection of IPv4 that is about to choose its own address is
    /// from 0.0.0.0/32; one of IPv6 is from nowhere, and so from no prefix of any length.
    pub from: Option<Prefix>,
    /// Only for packets to there.
    pub to: Option<Prefix>,
    /// Only for packets that came in through the interface of this name; `lo` for this host's own.
    pub input: Option<String>,
    /// Who made it.
    pub protocol: u8,
}

impl Rule {
    /// A rule for every packet of a family, made by [lasthop](PROTOCOL).
    pub fn new(ipv6: bool, priority: u32, table: u32) -> Self {
        Self {
            ipv6,
            priority,
            action: Action::Lookup(table),
            tcp: false,
            mark: None,
            from: None,
            to: None,
            input: None,
            protocol: PROTOCOL,
        }
    }

    pub(super) fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header = RuleHeader {
            family: family(self.ipv6),
            dst_len: self.to.map_or(0, |to| to.1),
            src_len: self.from.map_or(0, |from| from.1),
            action: match self.action {
                Action::Lookup(_) => RuleAction::ToTable,
                Action::Goto(_) => RuleAction::Goto,
                Action::Nop => RuleAction::Nop,
                Action::Unreachable => RuleAction::Unreachable,
            },
            ..RuleHeader::default()
        };
        let given = |prefix: Option<Prefix>| prefix.filter(|p| p.1 > 0).map(|p| p.0);
        let action = match self.action {
            Action::Lookup(table) => Some(RuleAttribute::Table(table)),
            Action::Goto(priority) => Some(RuleAttribute::Goto(priority)),
            Action::Nop | Action::Unreachable => None,
        };
        let attributes = [
            Some(RuleAttribute::Priority(self.priority)),
            action,
            self.tcp.then_some(RuleAttribute::IpProtocol(IpProtocol::Tcp)),
            Some(RuleAttribute::Protocol(RouteProtocol::from(self.protocol))),
            self.mark.map(|(value, _)| RuleAttribute::FwMark(value)),
            self.mark.map(|(_, mask)| RuleAttribute::FwMask(mask)),
            given(self.from).map(RuleAttribute::Source),
            given(self.to).map(RuleAttribute::Destination),
            self.input.clone().map(RuleAttribute::Iifname),
        ];
        message.attributes = attributes.into_iter().flatten().collect();
        message
    }

    /// What a message says; none if it is more than a [`Rule`] can say.
    pub(super) fn of(message: &RuleMessage) -> Option<Self> {
        let header = &message.header;
        let ipv6 = header.family == family(true);
        if !ipv6 && header.family != family(false) {
            return None;
        }
        let action = match header.action {
            RuleAction::ToTable => Action::Lookup(header.table.into()),
            RuleAction::Goto => Action::Goto(0),
            RuleAction::Nop => Action::Nop,
            RuleAction::Unreachable => Action::Unreachable,
            _ => return None,
        };
        let mut rule = Self { protocol: 0, action, ..Self::new(ipv6, 0, 0) };
        let (mut mark, mut mask) = (0, 0);
        let any = everything(ipv6).0;
        rule.to = (header.dst_len > 0).then_some((any, header.dst_len));
        rule.from = (header.src_len > 0).then_some((any, header.src_len));
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::Table(table) => {
                    if let Action::Lookup(known) = &mut rule.action {
                        *known = *table;
                    }
                }
                RuleAttribute::Goto(priority) => rule.action = Action::Goto(*priority),
                RuleAttribute::IpProtocol(IpProtocol::Tcp) => rule.tcp = true,
                RuleAttribute::Protocol(protocol) => rule.protocol = (*protocol).into(),
                RuleAttribute::FwMark(value) => mark = *value,
                RuleAttribute::FwMask(value) => mask = *value,
                RuleAttribute::Source(ip) => rule.from = Some((*ip, header.src_len)),
                RuleAttribute::Destination(ip) => rule.to = Some((*ip, header.dst_len)),
                RuleAttribute::Iifname(name) => rule.input = Some(name.clone()),
                RuleAttribute::Oifname(_)
                | RuleAttribute::TunId(_)
                | RuleAttribute::L3MDev(true)
                | RuleAttribute::UidRange(_)
                | RuleAttribute::IpProtocol(_)
                | RuleAttribute::SourcePortRange(_)
                | RuleAttribute::DestinationPortRange(_) => return None,
                _ => {}
            }
        }
        rule.mark = (mask != 0).then_some((mark, mask));
        Some(rule)
    }
}

/// As `ip rule` would say it.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ipv6, priority, .. } = self;
        write!(f, "{} rule {priority}", if *ipv6 { "IPv6" } else { "IPv4" })?;
        if let Some((ip, length)) = self.from {
            write!(f, " from {ip}/{length}")?;
        }
        if let Some((ip, length)) = self.to {
            write!(f, " to {ip}/{length}")?;
        }
        if let Some((value, mask)) = self.mark {
            write!(f, " fwmark {value:#x}/{mask:#x}")?;
        }
        if let Some(input) = &self.input {
            write!(f, " iif {input}")?;
        }
        if self.tcp {
            f.write_str(" ipproto tcp")?;
        }
        match self.action {
            Action::Lookup(table) => write!(f, " lookup {table}"),
            Action::Goto(priority) => write!(f, " goto {priority}"),
            Action::Nop => f.write_str(" nop"),
            Action::Unreachable => f.write_str(" unreachable"),
        }
    }
}
