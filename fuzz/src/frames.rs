//! SRP's frames, on any bytes: bounded, and what is read can be written and read again.

use lasthop_wire::frame::{Frame, Frames, MAX_ACK_SPAN, Writer};

fn is_bounded(frame: &Frame<'_>, bytes: &[u8]) {
    match frame {
        Frame::Ack(ack) => {
            assert!(ack.latest - ack.first <= MAX_ACK_SPAN);
            assert!(ack.received(ack.latest) && !ack.received(ack.latest + 1));
            let missing = (ack.first..=ack.latest).filter(|number| !ack.received(*number)).count();
            assert!(missing <= bytes.len() * 8 + 1);
        }
        Frame::Stream(stream) => assert!(stream.data.len() <= bytes.len()),
        _ => {}
    }
}

/// One input: the payload of a datagram.
pub fn run(bytes: &[u8]) {
    let mut frames = Frames::new(bytes);
    let mut out = vec![0; bytes.len() + 32];
    let mut read = 0;
    while let Some(frame) = frames.next() {
        let Ok(frame) = frame else {
            assert!(frames.next().is_none(), "nothing is read behind what cannot be read");
            return;
        };
        read += 1;
        assert!(read <= bytes.len());
        is_bounded(&frame, bytes);
        let mut writer = Writer::new(&mut out);
        // A writer refuses pieces that no datagram carries.
        if writer.put(&frame) {
            let len = writer.len();
            assert_eq!(Frames::new(&out[..len]).next(), Some(Ok(frame)));
        }
    }
}
