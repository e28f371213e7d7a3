//! Whatever the hop does, ends see packets that the other end has sent.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The fixed host or the mobile sends this segment, or acknowledges it.
    Data(bool, u32),
    Ack(bool, u32),
    /// The hop carries what waits at the front of a direction, loses it, or carries it twice.
    Carry(bool),
    Lose(bool),
    Twice(bool),
    Wait(u64),
    /// A half restarts.
    Restart(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<bool>(), 0..12_u32).prop_map(|(up, n)| Step::Data(up, n)),
        4 => (any::<bool>(), 0..12_u32).prop_map(|(up, n)| Step::Ack(up, n)),
        12 => any::<bool>().prop_map(Step::Carry),
        3 => any::<bool>().prop_map(Step::Lose),
        1 => any::<bool>().prop_map(Step::Twice),
        2 => (0..500_u64).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::Restart),
    ]
}

#[derive(Clone, Debug)]
enum OnHop {
    Packet(Wire),
    Message(Message),
}

/// Both halves, what is on the hop each way, and what each end has sent.
struct Halves {
    hop: Hop,
    way: [alloc::collections::VecDeque<OnHop>; 2],
    sent: [Vec<Wire>; 2],
}

fn side(up: bool) -> Side {
    if up { Side::Mobile } else { Side::Fixed }
}

impl Halves {
    fn end_sends(&mut self, up: bool, packet: Wire) {
        self.sent[usize::from(up)].push(packet);
        let now = self.hop.now;
        self.hop.half(side(up)).handle_packet(now, side(up), packet);
        self.collect(up);
    }

    /// What the half at that end has said: what is handed to the end is what the other has sent.
    fn collect(&mut self, up: bool) {
        let said = self.hop.said(side(up));
        let way = &mut self.way[usize::from(up)];
        way.extend(said.hop.into_iter().map(OnHop::Packet));
        way.extend(said.messages.into_iter().map(OnHop::Message));
        for packet in said.handed {
            assert!(self.sent[usize::from(!up)].contains(&packet), "{packet:?} was made up");
        }
    }

    fn carry(&mut self, up: bool, what: OnHop) {
        let now = self.hop.now;
        let to = side(!up);
        match what {
            OnHop::Packet(packet) => self.hop.half(to).handle_packet(now, side(up), packet),
            OnHop::Message(message) => self.hop.half(to).handle_message(now, side(up), &message),
        }
        self.collect(!up);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Data(up, n) => self.end_sends(up, data(side(up), n)),
            Step::Ack(up, n) => self.end_sends(up, ack(side(up), n)),
            Step::Carry(up) | Step::Twice(up) => {
                if let Some(what) = self.way[usize::from(up)].pop_front() {
                    if matches!(step, Step::Twice(_)) {
                        self.carry(up, what.clone());
                    }
                    self.carry(up, what);
                }
            }
            Step::Lose(up) => {
                self.way[usize::from(up)].pop_front();
            }
            Step::Wait(time) => {
                self.hop.now += Duration::from_millis(time);
                let now = self.hop.now;
                for up in [false, true] {
                    let half = self.hop.half(side(up));
                    if half.next_timeout().is_some_and(|due| due <= now) {
                        half.handle_timeout(now);
                    }
                    let due = half.next_timeout();
                    assert!(due.is_none_or(|due| due > now), "a timer stays due");
                    self.collect(up);
                }
            }
            Step::Restart(up) => {
                let config = Config::default();
                *self.hop.half(side(up)) = match up {
                    true => Unsplit::at_mobile(&config),
                    false => Unsplit::at_base(&config),
                };
            }
        }
    }
}

proptest! {
    /// ALT-5, ALT-8: whatever is lost, comes twice or is forgotten, each packet that reaches an end is
    /// one that the other has sent, with all its fields: no acknowledgement is invented, nothing
    /// changed, nothing of one connection comes out as another's.
    #[test]
    fn ends_see_what_the_other_end_has_sent(
        opens: bool,
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut world = Halves {
            hop: Hop::new(),
            way: Default::default(),
            sent: Default::default(),
        };
        if opens {
            world.end_sends(true, syn(1, Side::Mobile));
            world.step(Step::Carry(true));
            world.end_sends(false, syn_ack(1, Side::Fixed));
            world.step(Step::Carry(false));
        }
        for step in steps {
            world.step(step);
        }
        // In the end all that is on the hop arrives, and both halves still agree on something: one
        // more exchange and packets are compressed, both ways.
        for _ in 0..4 {
            for up in [true, false] {
                world.end_sends(up, ack(side(up), 0));
                while let Some(what) = world.way[usize::from(up)].pop_front() {
                    world.carry(up, what);
                }
            }
            world.step(Step::Wait(60_000));
            for up in [true, false] {
                while let Some(what) = world.way[usize::from(up)].pop_front() {
                    world.carry(up, what);
                }
            }
        }
        for up in [true, false] {
            world.end_sends(up, ack(side(up), 0));
            let compressed = world.way[usize::from(up)]
                .iter()
                .any(|on_hop| matches!(on_hop, OnHop::Packet(p) if p.compressed.is_some()));
            prop_assert!(compressed, "{:?}", world.way[usize::from(up)]);
        }
    }
}
