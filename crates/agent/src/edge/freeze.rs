use lasthop_units::{Duration, LinkEvent, LinkNews, LinkWatch, Thaw, Time};
use lasthop_wire::tcp::{Flags, Segment, Seq};

use super::HopEnd;
use super::flow::{Flow, Seen, Window, acknowledges};
use crate::table::Table;
use crate::{Connection, Packet, Queue, Side, Tcp};

/// Copies of one acknowledgement that are sent at most.
const COPIES_MAX: u8 = 8;

/// How a [`Freeze`] works. The values are those of the same schemes in a mobile's own TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreezeConfig {
    /// Which event ends the freeze (LLT-5).
    pub thaw: Thaw,
    /// At which end of the hop it stands.
    pub place: HopEnd,
    /// Zero-window acknowledgements on a warning, 8 at most (FRZ-1, LLT-3; silent: 1).
    pub copies_before: u8,
    /// Acknowledgements once the link is back, 8 at most (FRZ-3, LLT-6).
    pub acks_after: u8,
    /// Acknowledgements at the end of a disconnection that nothing has foretold, 8 at most (LLT-10).
    pub acks_unforeseen: u8,
    /// After so long beyond its lead a warning was false, and windows open (LLT-9).
    pub bound: Duration,
    /// The mobile's own sending freezes, too (LLT-11).
    pub sender: bool,
    /// Connections that are known at most; the one that was silent longest gives way.
    pub connections: usize,
    /// A connection without packets is removed after this time.
    pub idle: Duration,
}

impl FreezeConfig {
    /// Freeze-TCP: one acknowledgement before, three when the link is up, downloads only.
    pub const fn freeze(place: HopEnd) -> Self {
        Self {
            thaw: Thaw::Up,
            place,
            copies_before: 1,
            acks_after: 3,
            acks_unforeseen: 3,
            bound: LinkWatch::BOUND,
            sender: false,
            connections: 4096,
            idle: Duration::from_secs(900),
        }
    }

    /// The link-layer trigger method's: one before and one when the handoff is complete, both
    /// directions.
    pub const fn link_layer(place: HopEnd) -> Self {
        Self {
            thaw: Thaw::Complete,
            acks_after: 1,
            acks_unforeseen: 1,
            sender: true,
            ..Self::freeze(place)
        }
    }
}

/// What a [`Freeze`] did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FreezeStats {
    /// Warnings on which windows were shut.
    pub freezes: u64,
    /// Times that windows were opened, false warnings included.
    pub thaws: u64,
    /// Zero-window acknowledgements that were made.
    pub zero_windows: u64,
    /// Acknowledgements that were made afterwards.
    pub opened: u64,
    /// Segments that passed with a window of zero in place of their own.
    pub rewritten: u64,
    /// Probes that were answered for a host behind a dead hop.
    pub probes_answered: u64,
    /// Packets that were handed on.
    pub passed: u64,
}

/// Freeze-TCP (Goff et al. 2000; FRZ) and the freezing of the link-layer trigger method (LLT), for a
/// TCP that knows of neither.
///
/// On a warning a zero window is advertised to every fixed host, in its mobile's name, and each
/// acknowledgement that passes from then on says so too. A sender that has had all its data
/// acknowledged before the hop falls silent goes to persist with its windows and estimates kept. So
/// the warning should come a round trip and the hop's queue ahead: for data that is lost the sender's
/// timer runs, whatever its window. The first acknowledgement repeats what the mobile has sent last;
/// some stacks take a lesser window only from one that acknowledges more (Linux before 6.6), and hear
/// it from the next that passes.
///
/// While frozen data pass; so do acknowledgements, with a window of zero. Once the hop is cut probes
/// of the host that stands on this side of it are answered here, so that it does not give up.
///
/// At the end copies of the mobile's latest acknowledgement state the window that it stated itself.
/// Without a warning they are duplicates.
///
/// A sender that was stopped tries the link by itself, since its TCP probes.
#[derive(Clone, Debug)]
pub struct Freeze<P> {
    config: FreezeConfig,
    link: LinkWatch,
    /// Windows pass as zero.
    pub(super) frozen: bool,
    pub(super) flows: Table<Flow<Shut>>,
    queue: Queue<P>,
    stats: FreezeStats,
}

/// Whose windows were stated as zero.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Shut {
    pub(super) fixed: bool,
    pub(super) mobile: bool,
}

impl Shut {
    fn of(&mut self, side: Side) -> &mut bool {
        match side {
            Side::Fixed => &mut self.fixed,
            Side::Mobile => &mut self.mobile,
        }
    }
}

impl<P: Packet> Freeze<P> {
    /// A helper that knows no connection, on a hop that carries.
    pub fn new(config: FreezeConfig) -> Self {
        Self {
            link: LinkWatch::new(config.thaw, Some(config.bound)),
            frozen: false,
            flows: Table::new(config.connections, config.idle),
            queue: Queue::default(),
            stats: FreezeStats::default(),
            config,
        }
    }

    /// What it did.
    pub const fn stats(&self) -> &FreezeStats {
        &self.stats
    }

