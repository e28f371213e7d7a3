//! The packet filter's own messages (nfnetlink), as far as the `nft` program will not do: a queue of
//! packets that wait for a verdict (nfnetlink_queue), the rule that fills it, and elements of sets,
//! which are changed while a connection stands still and cannot wait for a program to start.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NetlinkPayload};
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::NetlinkError;
use super::attributes::{NESTED, attributes, octets, put, text};
use super::channel::{Channel, Read};
use super::message::Message;

// linux/netfilter/nfnetlink.h
const SUBSYSTEM_TABLES: u16 = 10;
const SUBSYSTEM_QUEUE: u16 = 3;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const FAMILY_INET: u8 = 1;
const FAMILY_ANY: u8 = 0;

// linux/netfilter/nf_tables.h and nf_tables_compat.h
const NEW_RULE: u16 = SUBSYSTEM_TABLES << 8 | 6;
const NEW_ELEMENTS: u16 = SUBSYSTEM_TABLES << 8 | 12;
const DELETE_ELEMENTS: u16 = SUBSYSTEM_TABLES << 8 | 14;
const ELEMENTS_TABLE: u16 = 1;
const ELEMENTS_SET: u16 = 2;
const ELEMENTS: u16 = 3;
const ELEMENT_KEY: u16 = 1;
const DATA_VALUE: u16 = 1;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const TARGET_NAME: u16 = 1;
const TARGET_REVISION: u16 = 2;
const TARGET_INFO: u16 = 3;

// linux/netfilter/nfnetlink_queue.h
const QUEUE_PACKET: u16 = SUBSYSTEM_QUEUE << 8;
const QUEUE_VERDICT: u16 = SUBSYSTEM_QUEUE << 8 | 1;
const QUEUE_CONFIG: u16 = SUBSYSTEM_QUEUE << 8 | 2;
const CONFIG_COMMAND: u16 = 1;
const CONFIG_COPY: u16 = 2;
const CONFIG_LENGTH: u16 = 3;
const COMMAND_BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
const PACKET_HEADER: u16 = 1;
const VERDICT_HEADER: u16 = 2;
const MARK: u16 = 3;
const PAYLOAD: u16 = 10;
const VERDICT_DROP: u32 = 0;
const VERDICT_ACCEPT: u32 = 1;

/// What is copied of a packet: no opening segment is longer but by data in it.
const COPIED: u32 = 2048;
/// Queue numbers that are tried, from the first on.
const NUMBERS: std::ops::Range<u16> = 27752..27784;

/// Elements in one message, so that it fits an attribute, and in one transaction, so that it fits the
/// socket.
const ELEMENTS_MAX: usize = 512;
const TRANSACTION_MAX: usize = 2048;

/// A message about a family and a number that depends on its kind.
fn message(kind: u16, family: u8, number: u16) -> Message {
    // struct nfgenmsg
    let [high, low] = number.to_be_bytes();
    Message::new(kind, &[family, 0, high, low])
}

/// Has packets that come to a chain of a table of the family `inet` held in queue `number`, or let
/// through if nobody serves it: for kernels whose packet filter has no `queue` of its own but that
/// of iptables (`CONFIG_NETFILTER_XT_TARGET_NFQUEUE`, `CONFIG_NFT_COMPAT`).
///
/// # Errors
///
/// The kernel's error.
pub fn add_queue_target(table: &str, chain: &str, number: u16) -> Result<(), NetlinkError> {
    // struct xt_NFQ_info_v3: the first queue, how many, NFQ_FLAG_BYPASS; aligned to eight bytes.
    let info: Vec<u8> =
        [number, 1, 1, 0].iter().flat_map(|field: &u16| field.to_ne_bytes()).collect();
    let target = attributes(&[
        (TARGET_NAME, &text("NFQUEUE")),
        (TARGET_REVISION, &3_u32.to_be_bytes()),
        (TARGET_INFO, &info),
    ]);
    let expression =
        attributes(&[(EXPRESSION_NAME, &text("target")), (EXPRESSION_DATA | NESTED, &target)]);
    let rule = message(NEW_RULE, FAMILY_INET, 0)
        .with_text(RULE_TABLE, table)
        .with_text(RULE_CHAIN, chain)
        .with(RULE_EXPRESSIONS | NESTED, &attributes(&[(LIST_ELEMENT | NESTED, &expression)]));
    let bound = |kind| message(kind, FAMILY_ANY, SUBSYSTEM_TABLES);
    let batch = [
        (bound(BATCH_BEGIN), 0),
        (rule, NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK),
        (bound(BATCH_END), 0),
    ];
    let what = || "hold packets in a queue".to_owned();
    Channel::open(NETLINK_NETFILTER)?.order_all(&batch, &what)
}

