//! Who is trusted: a session leaves a base by its mobile's grant for that very base, and by nothing
//! else.

use lasthop_hop::seal::{GrantKey, Keypair, PublicKey};
use lasthop_wire::mhp::handoff::BaseName;

use super::*;

/// Datagrams, and to whom they go.
type Said<A> = Vec<(A, Vec<u8>)>;

/// What a base answers and reports for that message.
fn told<A: Address, T: Authority<A>>(
    base: &mut Base<A, T>,
    from: A,
    datagram: &[u8],
) -> (Said<A>, Vec<BaseEvent<A>>) {
    base.handle_datagram(Time::ZERO, from, datagram);
    let (mut said, mut out) = (vec![], vec![]);
    while let Some(to) = base.poll_transmit(Time::ZERO, &mut out) {
        said.push((to, out.clone()));
    }
    (said, core::iter::from_fn(|| base.poll_event()).collect())
}

fn encoded(attempt: u32, message: Message<'_>) -> Vec<u8> {
    let mut out = vec![];
    Datagram { session: ID, attempt, message }.encode(&mut out);
    out
}

fn handover(attempt: u32, warrant: Option<Warrant>) -> Vec<u8> {
    let (limit, piece) = (1 << 24, 1000);
    let copy = None;
    encoded(attempt, Message::Handover { limit, piece, window: 8, since: 0, copy, warrant })
}

fn warrant(mobile: u32, holder: u32, claim: Claim<u32>) -> Option<Warrant> {
    let grant = toy::grant(mobile, holder, &claim);
    Some(Warrant { mobile: mobile.to_name(), grant })
}

/// Base 1, where the mobile has announced that it is.
fn holder() -> Base<u32, Toy> {
    let mut it = base(Config::base(), 1);
    let (said, events) = told(&mut it, MOBILE, &encoded(0, Message::Here { since: 0 }));
    assert_eq!((said.len(), events), (0, vec![BaseEvent::Begins { session: ID, mobile: MOBILE }]));
    it
}

fn refusal(to: u32, attempt: u32, reason: Reason) -> Vec<(u32, Vec<u8>)> {
    vec![(to, encoded(attempt, Message::Refuse(reason)))]
}

fn refused(from: u32, why: Denied) -> Vec<BaseEvent<u32>> {
    vec![BaseEvent::Refused { session: ID, from, why }]
}

/// MHP-16: a base asks in the mobile's name and with its word, and is given what it asks for.
#[test]
fn a_grant_for_that_base_and_handoff_frees_the_session() {
    let mut base = holder();
    let claim = Claim { session: ID, attempt: 1, to: 2 };
    let (said, events) = told(&mut base, 2, &handover(1, warrant(MOBILE, 1, claim)));
    assert_eq!((said.len(), events.len()), (0, 1));
    assert_eq!(events[0], BaseEvent::Freeze { session: ID, mobile: Some(MOBILE) });
}

/// A stolen grant, one for another holder, session or handoff, a made-up one, none at all, and a base
/// that nobody knows: refused, reported, and nothing has changed.
#[test]
fn whatever_is_no_grant_for_that_base_frees_nothing() {
    let claim = Claim { session: ID, attempt: 1, to: 2 };
    let good = warrant(MOBILE, 1, claim);
    let stranger = warrant(77, 1, claim);
    let cases = [
        (3, 1, good.clone(), Denied::NotGranted),
        (2, 2, good.clone(), Denied::NotGranted),
        (2, 1, warrant(MOBILE, 3, claim), Denied::NotGranted),
        (2, 1, warrant(MOBILE, 1, Claim { session: SessionId(1), ..claim }), Denied::NotGranted),
        (2, 1, warrant(MOBILE, 1, Claim { attempt: 0, ..claim }), Denied::NotGranted),
        (2, 1, stranger, Denied::UnknownMobile),
        (2, 1, None, Denied::NoGrant),
        (4, 1, warrant(MOBILE, 1, Claim { to: 4, ..claim }), Denied::NotBase),
        (MOBILE, 1, warrant(MOBILE, 1, Claim { to: MOBILE, ..claim }), Denied::NotBase),
    ];
    let mut base = holder();
    for (from, attempt, warrant, why) in cases {
        let answer = refusal(from, attempt, Reason::Unauthorised);
        assert_eq!(
            told(&mut base, from, &handover(attempt, warrant)),
            (answer, refused(from, why))
        );
        assert_eq!((base.pending(), base.is_here(ID)), (0, true), "{why}");
    }
    let (_, events) = told(&mut base, 2, &handover(1, good));
    assert!(matches!(events[..], [BaseEvent::Freeze { .. }]), "the genuine one is as good as ever");
}

