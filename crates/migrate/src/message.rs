//! Requests to the helper, and its answers: one datagram each, with descriptors beside it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lasthop_kernel::network::Network;
use lasthop_kernel::sockopt::Repair;
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Flow;

/// The form of the messages. A helper of another version refuses.
const VERSION: u8 = 4;
/// Descriptors in one message (the kernel takes 253).
pub(super) const FDS_MAX: usize = 128;
/// Four-tuples in one message.
pub(super) const FLOWS_MAX: usize = 4096;
/// Connections whose acknowledgements are held for one client.
pub(super) const HELD_MAX: usize = 2048;
/// Networks, or addresses, of all mobiles for which a helper works at once.
pub const NETWORKS_MAX: usize = 4096;
/// The longest message, bytes: less than a Unix socket takes by default.
pub(super) const MESSAGE_MAX: usize = 192 * 1024;
/// The largest buffer of a socket that can be had, bytes as the kernel counts them.
pub(super) const BUFFER_MAX: u32 = 128 << 20;
/// The longest name of an interface (`IFNAMSIZ` without its zero).
const NAME_MAX: usize = 15;
/// The longest explanation in an answer, characters.
const TEXT_MAX: usize = 1024;

/// Where packets for a mobile's address go.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Route {
    /// To another router.
    Via(IpAddr),
    /// To the neighbour on this interface that has the address.
    OnLink(String),
    /// To this host.
    Local,
}

/// A socket to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct SocketRequest {
    /// Port 0: any.
    pub(super) local: SocketAddr,
    /// In repair, with a receive and a send buffer of these sizes, bytes as the kernel counts them.
    pub(super) repair: Option<(u32, u32)>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Are you there, and of my version?
    Hello,
    /// Sets the mode of each socket that comes with the message.
    Repair(Repair),
    /// Makes transparent sockets; they come with the answer, those that could be made.
    Sockets(Vec<SocketRequest>),
    Freeze(Vec<Flow>),
    Thaw(Vec<Flow>),
    Guard(Vec<Network>),
    /// Of the guarded addresses, strays to exactly these are reset.
    Answer(Vec<IpAddr>),
    Route(IpAddr, Route),
    Unroute(IpAddr),
    Announce(IpAddr, String),
    Retract(IpAddr, String),
    /// The memory of slots for connections whose acknowledgements are held comes with the answer.
    Slots,
    /// That memory comes with the message, and these connections are held by those slots.
    SlotsAgain(Vec<(Flow, u32)>),
    /// Holds a connection's acknowledgements; the answer is its slot.
    Hold(Flow),
    /// Holds that connection's no longer.
    Release(Flow),
    /// Works for these and no others from here on, if whoever started the helper asks. Says for which of them it does.
    Permit(Vec<Network>),
    /// The client ends in good order: everything goes.
    Goodbye,
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Nothing if it is not a request of this version, whole and with nothing behind it, or asks for what
    /// no client does.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes).filter(Self::is_sensible)
    }

    fn is_sensible(&self) -> bool {
        let bounded = |(receive, send)| receive <= BUFFER_MAX && send <= BUFFER_MAX;
        match self {
            Self::Sockets(wanted) => {
                wanted.len() <= FDS_MAX && wanted.iter().all(|w| w.repair.is_none_or(bounded))
            }
            Self::Freeze(flows) | Self::Thaw(flows) => flows.len() <= FLOWS_MAX,
            Self::SlotsAgain(held) => held.len() <= HELD_MAX,
            Self::Guard(networks) | Self::Permit(networks) => networks.len() <= NETWORKS_MAX,
            Self::Answer(addresses) => addresses.len() <= NETWORKS_MAX,
            Self::Route(_, Route::OnLink(name))
            | Self::Announce(_, name)
            | Self::Retract(_, name) => is_name(name),
            _ => true,
        }
    }
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    // Nothing that is sent here has what the form cannot say; were it otherwise, the helper would refuse.
    postcard::to_allocvec(&(VERSION, message)).unwrap_or_default()
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (_, message) = bytes.split_first().filter(|(version, _)| **version == VERSION)?;
    let (message, rest) = postcard::take_from_bytes(message).ok()?;
    rest.is_empty().then_some(message)
}

/// The name of an interface; it becomes part of a path and of rules, so only plain ones pass.
fn is_name(name: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let starts_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    starts_well && name.len() <= NAME_MAX && name.bytes().all(good)
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    /// For each descriptor, socket or network of the request zero or the kernel's error number.
    Each(Vec<i32>),
    /// What was asked for is there.
    Slot(u32),
    /// Nothing was done, and this is why.
    Failed(String),
}

