//! Programs that open connections in their own ways, by `lasthop exec` and by interception.

use std::fs;

use lasthop_lab::process::Daemon;

use crate::stage::{Stage, text};

/// A program with an event loop asks whether a connection stands by a second `connect`, and after a
/// refusal what came of it by `SO_ERROR`.
const EVENT_LOOP: &str = r#"
import errno, select, socket, sys

def opened(port):
    s = socket.socket()
    s.setblocking(False)
    first = s.connect_ex(("example.org", port))
    assert first in (0, errno.EINPROGRESS, errno.ECONNREFUSED), errno.errorcode[first]
    select.select([], [s], [], 60)
    error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if first != errno.ECONNREFUSED else first
    return s, error

s, error = opened(80)
assert error == 0, errno.errorcode[error]
again = [s.connect_ex(("example.org", 80)) for _ in range(3)]
assert set(again[1:]) == {errno.EISCONN} and again[0] in (0, errno.EISCONN), again
s.setblocking(True)
s.sendall(b"GET / HTTP/1.0\r\n\r\n")
answer = b""
while part := s.recv(4096): answer += part
print(answer.split(b"\r\n\r\n")[1].decode().strip())
_, error = opened(81)
print(errno.errorcode[error])
"#;

/// Makes its system calls without the C library that the loader could put another before.
const STATIC: &str = "#include <stdio.h>\nint main(void) { puts(\"static\"); return 0; }\n";

/// The keys, a base and a mobile; with more words for each.
pub(crate) fn pair(stage: &Stage, base: &str, mobile: &str) -> [Daemon; 2] {
    let at = &stage.lab;
    let [to, from] = ["base", "mobile"].map(|name| stage.keygen(name));
    let base = format!("lasthop base --key base.key --allow {from} {base}");
    let base = stage.serve(&at.base, &base, "serving");
    let mobile = format!(
        "lasthop mobile --key mobile.key --base base.example.net:4433 --base-key {to} {mobile}"
    );
    [base, stage.serve(&at.mobile, &mobile, "serving SOCKS5")]
}

#[test]
fn a_program_that_asks_twice_and_one_that_is_refused_see_what_they_see_directly() {
    let Some(stage) = Stage::new() else { return };
    let _web = stage.web();
    let _pair = pair(&stage, "", "");
    fs::write(stage.path("loop.py"), EVENT_LOOP).unwrap();
    let mobile = &stage.lab.mobile;
    let direct = stage.run(mobile, "python3 loop.py");
    assert_eq!(text(direct.as_bytes()), "there\nECONNREFUSED");
    assert_eq!(stage.run(mobile, "lasthop exec -- python3 loop.py"), direct);
}

#[test]
fn a_child_that_goes_past_the_mobile_is_told() {
    let Some(stage) = Stage::new() else { return };
    fs::write(stage.path("static.c"), STATIC).unwrap();
    let mobile = &stage.lab.mobile;
    stage.run(mobile, "cc -static -o static static.c");
    for line in ["lasthop exec -- ./static", "lasthop exec -- sh -c './static; true'"] {
        let output = stage.shell(mobile, line).output().unwrap();
        let (said, complained) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && said == "static", "{complained}");
        assert!(complained.contains("static"), "`{line}` says nothing of it: {complained}");
    }
}