/// A grant for the session of one mobile is of no use to another, though both are known.
#[test]
fn a_session_is_not_given_for_another_mobiles_word() {
    let mut base = holder();
    let claim = Claim { session: ID, attempt: 1, to: 2 };
    let (said, events) = told(&mut base, 2, &handover(1, warrant(MOBILE + 1, 1, claim)));
    assert_eq!((said, events), (refusal(2, 1, Reason::Unknown), refused(2, Denied::NotOwner)));
    let greet = Message::Greet { holder: 1u32.to_name(), since: 0, grants: vec![] };
    let (said, events) = told(&mut base, MOBILE + 1, &encoded(5, greet));
    let from = MOBILE + 1;
    assert_eq!(
        (said, events),
        (refusal(from, 5, Reason::Unknown), refused(from, Denied::NotOwner))
    );
    assert!(base.is_here(ID));
}

/// A world that finds the session to be another mobile's hands out nothing, and all is as before.
#[test]
fn what_the_world_does_not_freeze_is_not_given() {
    let mut base = Base::new(Config::base(), 1u32);
    let claim = Claim { session: ID, attempt: 1, to: 2 };
    told(&mut base, 2, &handover(1, warrant(MOBILE, 1, claim)));
    base.frozen(Time::ZERO, ID, None);
    let mut out = vec![];
    assert_eq!(base.poll_transmit(Time::ZERO, &mut out), Some(2));
    assert_eq!(out, encoded(1, Message::Refuse(Reason::Unknown)));
    assert_eq!((base.pending(), base.sessions()), (0, 0));
}

/// A request that was good once is sent again after the mobile has come back, or after the base was
/// restarted: neither frees the session a second time.
#[test]
fn a_replayed_request_frees_nothing() {
    let mut world = Roaming::new(1);
    let id = world.opened();
    world.upcall(2);
    world.run(Duration::from_secs(1));
    let asked = world.sent.iter().find(|(from, to, bytes)| {
        let said = Datagram::decode(bytes).map(|d| d.message);
        (*from, *to) == (2, 1) && matches!(said, Ok(Message::Handover { .. }))
    });
    let asked = asked.expect("a request").2.clone();
    let released = |world: &Roaming| {
        world
            .base_told
            .iter()
            .filter(|(at, e)| (*at, matches!(e, BaseEvent::Freeze { .. })) == (1, true))
            .count()
    };
    let before = released(&world);
    world.receive(2, 1, &asked);
    world.upcall(1);
    world.run(Duration::from_secs(1));
    world.receive(2, 1, &asked);
    world.poll();
    world.restart(0);
    world.receive(2, 1, &asked);
    world.run(Duration::from_secs(1));
    assert_eq!((released(&world), world.serving()), (before, Some(0)));
    let why = |why| {
        let event = BaseEvent::Refused { session: ID, from: 2, why };
        world.base_told.iter().filter(|(at, told)| *at == 1 && *told == event).count()
    };
    assert_eq!((why(Denied::For(Reason::Unknown)), why(Denied::Outdated)), (1, 2));
    assert!(!world.apps[&id].closed);
}

/// A base that was restarted does not know what has been granted before until the mobile says so.
#[test]
fn a_restarted_base_gives_nothing_before_the_mobile_has_spoken() {
    let mut it = base(Config::base(), 1);
    let claim = Claim { session: ID, attempt: 1, to: 2 };
    let old = handover(1, warrant(MOBILE, 1, claim));
    let (said, _) = told(&mut it, 2, &old);
    assert_eq!((said, it.sessions()), (refusal(2, 1, Reason::Unknown), 0));
    told(&mut it, MOBILE, &encoded(2, Message::Here { since: 3 }));
    let (said, events) = told(&mut it, 2, &old);
    assert_eq!((said, events), (refusal(2, 1, Reason::Outdated), refused(2, Denied::Outdated)));
}

