//! Real programs with their `connect` interposed.

#![allow(clippy::unwrap_used)]

mod common;

use std::net::{SocketAddr, TcpListener};

use common::{Proxy, python, run};

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn a_blocking_connection_carries_bytes_both_ways() {
    let proxy = Proxy::start();
    let script = r#"
s = socket.create_connection(("192.0.2.1", 7))
s.sendall(b"x" * 300000 + b"end")
s.shutdown(socket.SHUT_WR)
got = b""
while part := s.recv(65536): got += part
print(len(got), got[-3:].decode())
"#;
    let Some(said) = python(proxy.address, script, &[]) else { return };
    assert_eq!(said, "300003 end\n");
    assert_eq!(proxy.asked(), [address("192.0.2.1:7")]);
}

#[test]
fn an_ipv6_socket_reaches_an_ipv4_proxy() {
    let proxy = Proxy::start();
    let script = r#"
s = socket.socket(socket.AF_INET6)
s.connect(("2001:db8::1", 7))
s.sendall(b"six")
print(s.recv(10).decode(), s.getpeername()[:2])
m = socket.socket(socket.AF_INET6)
m.connect(("::ffff:192.0.2.1", 7))
print(m.getpeername()[:2])
"#;
    let Some(said) = python(proxy.address, script, &[]) else { return };
    assert_eq!(said, "six ('2001:db8::1', 7)\n('::ffff:192.0.2.1', 7)\n");
    assert_eq!(proxy.asked(), [address("[2001:db8::1]:7"), address("192.0.2.1:7")]);
}

#[test]
fn a_socket_for_ipv6_only_is_opened_up_and_a_bound_one_says_unreachable() {
    let proxy = Proxy::start();
    let script = r#"
s = socket.socket(socket.AF_INET6)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
print(s.connect_ex(("2001:db8::1", 7)))
b = socket.socket(socket.AF_INET6)
b.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
b.bind(("::1", 0))
print(errno.errorcode[b.connect_ex(("2001:db8::1", 7))])
r = socket.socket(socket.AF_INET6)
r.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
r.connect_ex(("2001:db8::1", 1005))
print(r.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
"#;
    let Some(said) = python(proxy.address, script, &[]) else { return };
    assert_eq!(said, "0\nENETUNREACH\n1\n");
}

#[test]
fn what_the_far_end_says_is_the_errno() {
    let proxy = Proxy::start();
    let script = r#"
for code in 1, 2, 3, 4, 5, 6:
    s = socket.socket()
    print(errno.errorcode[s.connect_ex(("192.0.2.1", 1000 + code))])
    n = socket.socket()
    n.setblocking(False)
    print(errno.errorcode[n.connect_ex(("192.0.2.1", 1000 + code))])
"#;
    let Some(said) = python(proxy.address, script, &[]) else { return };
    let twice = |name: &'static str| [name, name];
    let expected =
        ["ECONNABORTED", "EACCES", "ENETUNREACH", "EHOSTUNREACH", "ECONNREFUSED", "ETIMEDOUT"];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected.map(twice).concat());
}

#[test]
fn a_failed_socket_can_be_connected_elsewhere() {
    let proxy = Proxy::start();
    let script = r#"
s = socket.socket()
print(s.connect_ex(("192.0.2.1", 1005)) == errno.ECONNREFUSED)
try: s.getpeername()
except OSError as e: print(errno.errorcode[e.errno])
s.connect(("192.0.2.2", 7))
s.sendall(b"second")
print(s.recv(10).decode(), s.getpeername())
print(errno.errorcode[s.connect_ex(("192.0.2.3", 7))])
s.sendall(b"still")
print(s.recv(10).decode())
"#;
    let Some(said) = python(proxy.address, script, &[]) else { return };
    assert_eq!(said, "True\nENOTCONN\nsecond ('192.0.2.2', 7)\nEISCONN\nstill\n");
}

#[test]
fn a_non_blocking_socket_stays_so_and_is_connected_when_told() {
    let proxy = Proxy::start();
    let script = r#"
s = socket.socket()
s.setblocking(False)
s.connect(("192.0.2.1", 7))
print(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), s.getblocking())
try: s.recv(1)
except BlockingIOError: print("nothing yet")
s.send(b"later")
s.setblocking(True)
print(s.recv(10).decode())
"#;
    let Some(said) = python(proxy.address, script, &[]) else { return };
    assert_eq!(said, "0 False\nnothing yet\nlater\n");
}

