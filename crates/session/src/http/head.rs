//! Reads a request's head and rewrites one that is passed on.

use alloc::vec::Vec;

use lasthop_wire::mhp::Target;

use super::Status;

/// What a request wants.
pub(super) enum Request {
    Connect(Target),
    /// The head as the origin should see it.
    Forward {
        target: Target,
        head: Vec<u8>,
    },
}

/// Why a request cannot be served.
pub(super) struct Problem {
    pub(super) status: Status,
    pub(super) text: &'static str,
}

const fn bad(text: &'static str) -> Problem {
    Problem { status: Status::BAD_REQUEST, text }
}

const BAD_LINE: Problem = bad("the request line is not `METHOD TARGET HTTP/1.1`");
const BAD_FIELD: Problem = bad("a header field is not `name: value`");
const BAD_HOST: Problem = bad("the target's host is neither a name nor an address");
const BAD_PORT: Problem = bad("the target has no port from 1 to 65535");
const BAD_VERSION: Problem =
    Problem { status: Status::VERSION, text: "the version is neither HTTP/1.1 nor HTTP/1.0" };
const USER_INFO: Problem = bad("a user name in the target is not allowed (RFC 9110, 4.2.4)");
const BAD_FORM: Problem =
    bad("this is a proxy: use CONNECT host:port, or an absolute http:// target");

/// Fields that are for this hop alone (RFC 9110 section 7.6.1), or that the rewritten head has anew.
const DROPPED: [&str; 7] = [
    "connection",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "upgrade",
];

/// Fields that say where the request ends, which naming them in `Connection` must not remove.
const FRAMING: [&str; 2] = ["content-length", "transfer-encoding"];

/// Reads a head with its final empty line.
pub(super) fn parse(head: &[u8]) -> Result<Request, Problem> {
    let mut lines = Lines(head);
    let (method, uri, version) = request_line(lines.next().unwrap_or_default())?;
    for line in lines.clone() {
        field(line)?;
    }
    if method == b"CONNECT" {
        return target(uri, None).map(Request::Connect);
    }
    let (authority, path) = split_absolute(uri)?;
    let target = target(authority, Some(80))?;
    Ok(Request::Forward { target, head: rewrite(method, authority, path, version, lines) })
}

/// Lines without their CR LF, up to the empty one.
#[derive(Clone)]
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = self.0.windows(2).position(|w| w == b"\r\n").filter(|&end| end > 0)?;
        let (line, rest) = self.0.split_at(end);
        self.0 = &rest[2..];
        Some(line)
    }
}

/// Method, target, and the version's digits.
type RequestLine<'a> = (&'a [u8], &'a [u8], &'a [u8]);

fn request_line(line: &[u8]) -> Result<RequestLine<'_>, Problem> {
    let mut parts = line.split(|&b| b == b' ');
    let (Some(method), Some(uri), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(BAD_LINE);
    };
    if !is_token(method) || uri.is_empty() || !version.starts_with(b"HTTP/") {
        return Err(BAD_LINE);
    }
    match &version[5..] {
        digits @ (b"1.1" | b"1.0") => Ok((method, uri, digits)),
        _ => Err(BAD_VERSION),
    }
}

/// A field's name and value, the value without the white space around it.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Problem> {
    let colon = line.iter().position(|&b| b == b':').ok_or(BAD_FIELD)?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if is_token(name) { Ok((name, value)) } else { Err(BAD_FIELD) }
}

/// RFC 9110 section 5.6.2.
fn is_token(bytes: &[u8]) -> bool {
    let tchar = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    !bytes.is_empty() && bytes.iter().all(tchar)
}

/// An authority of `http:`, and what is behind it.
fn split_absolute(uri: &[u8]) -> Result<(&[u8], &[u8]), Problem> {
    const SCHEME: &[u8] = b"http://";
    let rest = match uri.split_at_checked(SCHEME.len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(SCHEME) => rest,
        _ => return Err(BAD_FORM),
    };
    let end = rest.iter().position(|b| b"/?#".contains(b)).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains(&b'@') {
        return Err(USER_INFO);
    }
    Ok((authority, path))
}

/// `host:port`, `[address]:port`; without a port only if there is a default one.
fn target(authority: &[u8], default_port: Option<u16>) -> Result<Target, Problem> {
    let text = core::str::from_utf8(authority).map_err(|_| BAD_HOST)?;
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(BAD_HOST)?;
            let is_v6 = host.parse::<core::net::Ipv6Addr>().is_ok();
            if !is_v6 || !(port.is_empty() || port.starts_with(':')) {
                return Err(BAD_HOST);
            }
            (host, port.strip_prefix(':').unwrap_or_default())
        }
        None => {
            let (host, port) = text.split_once(':').unwrap_or((text, ""));
            if port.contains(':') {
                return Err(BAD_HOST);
            }
            (host, port)
        }
    };
    let port = match (port, default_port) {
        ("", Some(default)) => default,
        _ if !port.bytes().all(|b| b.is_ascii_digit()) => return Err(BAD_PORT),
        _ => port.parse().ok().filter(|&port| port != 0).ok_or(BAD_PORT)?,
    };
    Target::from_host(host, port).map_err(|_| BAD_HOST)
}

fn rewrite(
    method: &[u8],
    authority: &[u8],
    path: &[u8],
    version: &[u8],
    lines: Lines<'_>,
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
    // RFC 9112 sections 3.2.1 and 3.2.4.
    let start: &[u8] = match path.first() {
        None if method == b"OPTIONS" => b"*",
        None | Some(b'?' | b'#') => b"/",
        Some(_) => b"",
    };
    let path = path.split(|&b| b == b'#').next().unwrap_or_default();
    put(&[method, b" ", start, path, b" HTTP/", version, b"\r\nHost: ", authority, b"\r\n"]);
    let options = connection_options(lines.clone());
    for line in lines {
        let Ok((name, _)) = field(line) else { continue };
        if !is_dropped(name, &options) {
            put(&[line, b"\r\n"]);
        }
    }
    put(&[b"Connection: close\r\nVia: ", version, b" lasthop\r\n\r\n"]);
    out
}

fn is_dropped(name: &[u8], options: &[&[u8]]) -> bool {
    let is_in = |list: &[&str]| list.iter().any(|n| name.eq_ignore_ascii_case(n.as_bytes()));
    is_in(&DROPPED)
        || !is_in(&FRAMING) && options.iter().any(|option| option.eq_ignore_ascii_case(name))
}

/// What the `Connection` fields name.
fn connection_options<'a>(lines: Lines<'a>) -> Vec<&'a [u8]> {
    lines
        .filter_map(|line| field(line).ok())
        .filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"))
        .flat_map(|(_, value)| value.split(|&b| b == b','))
        .map(<[u8]>::trim_ascii)
        .collect()
}