/// To confirm that it has a state takes a grant too, if it is for another handoff than the one for
/// which the state was fetched.
#[test]
fn nobody_takes_what_was_not_given_to_it() {
    let mut base = holder();
    let claim = |to| Claim { session: ID, attempt: 1, to };
    told(&mut base, 2, &handover(1, warrant(MOBILE, 1, claim(2))));
    let state = SessionState::of(ID, vec![]);
    base.frozen(Time::ZERO, ID, Some(state));
    while base.poll_transmit(Time::ZERO, &mut vec![]).is_some() {}
    let take = |attempt, warrant| encoded(attempt, Message::Commit { generation: 256, warrant });
    let (said, _) = told(&mut base, 3, &take(9, warrant(MOBILE, 1, claim(3))));
    assert_eq!(said, refusal(3, 9, Reason::Unauthorised));
    let (said, _) = told(&mut base, 3, &take(1, None));
    assert_eq!(said, []);
    let (said, events) = told(&mut base, 2, &take(1, None));
    assert_eq!(said, [(2, encoded(1, Message::Committed { generation: 256 }))]);
    assert!(matches!(events[..], [BaseEvent::Forward { to: 2, .. }]));
}

/// A mobile is served where it is known, and comes from bases that are.
#[test]
fn a_stranger_and_a_session_from_strangers_are_refused() {
    let mut it = base(Config::base(), 2);
    let greet = |holder: u32| {
        encoded(1, Message::Greet { holder: holder.to_name(), since: 0, grants: vec![] })
    };
    let (said, events) = told(&mut it, 55, &greet(1));
    assert_eq!(
        (said, events),
        (refusal(55, 1, Reason::Unauthorised), refused(55, Denied::NotMobile))
    );
    let (said, events) = told(&mut it, MOBILE, &greet(9));
    let why = refused(MOBILE, Denied::UnknownHolder);
    assert_eq!((said, events), (refusal(MOBILE, 1, Reason::Unauthorised), why));
    assert_eq!(it.sessions(), 0);
}

/// MOB-39: no copy goes to a candidate that is not known, and the mobile gets the reason.
#[test]
fn an_unknown_candidate_gets_no_copy() {
    let mut base = holder();
    let candidate = 9u32.to_name();
    let expect = encoded(0, Message::Expect { candidate: candidate.clone() });
    let (said, events) = told(&mut base, MOBILE, &expect);
    let refused_so = Some(Reason::Unauthorised);
    let answer = encoded(0, Message::Expected { candidate, refused: refused_so });
    assert_eq!(
        (said, events),
        (vec![(MOBILE, answer.clone())], refused(MOBILE, Denied::UnknownCandidate))
    );
    assert_eq!(base.copies(), 0);
    let mut mobile = Mobile::new(Config::mobile(), ID, 1u32);
    mobile.handle_imminent(Time::ZERO, 9, Duration::from_secs(1));
    assert_eq!(mobile.poll_transmit(Time::ZERO, &mut vec![]), Some(1));
    mobile.handle_datagram(Time::ZERO, 1, &answer);
    let event = MobileEvent::Unexpected { candidate: 9, reason: Reason::Unauthorised };
    assert_eq!((mobile.poll_event(), mobile.next_timeout()), (Some(event), None));
}

/// A refusal that says that nothing has happened leaves the session where it was: the mobile may go
/// back, and its connections never notice more than a pause.
#[test]
fn a_base_that_will_not_have_the_mobile_costs_no_connection() {
    let mut world = Roaming::new(1);
    let id = world.opened();
    world.write(id, 500);
    world.stations[1].machine.authority_mut().own = 9;
    world.stations[0].machine.authority_mut().own = 9;
    world.upcall(2);
    world.run(Duration::from_secs(1));
    let event = MobileEvent::Refused { base: 2, reason: Reason::Unauthorised };
    assert_eq!(world.told[1..], [event]);
    world.upcall(1);
    world.run(Duration::from_secs(1));
    assert_eq!((world.serving(), world.wired[&id].up), (Some(0), 500));
}