#[test]
fn asyncio_opens_many_connections() {
    let proxy = Proxy::start();
    let script = r#"
import asyncio
async def one(i):
    r, w = await asyncio.open_connection("192.0.2.1", 7)
    w.write(b"%d" % i); w.write_eof()
    got = await r.read()
    assert w.get_extra_info("peername") == ("192.0.2.1", 7)
    w.close()
    return int(got)
async def main(): return sum(await asyncio.gather(*map(one, range(50))))
print(asyncio.run(main()))
"#;
    let Some(said) = python(proxy.address, script, &[]) else { return };
    assert_eq!(said, "1225\n");
    assert_eq!(proxy.asked().len(), 50);
}

#[test]
fn many_threads_each_get_their_own_peer_and_bytes() {
    let proxy = Proxy::start();
    let script = r#"
from concurrent.futures import ThreadPoolExecutor
def one(i):
    peer = ("192.0.2.%d" % (i % 250), 2000 + i)
    with socket.create_connection(peer) as s:
        s.sendall(b"%05d" % i)
        return s.getpeername() == peer and int(s.recv(5)) == i
with ThreadPoolExecutor(32) as pool:
    print(all(pool.map(one, range(400))))
"#;
    let Some(said) = python(proxy.address, script, &[]) else { return };
    assert_eq!(said, "True\n");
    assert_eq!(proxy.asked().len(), 400);
}

#[test]
fn bytes_that_follow_the_reply_at_once_are_not_lost() {
    let proxy = Proxy::start();
    let script = r#"
s = socket.create_connection(("192.0.2.1", 25))
print(s.makefile().read(), end="")
d = socket.create_connection(("192.0.2.1", 26))
d.sendall(b"whole")
print(d.recv(10).decode())
"#;
    let Some(said) = python(proxy.address, script, &[]) else { return };
    assert_eq!(said, "hello from afar\nwhole\n");
}

#[test]
fn loopback_unix_and_udp_are_left_alone() {
    let proxy = Proxy::start();
    let script = r#"
here = socket.create_server(("127.0.0.1", 0))
s = socket.create_connection(here.getsockname())
print(s.getpeername() == here.getsockname())
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.connect(("127.0.0.1", 9))
print(u.getpeername())
a, b = socket.socketpair()
print(repr(a.getpeername()))
x = socket.socket(socket.AF_UNIX)
print(errno.errorcode[x.connect_ex("/no/such/socket")])
print(errno.errorcode[socket.socket().connect_ex(("127.0.0.1", 1))])
"#;
    let Some(said) = python(proxy.address, script, &[]) else { return };
    assert_eq!(said, "True\n('127.0.0.1', 9)\n''\nENOENT\nECONNREFUSED\n");
    assert_eq!(proxy.asked(), []);
}

#[test]
fn a_program_that_speaks_to_the_proxy_itself_sees_the_proxy() {
    let proxy = Proxy::start();
    let script = r#"
host, port = os.environ["LASTHOP_PROXY"].split(":")
# Somebody else may have taken the port once it is free.
for _ in range(100):
    s = socket.create_connection(("192.0.2.1", 7))
    local = s.getsockname()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    s.close()
    p = socket.socket()
    p.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        p.bind(local)
        break
    except OSError:
        p.close()
p.connect((host, int(port)))
print(p.getpeername() == (host, int(port)))
"#;
    let Some(said) = python(proxy.address, script, &[]) else { return };
    assert_eq!(said, "True\n");
}

#[test]
fn excepted_networks_are_not_sent_to_the_mobile() {
    let proxy = Proxy::start();
    let script = r#"
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
s.settimeout(0.1)
s.connect_ex(("192.0.2.1", 7))
t = socket.socket()
print(t.connect_ex(("198.51.100.1", 7)))
"#;
    let Some(said) = python(proxy.address, script, &[("LASTHOP_DIRECT", "192.0.2.0/24")]) else {
        return;
    };
    assert_eq!(said, "0\n");
    assert_eq!(proxy.asked(), [address("198.51.100.1:7")]);
}

#[test]
fn an_answer_that_never_comes_times_out_as_told() {
    let proxy = Proxy::start();
    let script = r#"
s = socket.socket()
print(errno.errorcode[s.connect_ex(("192.0.2.1", 27))])
s.connect(("192.0.2.1", 7))
s.sendall(b"again")
print(s.recv(10).decode())
"#;
    let Some(said) = python(proxy.address, script, &[("LASTHOP_TIMEOUT", "1")]) else { return };
    assert_eq!(said, "ETIMEDOUT\nagain\n");
}

