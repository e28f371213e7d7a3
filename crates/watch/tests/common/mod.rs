//! A process that is none: it serves a control socket as one would.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use lasthop_control::{
    AssociationReport, ConnectionReport, PastReport, PathReport, Report, Request, Target,
};
use serde_json::{Value, json};

/// What all connections share, bytes per second.
pub(crate) const RATE: f64 = 2_500_000.0;

/// A mobile whose connections share the hop in proportion to their priorities.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) path: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    start: Instant,
    latest: Instant,
    connections: Vec<ConnectionReport>,
    carried: BTreeMap<u64, f64>,
    asked: Vec<Request>,
    refusal: Option<String>,
    past: Option<PastReport>,
    /// By name, and the share of what is received that comes by each.
    paths: Vec<(&'static str, f64)>,
}

impl Process {
    /// With these connections: program and target.
    pub(crate) fn start(folder: &Path, connections: &[(&str, &str)]) -> Self {
        let path = folder.join("mobile.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let connection = |(i, (program, target)): (usize, &(&str, &str))| ConnectionReport {
            key: i as u64 + 1,
            program: Some((*program).to_owned()),
            target: (*target).to_owned(),
            client: Some(format!("127.0.0.1:{}", 40_000 + i)),
            priority: Some(1),
            state: "open".to_owned(),
            ..ConnectionReport::default()
        };
        let state = Arc::new(Mutex::new(State {
            start: Instant::now(),
            latest: Instant::now(),
            connections: connections.iter().enumerate().map(connection).collect(),
            carried: BTreeMap::new(),
            asked: Vec::new(),
            refusal: None,
            past: None,
            paths: Vec::new(),
        }));
        let serving = Arc::clone(&state);
        // It ends with the test.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = answer(&stream, &serving);
            }
        });
        Self { path, state }
    }

    /// What was asked beyond looks, so far.
    #[allow(dead_code, reason = "not every test asks for something")]
    pub(crate) fn asked(&self) -> Vec<Request> {
        self.state.lock().unwrap().asked.clone()
    }

    /// It has carried so much in each second before anybody looked, bit/s.
    #[allow(dead_code, reason = "not every test asks for it")]
    pub(crate) fn remember(&self, from_hop_bps: Vec<u64>) {
        let seconds = from_hop_bps.len();
        self.state.lock().unwrap().past = Some(PastReport {
            until_s: 0,
            to_hop_bps: vec![0; seconds],
            from_hop_bps,
            loss: vec![Some(0.25); seconds],
            queue_ms: vec![Some(5.0); seconds],
        });
    }

    /// From here on its association uses these paths, by each of which such a share comes.
    #[allow(dead_code, reason = "not every test has paths")]
    pub(crate) fn use_paths(&self, paths: &[(&'static str, f64)]) {
        self.state.lock().unwrap().paths = paths.to_vec();
    }

    /// From here on it refuses with these words.
    #[allow(dead_code, reason = "not every test is refused")]
    pub(crate) fn refuse(&self, why: &str) {
        self.state.lock().unwrap().refusal = Some(why.to_owned());
    }
}

fn answer(stream: &UnixStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    let answer = state.lock().unwrap().answer(request);
    let answer = match answer {
        Ok(value) => json!({ "ok": value }),
        Err(why) => json!({ "error": why }),
    };
    writeln!(&mut &*stream, "{answer}")
}

impl State {
    fn answer(&mut self, request: Request) -> Result<Value, String> {
        self.carry();
        if let Request::Status { past } = request {
            let past = self.past.clone().filter(|_| past);
            let report = Report { past, ..self.report() };
            return Ok(serde_json::to_value(report).unwrap());
        }
        self.asked.push(request.clone());
        if let Some(why) = &self.refusal {
            return Err(why.clone());
        }
        if let Request::Priority { of, priority } = request {
            let means = |c: &ConnectionReport| match &of {
                Target::Connection(key) => c.key == *key,
                Target::Program(name) => c.program.as_ref() == Some(name),
                _ => false,
            };
            for c in self.connections.iter_mut().filter(|c| means(c)) {
                c.priority = Some(priority.unwrap_or(1));
            }
        }
        Ok(json!({}))
    }

    fn carry(&mut self) {
        let over = self.latest.elapsed().as_secs_f64();
        self.latest = Instant::now();
        let all: u32 = self.connections.iter().filter_map(|c| c.priority).sum();
        for c in &self.connections {
            let share = f64::from(c.priority.unwrap_or(0)) / f64::from(all.max(1));
            *self.carried.entry(c.key).or_default() += RATE * share * over;
        }
    }

    fn report(&self) -> Report {
        let age_s = self.start.elapsed().as_secs_f64();
        let carried = |key| self.carried.get(&key).copied().unwrap_or(0.0) as u64;
        let connections: Vec<ConnectionReport> = self
            .connections
            .iter()
            .map(|c| ConnectionReport { bytes_from_hop: carried(c.key), age_s, ..c.clone() })
            .collect();
        let received: u64 = connections.iter().map(|c| c.bytes_from_hop).sum();
        let path = |(name, share): &(&str, f64)| PathReport {
            name: (*name).to_owned(),
            address: Some("192.0.2.1:4433".to_owned()),
            state: if *share > 0.0 { "up" } else { "silent" }.to_owned(),
            loss: 0.02,
            srtt_ms: Some(41.9),
            queue_ms: Some(7.5),
            bytes_sent: 3_000_000,
            bytes_received: (received as f64 * share) as u64,
            ..PathReport::default()
        };
        let association = AssociationReport {
            id: 1,
            address: Some("192.0.2.1:4433".to_owned()),
            state: "up".to_owned(),
            age_s,
            loss: Some(0.05),
            srtt_ms: Some(41.9),
            queue_ms: Some(7.5),
            bytes_received: received,
            paths: self.paths.iter().map(path).collect(),
            ..AssociationReport::default()
        };
        Report {
            role: "mobile".to_owned(),
            version: "0.1.0".to_owned(),
            uptime_s: age_s,
            hop: "srp".to_owned(),
            associations: vec![association],
            connections,
            ..Report::default()
        }
    }
}