    fn on_news(&mut self, news: LinkNews) {
        match news {
            LinkNews::Nothing => {}
            LinkNews::Warned => self.freeze(),
            LinkNews::Cut => self.on_unannounced_down(),
            LinkNews::Back => self.thaw(),
        }
    }

    fn freeze(&mut self) {
        self.stats.freezes += u64::from(!self.frozen);
        self.frozen = true;
        self.shut(Side::Mobile, self.config.copies_before);
        if self.config.sender {
            self.shut(Side::Fixed, self.config.copies_before);
        }
    }

    /// Nobody has foretold it: what the mobile sends from here on would be lost (LLT-11).
    fn on_unannounced_down(&mut self) {
        if !self.frozen && self.config.sender && self.config.place == HopEnd::Mobile {
            self.shut(Side::Fixed, self.config.copies_before);
        }
    }

    /// The window of the hosts on `of` is zero, as advertised to the other ends.
    fn shut(&mut self, of: Side, copies: u8) {
        for (connection, flow) in self.flows.iter_mut() {
            if flow.seen.has_ended(of.other()) {
                continue;
            }
            let made = flow.seen.end(of).acknowledgement(Window::Zero);
            let Some(made) = made else { continue };
            *flow.state.of(of) = true;
            let copies = copies.min(COPIES_MAX);
            repeat(&mut self.queue, connection, of, made, copies);
            self.stats.zero_windows += u64::from(copies);
        }
    }

    fn thaw(&mut self) {
        self.frozen = false;
        self.stats.thaws += 1;
        for (connection, flow) in self.flows.iter_mut() {
            for of in [Side::Mobile, Side::Fixed] {
                let shut = core::mem::take(flow.state.of(of));
                let copies = match (shut, of) {
                    (true, _) => self.config.acks_after,
                    (false, Side::Mobile) => self.config.acks_unforeseen,
                    (false, Side::Fixed) => 0,
                };
                let made = flow.seen.end(of).acknowledgement(Window::Real);
                let Some(made) = made.filter(|_| !flow.seen.has_ended(of.other())) else {
                    continue;
                };
                let copies = copies.min(COPIES_MAX);
                repeat(&mut self.queue, connection, of, made, copies);
                self.stats.opened += u64::from(copies);
            }
        }
    }

    /// Windows of the hosts on that side are shut at present.
    fn shuts(&self, of: Side) -> bool {
        self.frozen && (of == Side::Mobile || self.config.sender)
    }

    fn handle_tcp(&mut self, now: Time, from: Side, tcp: &Tcp, mut packet: P) -> Option<P> {
        if from == Side::of_hop(self.config.place) {
            let news = self.link.on_segment(now);
            self.on_news(news);
        }
        let shuts = self.shuts(from);
        let answers = self.link.is_cut() && from == Side::of_hop(self.config.place).other();
        let Some(flow) = Flow::of(&mut self.flows, now, from, tcp) else { return Some(packet) };
        let probed = from.other();
        let probe = answers && *flow.state.of(probed) && is_probe(&flow.seen, from, &tcp.segment);
        flow.seen.observe(from, &tcp.segment);
        if acknowledges(&tcp.segment) && (shuts || *flow.state.of(from)) {
            *flow.state.of(from) = true;
            if tcp.segment.window > 0 {
                packet.set_segment(&Segment { window: 0, ..tcp.segment });
                self.stats.rewritten += 1;
            }
        }
        let connection = tcp.connection(from);
        if probe && let Some(made) = flow.seen.end(probed).acknowledgement(Window::Zero) {
            self.stats.probes_answered += 1;
            repeat(&mut self.queue, &connection, probed, made, 1);
        }
        Some(packet)
    }
}

/// Sends copies of an acknowledgement in the name of the host on `of`.
fn repeat<P>(queue: &mut Queue<P>, connection: &Connection, of: Side, made: Segment, copies: u8) {
    (0..copies).for_each(|_| queue.segment(of.other(), *connection, made));
}

/// A segment that goes into a window of zero to be answered: one without anything new, or a byte at
/// the window's edge (RFC 9293 section 3.8.6.1). To be asked before the segment is observed.
fn is_probe(seen: &Seen, from: Side, segment: &Segment) -> bool {
    if segment.flags.intersects(Flags::SYN.with(Flags::RST)) {
        return false;
    }
    let Some(last) = seen.end(from.other()).last else { return false };
    let repeated = |next: Seq| segment.end().ahead_of(next) <= 0;
    match segment.seq.ahead_of(last.ack) {
        behind if behind < 0 => true,
        0 => segment.len == 1 || segment.len > 0 && seen.end(from).next.is_some_and(repeated),
        _ => false,
    }
}

helper! {
    Freeze:

    fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        self.flows.expire(now);
        let news = self.link.on_event(now, event);
        self.on_news(news);
    }

    fn next_timeout(&self) -> Option<Time> {
        Some(self.link.deadline()).filter(|due| *due != Time::NEVER)
    }

    fn handle_timeout(&mut self, now: Time) {
        let news = self.link.on_timer(now);
        self.on_news(news);
    }
}