/// Elements of a named set, of a table of the family `inet`, that come or go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetChange {
    /// The table.
    pub table: &'static str,
    /// The set.
    pub set: String,
    /// They are added, which they may have been already; else they are deleted, and have to be there.
    pub add: bool,
    /// Their keys; see [`key`].
    pub keys: Vec<Vec<u8>>,
}

/// A field of a set's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// `ipv4_addr` or `ipv6_addr`.
    Ip(IpAddr),
    /// `inet_service`.
    Port(u16),
}

/// A set's key: of one field, or of several joined by a dot.
pub fn key(fields: &[Field]) -> Vec<u8> {
    let mut key = Vec::new();
    for field in fields {
        match field {
            Field::Ip(ip) => key.extend(octets(*ip)),
            Field::Port(port) => key.extend(port.to_be_bytes()),
        }
        key.resize(key.len().next_multiple_of(4), 0);
    }
    key
}

/// Changes sets. What is open stays open: the kernel takes milliseconds to close it.
#[derive(Default, Debug)]
pub struct Sets(Option<Channel>);

impl Sets {
    /// Changes sets, in this order; in one step where not thousands of elements change.
    ///
    /// # Errors
    ///
    /// The kernel's error; what was changed in an earlier step stays so.
    pub fn change(&mut self, changes: &[SetChange]) -> Result<(), NetlinkError> {
        let mut orders = Vec::new();
        for change in changes {
            orders.extend(change.keys.chunks(ELEMENTS_MAX).map(|keys| order(change, keys)));
        }
        let mut channel = match self.0.take() {
            Some(channel) => channel,
            None => Channel::open(NETLINK_NETFILTER)?,
        };
        for orders in orders.chunks(TRANSACTION_MAX / ELEMENTS_MAX) {
            let bound = |kind| (message(kind, FAMILY_ANY, SUBSYSTEM_TABLES), 0);
            let mut batch = vec![bound(BATCH_BEGIN)];
            batch.extend(orders.iter().cloned().map(|order| (order, NLM_F_CREATE)));
            if let Some((_, flags)) = batch.last_mut() {
                *flags |= NLM_F_ACK;
            }
            batch.push(bound(BATCH_END));
            channel.order_all(&batch, &|| "change sets of packet rules".to_owned())?;
        }
        self.0 = Some(channel);
        Ok(())
    }
}

fn order(change: &SetChange, keys: &[Vec<u8>]) -> Message {
    let mut elements = Vec::new();
    for key in keys {
        let value = attributes(&[(DATA_VALUE, key)]);
        let element = attributes(&[(ELEMENT_KEY | NESTED, &value)]);
        put(&mut elements, LIST_ELEMENT | NESTED, &element);
    }
    message(if change.add { NEW_ELEMENTS } else { DELETE_ELEMENTS }, FAMILY_INET, 0)
        .with_text(ELEMENTS_TABLE, change.table)
        .with_text(ELEMENTS_SET, &change.set)
        .with(ELEMENTS | NESTED, &elements)
}

