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

use super::Flow;
use super::codec::{Reader, put_address, put_ip, put_string, put_u16, put_u32};

/// The form of the messages. A helper of another version refuses.
const VERSION: u8 = 1;
/// Descriptors in one message (the kernel takes 253).
pub(super) const FDS_MAX: usize = 128;
/// Four-tuples in one message.
pub(super) const FLOWS_MAX: usize = 4096;
/// Networks, or addresses, in one message.
pub(super) const NETWORKS_MAX: usize = 4096;
/// The longest message, bytes: less than a Unix socket takes by default.
pub(super) const MESSAGE_MAX: usize = 192 * 1024;
/// The largest buffer of a socket that can be had, bytes as the kernel counts them.
pub(super) const BUFFER_MAX: u32 = 128 << 20;
/// The longest name of an interface (`IFNAMSIZ` without its zero).
const NAME_MAX: usize = 15;
/// The longest explanation in an answer, bytes.
const TEXT_MAX: usize = 1024;

/// Where packets for a mobile's address go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// To another router.
    Via(IpAddr),
    /// To the neighbour on this interface that has the address.
    OnLink(String),
    /// To this host.
    Local,
}

/// A socket to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SocketRequest {
    /// Port 0: any.
    pub(super) local: SocketAddr,
    /// In repair, with a receive and a send buffer of these sizes, bytes as the kernel counts them.
    pub(super) repair: Option<(u32, u32)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// The client ends in good order: everything goes.
    Goodbye,
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.kind()];
        match self {
            Self::Hello | Self::Goodbye => {}
            Self::Repair(mode) => out.push(mode.to_wire()),
            Self::Sockets(wanted) => wanted.iter().for_each(|w| put_wanted(&mut out, w)),
            Self::Freeze(flows) | Self::Thaw(flows) => {
                for flow in flows {
                    put_address(&mut out, flow.local);
                    put_address(&mut out, flow.remote);
                }
            }
            Self::Guard(networks) => networks.iter().for_each(|n| put_network(&mut out, n)),
            Self::Answer(addresses) => addresses.iter().for_each(|ip| put_ip(&mut out, *ip)),
            Self::Route(address, route) => {
                put_ip(&mut out, *address);
                put_route(&mut out, route);
            }
            Self::Unroute(address) => put_ip(&mut out, *address),
            Self::Announce(address, interface) | Self::Retract(address, interface) => {
                put_ip(&mut out, *address);
                put_string(&mut out, interface.as_bytes());
            }
        }
        out
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello => 0,
            Self::Repair(_) => 1,
            Self::Sockets(_) => 2,
            Self::Freeze(_) => 3,
            Self::Thaw(_) => 4,
            Self::Guard(_) => 5,
            Self::Route(..) => 6,
            Self::Unroute(_) => 7,
            Self::Announce(..) => 8,
            Self::Retract(..) => 9,
            Self::Goodbye => 10,
            Self::Answer(_) => 11,
        }
    }

    /// Nothing if it is not a request of this version, whole and with nothing behind it.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return None;
        }
        let request = match reader.u8()? {
            0 => Self::Hello,
            1 => Self::Repair(Repair::from_wire(reader.u8()?)?),
            2 => Self::Sockets(list(&mut reader, FDS_MAX, read_wanted)?),
            3 => Self::Freeze(list(&mut reader, FLOWS_MAX, read_flow)?),
            4 => Self::Thaw(list(&mut reader, FLOWS_MAX, read_flow)?),
            5 => Self::Guard(list(&mut reader, NETWORKS_MAX, read_network)?),
            6 => Self::Route(reader.ip()?, read_route(&mut reader)?),
            7 => Self::Unroute(reader.ip()?),
            8 => Self::Announce(reader.ip()?, read_name(&mut reader)?),
            9 => Self::Retract(reader.ip()?, read_name(&mut reader)?),
            10 => Self::Goodbye,
            11 => Self::Answer(list(&mut reader, NETWORKS_MAX, |reader| reader.ip())?),
            _ => return None,
        };
        reader.is_empty().then_some(request)
    }
}

