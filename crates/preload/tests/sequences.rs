//! The same program twice: directly against a server, and through the mobile. What its calls say
//! must be the same.

#![allow(clippy::unwrap_used)]

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::thread;

use common::{CODES, Proxy, python, python_alone};

/// What every program here knows: `far` is served by an echo, `shut` refuses, and `family` is theirs.
const TOOLS: &str = r#"
import ctypes, select, signal, struct
libc = ctypes.CDLL(None, use_errno=True)
FASTOPEN = 0x20000000
def named(code): return errno.errorcode.get(code, code)
def new(blocking=False):
    s = socket.socket(family)
    s.setblocking(blocking)
    return s
def connect(s, address): return named(s.connect_ex(address))
def error(s): return named(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
def peer(s):
    try: return s.getpeername()[:2] in (far, shut) or s.getpeername()
    except OSError as e: return named(e.errno)
def state(s):
    p = select.poll()
    p.register(s, select.POLLOUT)
    return [flag for _, seen in p.poll(20000) for flag in ("OUT", "ERR", "HUP") if seen & getattr(select, "POLL" + flag)]
def disconnect(s): return libc.connect(s.fileno(), bytes(16), 16)
def settle(s, address):
    """Asks until the socket says that it stands; on the way it may only say that it is under way."""
    for _ in range(100):
        said = connect(s, address)
        if said not in (0, "EINPROGRESS", "EALREADY"): return said
        state(s)
def echo(s, text):
    """Only what was said comes back: nobody else has written to this connection."""
    s.setblocking(True)
    s.settimeout(20)
    s.sendall(text)
    s.shutdown(socket.SHUT_WR)
    got = b""
    while part := s.recv(100): got += part
    return got
"#;

/// A server that echoes, and a port beside it on which nobody listens.
fn server(ip: IpAddr) -> [SocketAddr; 2] {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let far = listener.local_addr().unwrap();
    let shut = TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    [far, shut]
}

fn with(script: &str, far: SocketAddr, shut: SocketAddr) -> String {
    let family = if far.is_ipv4() { "AF_INET" } else { "AF_INET6" };
    let pair = |address: SocketAddr| format!("('{}', {})", address.ip(), address.port());
    let (far, shut) = (pair(far), pair(shut));
    format!("family, far, shut = socket.{family}, {far}, {shut}\n{TOOLS}\n{script}")
}

/// Runs `script` both ways with both families, and gives what it said, which was always the same.
fn same(script: &str) -> Option<String> {
    let families: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::LOCALHOST.into(), "192.0.2.1".parse().unwrap()),
        (Ipv6Addr::LOCALHOST.into(), "2001:db8::1".parse().unwrap()),
    ];
    let mut said = None;
    for (here, there) in families {
        let [far, shut] = server(here);
        let direct = python_alone(&with(script, far, shut))?;
        let proxy = Proxy::start();
        let refused = SocketAddr::new(there, CODES + 5);
        let through = with(script, SocketAddr::new(there, 7), refused);
        let tunnelled = python(proxy.address, &through, &[])?;
        assert_eq!(tunnelled, direct, "through the mobile, and directly, to {there}");
        assert_eq!(*said.get_or_insert_with(|| direct.clone()), direct);
        assert!(!proxy.asked().is_empty());
    }
    said
}

/// A second `connect` is a usual way to ask whether the first is done.
#[test]
fn asking_by_connect_says_that_it_stands_and_writes_nothing() {
    let script = r#"
s = new()
print(settle(s, far), settle(s, far), settle(s, shut), error(s), peer(s), state(s))
print(echo(s, b"asked"))
d = new()
settle(d, far)
e = d.dup()
print(settle(e, far), peer(e), echo(e, b"duplicate"))
f = new()
f.connect_ex(far)
state(f)
if os.fork() == 0:
    print(settle(f, far), echo(f, b"child"), flush=True)
    os._exit(0)
os.wait()
"#;
    let Some(said) = same(script) else { return };
    let expected = "EISCONN EISCONN EISCONN 0 True ['OUT']\nb'asked'\n\
                    EISCONN True b'duplicate'\nEISCONN b'child'\n";
    assert_eq!(said, expected);
}

