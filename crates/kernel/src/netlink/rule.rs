//! Rules: which table a packet is routed by (ip-rule(8)).

use std::fmt;

use super::message::Message;
use super::{PROTOCOL, Prefix, everything, family, prefix};

// linux/fib_rules.h
const DESTINATION: u16 = 1;
const SOURCE: u16 = 2;
const INPUT: u16 = 3;
const GOTO: u16 = 4;
const PRIORITY: u16 = 6;
const MARK: u16 = 10;
const TUNNEL: u16 = 12;
const SUPPRESS_PREFIX: u16 = 14;
const TABLE: u16 = 15;
const MASK: u16 = 16;
const OUTPUT: u16 = 17;
const L3MDEV: u16 = 19;
const USERS: u16 = 20;
const MADE_BY: u16 = 21;
const IP_PROTOCOL: u16 = 22;
const SOURCE_PORTS: u16 = 23;
const DESTINATION_PORTS: u16 = 24;
const ACTION_LOOKUP: u8 = 1;
const ACTION_GOTO: u8 = 2;
const ACTION_NOP: u8 = 3;
const ACTION_UNREACHABLE: u8 = 7;
const TCP: u8 = libc::IPPROTO_TCP as u8;

/// What is done with packets that a rule applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// They are routed by this table; where it has no route, the next rule is looked up.
    Lookup(u32),
    /// The rule of this priority is looked up next.
    Goto(u32),
    /// The next rule is looked up.
    Nop,
    /// They are refused, as where there is no route.
    Unreachable,
}

/// Says which packets are routed by a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// For IPv6 instead of IPv4.
    pub ipv6: bool,
    /// The less, the earlier it is looked up; the main table has 32766.
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
    /// A default route that is found does not count: the next rule is asked.
    pub no_default: bool,
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
            no_default: false,
            protocol: PROTOCOL,
        }
    }

    pub(super) fn message(&self, kind: u16) -> Message {
        let length = |prefix: Option<Prefix>| prefix.map_or(0, |prefix| prefix.1);
        let (action, target) = match self.action {
            Action::Lookup(table) => (ACTION_LOOKUP, Some((TABLE, table))),
            Action::Goto(priority) => (ACTION_GOTO, Some((GOTO, priority))),
            Action::Nop => (ACTION_NOP, None),
            Action::Unreachable => (ACTION_UNREACHABLE, None),
        };
        // struct fib_rule_hdr: family, lengths, type of service, table, reserved, action, flags
        let (to, from) = (length(self.to), length(self.from));
        let fields = [family(self.ipv6), to, from, 0, 0, 0, 0, action, 0, 0, 0, 0];
        let given = |prefix: Option<Prefix>| prefix.filter(|p| p.1 > 0).map(|p| p.0);
        Message::new(kind, &fields)
            .with_u32(PRIORITY, self.priority)
            .with_some(target, |message, (kind, target)| message.with_u32(kind, target))
            .with_some(self.tcp.then_some(TCP), |message, tcp| message.with(IP_PROTOCOL, &[tcp]))
            .with(MADE_BY, &[self.protocol])
            .with_some(self.no_default.then_some(0), |message, length| {
                message.with_u32(SUPPRESS_PREFIX, length)
            })
            .with_some(self.mark, |message, (value, mask)| {
                message.with_u32(MARK, value).with_u32(MASK, mask)
            })
            .with_some(given(self.from), |message, ip| message.with_ip(SOURCE, ip))
            .with_some(given(self.to), |message, ip| message.with_ip(DESTINATION, ip))
            .with_some(self.input.as_deref(), |message, name| message.with_text(INPUT, name))
    }

    /// The message that asks for all of a family.
    pub(super) fn question(kind: u16, ipv6: bool) -> Message {
        Message::new(kind, &[family(ipv6), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    }

    /// What a message says; none if it is more than a [`Rule`] can say.
    pub(super) fn of(message: &Message) -> Option<Self> {
        let (fields, attributes) = message.parts::<12>()?;
        let [of, to, from, _, table, _, _, action, ..] = *fields;
        let ipv6 = of == family(true);
        if !ipv6 && of != family(false) {
            return None;
        }
        let action = match action {
            ACTION_LOOKUP => Action::Lookup(table.into()),
            ACTION_GOTO => Action::Goto(0),
            ACTION_NOP => Action::Nop,
            ACTION_UNREACHABLE => Action::Unreachable,
            _ => return None,
        };
        let mut rule = Self { protocol: 0, action, ..Self::new(ipv6, 0, 0) };
        let (mut mark, mut mask) = (0, 0);
        let any = everything(ipv6).0;
        rule.to = (to > 0).then_some((any, to));
        rule.from = (from > 0).then_some((any, from));
        for (kind, value) in attributes {
            match kind {
                PRIORITY => rule.priority = value.u32()?,
                TABLE => {
                    if let Action::Lookup(known) = &mut rule.action {
                        *known = value.u32()?;
                    }
                }
                GOTO => rule.action = Action::Goto(value.u32()?),
                IP_PROTOCOL if value.u8() == Some(TCP) => rule.tcp = true,
                MADE_BY => rule.protocol = value.u8()?,
                MARK => mark = value.u32()?,
                MASK => mask = value.u32()?,
                SOURCE if from > 0 => rule.from = Some((value.ip()?, from)),
                DESTINATION if to > 0 => rule.to = Some((value.ip()?, to)),
                SUPPRESS_PREFIX => rule.no_default = value.u32()? == 0,
                INPUT => rule.input = Some(value.text()?.to_owned()),
                L3MDEV if value.u8() == Some(0) => {}
                OUTPUT | TUNNEL | L3MDEV | USERS | IP_PROTOCOL | SOURCE_PORTS
                | DESTINATION_PORTS => return None,
                _ => {}
            }
        }
        for of in [&mut rule.from, &mut rule.to] {
            *of = match *of {
                Some(of) => Some(prefix(ipv6, of)?),
                None => None,
            };
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
        if self.no_default {
            f.write_str(" suppress_prefixlength 0")?;
        }
        match self.action {
            Action::Lookup(table) => write!(f, " lookup {table}"),
            Action::Goto(priority) => write!(f, " goto {priority}"),
            Action::Nop => f.write_str(" nop"),
            Action::Unreachable => f.write_str(" unreachable"),
        }
    }
}
