//! The decoders of what bases and mobiles say of a handoff, and of a session's state, on any bytes.

use lasthop_wire::mhp::fleet::{FLEET_MAX, FleetMessage};
use lasthop_wire::mhp::handoff::{
    Datagram, MAX_BASE_NAME_LEN, Message, PULL_MAX, ROLL_MAX, SessionState,
};
use lasthop_wire::mhp::reach::Reach;
use lasthop_wire::mhp::transit::TransitMessage;
use lasthop_wire::mhp::{self, Decoded};

fn is_bounded(message: &Message<'_>, bytes: &[u8]) {
    match message {
        Message::Greet { holder: name, .. }
        | Message::Moved { to: name, .. }
        | Message::Expect { candidate: name } => {
            assert!(name.as_bytes().len() <= MAX_BASE_NAME_LEN);
        }
        Message::Pull { pieces, .. } | Message::Fetch { pieces, .. } => {
            assert!(pieces.len() <= PULL_MAX)
        }
        Message::State { bytes: piece, .. } | Message::Ahead { bytes: piece, .. } => {
            assert!(piece.len() < bytes.len())
        }
        _ => {}
    }
}

fn reach(bytes: &[u8]) {
    let Some(said) = Reach::decode(bytes) else { return };
    let mut again = Vec::new();
    said.encode(&mut again);
    assert_eq!(Reach::decode(&again), Some(said));
}

fn transit(bytes: &[u8]) {
    let Some(said) = TransitMessage::decode(bytes) else { return };
    let mut again = Vec::new();
    said.encode(&mut again);
    assert_eq!(TransitMessage::decode(&again), Some(said));
}

fn fleet(bytes: &[u8]) {
    let Some(said) = FleetMessage::decode(bytes) else { return };
    if let FleetMessage::Told(news) = &said {
        assert!(news.bases.as_ref().is_none_or(|bases| bases.len() <= FLEET_MAX));
    }
    let mut again = Vec::new();
    said.encode(&mut again);
    assert_eq!(FleetMessage::decode(&again), Some(said));
}

fn datagram(bytes: &[u8]) {
    reach(bytes);
    transit(bytes);
    fleet(bytes);
    let Ok(datagram) = Datagram::decode(bytes) else { return };
    is_bounded(&datagram.message, bytes);
    let mut again = Vec::new();
    datagram.encode(&mut again);
    assert_eq!(Datagram::decode(&again), Ok(datagram));
}

fn stream_message(bytes: &[u8]) {
    let Ok(Decoded::Complete { message, .. }) = mhp::decode(bytes) else { return };
    if let mhp::Message::Roll(roll) = &message {
        assert!(roll.connections.len() <= ROLL_MAX && roll.connections.is_sorted());
    }
    let mut again = Vec::new();
    message.encode(&mut again);
    let len = again.len();
    assert_eq!(mhp::decode(&again), Ok(Decoded::Complete { message, len }));
}

fn state(bytes: &[u8]) {
    let Ok(state) = SessionState::decode(bytes) else { return };
    let held =
        |c: &mhp::handoff::ConnectionState| c.up.bytes.len() + c.down.bytes.len() + c.wired.len();
    let held: usize = state.connections.iter().map(held).sum();
    assert!(held + state.hop.len() < bytes.len(), "nothing is made of what is not there");
    let again = state.encode();
    assert!(again.len() <= state.encoded_len());
    assert_eq!(SessionState::decode(&again), Ok(state));
}

/// One input: as it is, and as the body of each kind of message.
pub fn run(bytes: &[u8]) {
    datagram(bytes);
    state(bytes);
    let Some((&kind, body)) = bytes.split_first() else { return };
    let [high, low] = (body.len() as u16).to_be_bytes();
    let framed = [&[mhp::VERSION, kind % 64, high, low], body].concat();
    datagram(&framed);
    stream_message(&framed);
}
