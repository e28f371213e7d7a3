//! An HTTP proxy's side of one conversation: CONNECT (RFC 9110 section 9.3.6), and requests in
//! absolute form for `http_proxy=`, which are rewritten and passed on (RFC 9112 section 3.2.2).
//!
//! One conversation serves one origin: a passed-on request says `Connection: close`, and after its
//! head bytes are relayed and not looked at.

use alloc::format;
use alloc::vec::Vec;
use core::net::SocketAddr;

use lasthop_wire::mhp::Refusal;

use crate::backlog::Backlog;
use crate::conversation::{Progress, Taken};

mod head;

use head::Request;

/// The longest request head that is read; a longer one is answered with 431.
pub const MAX_HEAD_LEN: usize = 16 * 1024;

/// A status line and the `error` of a `Proxy-Status` field (RFC 9209 section 2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// The status code.
    pub code: u16,
    /// Its reason phrase.
    pub reason: &'static str,
    /// The type of error, a token of RFC 9209's registry.
    pub error: &'static str,
}

impl Status {
    const fn new(code: u16, reason: &'static str, error: &'static str) -> Self {
        Self { code, reason, error }
    }

    const BAD_REQUEST: Self = Self::new(400, "Bad Request", "http_request_error");
    const HEAD_TOO_LONG: Self =
        Self::new(431, "Request Header Fields Too Large", "http_request_error");
    const VERSION: Self = Self::new(505, "HTTP Version Not Supported", "http_request_error");
}

impl From<Refusal> for Status {
    /// With the status codes that RFC 9209 recommends for each type of error.
    fn from(refusal: Refusal) -> Self {
        let gateway = |error| Self::new(502, "Bad Gateway", error);
        let unavailable = |error| Self::new(503, "Service Unavailable", error);
        match refusal {
            Refusal::Refused => gateway("connection_refused"),
            Refusal::NetworkUnreachable | Refusal::HostUnreachable => {
                gateway("destination_ip_unroutable")
            }
            Refusal::ConnectionReset => gateway("connection_terminated"),
            Refusal::NotPermitted => gateway("destination_ip_prohibited"),
            Refusal::NameNotFound | Refusal::ResolverFailed => gateway("dns_error"),
            Refusal::TimedOut => Self::new(504, "Gateway Timeout", "connection_timeout"),
            Refusal::NotAllowed => Self::new(403, "Forbidden", "http_request_denied"),
            Refusal::TooMany => unavailable("connection_limit_reached"),
            Refusal::ShuttingDown | Refusal::AssociationLost => {
                unavailable("destination_unavailable")
            }
            Refusal::Protocol | Refusal::Other(_) | Refusal::Unknown(_) => {
                Self::new(500, "Internal Server Error", "proxy_internal_error")
            }
        }
    }
}

/// A proxy's side of one conversation.
#[derive(Debug, Default)]
pub struct Server {
    stage: Stage,
    head: Vec<u8>,
    preface: Vec<u8>,
    /// The answer to a HEAD request has no body.
    bodiless: bool,
    outbox: Backlog,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Stage {
    #[default]
    Head,
    /// A tunnel was requested.
    AskedTunnel,
    /// A request is to be passed on.
    AskedForward,
    /// Answered; what follows is none of ours.
    Over,
}

impl Server {
    /// A conversation without a message yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes from the client.
    pub fn handle_input(&mut self, input: &[u8]) -> Taken {
        match self.stage {
            Stage::Head => self.read_head(input),
            Stage::AskedTunnel | Stage::AskedForward => {
                Taken { bytes: 0, progress: Progress::NeedMore }
            }
            Stage::Over => Taken { bytes: input.len(), progress: Progress::Over },
        }
    }

    /// The result of the requested connection.
    pub fn reply(&mut self, result: Result<Option<SocketAddr>, Refusal>) {
        match (self.stage, result) {
            (Stage::Head | Stage::Over, _) => {}
            (_, Err(refusal)) => self.refuse(refusal.into(), format_args!("{refusal}")),
            (Stage::AskedTunnel, Ok(_)) => {
                self.outbox.push(b"HTTP/1.1 200 Connection established\r\n\r\n");
                self.stage = Stage::Over;
            }
            (Stage::AskedForward, Ok(_)) => self.stage = Stage::Over,
        }
    }

    /// Bytes for the client.
    pub fn output(&self) -> &[u8] {
        self.outbox.as_slice()
    }

    /// The first `n` bytes of [`output`](Self::output) were sent.
    pub fn sent(&mut self, n: usize) {
        self.outbox.take(n);
    }

    /// The rewritten head of a passed-on request, for the origin; empty for a tunnel.
    pub fn take_preface(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.preface)
    }

