//! Random schedules: whatever the order of calls, the bytes that arrive are the bytes that were
//! sent, and when all is over nothing is left.

use alloc::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Connect(Opening),
    Accept(usize),
    Refuse(usize),
    Write { mobile: bool, which: usize, n: usize },
    Read { mobile: bool, which: usize, n: usize },
    Finish { mobile: bool, which: usize },
    Reset { mobile: bool, which: usize },
    CarryUp(usize),
    CarryDown(usize),
    Poll { mobile: bool },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let opening = prop_oneof![Just(Opening::Faithful), Just(Opening::Early)];
    let which = || 0usize..8;
    let side = any::<bool>;
    let io = || (side(), which(), 1usize..300);
    prop_oneof![
        2 => opening.prop_map(Step::Connect),
        3 => which().prop_map(Step::Accept),
        1 => which().prop_map(Step::Refuse),
        6 => io().prop_map(|(mobile, which, n)| Step::Write { mobile, which, n }),
        6 => io().prop_map(|(mobile, which, n)| Step::Read { mobile, which, n }),
        1 => (side(), which()).prop_map(|(mobile, which)| Step::Finish { mobile, which }),
        1 => (side(), which()).prop_map(|(mobile, which)| Step::Reset { mobile, which }),
        6 => (1usize..400).prop_map(Step::CarryUp),
        6 => (1usize..400).prop_map(Step::CarryDown),
        6 => side().prop_map(|mobile| Step::Poll { mobile }),
        1 => (0u64..20).prop_map(Step::Wait),
    ]
}

/// What one side's application has seen and done of one connection.
#[derive(Default)]
struct App {
    /// May be written to and read from.
    open: bool,
    written: usize,
    read: usize,
    finished: bool,
    saw_end: bool,
    reset: bool,
    closed: bool,
}

#[derive(Default)]
struct Side {
    apps: BTreeMap<ConnId, App>,
    waiting: Vec<ConnId>,
}

impl Side {
    fn nth(&self, n: usize) -> Option<ConnId> {
        self.apps.keys().nth(n % self.apps.len().max(1)).copied()
    }

    fn take(&mut self, event: &Event) {
        let app = self.apps.entry(event.id()).or_default();
        assert!(!app.closed, "{event:?} after Closed");
        match event {
            Event::Opened { .. } => app.open = true,
            Event::Connect { id, .. } => self.waiting.push(*id),
            Event::Readable(_) | Event::Writable(_) | Event::Acknowledged(_) => {
                assert!(app.open, "{event:?} while closed");
            }
            Event::Failed { .. } | Event::Reset { .. } => {
                assert!(!app.reset, "told twice");
                app.reset = true;
            }
            Event::Closed(_) => app.closed = true,
        }
    }
}

/// Byte `at` of what connection `id` carries in one direction.
fn byte(id: ConnId, up: bool, at: usize) -> u8 {
    (at as u64).wrapping_mul(0x9e37_79b9).wrapping_add(id.0 * 7 + u64::from(up)).to_be_bytes()[4]
}

struct Run {
    world: Sessions,
    mobile: Side,
    base: Side,
}

impl Run {
    fn new(limits: Limits) -> Self {
        let brief = Duration::from_secs(60);
        let mobile = Config { opening_timeout: brief, max_half_open: 6, ..Config::mobile() };
        let base = Config { opening_timeout: brief, max_half_open: 4, ..Config::base() };
        Self {
            world: Sessions::of(limits, mobile, base),
            mobile: Side::default(),
            base: Side::default(),
        }
    }

    fn poll(&mut self, mobile: bool) {
        let events = if mobile { self.world.mobile_events() } else { self.world.base_events() };
        let side = if mobile { &mut self.mobile } else { &mut self.base };
        events.iter().for_each(|event| side.take(event));
    }

    fn write(&mut self, mobile: bool, id: ConnId, n: usize) {
        let Sessions { pair, mobile: m, base: b, .. } = &mut self.world;
        let (side, session, hop) = if mobile {
            (&mut self.mobile, m, &mut pair.mobile)
        } else {
            (&mut self.base, b, &mut pair.base)
        };
        let Some(app) = side.apps.get_mut(&id) else { return };
        let data: Vec<u8> = (app.written..app.written + n).map(|at| byte(id, mobile, at)).collect();
        match session.write(hop, id, &data) {
            Ok(n) => {
                assert!(n == 0 || app.open, "bytes were taken before the opening");
                app.written += n;
            }
            Err(e) => assert!(app.finished || app.closed || e != StreamError::Finished, "{e}"),
        }
    }

    fn read(&mut self, mobile: bool, id: ConnId, n: usize) {
        let Sessions { pair, mobile: m, base: b, .. } = &mut self.world;
        let (side, session, hop) = if mobile {
            (&mut self.mobile, m, &mut pair.mobile)
        } else {
            (&mut self.base, b, &mut pair.base)
        };
        let Some(app) = side.apps.get_mut(&id) else { return };
        let piece = session.received(hop, id);
        let n = piece.len().min(n);
        for (at, got) in piece[..n].iter().enumerate() {
            assert_eq!(*got, byte(id, !mobile, app.read + at), "{id} at {}", app.read + at);
        }
        app.read += n;
        session.consume(hop, id, n);
        if session.recv_state(hop, id) == RecvState::Finished {
            app.saw_end = true;
        }
    }

