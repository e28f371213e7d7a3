//! Plays a script: the peer and the application are the script's, time is virtual.

use std::collections::VecDeque;
use std::fmt::Display;
use std::time::Duration;

use lasthop_tcp::{Connection, Event, Outgoing, Ports, State, reset_for};
use lasthop_units::Time;
use lasthop_wire::tcp::{Flags, Options, SackBlocks, Segment, Timestamps};

use super::script::{
    Check, EVENTS, Ecn, Fault, ISS, Line, OptionShape, PEER_ISS, STATES, Script, Shape, Step,
};

const PORTS: Ports = Ports { local: 1, remote: 2 };
/// More in one go would never end.
const MOST_AT_ONCE: usize = 10_000;

/// Plays `script` to its end.
pub(crate) fn run(script: &Script) -> Result<(), Fault> {
    let mut player = Player {
        script,
        now: Time::ZERO,
        it: None,
        listening: false,
        sent: VecDeque::new(),
        window: 60_000,
    };
    let fault = |line: &Line, what| Fault { file: script.file.clone(), line: line.number, what };
    for line in &script.lines {
        player.play(line).map_err(|what| fault(line, what))?;
    }
    match script.lines.last() {
        Some(last) => player.all_was_expected("after the last line").map_err(|w| fault(last, w)),
        None => Ok(()),
    }
}

struct Player<'a> {
    script: &'a Script,
    now: Time,
    it: Option<Connection>,
    listening: bool,
    /// What was sent and no line has expected so far.
    sent: VecDeque<(Time, Outgoing)>,
    /// The window that the peer stated last.
    window: u16,
}