/// Nobody but the base that was greeted says that a session stands there.
#[test]
fn another_bases_word_moves_no_mobile() {
    let mut mobile = Mobile::new(Config::mobile(), ID, 1u32);
    mobile.handle_upcall(Time::ZERO, 2);
    for message in [Message::Resume { since: 9 }, Message::Refuse(Reason::Unknown)] {
        mobile.handle_datagram(Time::ZERO, 3, &encoded(1, message.clone()));
        mobile.handle_datagram(Time::ZERO, 1, &encoded(1, message));
    }
    assert_eq!((mobile.going(), mobile.base()), (Some(2), 1));
    mobile.handle_datagram(Time::ZERO, 2, &encoded(1, Message::Resume { since: 9 }));
    assert_eq!((mobile.going(), mobile.base()), (None, 2));
}

/// What cannot be read is refused by name where somebody waits for an answer, and a refusal never is.
#[test]
fn a_message_of_another_version_is_refused_and_a_refusal_is_not() {
    let mut base = holder();
    let mut newer = handover(1, None);
    newer[0] = 2;
    let answer = refusal(2, 1, Reason::Version);
    assert_eq!(told(&mut base, 2, &newer), (answer.clone(), refused(2, Denied::Version(2))));
    assert_eq!(told(&mut base, 4, &newer), (vec![], vec![]), "strangers are told nothing");
    let mut unknown = handover(1, None);
    unknown[1] = 60;
    assert_eq!(told(&mut base, 2, &unknown), (vec![], vec![]), "it may be skipped");
    unknown[5] = 1;
    assert_eq!(told(&mut base, 2, &unknown), (answer, refused(2, Denied::Kind(60))));
    let mut refusal = encoded(1, Message::Refuse(Reason::Version));
    refusal[0] = 2;
    assert_eq!(told(&mut base, 2, &refusal), (vec![], vec![]));
}

/// MHP-21: a link that is known to be down is not waited for.
#[test]
fn a_holder_that_is_known_to_be_gone_is_told_at_once() {
    let mut world = Roaming::new(1);
    world.panics_on_broken = false;
    world.opened();
    world.stations[0].dead = true;
    world.upcall(2);
    while world.deliver() {}
    let now = world.now;
    world.stations[1].machine.unreachable(now, 3);
    assert!(world.stations[1].machine.is_coming(ID), "another base's link is of no account");
    world.stations[1].machine.unreachable(now, 1);
    world.poll();
    while world.deliver() {}
    assert_eq!(world.told[1..], [MobileEvent::Broken(Broken::Refused(Reason::Unreachable))]);
    assert_eq!(world.now, now);
}

/// As soon as a link stands, what waits for it is requested.
#[test]
fn nothing_waits_for_a_timer_once_a_link_stands() {
    let mut world = Roaming::new(1);
    world.opened();
    world.stations[0].dead = true;
    world.upcall(2);
    while world.deliver() {}
    world.wait(Duration::from_millis(450));
    while world.deliver() {}
    world.stations[0].dead = false;
    let now = world.now;
    world.stations[1].machine.reached(now, 1);
    world.poll();
    while world.deliver() {}
    assert_eq!((world.serving(), world.now), (Some(1), now));
}

/// The wired sockets that a base kept are reached with the mobile's word, once and not later.
#[test]
fn wired_sockets_are_reached_by_a_grant_alone() {
    let mut world = Roaming::new(1);
    world.opened();
    world.upcall(2);
    world.run(Duration::from_secs(1));
    let ask = world.stations[1].machine.attach(ID, 1).expect("a grant");
    assert_eq!(world.stations[1].machine.attach(ID, 2), None, "it has none to itself");
    let anchor = &mut world.stations[0].machine;
    assert_eq!(anchor.check_attach(2, b"nothing"), None);
    assert_eq!(anchor.check_attach(2, &handover(1, None)), None);
    let attach = anchor.check_attach(2, &ask).expect("a request").expect("granted");
    assert_eq!((attach.session, attach.attempt, attach.mobile), (ID, 1, MOBILE));
    let said = attached(&attach);
    assert_eq!(read_attached(&said, ID, 1), Some(Ok(())));
    assert_eq!(read_attached(&said, ID, 2), None);
    let stolen = anchor.check_attach(3, &ask).expect("a request").expect_err("stolen");
    assert_eq!(read_attached(&stolen, ID, 1), Some(Err(Reason::Unauthorised)));
    world.upcall(1);
    world.run(Duration::from_secs(1));
    let late = world.stations[0].machine.check_attach(2, &ask).expect("a request");
    let late = late.expect_err("the mobile has been elsewhere since");
    assert_eq!(read_attached(&late, ID, 1), Some(Err(Reason::Outdated)));
}

