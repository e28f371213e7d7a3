//! Who may ask the page's server for what.
//!
//! A browser on this host runs the scripts of any site. Such a script can send requests to loopback, and
//! with a name of its own that it lets resolve to 127.0.0.1 it can read the answers. So the name in
//! `Host` must be one of loopback, and whoever changes something must be the page: it says so by
//! `Origin` and by a token that only the page contains.

use std::io;
use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use rustix::rand::{GetRandomFlags, getrandom};

/// The header that carries the token.
pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-lasthop-token");

/// What shows that a request comes from the page. It lasts as long as the server.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    /// A token that nobody can guess.
    pub(super) fn new() -> io::Result<Self> {
        let mut bytes = [0_u8; 32];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            filled += getrandom(rest, GetRandomFlags::empty())?;
        }
        Ok(Self(bytes.iter().map(|b| format!("{b:02x}")).collect()))
    }

    /// As it stands in the page: hexadecimal digits.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Whether `said` is it, in a time that does not tell how much of it is right.
    fn is(&self, said: &[u8]) -> bool {
        let own = self.0.as_bytes();
        own.len() == said.len() && own.iter().zip(said).fold(0, |d, (a, b)| d | (a ^ b)) == 0
    }
}

/// Refuses what is not addressed to loopback, and writes that are not the page's.
pub(super) async fn check(token: Token, request: Request, next: Next) -> Response {
    match refusal(&token, &request) {
        Some(why) => (StatusCode::FORBIDDEN, format!("{why}\n")).into_response(),
        None => next.run(request).await,
    }
}

fn refusal(token: &Token, request: &Request) -> Option<&'static str> {
    let Some(host) = only(request.headers(), &header::HOST) else {
        return Some("the request names no host, or several");
    };
    let named = request.uri().authority().map(axum::http::uri::Authority::as_str);
    if !is_loopback(host) || !named.is_none_or(is_loopback) {
        return Some(
            "this is served under the names of loopback only: localhost, 127.0.0.1, [::1]",
        );
    }
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let origin = only(request.headers(), &header::ORIGIN).and_then(|o| o.strip_prefix("http://"));
    if !origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host)) {
        return Some("only the page itself may change something (Origin)");
    }
    let said = only(request.headers(), &TOKEN);
    if !said.is_some_and(|said| token.is(said.as_bytes())) {
        return Some("only the page itself may change something; load it again (token)");
    }
    None
}

/// The value of a field that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then_some(value)?.to_str().ok()
}

/// Whether `host`, with or without a port, is a name of this host's loopback interface.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if is_port(port) => name,
            _ => return false,
        },
        None => match host.rfind(':') {
            Some(colon) if is_port(&host[colon..]) => &host[..colon],
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Nothing, or a colon and a port.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_names_of_loopback_are_answered() {
        for host in ["localhost", "LocalHost:8088", "127.0.0.1:1", "127.8.9.1", "[::1]:80", "[::1]"]
        {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8088",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "localhost:80:80",
            "localhost:99999",
            "[::1",
            "[::1]x",
            "::1",
            "[fe80::1]",
            "192.0.2.1",
            "0.0.0.0",
            "localhost@evil.example",
            "evil.example@localhost",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn tokens_differ_and_are_compared_whole() {
        let token = Token::new().unwrap();
        let text = token.text().to_owned();
        assert_eq!(text.len(), 64);
        assert_ne!(text, Token::new().unwrap().text());
        assert!(token.is(text.as_bytes()));
        assert!(!token.is(&text.as_bytes()[1..]) && !token.is(b""));
        let mut wrong = text.into_bytes();
        wrong[63] ^= 1;
        assert!(!token.is(&wrong));
    }

    proptest! {
        #[test]
        fn no_host_makes_it_panic(host in "\\PC{0,20}", bracket in "[\\[\\]:.0-9a-z]{0,20}") {
            let _ = (is_loopback(&host), is_loopback(&bracket));
        }
    }
}