    fn read_head(&mut self, input: &[u8]) -> Taken {
        for (i, &byte) in input.iter().enumerate() {
            let before = self.head.last().copied();
            if !may_follow(before, byte) {
                let text = "the request has characters that no HTTP request has";
                return self.reject(input, Status::BAD_REQUEST, text);
            }
            if self.head.len() == MAX_HEAD_LEN {
                let text = "the request's head is longer than 16 KiB";
                return self.reject(input, Status::HEAD_TOO_LONG, text);
            }
            self.head.push(byte);
            if byte == b'\n' && self.head.ends_with(b"\r\n\r\n") {
                return self.end_of_head(input, i + 1);
            }
        }
        Taken { bytes: input.len(), progress: Progress::NeedMore }
    }

    fn end_of_head(&mut self, input: &[u8], bytes: usize) -> Taken {
        let head = core::mem::take(&mut self.head);
        self.bodiless = head.starts_with(b"HEAD ");
        let target = match head::parse(&head) {
            Ok(Request::Connect(target)) => {
                self.stage = Stage::AskedTunnel;
                target
            }
            Ok(Request::Forward { target, head }) => {
                self.stage = Stage::AskedForward;
                self.preface = head;
                target
            }
            Err(problem) => return self.reject(input, problem.status, problem.text),
        };
        Taken { bytes, progress: Progress::Request(target) }
    }

    fn reject(&mut self, input: &[u8], status: Status, text: &str) -> Taken {
        self.refuse(status, format_args!("{text}"));
        Taken { bytes: input.len(), progress: Progress::Over }
    }