impl Answer {
    /// One that says why nothing was done, as far as there is room for it.
    pub(super) fn failed(why: &str) -> Self {
        Self::Failed(why.chars().take(TEXT_MAX).collect())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes).filter(|answer| match answer {
            Self::Done | Self::Slot(_) => true,
            Self::Each(errors) => errors.len() <= NETWORKS_MAX,
            Self::Failed(why) => why.chars().count() <= TEXT_MAX,
        })
    }
}

/// Sends one message with at most [`FDS_MAX`] descriptors.
pub(super) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = flags | SendFlags::NOSIGNAL;
    let sent = rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags)
    })?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Takes one message into `buffer`, of at least [`MESSAGE_MAX`] bytes; nothing at the end.
pub(super) fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let got = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)
    })?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((got.bytes > 0).then_some((got.bytes, fds)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    fn requests() -> Vec<Request> {
        let v4: IpAddr = "10.9.0.7".parse().unwrap();
        let v6: IpAddr = "2001:db8::7".parse().unwrap();
        let flow =
            |ip: IpAddr| Flow { local: SocketAddr::new(ip, 4000), remote: SocketAddr::new(ip, 80) };
        let wanted = SocketRequest { local: SocketAddr::new(v6, 9), repair: Some((1, 2)) };
        vec![
            Request::Hello,
            Request::Repair(Repair::OffSilently),
            Request::Sockets(vec![wanted, SocketRequest { repair: None, ..wanted }]),
            Request::Freeze(vec![flow(v4), flow(v6)]),
            Request::Thaw(Vec::new()),
            Request::Guard(vec![v4.into(), "2001:db8::/64".parse().unwrap()]),
            Request::Permit(vec![v6.into(), "10.9.0.0/24".parse().unwrap()]),
            Request::Answer(vec![v4, v6]),
            Request::Route(v4, Route::Via(v4)),
            Request::Route(v6, Route::OnLink("eth0.5".into())),
            Request::Route(v6, Route::Local),
            Request::Unroute(v4),
            Request::Announce(v4, "eth0".into()),
            Request::Retract(v6, "eth0".into()),
            Request::Goodbye,
        ]
    }

    #[test]
    fn requests_and_answers_are_read_as_written_and_only_whole() {
        for request in requests() {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Some(request.clone()));
            assert_eq!(Request::decode(&[&bytes[..], &[0]].concat()), None, "{request:?}");
        }
        let answers =
            [Answer::Done, Answer::Each(vec![0, 1, -1]), Answer::Failed("no such thing".into())];
        for answer in answers {
            let bytes = answer.encode();
            assert_eq!(Answer::decode(&bytes), Some(answer.clone()));
            assert_eq!(Answer::decode(&bytes[..bytes.len() - 1]), None, "{answer:?}");
        }
        let many = Answer::Each(vec![0; NETWORKS_MAX + 1]).encode();
        assert_eq!(Answer::decode(&many), None);
        assert_eq!(Answer::decode(&many[..many.len() - 1]), None);
        let long = "é".repeat(TEXT_MAX + 1);
        assert_eq!(Answer::decode(&Answer::Failed(long.clone()).encode()), None);
        let said = Answer::failed(&long);
        assert_eq!(Answer::decode(&said.encode()), Some(said));
    }

    #[test]
    fn a_name_that_is_more_than_a_name_is_refused() {
        let ip = IpAddr::from([10, 0, 0, 1]);
        for bad in ["", "../all", "a b", "eth0\nx", "sixteen-letters-", "-x", "é"] {
            let bytes = Request::Announce(ip, bad.into()).encode();
            assert_eq!(Request::decode(&bytes), None, "{bad}");
        }
    }

    #[test]
    fn descriptors_travel_beside_the_bytes_and_the_end_is_reported() {
        let (a, b) = pair();
        let (mine, yours) = pair();
        send(&a, b"hello", &[yours.as_fd()], SendFlags::empty()).unwrap();
        drop((a, yours));
        let mut buffer = vec![0; MESSAGE_MAX];
        let (length, fds) = receive(&b, &mut buffer, RecvFlags::empty()).unwrap().unwrap();
        assert_eq!(&buffer[..length], b"hello");
        let [yours] = fds.try_into().unwrap();
        rustix::io::write(&yours, b"x").unwrap();
        assert_eq!(rustix::io::read(&mine, &mut buffer[..]).unwrap(), 1);
        assert!(receive(&b, &mut buffer, RecvFlags::empty()).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoders_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..13,
        ) {
            if let [version, k, ..] = &mut bytes[..] {
                (*version, *k) = (VERSION, kind);
            }
            let _ = Answer::decode(&bytes);
            if let Some(request) = Request::decode(&bytes) {
                // A number may be written in more bytes than it needs.
                prop_assert_eq!(Request::decode(&request.encode()), Some(request));
            }
        }
    }
}
