//! Bases that die or are cut off, and what others take over from them.

use super::*;

/// How long a base is silent before another takes over from it.
const PATIENCE: Duration = Duration::from_millis(400);

impl Roaming {
    /// All bases give tickets, and take over from each other. Before anything happens.
    pub(super) fn into_fleet(mut self) -> Self {
        self.around.fleet = true;
        for base in 1..=3 {
            self.nodes[base as usize - 1] = Node::new(base, self.take_over());
        }
        self.flying.clear();
        self.associate(1);
        while self.deliver() {}
        self
    }

    pub(super) fn take_over(&self) -> Option<Duration> {
        self.around.fleet.then_some(PATIENCE)
    }

    pub(super) fn is_dead(&self, base: u32) -> bool {
        self.around.dead.contains_key(&base)
    }

    /// Whether what is on its way does not arrive.
    pub(super) fn is_lost(&self, flight: &Flight) -> bool {
        match flight {
            Flight::Message(from, to, _) | Flight::Link(from, to, _) => {
                self.is_dead(*from) || self.is_dead(*to)
            }
            Flight::Call(base, ..) | Flight::Up(base, _) => self.is_dead(*base),
            // Who is cut off notices that he is.
            Flight::Gone(base, _) => self.around.dead.get(base) == Some(&Death::Killed),
        }
    }

    /// A base dies, and what only it has is lost: what it has told the mobile that it has, and connections that the mobile has
    /// no ticket of.
    pub(super) fn die(&mut self, base: u32, how: Death) {
        trace!(self, "{base} is {how:?}");
        self.around.dead.insert(base, how);
        let given = |id: &ConnId| self.session.has_ticket(*id);
        let whole = |id: &ConnId, app: &App| {
            self.around.flows_of(*id).any(|wired| wired.up_ended && wired.up == app.written)
        };
        let lost = self.apps.iter().filter(|(id, app)| match app.closed {
            true => !whole(id, app),
            false => !given(id),
        });
        let lost: Vec<ConnId> = lost.map(|(id, _)| *id).collect();
        self.around.spoiled.extend(lost);
    }

    /// A base that was cut off is there again; one that was killed is started anew.
    pub(super) fn return_to_life(&mut self, base: u32) {
        let Some(how) = self.around.dead.remove(&base) else { return };
        trace!(self, "{base} is back");
        if how == Death::Killed {
            let take_over = self.take_over();
            let old = core::mem::replace(self.node(base), Node::new(base, take_over));
            drop(old);
            self.ways.remove(&base);
            if self.at == base {
                self.associate(base);
                let pair = self.pair();
                let hop = &mut self.around.pairs[pair].mobile;
                self.session.suspend(self.now, hop);
                self.session.resume(self.now, hop, ID);
            }
        }
        let now = self.now;
        for other in (1..=3).filter(|other| *other != base) {
            self.node(other).station.reached(now, base);
            self.node(base).station.reached(now, other);
        }
        self.poll();
    }
}

/// A mobile with connections, of which the first has carried bytes both ways.
fn served() -> (Roaming, ConnId) {
    let mut world = Roaming::new(1, Mode::Migrate).into_fleet();
    let id = world.connect(Opening::Faithful).expect("room");
    world.run(50 * MS);
    world.write(id, 300);
    world.run(50 * MS);
    world.relay(id, usize::MAX, 500);
    world.run(50 * MS);
    world.read(id, usize::MAX);
    (world, id)
}

/// ACK-7: the fixed host has one connection, and every byte.
#[test]
fn connections_go_on_when_their_base_has_died() {
    for how in [Death::Killed, Death::Cut] {
        let (mut world, id) = served();
        // More that the fixed host has sent, and that has not come to the mobile.
        world.relay(id, usize::MAX, 400);
        world.die(1, how);
        world.mobile.handle_upcall(world.now, 2);
        world.run(900 * MS);
        assert_eq!((world.resumed, world.around.taken), (1, 1), "{how:?}");
        let counts = world.node(2).station.counts();
        assert_eq!((counts.orphans_taken, counts.orphans_lost), (1, 0));
        world.write(id, 200);
        world.run(50 * MS);
        world.relay(id, usize::MAX, 700);
        world.run(50 * MS);
        world.read_all();
        let app = &world.apps[&id];
        // What had not come is sent again.
        assert_eq!((app.read, app.closed), (500 + 400 + 700, false), "{how:?}");
        let wired: Vec<_> = world.around.flows_of(id).collect();
        assert_eq!((wired.len(), wired[0].up), (1, 500), "one connection with the fixed host");
        assert!(world.around.spoiled.is_empty());
    }
}

/// ACK-7: what does not fit one message comes in several, and an answer that was begun before the mobile was asked again is
/// none.
#[test]
fn a_hundred_connections_go_on() {
    let mut world = Roaming::new(1, Mode::Migrate).into_fleet();
    let ids: Vec<ConnId> =
        (0..100).map(|_| world.connect(Opening::Faithful).expect("room")).collect();
    world.run(100 * MS);
    world.die(1, Death::Killed);
    world.mobile.handle_upcall(world.now, 2);
    // Asked once and again before what it answers comes.
    while !world.mobile.is_pending() || world.node(2).station.association_of(MOBILE).is_none() {
        world.deliver();
        world.poll();
    }
    for _ in 0..3 {
        world.wait(500 * MS);
    }
    world.run(900 * MS);
    let counts = world.node(2).station.counts();
    assert_eq!((counts.orphans_taken, counts.orphans_lost), (100, 0));
    assert!(ids.iter().all(|id| !world.apps[id].closed));
}