    fn refuse(&mut self, status: Status, text: core::fmt::Arguments<'_>) {
        self.stage = Stage::Over;
        self.head = Vec::new();
        self.preface = Vec::new();
        let Status { code, reason, error } = status;
        let body = format!("lasthop: {text}\n");
        let response = format!(
            "HTTP/1.1 {code} {reason}\r\n\
             Proxy-Status: lasthop; error={error}\r\n\
             Content-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        self.outbox.push(response.as_bytes());
        if !self.bodiless {
            self.outbox.push(body.as_bytes());
        }
    }
}

/// Lines end with CR LF and hold no other control character but the tab, so that what is no HTTP is
/// notified at once.
fn may_follow(before: Option<u8>, byte: u8) -> bool {
    match byte {
        b'\n' => before == Some(b'\r'),
        _ if before == Some(b'\r') => false,
        b'\r' | b'\t' => true,
        _ => !byte.is_ascii_control(),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};
    use alloc::vec;

    use super::*;

    fn say(input: &str) -> (Server, Progress) {
        let mut server = Server::new();
        let progress = server.handle_input(input.as_bytes()).progress;
        (server, progress)
    }

    fn target(progress: &Progress) -> String {
        match progress {
            Progress::Request(target) => target.to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    #[test]
    fn connect_asks_and_answers_200() {
        for (host, expected) in [
            ("example.org:443", "example.org:443"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("[2001:db8::1]:22", "[2001:db8::1]:22"),
        ] {
            let (mut server, progress) =
                say(&format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(target(&progress), expected);
            assert!(server.take_preface().is_empty() && server.output().is_empty());
            server.reply(Ok(None));
            assert_eq!(server.output(), b"HTTP/1.1 200 Connection established\r\n\r\n");
        }
    }

    #[test]
    fn what_follows_the_head_is_left() {
        let mut server = Server::new();
        let head = "CONNECT a:1 HTTP/1.0\r\n\r\n";
        let taken = server.handle_input(format!("{head}\r\nbytes").as_bytes());
        assert_eq!(taken.bytes, head.len());
    }

    #[test]
    fn a_request_in_absolute_form_is_passed_on_for_one_origin() {
        let (mut server, progress) = say("GET HTTP://Example.org/a?b HTTP/1.1\r\n\
             Host: other\r\nAccept: */*\r\nProxy-Connection: keep-alive\r\n\
             Connection: x-drop, Keep-Alive\r\nX-Drop: 1\r\nKeep-Alive: 5\r\n\
             Proxy-Authorization: Basic eA==\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(target(&progress), "Example.org:80");
        server.reply(Ok(None));
        assert!(server.output().is_empty());
        assert_eq!(
            text(&server.take_preface()),
            "GET /a?b HTTP/1.1\r\nHost: Example.org\r\nAccept: */*\r\nContent-Length: 3\r\n\
             Connection: close\r\nVia: 1.1 lasthop\r\n\r\n"
        );
        assert!(server.take_preface().is_empty());
    }

    #[test]
    fn framing_fields_cannot_be_dropped_by_naming_them() {
        let (mut server, _) = say("POST http://h HTTP/1.1\r\n\
             Connection: content-length, Transfer-Encoding\r\n\
             Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n");
        let head = text(&server.take_preface());
        assert!(head.starts_with("POST / HTTP/1.1\r\nHost: h\r\n"), "{head}");
        assert!(head.contains("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), "{head}");
    }

    #[test]
    fn targets_in_absolute_form_become_paths() {
        for (uri, to, path) in [
            ("http://h", "h:80", "/"),
            ("http://h?q", "h:80", "/?q"),
            ("http://[::1]:81/x", "[::1]:81", "/x"),
            ("http://h:/x", "h:80", "/x"),
        ] {
            let (mut server, progress) = say(&format!("GET {uri} HTTP/1.0\r\n\r\n"));
            assert_eq!(target(&progress), to, "{uri}");
            let head = text(&server.take_preface());
            assert!(head.starts_with(&format!("GET {path} HTTP/1.0\r\n")), "{head}");
        }
        let (mut server, _) = say("OPTIONS http://h HTTP/1.1\r\n\r\n");
        assert!(text(&server.take_preface()).starts_with("OPTIONS * HTTP/1.1\r\n"));
    }

    /// MHP-5: the answer names the fixed host's error.
    #[test]
    fn each_refusal_has_its_status_and_says_why() {
        let expected = [
            (Refusal::Refused, 502, "connection_refused"),
            (Refusal::HostUnreachable, 502, "destination_ip_unroutable"),
            (Refusal::TimedOut, 504, "connection_timeout"),
            (Refusal::NameNotFound, 502, "dns_error"),
            (Refusal::NotAllowed, 403, "http_request_denied"),
            (Refusal::TooMany, 503, "connection_limit_reached"),
            (Refusal::Other(99), 500, "proxy_internal_error"),
        ];
        for (refusal, code, error) in expected {
            for request in ["CONNECT h:1 HTTP/1.1\r\n\r\n", "GET http://h/ HTTP/1.1\r\n\r\n"] {
                let (mut server, _) = say(request);
                server.reply(Err(refusal));
                let answer = text(server.output());
                assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
                assert!(answer.contains(&format!("error={error}\r\n")), "{answer}");
                assert!(answer.ends_with(&format!("\r\n\r\nlasthop: {refusal}\n")), "{answer}");
                assert!(server.take_preface().is_empty());
            }
        }
    }

    #[test]
    fn an_answer_to_head_has_no_body() {
        let (mut server, _) = say("HEAD http://h/ HTTP/1.1\r\n\r\n");
        server.reply(Err(Refusal::Refused));
        assert!(text(server.output()).ends_with("\r\n\r\n"));
    }

    #[test]
    fn what_cannot_be_served_is_answered_with_the_reason() {
        for (request, code, word) in [
            ("GET / HTTP/1.1\r\n\r\n", 400, "CONNECT"),
            ("GET https://h/ HTTP/1.1\r\n\r\n", 400, "CONNECT"),
            ("CONNECT h HTTP/1.1\r\n\r\n", 400, "port"),
            ("CONNECT h:x HTTP/1.1\r\n\r\n", 400, "port"),
            ("CONNECT h:0 HTTP/1.1\r\n\r\n", 400, "port"),
            ("CONNECT h:+1 HTTP/1.1\r\n\r\n", 400, "port"),
            ("CONNECT ::1:80 HTTP/1.1\r\n\r\n", 400, "host"),
            ("CONNECT [::1:80 HTTP/1.1\r\n\r\n", 400, "host"),
            ("CONNECT :80 HTTP/1.1\r\n\r\n", 400, "host"),
            ("GET http:///x HTTP/1.1\r\n\r\n", 400, "host"),
            ("GET http://me:pw@h/ HTTP/1.1\r\n\r\n", 400, "user"),
            ("PRI * HTTP/2.0\r\n\r\n", 505, "version"),
            ("GET http://h/\r\n\r\n", 400, "request line"),
            ("GET  http://h/ HTTP/1.1\r\n\r\n", 400, "request line"),
            ("\r\n\r\n", 400, "request line"),
            ("G(T http://h/ HTTP/1.1\r\n\r\n", 400, "request line"),
            ("GET http://h/ HTTP/1.1\r\nno colon\r\n\r\n", 400, "field"),
            ("GET http://h/ HTTP/1.1\r\na : b\r\n\r\n", 400, "field"),
            ("GET http://h/ HTTP/1.1\r\na: b\r\n folded\r\n\r\n", 400, "field"),
            ("GET http://h/ HTTP/1.1\nHost: h\n\n", 400, "characters"),
            ("\x16\x03\x01\x02", 400, "characters"),
        ] {
            let (server, progress) = say(request);
            let answer = text(server.output());
            assert_eq!(progress, Progress::Over, "{request:?}: {answer}");
            assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{request:?}: {answer}");
            let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
            assert!(body.is_some_and(|b| b.contains(word)), "{request:?}: {answer}");
        }
    }

    #[test]
    fn a_head_of_more_than_16_kib_is_answered_with_431() {
        let mut server = Server::new();
        server.handle_input(b"GET http://h/ HTTP/1.1\r\nA: ");
        let filler = vec![b'x'; MAX_HEAD_LEN - server.head.len()];
        assert_eq!(server.handle_input(&filler).progress, Progress::NeedMore);
        assert_eq!(server.handle_input(b"x").progress, Progress::Over);
        assert!(server.output().starts_with(b"HTTP/1.1 431 "));
    }
}
