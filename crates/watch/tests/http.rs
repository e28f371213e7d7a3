//! What the server answers to whom. It is spoken to on the loopback interface.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use common::Process;
use lasthop_control::{Request, Target};
use lasthop_watch::{Bound, Handle, Options, ServeError, serve};

const PATIENCE: Duration = Duration::from_secs(60);
const ANY: &str = "127.0.0.1:0";

struct Served {
    handle: Handle,
    process: Process,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(folder.path(), &[("curl", "a:1"), ("wget", "b:2")]);
        let any = ANY.parse().ok();
        let control = process.path.clone();
        let handle = serve(Options { ui: any, metrics: any, control, own: false }).unwrap();
        Self { handle, process, _folder: folder }
    }

    fn ui(&self) -> SocketAddr {
        self.handle.ui().unwrap()
    }

    fn say(&self, request: &str) -> Answer {
        say(self.ui(), request)
    }

    fn get(&self, path: &str) -> Answer {
        self.say(&format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.ui()
        ))
    }

    fn token(&self) -> String {
        let page = self.get("/").body;
        let (_, rest) = page.split_once("name=\"token\" content=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    /// A change of priority, with these fields in its header beside the length.
    fn post(&self, fields: &str, body: &str) -> Answer {
        let length = body.len();
        self.say(&format!(
            "POST /priority HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n\
             {fields}\r\n{body}"
        ))
    }

    /// What the page itself sends.
    fn page_s_fields(&self) -> String {
        let ui = self.ui();
        format!("Host: {ui}\r\nOrigin: http://{ui}\r\nX-Lasthop-Token: {}\r\n", self.token())
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn say(to: SocketAddr, request: &str) -> Answer {
    let mut stream = connect(to);
    // It may have been refused already.
    let _ = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

const SETS: &str = r#"{"of":{"program":"curl"},"priority":3}"#;

#[test]
fn the_page_loads_nothing_from_elsewhere_and_nobody_frames_it() {
    let served = Served::start();
    for (path, kind) in [
        ("/", "text/html"),
        ("/page.css", "text/css"),
        ("/parts.js", "text/javascript"),
        ("/page.js", "text/javascript"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let answer = served.get(path);
        assert_eq!(answer.status, 200, "{path}");
        for field in [
            &format!("content-type: {kind}") as &str,
            "content-security-policy: default-src 'none';",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            "referrer-policy: no-referrer",
        ] {
            assert!(answer.head.contains(field), "{path}: {field}\n{}", answer.head);
        }
        let own = answer.body.replace("http://www.w3.org/2000/svg", "");
        assert!(!own.contains("http://") && !own.contains("https://"), "{path}");
        assert!(!own.contains("innerHTML"), "{path} makes markup of text");
    }
    assert_eq!(served.get("/nothing").status, 404);
    assert_eq!(served.get("/priority").status, 405);
}

#[test]
fn a_name_that_was_made_to_point_here_is_answered_nothing() {
    let served = Served::start();
    for host in ["evil.example", "evil.example:8088", "127.0.0.1.evil.example", "192.0.2.1"] {
        for path in ["/", "/events", "/metrics", "/parts.js", "/page.js"] {
            let answer = served
                .say(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
            assert_eq!(answer.status, 403, "{host}{path}");
            assert!(!answer.body.contains("token\" content"), "{host}{path}");
        }
    }
    let ui = served.ui();
    for request in [
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\nHost: {ui}\r\nHost: evil.example\r\nConnection: close\r\n\r\n"),
        format!("GET http://evil.example/ HTTP/1.1\r\nHost: {ui}\r\nConnection: close\r\n\r\n"),
    ] {
        let answer = served.say(&request);
        assert!(matches!(answer.status, 400 | 403), "{request}: {}", answer.status);
    }
    let port = ui.port();
    let request = format!("GET / HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n");
    assert_eq!(served.say(&request).status, 200);
}

#[test]
fn only_the_page_changes_a_priority() {
    let served = Served::start();
    let (ui, token) = (served.ui(), served.token());
    let right = served.page_s_fields();
    for (fields, status) in [
        (format!("Host: {ui}\r\n"), 403),
        (format!("Host: {ui}\r\nX-Lasthop-Token: {token}\r\n"), 403),
        (format!("Host: {ui}\r\nOrigin: http://{ui}\r\n"), 403),
        (format!("Host: {ui}\r\nOrigin: null\r\nX-Lasthop-Token: {token}\r\n"), 403),
        (format!("Host: {ui}\r\nOrigin: https://{ui}\r\nX-Lasthop-Token: {token}\r\n"), 403),
        (format!("Host: {ui}\r\nOrigin: http://evil.example\r\nX-Lasthop-Token: {token}\r\n"), 403),
        (format!("Host: {ui}\r\nOrigin: http://{ui}\r\nX-Lasthop-Token: {}\r\n", &token[1..]), 403),
        (right.replace(&format!("{ui}"), "evil.example"), 403),
    ] {
        let answer = served.post(&fields, SETS);
        assert_eq!(answer.status, status, "{fields}: {}", answer.body);
    }
    assert_eq!(served.process.asked(), []);
    assert_eq!(served.post(&right, SETS).status, 204);
    let of = Target::Program("curl".to_owned());
    assert_eq!(served.process.asked(), [Request::Priority { of, priority: Some(3) }]);
    let again = Served::start();
    let stale = right.replace(&ui.to_string(), &again.ui().to_string());
    assert_eq!(again.post(&stale, SETS).status, 403, "the token of another server");
}

#[test]
fn what_is_posted_is_bounded_and_understood_or_refused() {
    let served = Served::start();
    let right = served.page_s_fields();
    for body in ["", "{", "[]", "{\"of\":{\"file\":\"x\"}}", "{\"of\":{\"connection\":-1}}"] {
        assert_eq!(served.post(&right, body).status, 400, "{body}");
    }
    let long = format!("{{\"of\":{{\"program\":\"{}\"}}}}", "x".repeat(5000));
    assert_eq!(served.post(&right, &long).status, 413);
    assert_eq!(served.process.asked(), []);
    served.process.refuse("a priority is a number from 1 to 1000");
    let answer = served.post(&right, SETS);
    assert_eq!((answer.status, answer.body.trim()), (409, "a priority is a number from 1 to 1000"));
}

#[test]
fn headers_are_bounded() {
    let served = Served::start();
    let long =
        format!("GET / HTTP/1.1\r\nHost: {}\r\nX: {}\r\n\r\n", served.ui(), "x".repeat(100_000));
    assert!(matches!(served.say(&long).status, 0 | 431), "it is cut off");
    let many = "X: y\r\n".repeat(200);
    let many = format!("GET / HTTP/1.1\r\nHost: {}\r\n{many}\r\n", served.ui());
    assert!(matches!(served.say(&many).status, 0 | 431), "it is cut off");
    assert_eq!(served.get("/").status, 200);
}

#[test]
fn events_tell_what_happens_as_it_happens() {
    let served = Served::start();
    let mut stream = connect(served.ui());
    write!(stream, "GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", served.ui()).unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut next = |event: &str| {
        let wanted = format!("event: {event}");
        lines.find(|line| *line == wanted).expect(event);
        let data = lines.next().unwrap();
        serde_json::from_str::<serde_json::Value>(data.strip_prefix("data: ").unwrap()).unwrap()
    };
    assert_eq!(next("plots")["interval_s"], 1.0);
    assert!(next("sample")["total"]["from_hop_bps"].is_null(), "nothing to compare with");
    let sample = next("sample");
    let rate = sample["total"]["from_hop_bps"].as_f64().unwrap();
    assert!((rate / (8.0 * common::RATE) - 1.0).abs() < 0.05, "{rate}");
    assert_eq!(sample["connections"].as_array().unwrap().len(), 2);
    assert!(sample["associations"][0]["paths"].is_null(), "there is one");
    served.process.use_paths(&[("modem", 0.5), ("dish", 0.5)]);
    let rate_of = |sample: &serde_json::Value| {
        let dish = &sample["associations"][0]["paths"][1];
        (dish["name"] == "dish").then(|| dish["from_hop_bps"].as_f64())
    };
    // One sample may have been on its way; the first with paths has nothing to compare with.
    let first = (0..9).find_map(|_| rate_of(&next("sample"))).unwrap();
    assert_eq!(first, None);
    let rate = rate_of(&next("sample")).unwrap().unwrap();
    assert!((rate / (4.0 * common::RATE) - 1.0).abs() < 0.05, "{rate}");
}

#[test]
fn the_first_plots_are_of_the_time_before_anybody_looked() {
    let served = Served::start();
    let before: Vec<u64> = (0..120).map(|s| 1000 * s).collect();
    served.process.remember(before.clone());
    let mut stream = connect(served.ui());
    write!(stream, "GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", served.ui()).unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut next = || {
        let event = lines.find_map(|line| line.strip_prefix("event: ").map(str::to_owned)).unwrap();
        let data = lines.next().unwrap();
        let data = data.strip_prefix("data: ").unwrap().to_owned();
        (event, serde_json::from_str::<serde_json::Value>(&data).unwrap())
    };
    let (event, plots) = next();
    assert_eq!(event, "plots");
    let rates = plots["from_hop_bps"].as_array().unwrap();
    let rates: Vec<u64> = rates.iter().map(|bps| bps.as_f64().unwrap() as u64).collect();
    assert_eq!(rates, before);
    assert_eq!(plots["loss"].as_array().unwrap().len(), 120);
    let (event, sample) = next();
    assert_eq!((event.as_str(), &sample["total"]["from_hop_bps"]), ("sample", &119_000.into()));
    assert_eq!(next().0, "sample", "they are asked for once");
}

#[test]
fn metrics_are_served_alone_elsewhere_and_nothing_else_is() {
    let served = Served::start();
    let metrics = served.handle.metrics().unwrap();
    let get = |path: &str| {
        say(metrics, &format!("GET {path} HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n"))
    };
    let answer = get("/metrics");
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("content-type: application/openmetrics-text"), "{}", answer.head);
    assert!(answer.body.contains("# EOF"), "{}", answer.body);
    for path in ["/", "/events", "/parts.js", "/page.js", "/priority"] {
        assert_eq!(get(path).status, 404, "{path}");
    }
    assert_eq!(served.get("/metrics").status, 200, "the page's server has them, too");
}

#[test]
fn clients_are_bounded_and_served_again_when_others_go() {
    let served = Served::start();
    let metrics = served.handle.metrics().unwrap();
    let get = || say(metrics, "GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let idle: Vec<TcpStream> = (0..40).map(|_| connect(metrics)).collect();
    let statuses: Vec<u16> = (0..3).map(|_| get().status).collect();
    // A reset may overtake the words.
    assert!(statuses.iter().all(|status| matches!(status, 0 | 503)), "{statuses:?}");
    drop(idle);
    let served = (0..400).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        get().status == 200
    });
    assert!(served);
}

#[test]
fn without_a_process_it_says_so() {
    let control = PathBuf::from("/nonexistent/mobile.sock");
    let ui = ANY.parse().ok();
    let handle = serve(Options { ui, metrics: None, control, own: false }).unwrap();
    let ui = handle.ui().unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {ui}\r\nConnection: close\r\n\r\n");
    assert_eq!(say(ui, &request).status, 503);
    let mut stream = connect(ui);
    write!(stream, "GET /events HTTP/1.1\r\nHost: {ui}\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let why = lines.find(|line| line.contains("nobody answers")).unwrap();
    assert!(why.contains("/nonexistent/mobile.sock"), "{why}");
}

#[test]
fn the_page_is_for_this_host_only_and_what_is_in_use_is_named() {
    let try_on = |ui: &str| {
        let ui = ui.parse().ok();
        serve(Options { ui, metrics: None, control: PathBuf::from("/x"), own: false })
    };
    for address in ["0.0.0.0:0", "192.0.2.1:8088", "[::]:0", "[2001:db8::1]:80"] {
        let error = try_on(address).unwrap_err();
        assert!(matches!(error, ServeError::NotLoopback(_)), "{address}");
        let said = error.to_string();
        assert!(said.contains(address) && said.contains("127.0.0.1:8088"), "{said}");
    }
    let served = Served::start();
    let said = try_on(&served.ui().to_string()).unwrap_err().to_string();
    assert!(said.contains(&served.ui().to_string()), "{said}");
}

#[test]
fn who_comes_before_it_is_served_waits_and_is_answered() {
    let ui: SocketAddr = "127.93.0.1:8088".parse().unwrap();
    let options = Options { ui: Some(ui), metrics: None, control: "/x".into(), own: false };
    let bound = Bound::bind(options).unwrap();
    let mut stream = connect(ui);
    write!(stream, "GET / HTTP/1.1\r\nHost: {ui}\r\nConnection: close\r\n\r\n").unwrap();
    let _handle = bound.serve().unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
}

#[test]
fn what_was_served_is_free_again_when_the_handle_is_dropped() {
    let served = Served::start();
    let ui = served.ui();
    drop(served);
    assert!(TcpStream::connect_timeout(&ui, PATIENCE).is_err());
}