/// ACK-8: a base that was only cut off finds that its mobile's session is elsewhere, and gives it away.
#[test]
fn a_base_that_was_cut_off_is_fenced() {
    let (mut world, id) = served();
    world.die(1, Death::Cut);
    world.mobile.handle_upcall(world.now, 2);
    world.run(900 * MS);
    assert_eq!(world.node(1).sockets.left().1, 1, "it knows of nothing");
    world.return_to_life(1);
    world.run(100 * MS);
    assert_eq!(world.node(1).sockets.left(), (0, 0));
    assert_eq!(world.node(1).station.counts().given, 1);
    assert!(!world.apps[&id].closed);
    // The mobile comes back to it as to any other.
    world.mobile.handle_upcall(world.now, 1);
    world.run(300 * MS);
    assert_eq!((world.resumed, world.around.taken), (2, 1));
}

/// FLT-2: a base that is known no more is as good as dead: it is not waited for, and not asked for what was taken over from it.
#[test]
fn a_base_that_is_known_no_more_is_not_waited_for_and_not_fenced() {
    let (mut world, id) = served();
    world.die(1, Death::Cut);
    world.mobile.handle_upcall(world.now, 2);
    while world.node(2).station.machine().pending() == 0 {
        world.wait(MS);
        world.deliver();
    }
    let now = world.now;
    world.with_node(2, |station, world| station.forget_base(world, now, 1));
    world.run(PATIENCE - 50 * MS);
    assert_eq!((world.resumed, world.around.taken), (1, 1), "nobody waits for it");
    world.with_node(2, |station, world| station.forget_base(world, now, 1));
    world.return_to_life(1);
    world.run(100 * MS);
    assert_eq!(world.node(1).station.counts().given, 0);
    assert!(!world.apps[&id].closed);
}

/// ACK-7: one that answers in time hands over as ever.
#[test]
fn nothing_is_taken_over_from_a_base_that_answers() {
    let (mut world, _) = served();
    world.mobile.handle_upcall(world.now, 2);
    world.run(900 * MS);
    assert_eq!((world.resumed, world.around.taken, world.around.dumped), (1, 0, 1));
}

#[test]
fn a_connection_without_a_ticket_is_lost_when_the_others_go_on() {
    let (mut world, id) = served();
    let other = world.connect(Opening::Faithful).expect("room");
    world.run(50 * MS);
    world.session.forget_ticket(other);
    world.die(1, Death::Killed);
    world.mobile.handle_upcall(world.now, 2);
    // The other base might still have answered.
    world.run(900 * MS);
    assert_eq!(world.resumed, 0);
    world.run(1500 * MS);
    let counts = world.node(2).station.counts();
    assert_eq!((counts.orphans_taken, counts.orphans_lost), (1, 1));
    assert!(!world.apps[&id].closed && world.apps[&other].closed);
}

/// Everything is delivered, and fixed hosts take and send nothing.
fn settle(world: &mut Roaming) {
    for _ in 0..60 {
        world.wait(10 * MS);
        while world.deliver() {}
        (1..=3).for_each(|base| world.finish_job(base));
        world.carry(usize::MAX, usize::MAX);
        world.carry_links(usize::MAX);
    }
}

/// ACK-10: what the base has, its kernel has, or the base before had of the mobile's, and the fixed host has not, the mobile has.
#[test]
fn what_the_fixed_host_does_not_have_the_mobile_has() {
    for handoff in [false, true] {
        let (mut world, id) = served();
        world.write(id, 600);
        settle(&mut world);
        // The base's kernel is left with 100 of them, the base with 300.
        world.relay(id, 300, 0);
        let up = |world: &Roaming| world.around.flows_of(id).next().expect("one").up;
        assert_eq!(up(&world), 300 + 200);
        settle(&mut world);
        if handoff {
            world.mobile.handle_upcall(world.now, 2);
            settle(&mut world);
            assert_eq!((world.resumed, up(&world)), (1, 500));
            // The next base's kernel has 100 too, and some of what comes after.
            world.write(id, 600);
            settle(&mut world);
            world.relay(id, 300, 0);
            assert_eq!(up(&world), 500 + 300);
            settle(&mut world);
        }
        let base = world.at;
        world.die(base, Death::Killed);
        world.mobile.handle_upcall(world.now, base + 1);
        world.run(900 * MS);
        assert_eq!(world.around.taken, 1, "handoff {handoff}");
        world.finish(id);
        world.run(100 * MS);
        assert!(!world.apps[&id].closed, "the fixed host has not ended");
        world.end(id);
        world.run(100 * MS);
        world.read_all();
        world.run(100 * MS);
        let app = &world.apps[&id];
        assert_eq!((up(&world), app.closed), (app.written, true), "handoff {handoff}");
        assert!(world.around.spoiled.is_empty());
    }
}

/// ACK-10: a connection of which all has been said lasts at the mobile until the fixed host has it.
#[test]
fn a_connection_is_not_over_before_the_fixed_host_has_its_end() {
    let (mut world, id) = served();
    world.write(id, 300);
    world.finish(id);
    world.end(id);
    settle(&mut world);
    world.read_all();
    // The base has all of it, its kernel some.
    world.relay(id, 300, 0);
    settle(&mut world);
    world.read_all();
    settle(&mut world);
    assert!(!world.apps[&id].closed);
    world.die(1, Death::Killed);
    world.mobile.handle_upcall(world.now, 2);
    world.run(900 * MS);
    world.read_all();
    world.run(100 * MS);
    let wired = world.around.flows_of(id).next().expect("one");
    assert_eq!((world.around.taken, wired.up, wired.up_ended), (1, 600, true));
    assert!(world.apps[&id].closed && world.around.spoiled.is_empty());
}
