//! The decoder of frames between agents, and the editor of headers that somebody else wrote, on any
//! bytes.

use lasthop_wire::agent::beside::{Beside, message_header, numbered_header};
use lasthop_wire::tcp::{Segment, Seq};

/// One input: what a frame between agents carries, and again two TCP headers, of which the first is
/// changed to say what the second says.
pub fn run(bytes: &[u8]) {
    carried(bytes);
    let (was, is) = bytes.split_at(bytes.len() / 2);
    rewrite(was, is);
    rewrite(bytes, bytes);
}

/// What is read comes back from its bytes.
fn carried(bytes: &[u8]) {
    let Ok(beside) = Beside::parse(bytes) else { return };
    let again = match beside {
        Beside::Hello(hello) => {
            assert!(hello.epoch != 0 && hello.heard != Some(0));
            hello.emit().to_vec()
        }
        Beside::Message(message) => [&message_header()[..], message].concat(),
        Beside::Numbered { number, ethertype, packet } => {
            [&numbered_header(number, ethertype)[..], packet].concat()
        }
    };
    assert!(bytes.starts_with(&again));
    assert_eq!(Beside::parse(&again), Ok(beside));
}

/// A header that was changed can be read, has its own ports and payload, and says what was asked for
/// as far as that is no option.
fn rewrite(was: &[u8], is: &[u8]) {
    let (Ok((before, _)), Ok((wanted, _))) =
        (Segment::parse_unverified(was), Segment::parse_unverified(is))
    else {
        return;
    };
    let header = wanted.rewritten(was).expect("it can be read");
    let (read, payload) = Segment::parse_unverified(header.as_slice()).expect("as can this");
    assert!(payload.is_empty());
    assert_eq!((read.src_port, read.dst_port), (before.src_port, before.dst_port));
    assert_eq!((read.seq, read.ack), (wanted.seq, wanted.ack));
    assert_eq!((read.flags, read.window), (wanted.flags, wanted.window));
    if wanted.options == before.options {
        assert_eq!(header.as_slice()[20..], was[20..header.as_slice().len()]);
    }
    let back = Segment { seq: Seq(1), ..before }.rewritten(header.as_slice()).expect("and changed");
    assert_eq!(
        Segment::parse_unverified(back.as_slice()).expect("again").0.options,
        before.options
    );
}