#[test]
fn a_blocking_connect_that_stands_is_told_as_such() {
    let script = r#"
s = new(True)
print([connect(s, address) for address in (far, far, shut)], error(s), peer(s), echo(s, b"blocking"))
n = new()
n.connect_ex(far)
state(n)
n.setblocking(True)
n.connect_ex(far)
print(connect(n, far), echo(n, b"changed"))
t = new(True)
t.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 15, 0))
print(connect(t, far), connect(t, far), echo(t, b"bounded"))
"#;
    let Some(said) = same(script) else { return };
    let expected = "[0, 'EISCONN', 'EISCONN'] 0 True b'blocking'\nEISCONN b'changed'\n\
                    0 EISCONN b'bounded'\n";
    assert_eq!(said, expected);
}

/// Whoever polls and then looks at SO_ERROR finds what happened, once.
#[test]
fn after_a_refusal_the_error_is_on_the_socket() {
    let script = r#"
s = new()
assert connect(s, shut) in ("EINPROGRESS", "ECONNREFUSED")
print(state(s), peer(s), error(s), error(s), peer(s))
print(settle(s, far) and settle(s, far), error(s), echo(s, b"in the end"))
r = new()
r.connect_ex(shut)
state(r)
try: r.recv(1)
except OSError as e: print(named(e.errno), error(r))
b = new(True)
print(connect(b, shut), error(b), connect(b, shut), peer(b), connect(b, far), error(b), echo(b, b"blocking"))
e = select.epoll()
w = new()
w.connect_ex(shut)
e.register(w, select.EPOLLOUT | select.EPOLLET)
print([flags & (select.EPOLLOUT | select.EPOLLERR) for _, flags in e.poll(20)], error(w))
f = new()
f.connect_ex(shut)
state(f)
if os.fork() == 0:
    print(error(f), flush=True)
    os._exit(0)
os.wait()
"#;
    let Some(said) = same(script) else { return };
    let expected = "['OUT', 'ERR', 'HUP'] ENOTCONN ECONNREFUSED 0 ENOTCONN\n\
                    EISCONN 0 b'in the end'\nECONNREFUSED 0\n\
                    ECONNREFUSED 0 ECONNREFUSED ENOTCONN 0 0 b'blocking'\n[12] ECONNREFUSED\n\
                    ECONNREFUSED\n";
    assert_eq!(said, expected);
}

#[test]
fn a_disconnected_socket_connects_again() {
    let script = r#"
s = new()
print(settle(s, far), disconnect(s), peer(s), error(s), error(s))
print(settle(s, far), peer(s), echo(s, b"again"))
r = new()
r.connect_ex(shut)
state(r)
print(disconnect(r), error(r), settle(r, far), echo(r, b"after a refusal"))
b = new(True)
print(connect(b, far), disconnect(b), connect(b, far), connect(b, far), echo(b, b"blocking"))
"#;
    let Some(said) = same(script) else { return };
    let expected = "EISCONN 0 ENOTCONN ECONNRESET 0\nEISCONN True b'again'\n\
                    0 ECONNREFUSED EISCONN b'after a refusal'\n0 0 0 EISCONN b'blocking'\n";
    assert_eq!(said, expected);
}

#[test]
fn a_socket_that_cannot_connect_says_why() {
    let script = r#"
l = new()
l.listen()
print(connect(l, far), error(l))
c = new(True)
connect(c, far)
c.shutdown(socket.SHUT_RDWR)
while c.recv(100): pass
print(connect(c, far), connect(c, shut))
gone = new()
fd = gone.fileno()
gone.close()
print(libc.connect(fd, bytes(16), 16), named(ctypes.get_errno()))
v = new(True)
if family == socket.AF_INET6: v.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
v.connect(far)
print(connect(v, far), connect(v, shut), echo(v, b"only"))
u = new()
print(libc.connect(u.fileno(), struct.pack("H26s", 1, b"/no/such"), 28), named(ctypes.get_errno()))
"#;
    let Some(said) = same(script) else { return };
    let expected =
        "EISCONN 0\nEISCONN EISCONN\n-1 EBADF\nEISCONN EISCONN b'only'\n-1 EAFNOSUPPORT\n";
    assert_eq!(said, expected);
}

#[test]
fn fast_open_on_a_connected_socket_is_the_kernels_to_refuse() {
    let script = r#"
s = new(True)
s.connect(far)
for send in lambda: s.sendto(b"x", FASTOPEN, far), lambda: s.sendmsg([b"x"], [], FASTOPEN, far):
    try: print(send())
    except OSError as e: print(named(e.errno))
print(echo(s, b"alone"))
f = new(True)
print(f.sendto(b"first, ", FASTOPEN, far), connect(f, far), echo(f, b"second"))
r = new(True)
try: r.sendto(b"x", FASTOPEN, shut)
except OSError as e: print(named(e.errno), error(r))
"#;
    let Some(said) = same(script) else { return };
    let expected = "EISCONN\nEISCONN\nb'alone'\n7 EISCONN b'first, second'\nECONNREFUSED 0\n";
    assert_eq!(said, expected);
}

