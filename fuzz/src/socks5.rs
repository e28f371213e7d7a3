//! Both sides of SOCKS, on any bytes: bounded, and the same however the input is cut.

use lasthop_session::socks::{Client, ClientProgress, Server};
use lasthop_session::{Progress, Refusal, Target};

/// Lets a server hear the pieces; where it ended and what it answered.
fn serve<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Progress, Vec<u8>) {
    let mut server = Server::new().with_udp_associate(true);
    for piece in pieces {
        let taken = server.handle_input(piece);
        assert!(taken.bytes <= piece.len());
        if taken.progress != Progress::NeedMore {
            server.reply(Err(Refusal::Refused));
            assert!(server.output().len() < 64);
            return (taken.progress, server.output().to_vec());
        }
    }
    (Progress::NeedMore, server.output().to_vec())
}

fn ask<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> ClientProgress {
    let target = Target::from_host("host", 1).expect("a good name");
    let mut client = Client::new(target);
    for piece in pieces {
        let (n, progress) = client.handle_input(piece);
        assert!(n <= piece.len() && client.output().len() < 300);
        if progress != ClientProgress::NeedMore {
            return progress;
        }
    }
    ClientProgress::NeedMore
}

/// One input.
pub fn run(bytes: &[u8]) {
    assert_eq!(serve([bytes].into_iter()), serve(bytes.chunks(1)));
    assert_eq!(ask([bytes].into_iter()), ask(bytes.chunks(1)));
}