impl Player<'_> {
    fn play(&mut self, line: &Line) -> Result<(), String> {
        if let Step::Expect(shapes) = &line.step {
            return shapes.iter().try_for_each(|shape| self.expect(line.at, shape));
        }
        self.advance(line.at, false)?;
        self.now = line.at;
        if line.step.is_input() {
            self.all_was_expected("before this line")?;
        }
        match &line.step {
            Step::Connect => self.connect()?,
            Step::Accept => self.listening = true,
            Step::Open { rtt, window } => self.open(*rtt, *window)?,
            Step::Write(n) => {
                let taken = self.it()?.write(*n);
                if taken != *n {
                    return Err(format!("there was room for {taken} only"));
                }
            }
            Step::Read(n) => {
                let readable = self.it()?.readable();
                if readable < *n {
                    return Err(format!("only {readable} can be read"));
                }
                self.it()?.consume(*n);
            }
            Step::Close => self.it()?.finish(),
            Step::Abort => self.it()?.abort(),
            Step::Link(event) => {
                let now = self.now;
                self.it()?.handle_link_event(now, *event);
            }
            Step::BadState => {
                let now = self.now;
                self.it()?.handle_bad_state(now);
            }
            Step::Inject(shapes) => {
                return shapes.iter().try_for_each(|shape| self.inject(shape));
            }
            Step::Expect(_) | Step::ExpectNothing => {}
            Step::Check(check) => return self.check(check),
        }
        self.flush()
    }

    fn it(&mut self) -> Result<&mut Connection, String> {
        self.it.as_mut().ok_or_else(|| "there is no connection yet".to_owned())
    }

    fn connect(&mut self) -> Result<(), String> {
        if self.it.is_some() {
            return Err("there is a connection already".to_owned());
        }
        self.it = Some(Connection::connect(self.script.config, PORTS, ISS, self.now));
        Ok(())
    }

    /// The whole opening, from our side.
    fn open(&mut self, rtt: Duration, window: u16) -> Result<(), String> {
        self.connect()?;
        self.flush()?;
        let syn = match self.sent.pop_front() {
            Some((_, syn)) if syn.segment.flags.contains(Flags::SYN) => syn.segment,
            _ => return Err("connecting sent no SYN".to_owned()),
        };
        self.advance(self.now + rtt, true)?;
        self.all_was_expected("during the opening")?;
        self.now += rtt;
        let echo = if syn.flags.contains(Flags::ECE) { Flags::ECE } else { Flags::empty() };
        let mut options = Shape::of(&syn).options.unwrap_or_default();
        options.timestamps = options.timestamps.map(|(value, _)| (Some(0), value));
        let flags = Flags::SYN.with(Flags::ACK).with(echo);
        let options = Some(options);
        self.inject(&Shape { flags, ack: 1, window: Some(window), options, ..Shape::default() })?;
        let ack = Shape { flags: Flags::ACK, seq: 1, ack: 1, ..Shape::default() };
        self.expect(self.now, &ack)?;
        while self.it()?.poll_event().is_some() {}
        self.flush()
    }

    fn inject(&mut self, shape: &Shape) -> Result<(), String> {
        self.window = shape.window.unwrap_or(self.window);
        let segment = self.segment(shape);
        let now = self.now;
        match &mut self.it {
            Some(it) if !it.is_closed() => {
                it.handle_segment_marked(now, &segment, shape.ecn == Some(Ecn::Ce));
            }
            None if self.listening => {
                match Connection::accept(self.script.config, PORTS, &segment, ISS, now) {
                    Ok(it) => self.it = Some(it),
                    Err(_) => self.refuse(&segment),
                }
            }
            // As a host answers where no connection is.
            _ => self.refuse(&segment),
        }
        self.flush()
    }

    fn refuse(&mut self, segment: &Segment) {
        let reset = reset_for(segment);
        let outgoing = |segment| Outgoing { segment, offset: 0, ecn_capable: false };
        self.sent.extend(reset.map(|segment| (self.now, outgoing(segment))));
    }

    fn segment(&self, shape: &Shape) -> Segment {
        let acks = shape.flags.contains(Flags::ACK);
        Segment {
            src_port: PORTS.remote,
            dst_port: PORTS.local,
            seq: PEER_ISS + shape.seq,
            ack: if acks { ISS + shape.ack } else { Default::default() },
            flags: shape.flags,
            window: self.window,
            options: shape.options.as_ref().map(options).unwrap_or_default(),
            len: shape.len,
        }
    }

    /// Takes what the connection has to send.
    fn flush(&mut self) -> Result<(), String> {
        let Some(it) = &mut self.it else { return Ok(()) };
        for _ in 0..MOST_AT_ONCE {
            match it.poll_transmit(self.now) {
                Some(out) => self.sent.push_back((self.now, out)),
                None => return Ok(()),
            }
        }
        Err(format!("at {} it does not stop sending", self.now))
    }

    /// Lets timers expire up to `until`, or if asked only until something is sent.
    fn advance(&mut self, until: Time, only_to_output: bool) -> Result<(), String> {
        for _ in 0..MOST_AT_ONCE {
            if only_to_output && !self.sent.is_empty() {
                return Ok(());
            }
            let Some(it) = &mut self.it else { return Ok(()) };
            match it.next_timeout().filter(|at| *at <= until) {
                Some(at) => {
                    self.now = at.max(self.now);
                    it.handle_timeout(self.now);
                }
                None => return Ok(()),
            }
            self.flush()?;
        }
        Err(format!("at {} its timer does not stop expiring", self.now))
    }

    fn all_was_expected(&self, when: &str) -> Result<(), String> {
        match self.sent.front() {
            None => Ok(()),
            Some((at, out)) => {
                let more = match self.sent.len() {
                    1 => String::new(),
                    n => format!(" and {} more", n - 1),
                };
                Err(format!("{when} came at {at} what nothing expects: {}{more}", shape_of(out)))
            }
        }
    }

    fn expect(&mut self, at: Time, shape: &Shape) -> Result<(), String> {
        let tolerance = self.script.tolerance;
        self.advance(at + tolerance, true)?;
        let Some((came_at, out)) = self.sent.pop_front() else {
            let timer = self.it.as_ref().and_then(Connection::next_timeout);
            let next = timer.map_or("none is set".to_owned(), |t| format!("the next at {t}"));
            return Err(format!("expected at {at}: {shape}; nothing came (of timers {next})"));
        };
        let came = shape_of(&out);
        let on_time = came_at.since(at).max(at.since(came_at)) <= tolerance;
        if !on_time || !shape.matches(&came) {
            return Err(format!("expected at {at}: {shape}; came at {came_at}: {came}"));
        }
        self.now = self.now.max(at);
        Ok(())
    }

    fn check(&mut self, check: &Check) -> Result<(), String> {
        let now = self.now;
        let it = self.it()?;
        match check {
            Check::State(wanted) => agree("state", state_name(*wanted), state_name(it.state())),
            Check::Recovering(wanted) => agree("recovery", wanted, &it.probe().recovering),
            Check::Events(wanted) => {
                let mut came: Vec<_> = std::iter::from_fn(|| it.poll_event()).collect();
                let mut wanted = wanted.clone();
                came.sort_by_key(|e| *e as u8);
                wanted.sort_by_key(|e| *e as u8);
                agree("events", &*event_names(&wanted), &*event_names(&came))
            }
            Check::Size(of, wanted) => {
                let mss = u32::try_from(it.segment_size().get()).unwrap_or(u32::MAX);
                agree(of.name, &wanted.bytes(mss).get(), &(of.of)(it, now).get())
            }
            Check::Span(of, wanted) => agree(of.name, &span(*wanted), &span((of.of)(it, now))),
            Check::Count(of, wanted) => agree(of.name, wanted, &(of.of)(it, now)),
        }
    }
}

/// How what was sent reads in a script.
fn shape_of(out: &Outgoing) -> Shape {
    let ecn = Some(if out.ecn_capable { Ecn::Ect } else { Ecn::Not });
    Shape { ecn, ..Shape::of(&out.segment) }
}

fn agree<T: PartialEq + Display + ?Sized>(name: &str, wanted: &T, is: &T) -> Result<(), String> {
    if wanted == is {
        return Ok(());
    }
    Err(format!("expected {name} {wanted}, it is {is}"))
}

fn span(of: Option<Duration>) -> String {
    of.map_or("off".to_owned(), |of| format!("{of:?}"))
}

fn state_name(state: State) -> &'static str {
    STATES.iter().find(|(_, s)| *s == state).map_or("unknown", |(name, _)| name)
}

fn event_names(events: &[Event]) -> String {
    let name = |e: &Event| EVENTS.iter().find(|(_, x)| x == e).map_or("unknown", |(name, _)| *name);
    let names: Vec<_> = events.iter().map(name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}

fn options(shape: &OptionShape) -> Options {
    let mut sack = SackBlocks::default();
    for &(start, end) in &shape.sack {
        sack.push(ISS + start, ISS + end);
    }
    Options {
        mss: shape.mss,
        window_scale: shape.window_scale,
        sack_permitted: shape.sack_permitted,
        timestamps: shape.timestamps.map(|(value, echo)| Timestamps {
            value: value.unwrap_or_default(),
            echo: echo.unwrap_or_default(),
        }),
        sack,
        eln: shape.eln,
        cid: None,
        multipath: None,
    }
}