#[test]
fn a_signal_during_connect_does_not_break_it() {
    let proxy = Proxy::start();
    let script = r#"
import signal
seen = []
signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
for i in range(20):
    s = socket.create_connection(("192.0.2.1", 26))
    s.sendall(b"%02d" % i)
    assert int(s.recv(2)) == i
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(seen) > 5)
"#;
    let Some(said) = python(proxy.address, script, &[]) else { return };
    assert_eq!(said, "True\n");
}

#[test]
fn fast_open_asks_the_mobile_too() {
    let proxy = Proxy::start();
    let script = r#"
s = socket.socket()
print(s.sendto(b"first", socket.MSG_FASTOPEN, ("192.0.2.1", 7)), s.recv(10).decode())
m = socket.socket()
print(m.sendmsg([b"sec", b"ond"], [], socket.MSG_FASTOPEN, ("192.0.2.2", 7)), m.recv(10).decode())
c = socket.socket()
c.setsockopt(socket.IPPROTO_TCP, 30, 1)
c.connect(("192.0.2.3", 7))
c.sendall(b"third")
print(c.recv(10).decode())
r = socket.socket()
try: r.sendto(b"x", socket.MSG_FASTOPEN, ("192.0.2.1", 1005))
except OSError as e: print(errno.errorcode[e.errno])
"#;
    let Some(said) = python(proxy.address, script, &[]) else { return };
    assert_eq!(said, "5 first\n6 second\nthird\nECONNREFUSED\n");
}

#[test]
fn a_duplicated_and_an_inherited_descriptor_keep_their_peer() {
    let proxy = Proxy::start();
    let script = r#"
s = socket.create_connection(("192.0.2.1", 7))
print(s.dup().getpeername())
if os.fork() == 0:
    print(s.getpeername(), flush=True)
    t = socket.create_connection(("192.0.2.2", 7))
    print(t.getpeername(), flush=True)
    os._exit(0)
os.wait()
"#;
    let Some(said) = python(proxy.address, script, &[]) else { return };
    assert_eq!(said.matches("('192.0.2.1', 7)").count(), 2, "{said}");
    assert_eq!(said.matches("('192.0.2.2', 7)").count(), 1, "{said}");
}

#[test]
fn a_proxy_that_is_not_there_is_named_once() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let script = r#"
import errno, socket
for _ in range(3):
    print(errno.errorcode[socket.socket().connect_ex(("192.0.2.1", 7))])
"#;
    let Some(outcome) = run(free, &["python3", "-c", script], &[]) else { return };
    assert_eq!(outcome.stdout, "ECONNREFUSED\n".repeat(3));
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains(&free.to_string()), "{}", outcome.stderr);
}

#[test]
fn a_closed_standard_error_is_not_written_to() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let script = r#"
import os, socket
r, w = os.pipe()
os.dup2(w, 2)
os.set_blocking(r, False)
socket.socket().connect_ex(("192.0.2.1", 7))
try: print(os.read(r, 100))
except BlockingIOError: print("nothing")
"#;
    let Some(outcome) = run(free, &["python3", "-c", script], &[]) else { return };
    assert_eq!(outcome.stdout, "nothing\n");
}

#[test]
fn a_listener_that_is_no_proxy_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"SSH-2.0-x\r\n");
            let _ = stream.read(&mut [0; 100]);
        }
    });
    let script = r#"
import errno, socket
print(errno.errorcode[socket.socket().connect_ex(("192.0.2.1", 7))])
"#;
    let Some(outcome) = run(at, &["python3", "-c", script], &[]) else { return };
    assert_eq!(outcome.stdout, "ECONNABORTED\n");
    assert!(outcome.stderr.contains("does not speak SOCKS5"), "{}", outcome.stderr);
}

#[test]
fn curl_downloads_by_both_families() {
    let proxy = Proxy::start();
    for (url, asked) in
        [("http://192.0.2.1/", "192.0.2.1:80"), ("http://[2001:db8::1]/", "[2001:db8::1]:80")]
    {
        let Some(outcome) = run(proxy.address, &["curl", "-sS", "-m", "20", url], &[]) else {
            return;
        };
        assert_eq!(outcome.stdout, "there\r\n", "{}", outcome.stderr);
        assert_eq!(proxy.asked(), [address(asked)]);
    }
}

#[test]
fn curl_reports_a_refusal_as_a_refusal() {
    let proxy = Proxy::start();
    let Some(outcome) = run(proxy.address, &["curl", "-sS", "http://192.0.2.1:1005/"], &[]) else {
        return;
    };
    assert!(!outcome.success);
    assert!(outcome.stderr.contains("refused") || outcome.stderr.contains("connect"));
}