/// A packet that waits for its verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The kernel's number of it.
    pub id: u32,
    /// It, from its IP header on.
    pub bytes: Vec<u8>,
}

/// What becomes of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes on.
    Accept,
    /// It vanishes.
    Drop,
    /// It goes on with this mark.
    Mark(u32),
    /// This packet goes on in its stead.
    Replace(Vec<u8>),
}

/// A queue of packets that wait for a verdict. When it is closed they vanish, and what comes later
/// is not held.
#[derive(Debug)]
pub struct PacketQueue {
    channel: Channel,
    number: u16,
}

impl PacketQueue {
    /// Serves a queue that nobody else serves, of at most `length` packets: beyond, they vanish.
    ///
    /// # Errors
    ///
    /// The kernel has no queues, CAP_NET_ADMIN is missing, or all numbers are taken.
    pub fn open(length: u32) -> Result<Self, NetlinkError> {
        let mut orders = Channel::open(NETLINK_NETFILTER)?;
        let number = Self::bind(&mut orders)?;
        let config =
            |kind, value: &[u8]| message(QUEUE_CONFIG, FAMILY_ANY, number).with(kind, value);
        let what = || format!("serve packet queue {number}");
        let [a, b, c, d] = COPIED.to_be_bytes();
        orders.order(config(CONFIG_COPY, &[a, b, c, d, COPY_PACKET]), 0, &what)?;
        orders.order(config(CONFIG_LENGTH, &length.to_be_bytes()), 0, &what)?;
        // The queue belongs to the socket that has bound it.
        orders.never_wait()?;
        Ok(Self { channel: orders, number })
    }