    fn finish(&mut self, mobile: bool, id: ConnId) {
        let Sessions { pair, mobile: m, base: b, .. } = &mut self.world;
        let side = if mobile { &mut self.mobile } else { &mut self.base };
        let Some(app) = side.apps.get_mut(&id).filter(|app| app.open) else { return };
        app.finished = true;
        if mobile { m.finish(&mut pair.mobile, id) } else { b.finish(&mut pair.base, id) }
    }

    fn reset(&mut self, mobile: bool, id: ConnId) {
        let Sessions { pair, mobile: m, base: b, .. } = &mut self.world;
        let side = if mobile { &mut self.mobile } else { &mut self.base };
        let Some(app) = side.apps.get_mut(&id).filter(|app| !app.closed) else { return };
        app.reset = true;
        if mobile {
            m.reset(&mut pair.mobile, id, ResetReason::Aborted);
        } else {
            b.reset(&mut pair.base, id, ResetReason::Aborted);
        }
        // Our own reset is not reported back; only Closed may follow.
        self.poll(mobile);
    }

    fn answer(&mut self, which: usize, accept: bool) {
        if self.base.waiting.is_empty() {
            return;
        }
        let id = self.base.waiting.swap_remove(which % self.base.waiting.len());
        let Sessions { pair, base, .. } = &mut self.world;
        let app = self.base.apps.entry(id).or_default();
        if accept {
            // It may be over already without the application having polled.
            app.open = true;
            base.accept(&mut pair.base, id, bound());
        } else {
            app.finished = true;
            base.refuse(&mut pair.base, id, Refusal::Refused);
        }
    }

    fn step(&mut self, step: &Step) {
        let pick = |run: &Self, mobile: bool, which: usize| {
            if mobile { run.mobile.nth(which) } else { run.base.nth(which) }
        };
        match *step {
            Step::Connect(opening) => {
                let Sessions { pair, mobile, now, .. } = &mut self.world;
                if let Ok(id) = mobile.connect(*now, &mut pair.mobile, &target(), opening) {
                    let app = self.mobile.apps.entry(id).or_default();
                    app.open = opening == Opening::Early;
                }
            }
            Step::Accept(which) => self.answer(which, true),
            Step::Refuse(which) => self.answer(which, false),
            Step::Write { mobile, which, n } => {
                if let Some(id) = pick(self, mobile, which) {
                    self.write(mobile, id, n);
                }
            }
            Step::Read { mobile, which, n } => {
                if let Some(id) = pick(self, mobile, which) {
                    self.read(mobile, id, n);
                }
            }
            Step::Finish { mobile, which } => {
                if let Some(id) = pick(self, mobile, which) {
                    self.finish(mobile, id);
                }
            }
            Step::Reset { mobile, which } => {
                // What is queued must be taken first, or a reset of the peer's may follow ours.
                self.poll(mobile);
                if let Some(id) = pick(self, mobile, which) {
                    self.reset(mobile, id);
                }
            }
            Step::CarryUp(n) => self.world.pair.carry_up(n),
            Step::CarryDown(n) => self.world.pair.carry_down(n),
            Step::Poll { mobile } => self.poll(mobile),
            Step::Wait(s) => {
                let Sessions { pair, mobile, base, now, .. } = &mut self.world;
                *now += Duration::from_secs(s);
                mobile.handle_timeout(*now, &mut pair.mobile);
                base.handle_timeout(*now, &mut pair.base);
            }
        }
    }

    /// Lets every application answer, read to the end and finish.
    fn drain(&mut self) {
        for _ in 0..10_000 {
            self.world.pair.carry();
            self.poll(true);
            self.poll(false);
            while !self.base.waiting.is_empty() {
                self.answer(0, true);
            }
            for mobile in [true, false] {
                let side = if mobile { &self.mobile } else { &self.base };
                let ids: Vec<ConnId> = side.apps.keys().copied().collect();
                for id in ids {
                    self.read(mobile, id, usize::MAX);
                    self.finish(mobile, id);
                }
            }
            let all_closed = |side: &Side| side.apps.values().all(|app| app.closed);
            if all_closed(&self.mobile) && all_closed(&self.base) {
                return;
            }
        }
        panic!("something never closes: {:?} {:?}", self.world.mobile, self.world.base);
    }

    /// Whole if it ended in order, else a prefix.
    fn compare(&self) {
        for (id, mobile) in &self.mobile.apps {
            let Some(base) = self.base.apps.get(id) else { continue };
            assert!(base.read <= mobile.written && mobile.read <= base.written, "{id}");
            if base.saw_end {
                assert_eq!(base.read, mobile.written, "{id} up");
            }
            if mobile.saw_end {
                assert_eq!(mobile.read, base.written, "{id} down");
            }
            if !mobile.reset && !base.reset {
                assert_eq!((base.read, mobile.read), (mobile.written, base.written), "{id}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// MHP-8..MHP-11, MHP-14.
    #[test]
    fn what_arrives_is_what_was_sent_under_any_schedule(
        buffer in prop_oneof![1usize..40, 100usize..2000],
        piece in prop_oneof![1usize..5, Just(usize::MAX)],
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let mut run = Run::new(Limits { buffer, piece, ..Limits::default() });
        steps.iter().for_each(|step| run.step(step));
        run.drain();
        run.compare();
        run.world.assert_nothing_left();
    }
}
