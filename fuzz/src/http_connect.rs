//! The HTTP proxy's reader, on any bytes: bounded, and the same however the input is cut.

use lasthop_session::http::{MAX_HEAD_LEN, Server};
use lasthop_session::{Progress, Refusal};

/// Lets a server hear the pieces; where it ended, what it passes on and what it answers.
fn serve<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Progress, Vec<u8>, Vec<u8>) {
    let mut server = Server::new();
    for piece in pieces {
        let taken = server.handle_input(piece);
        assert!(taken.bytes <= piece.len());
        if taken.progress != Progress::NeedMore {
            let preface = server.take_preface();
            assert!(preface.len() <= MAX_HEAD_LEN + 300 && !preface.contains(&0));
            server.reply(Err(Refusal::Refused));
            assert!(server.output().len() < 1024);
            return (taken.progress, preface, server.output().to_vec());
        }
    }
    (Progress::NeedMore, Vec::new(), Vec::new())
}

/// One input.
pub fn run(bytes: &[u8]) {
    assert_eq!(serve([bytes].into_iter()), serve(bytes.chunks(1)));
    assert_eq!(serve([bytes].into_iter()), serve(bytes.chunks(7)));
    let mut request = b"GET http://host/ HTTP/1.1\r\n".to_vec();
    request.extend_from_slice(bytes);
    serve([&request[..]].into_iter());
}