    fn bind(orders: &mut Channel) -> Result<u16, NetlinkError> {
        let mut refused = None;
        for number in NUMBERS {
            let bind = message(QUEUE_CONFIG, FAMILY_ANY, number)
                .with(CONFIG_COMMAND, &[COMMAND_BIND, 0, 0, 0]);
            match orders.order(bind, 0, &|| format!("serve packet queue {number}")) {
                Ok(()) => return Ok(number),
                // It may be somebody's; then the kernel says that it is not permitted.
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or(NetlinkError::Strange {
            what: "serve a packet queue".to_owned(),
            why: "does not come",
        }))
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Takes what waits, and says whether there may be more.
    ///
    /// # Errors
    ///
    /// The kernel tells nothing any more.
    pub fn read(&mut self, mut each: impl FnMut(Held)) -> io::Result<bool> {
        let read = self.channel.read(&mut |message| {
            if let NetlinkPayload::InnerMessage(message) = message.payload
                && message.kind == QUEUE_PACKET
                && let Some(held) = held(&message)
            {
                each(held);
            }
        })?;
        // What the kernel could not tell it has dropped; it will be sent again.
        Ok(!matches!(read, Read::Empty))
    }

    /// Says what becomes of a packet.
    pub fn answer(&mut self, id: u32, verdict: &Verdict) {
        let code = if *verdict == Verdict::Drop { VERDICT_DROP } else { VERDICT_ACCEPT };
        let [a, b, c, d] = code.to_be_bytes();
        let [e, f, g, h] = id.to_be_bytes();
        let said = message(QUEUE_VERDICT, FAMILY_ANY, self.number)
            .with(VERDICT_HEADER, &[a, b, c, d, e, f, g, h]);
        let said = match verdict {
            Verdict::Mark(mark) => said.with(MARK, &mark.to_be_bytes()),
            Verdict::Replace(packet) => said.with(PAYLOAD, packet),
            Verdict::Accept | Verdict::Drop => said,
        };
        if let Err(error) = self.channel.send_unanswered(said) {
            tracing::debug!(%error, "cannot release a held packet");
        }
    }
}

impl AsFd for PacketQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

pub(super) fn held(message: &Message) -> Option<Held> {
    let (_, attributes) = message.parts::<4>()?;
    let (mut id, mut bytes) = (None, None);
    for (kind, value) in attributes {
        match kind {
            PACKET_HEADER => id = value.0.first_chunk().copied().map(u32::from_be_bytes),
            PAYLOAD => bytes = Some(value.0.to_vec()),
            _ => {}
        }
    }
    Some(Held { id: id?, bytes: bytes.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;
    use crate::nft;

    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

    #[test]
    fn a_queue_is_one_process_and_what_comes_after_it_is_let_through() {
        let Some(netns) = Netns::for_test() else { return };
        netns
            .enter(|| {
                let mut first = PacketQueue::open(16).unwrap();
                let second = PacketQueue::open(16).unwrap();
                assert_ne!(first.number(), second.number());
                nft::apply(
                    "table inet x {\n chain held {\n }\n chain in {\n type filter hook prerouting \
                     priority 0; policy accept;\n udp dport 7 jump held\n }\n}\n",
                )
                .unwrap();
                add_queue_target("x", "held", first.number()).unwrap();
                let socket = std::net::UdpSocket::bind("127.0.0.1:7").unwrap();
                socket.set_nonblocking(true).unwrap();
                let knock = || socket.send_to(b"word", "127.0.0.1:7").unwrap();
                knock();
                let mut all = Vec::new();
                while first.read(|held| all.push(held)).unwrap() {}
                assert_eq!(all.len(), 1);
                let held = all.remove(0);
                assert!(held.bytes.ends_with(b"word"), "{held:?}");
                let heard = || socket.recv(&mut [0; 8]).ok();
                assert_eq!(heard(), None, "it waits");
                first.answer(held.id, &Verdict::Accept);
                assert_eq!(heard(), Some(4));
                drop(first);
                // A child that another test is just starting may have the socket for a moment.
                let start = std::time::Instant::now();
                while heard().is_none() {
                    assert!(start.elapsed() < PATIENCE, "nobody serves the queue, and it waits");
                    knock();
                }
            })
            .unwrap();
    }

    #[test]
    fn elements_come_and_go_in_one_step_or_not_at_all() {
        let Some(netns) = Netns::for_test() else { return };
        netns
            .enter(|| {
                nft::apply(
                    "table inet x {\n set one { type ipv4_addr . inet_service; timeout 60s; }\n \
                     set other { type ipv6_addr; }\n}\n",
                )
                .unwrap();
                let listed = || {
                    let out = netns.command("nft").args(["list", "table", "inet", "x"]).output();
                    String::from_utf8(out.unwrap().stdout).unwrap()
                };
                let of = |n: u16| key(&[Field::Ip([10, 0, 0, 1].into()), Field::Port(n)]);
                let change =
                    |set: &str, add, keys| SetChange { table: "x", set: set.to_owned(), add, keys };
                let six = vec![key(&[Field::Ip(std::net::Ipv6Addr::LOCALHOST.into())])];
                let add = [
                    change("one", true, (1..=5000).map(of).collect()),
                    change("other", true, six.clone()),
                ];
                let mut sets = Sets::default();
                sets.change(&add).unwrap();
                assert!(listed().contains("10.0.0.1 . 5000"), "{}", listed());
                assert!(listed().contains("::1"), "{}", listed());
                // One that was there is added once more, and is gone when it is deleted.
                sets.change(&[change("one", true, vec![of(7)]), change("one", false, vec![of(7)])])
                    .unwrap();
                assert!(!listed().contains("10.0.0.1 . 7 "), "{}", listed());
                let absent = [change("other", false, six), change("one", false, vec![of(7)])];
                let e = sets.change(&absent).unwrap_err();
                assert!(e.to_string().contains("sets of packet rules"), "{e}");
                assert!(listed().contains("::1"), "nothing of it is in force: {}", listed());
                assert!(sets.change(&[change("none", true, vec![of(1)])]).is_err());
            })
            .unwrap();
    }
}
