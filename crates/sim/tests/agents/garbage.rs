//! Packets that nobody sent.

use core::net::{Ipv4Addr, SocketAddr};

use lasthop_sim::net::{Body, Context, Packet};
use lasthop_units::Stream;
use lasthop_wire::agent::{Connection, Message, PORT, Ranges};
use lasthop_wire::tcp::{Flags, Segment, Seq};
use lasthop_wire::unsplit::Request;

use crate::settings::pick;

/// Half of the sequence space away, give or take a quarter of that: no window reaches there, so
/// that neither end believes it, but an agent may.
fn far(random: &mut Stream, from: Seq) -> Seq {
    let off = (1 << 30) + (1 << 29) + random.below(1 << 30) as u32;
    Seq(from.0.wrapping_add(off))
}

/// A segment of the connection of `like`, or of one that there is not. A host that still listens
/// would believe any SYN: none is made before the connection stands.
pub(crate) fn segment(ctx: &Context<'_>, random: &mut Stream, like: &Packet) -> Option<Packet> {
    let real = *like.tcp().filter(|tcp| !tcp.flags.contains(Flags::SYN))?;
    let flags = Flags::from_bits(random.next_u64() as u8);
    let mut made = Segment {
        flags,
        seq: far(random, real.seq),
        ack: far(random, real.ack),
        window: random.next_u64() as u16,
        len: pick(random, &[0, 0, 1, 1000]),
        ..real
    };
    if random.chance(0.3) {
        // Of nobody's connection, to a port where nobody listens, and wherever it likes.
        let port = |random: &mut Stream| random.next_u64() as u16 | 0x8000;
        (made.src_port, made.dst_port) = (port(random), port(random));
        (made.seq, made.ack) = (Seq(random.next_u64() as u32), Seq(random.next_u64() as u32));
    }
    made.options.timestamps = None;
    let len = made.len;
    let mut packet = ctx.packet(like.src, like.dst, Body::Tcp(made));
    let mut bytes = vec![0; len as usize];
    random.fill(&mut bytes);
    packet.set_bytes(&bytes);
    Some(packet)
}

fn ranges(random: &mut Stream, near: Seq) -> Ranges {
    let mut ranges = Ranges::default();
    for _ in 0..random.below(6) {
        let start = near + (random.below(20_000) as u32).wrapping_sub(10_000);
        let start = if random.chance(0.3) { far(random, near) } else { start };
        ranges.push(start, start + pick(random, &[0, 1, 1000, 1 << 31]));
    }
    ranges
}

/// A datagram for an agent: a message that says something wrong, or noise.
pub(crate) fn message(
    ctx: &Context<'_>,
    random: &mut Stream,
    (src, dst): (Ipv4Addr, Ipv4Addr),
    like: Option<(&Packet, Ipv4Addr)>,
) -> Option<Packet> {
    let mut packet = ctx.packet(src, dst, Body::Udp { src_port: PORT, dst_port: PORT });
    let mut bytes = vec![0; Message::MAX_LEN];
    let len = match like {
        Some((like, mobile)) if random.chance(0.8) => {
            wrong(random, like, mobile)?.emit(&mut bytes).ok()?
        }
        _ => {
            let len = random.below(60) as usize;
            random.fill(&mut bytes[..len]);
            len
        }
    };
    packet.set_bytes(&bytes[..len]);
    Some(packet)
}

fn wrong(random: &mut Stream, like: &Packet, mobile: Ipv4Addr) -> Option<Message> {
    let segment = like.tcp()?;
    let src = SocketAddr::from((like.src, segment.src_port));
    let dst = SocketAddr::from((like.dst, segment.dst_port));
    let down = like.dst == mobile;
    let connection = match down {
        true => Connection { fixed: src, mobile: dst },
        false => Connection { fixed: dst, mobile: src },
    };
    let near = if down { segment.seq } else { segment.ack };
    let cid = random.below(6) as u16;
    Some(match random.below(6) {
        0 => Message::Snack { connection, missing: ranges(random, near) },
        1 => Message::Congestion { connection, lost: ranges(random, near) },
        2 => Message::BadState { connection },
        3 => Message::Request {
            cid,
            reply: random.chance(0.5),
            request: Request { ack: near, nis: near + random.below(5000) as u32 },
        },
        4 => Message::UnknownCid { cid },
        _ => Message::LinkAck { latest: random.next_u64() as u32, come: random.next_u64() },
    })
}