fn list<T>(
    reader: &mut Reader<'_>,
    most: usize,
    read: fn(&mut Reader<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let mut all = Vec::new();
    while !reader.is_empty() {
        if all.len() == most {
            return None;
        }
        all.push(read(reader)?);
    }
    Some(all)
}

fn put_wanted(out: &mut Vec<u8>, wanted: &SocketRequest) {
    put_address(out, wanted.local);
    out.push(u8::from(wanted.repair.is_some()));
    let (receive, send) = wanted.repair.unwrap_or_default();
    put_u32(out, receive);
    put_u32(out, send);
}

fn read_wanted(reader: &mut Reader<'_>) -> Option<SocketRequest> {
    let local = reader.address()?;
    let in_repair = reader.u8()? != 0;
    let room = (reader.u32()?, reader.u32()?);
    let bounded = room.0 <= BUFFER_MAX && room.1 <= BUFFER_MAX;
    bounded.then_some(SocketRequest { local, repair: in_repair.then_some(room) })
}

fn read_flow(reader: &mut Reader<'_>) -> Option<Flow> {
    Some(Flow { local: reader.address()?, remote: reader.address()? })
}

fn put_network(out: &mut Vec<u8>, network: &Network) {
    let (ip, bits) = network.prefix();
    put_ip(out, ip);
    out.push(bits);
}

fn read_network(reader: &mut Reader<'_>) -> Option<Network> {
    format!("{}/{}", reader.ip()?, reader.u8()?).parse().ok()
}

fn put_route(out: &mut Vec<u8>, route: &Route) {
    match route {
        Route::Via(gateway) => {
            out.push(0);
            put_ip(out, *gateway);
        }
        Route::OnLink(interface) => {
            out.push(1);
            put_string(out, interface.as_bytes());
        }
        Route::Local => out.push(2),
    }
}

fn read_route(reader: &mut Reader<'_>) -> Option<Route> {
    match reader.u8()? {
        0 => reader.ip().map(Route::Via),
        1 => read_name(reader).map(Route::OnLink),
        2 => Some(Route::Local),
        _ => None,
    }
}

/// The name of an interface; it becomes part of a path and of rules, so only plain ones pass.
fn read_name(reader: &mut Reader<'_>) -> Option<String> {
    let name = std::str::from_utf8(reader.string(NAME_MAX)?).ok()?;
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let starts_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    (starts_well && name.bytes().all(good)).then(|| name.to_owned())
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Done,
    /// For each descriptor or socket of the request zero or the kernel's error number.
    Each(Vec<i32>),
    /// Nothing was done, and this is why.
    Failed(String),
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Self::Done => out.push(0),
            Self::Each(errors) => {
                out.push(1);
                put_u16(&mut out, errors.len() as u16);
                errors.iter().for_each(|e| put_u32(&mut out, e.cast_unsigned()));
            }
            Self::Failed(text) => {
                out.push(2);
                let mut end = text.len().min(TEXT_MAX);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                put_string(&mut out, &text.as_bytes()[..end]);
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return None;
        }
        let answer = match reader.u8()? {
            0 => Self::Done,
            1 => {
                let count = Some(usize::from(reader.u16()?)).filter(|count| *count <= FDS_MAX)?;
                let errors: Option<Vec<i32>> = (0..count).map(|_| reader.i32()).collect();
                Self::Each(errors?)
            }
            2 => Self::Failed(String::from_utf8_lossy(reader.string(TEXT_MAX)?).into_owned()),
            _ => return None,
        };
        reader.is_empty().then_some(answer)
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
        let many = Answer::Each(vec![0; FDS_MAX + 1]).encode();
        assert_eq!(Answer::decode(&many), None);
        assert_eq!(Answer::decode(&many[..many.len() - 4]), None);
        let long = Answer::Failed("é".repeat(TEXT_MAX)).encode();
        assert!(matches!(Answer::decode(&long), Some(Answer::Failed(_))));
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
            mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..12,
        ) {
            if let [version, k, ..] = &mut bytes[..] {
                (*version, *k) = (VERSION, kind);
            }
            let _ = Answer::decode(&bytes);
            if let Some(request) = Request::decode(&bytes) {
                // A flag may be any number but zero.
                prop_assert_eq!(Request::decode(&request.encode()), Some(request));
            }
        }
    }
}