/// With the keys of the seal all is as with any other grants.
#[test]
fn static_keys_are_names_and_make_grants() {
    let pair = |n| Keypair::generate(Seed::from_u64(n));
    let (mobile, holder, next, other) = (pair(1), pair(2), pair(3), pair(4));
    let name = |pair: &Keypair| *pair.public();
    assert_eq!(PublicKey::from_name(&name(&mobile).to_name()), Some(name(&mobile)));
    assert_eq!(PublicKey::from_name(&BaseName::default()), None);
    let bases = [name(&holder), name(&next), PublicKey::from_bytes([0; 32])];
    let granter = MobileKeys::new(&mobile, bases);
    let mut moving = Mobile::with_granter(Config::mobile(), ID, name(&holder), granter);
    let mut authority = BaseKeys::new(holder.clone());
    authority.allow_base(name(&next));
    authority.allow_base(name(&other));
    authority.allow_mobile(name(&mobile));
    let mut base = Base::with_authority(Config::base(), name(&holder), authority);
    let mut out = vec![];
    moving.reached(Time::ZERO, name(&holder));
    assert_eq!(moving.poll_transmit(Time::ZERO, &mut out), Some(name(&holder)));
    told(&mut base, name(&mobile), &out);
    moving.handle_upcall(Time::ZERO, name(&next));
    assert_eq!(moving.poll_transmit(Time::ZERO, &mut out), Some(name(&next)));
    let Ok(Message::Greet { grants, .. }) = Datagram::decode(&out).map(|d| d.message) else {
        panic!("no greeting");
    };
    let [(to, grant)] = &grants[..] else { panic!("{} grants", grants.len()) };
    assert_eq!(*to, name(&holder).to_name());
    let key = GrantKey::of_mobile(&mobile, holder.public()).expect("a key");
    assert_eq!(*grant, key.grant(ID, 1, next.public()));
    let warrant = Warrant { mobile: name(&mobile).to_name(), grant: *grant };
    let ask = handover(1, Some(warrant));
    let (_, events) = told(&mut base, name(&other), &ask);
    let from = name(&other);
    assert_eq!(events, [BaseEvent::Refused { session: ID, from, why: Denied::NotGranted }]);
    let (_, events) = told(&mut base, name(&next), &ask);
    assert_eq!(events, [BaseEvent::Freeze { session: ID, mobile: Some(name(&mobile)) }]);
    base.authority_mut().deny_base(&name(&next));
    let (said, _) = told(&mut base, name(&next), &handover(2, None));
    assert_eq!(said, [(name(&next), encoded(2, Message::Refuse(Reason::Unauthorised)))]);
}

/// Large pieces, and time for a slow network, where datagrams travel on a stream.
#[test]
fn a_state_of_16_mib_travels_over_streams_in_large_pieces() {
    let config = Config::base().over_streams();
    assert_eq!(config.piece(), 16 * 1024);
    assert!(config.give_up < Config::mobile().over_streams().give_up);
    let limits = Limits { buffer: 200_000, ..Limits::default() };
    let mut world = Roaming::with(7, limits, config);
    let id = world.opened();
    world.write(id, 190_000);
    world.carry(usize::MAX, 0);
    world.upcall(2);
    world.run(Duration::from_secs(1));
    assert_eq!(world.wired[&id].up, 190_000);
    assert_eq!(world.count(|_, _, m| matches!(m, Message::State { .. })), 12);
}