/// A connection that was begun without the mobile is not taken for one to the proxy.
#[test]
fn a_direct_connection_that_is_asked_about_with_another_address_is_left_alone() {
    let [near, shut] = server(Ipv4Addr::LOCALHOST.into());
    let proxy = Proxy::start();
    let script = r#"
away = ("192.0.2.1", 7)
s = new()
s.connect_ex(far)
state(s)
print(settle(s, away), peer(s), echo(s, b"near"))
r = new()
r.connect_ex(("192.0.2.1", 1004))
print(state(r), settle(r, far), error(r), echo(r, b"near after all"))
"#;
    let Some(said) = python(proxy.address, &with(script, near, shut), &[]) else { return };
    let expected = "EISCONN True b'near'\n\
                    ['OUT', 'ERR', 'HUP'] EISCONN 0 b'near after all'\n";
    assert_eq!(said, expected);
    assert_eq!(proxy.asked(), ["192.0.2.1:1004".parse().unwrap()]);
}

#[test]
fn each_failure_of_a_non_blocking_connection_is_the_error_on_its_socket() {
    let proxy = Proxy::start();
    let codes =
        ["ECONNABORTED", "EACCES", "ENETUNREACH", "EHOSTUNREACH", "ECONNREFUSED", "ETIMEDOUT"];
    let script = r#"
for code in 1, 2, 3, 4, 5, 6, -973:
    s = new()
    connect(s, (far[0], 1000 + code))
    print(state(s), error(s.dup()), error(s), peer(s))
o = new(True)
o.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 200000))
print(connect(o, (far[0], 27)), error(o), settle(o, far), echo(o, b"later"))
v = new()
if family == socket.AF_INET6:
    v.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    connect(v, shut)
    print(v.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY), error(v))
"#;
    let lines = |codes: &[&str]| -> String {
        let line = |code: &&str| format!("['OUT', 'ERR', 'HUP'] {code} 0 ENOTCONN\n");
        codes.iter().map(line).collect()
    };
    // The last never answers.
    let mut expected = lines(&[&codes[..], &["ETIMEDOUT"]].concat());
    expected.push_str("EINPROGRESS ETIMEDOUT EISCONN b'later'\n");
    for far in ["192.0.2.1:7", "[2001:db8::1]:7"] {
        let far: SocketAddr = far.parse().unwrap();
        let through = with(script, far, SocketAddr::new(far.ip(), CODES + 5));
        let Some(said) = python(proxy.address, &through, &[("LASTHOP_TIMEOUT", "1")]) else {
            return;
        };
        let more = if far.is_ipv6() { "1 ECONNREFUSED\n" } else { "" };
        assert_eq!(said, format!("{expected}{more}"));
    }
}

#[test]
fn several_messages_with_fast_open_go_through_the_mobile() {
    let proxy = Proxy::start();
    let script = r#"
class iovec(ctypes.Structure): _fields_ = [("base", ctypes.c_char_p), ("len", ctypes.c_size_t)]
class msghdr(ctypes.Structure): _fields_ = [("name", ctypes.c_char_p), ("namelen", ctypes.c_uint), ("iov", ctypes.POINTER(iovec)), ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t), ("flags", ctypes.c_int)]
class mmsghdr(ctypes.Structure): _fields_ = [("hdr", msghdr), ("len", ctypes.c_uint)]
s = new(True)
name = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(7), socket.inet_aton("192.0.2.1"))
messages = (mmsghdr * 2)(*[mmsghdr(msghdr(name, 16, ctypes.pointer(iovec(b"first", 5)), 1)) for _ in range(2)])
print(libc.sendmmsg(s.fileno(), messages, 2, FASTOPEN), messages[0].len, peer(s), echo(s, b", rest"))
"#;
    let far: SocketAddr = "192.0.2.1:7".parse().unwrap();
    let Some(said) = python(proxy.address, &with(script, far, far), &[]) else { return };
    assert_eq!(said, "1 5 True b'first, rest'\n");
    assert_eq!(proxy.asked(), [far]);
}
