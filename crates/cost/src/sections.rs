//! Parts of a stack timed apart, with the same code on the same lengths.

use std::hint::black_box;

use lasthop_stream::Ring;
use lasthop_wire::checksum;

use crate::clock::Whose;
use crate::link::{self, Queue};
use crate::meter::repeat;
use crate::options::Options;
use crate::stack::MACS;

/// What the parts take for one buffer, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sections {
    /// A checksum computed over header and data, and verified.
    pub(crate) checksum: f64,
    /// The data copied from a ring to a frame, and from the frame to another ring.
    pub(crate) copy: f64,
    /// A frame with its Ethernet header put on the link and taken.
    pub(crate) link: f64,
}

/// Times the parts for a buffer of this size behind a transport header of that length.
pub(crate) fn time(options: &Options, size: usize, header: usize) -> Sections {
    Sections {
        checksum: checksums(options, size + header),
        copy: copies(options, size),
        link: links(options, size + header),
    }
}

fn checksums(options: &Options, len: usize) -> f64 {
    let bytes = vec![0x5a; len];
    let work = |times| {
        (0..times).for_each(|_| {
            black_box(checksum::of(black_box(&bytes)));
            black_box(checksum::of(black_box(&bytes)));
        });
        true
    };
    repeat(options, Whose::Thread, work).map_or(0.0, |r| r.wall)
}

/// Two copies between a ring and a frame, with what finds their places.
fn copies(options: &Options, len: usize) -> f64 {
    let (mut from, mut to) = (Ring::default(), Ring::default());
    let (mut at, mut frame) = (0_u64, vec![0; len]);
    let step = len as u64;
    let work = |times| {
        (0..times).for_each(|_| {
            from.reserve(at + step);
            to.reserve(at + step);
            let (head, tail) = from.slices(at..at + step);
            frame[..head.len()].copy_from_slice(head);
            frame[head.len()..].copy_from_slice(tail);
            to.write(at, black_box(&frame));
            at += step;
            from.advance(at);
            to.advance(at);
        });
        true
    };
    repeat(options, Whose::Thread, work).map_or(0.0, |r| r.wall)
}

fn links(options: &Options, len: usize) -> f64 {
    let mut queue = Queue::default();
    let work = |times| {
        (0..times).all(|_| {
            let Some(frame) = queue.slot() else { return false };
            link::put_header(frame, MACS[1], MACS[0], link::TYPE_IPV4);
            queue.send(black_box(link::ETHERNET + len));
            let taken = queue.front().and_then(|f| link::payload(f, MACS[1], link::TYPE_IPV4));
            let fine = black_box(taken).is_some();
            queue.pop();
            fine
        })
    };
    repeat(options, Whose::Thread, work).map_or(0.0, |r| r.wall)
}
