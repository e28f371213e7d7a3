use super::*;

const HOME: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 9);
const HOME_AGENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn config() -> MobileConfig {
    MobileConfig::new(HOME, HOME_AGENT)
}

fn advertisement(agent: Ipv4Addr, sequence: u16) -> Advertisement {
    let role = if agent == HOME_AGENT { Role::Home } else { Role::Foreign };
    Advertisement {
        agent,
        role,
        sequence,
        validity: Duration::from_secs(3),
        lifetime: Duration::from_secs(1800),
        busy: false,
    }
}

fn hear(mobile: &mut MobileRegistration, now: Time, found: Advertisement) {
    let message = Message::Advertisement(found);
    mobile.handle(now, &Envelope { src: found.agent, dst: HOME, message });
}

fn requested(mobile: &mut MobileRegistration, now: Time) -> Option<(Ipv4Addr, Request)> {
    match mobile.poll_transmit(now) {
        Some(Envelope { dst, message: Message::Request(request), .. }) => Some((dst, request)),
        Some(other) => panic!("not a request: {other:?}"),
        None => None,
    }
}

fn answer(mobile: &mut MobileRegistration, now: Time, request: &Request, code: Code) {
    let Request { home, home_agent, lifetime, id, .. } = *request;
    let reply = Reply { home, home_agent, lifetime, id, code };
    hand(mobile, now, reply);
}

fn hand(mobile: &mut MobileRegistration, now: Time, reply: Reply) {
    mobile.handle(now, &Envelope { src: FIRST, dst: HOME, message: Message::Reply(reply) });
}

fn upcalls(mobile: &mut MobileRegistration) -> Vec<Upcall> {
    std::iter::from_fn(|| mobile.poll_upcall()).collect()
}

/// A mobile that registered with the first agent at 10 ms.
fn registered(config: MobileConfig) -> MobileRegistration {
    let mut mobile = MobileRegistration::new(config, Time::ZERO);
    hear(&mut mobile, at(0), advertisement(FIRST, 0));
    let (_, request) = requested(&mut mobile, at(0)).unwrap();
    answer(&mut mobile, at(10), &request, Code::Accepted);
    assert_eq!(mobile.base(at(10)), Some(FIRST));
    assert_eq!(upcalls(&mut mobile).len(), 1);
    mobile
}

/// MIP-2: hear, ask, and the reply ends the handoff; MIP-6: the layers above are told both times.
#[test]
fn a_move_is_heard_registered_and_told() {
    let mut mobile = registered(config());
    mobile.handle_link(at(5000), LinkEvent::Down);
    assert_eq!(upcalls(&mut mobile), [Upcall::HandoffInProgress]);
    mobile.handle_link(at(5300), LinkEvent::Up);
    assert_eq!(mobile.poll_transmit(at(5300)), None, "it waits for an advertisement");
    hear(&mut mobile, at(5900), advertisement(SECOND, 77));
    assert_eq!(mobile.router(), Some(SECOND), "it can send already (MIP-5)");
    let (to, request) = requested(&mut mobile, at(5900)).unwrap();
    assert_eq!((to, request.care_of, request.home_agent), (SECOND, SECOND, HOME_AGENT));
    answer(&mut mobile, at(5950), &request, Code::Accepted);
    let timing = HandoffTiming {
        from: Some(FIRST),
        lost: at(5000),
        up: at(5300),
        heard: at(5900),
        complete: at(5950),
        requests: 1,
    };
    assert_eq!(upcalls(&mut mobile), [Upcall::HandoffComplete { base: SECOND, timing }]);
    assert_eq!(mobile.base(at(5950)), Some(SECOND));
    assert_eq!(timing.link(), Duration::from_millis(300));
    assert_eq!(timing.advertisement(), Duration::from_millis(600));
    assert_eq!(timing.registration(), Duration::from_millis(50));
    assert_eq!(timing.latency(), Duration::from_millis(950));
    assert_eq!(mobile.stats().handoffs, 1);
}

#[test]
fn a_move_is_noticed_without_a_word_from_the_link() {
    let mut mobile = registered(config());
    hear(&mut mobile, at(4000), advertisement(SECOND, 5));
    assert_eq!(upcalls(&mut mobile), [Upcall::HandoffInProgress]);
    assert!(requested(&mut mobile, at(4000)).is_some());
}

#[test]
fn a_patient_mobile_moves_when_its_agent_has_fallen_silent() {
    let mut mobile = registered(MobileConfig { detection: MoveDetection::Lifetime, ..config() });
    hear(&mut mobile, at(2900), advertisement(SECOND, 5));
    assert_eq!(requested(&mut mobile, at(2900)), None);
    assert_eq!(mobile.next_timeout(), Some(at(3000)));
    mobile.handle_timeout(at(3000));
    assert_eq!(upcalls(&mut mobile), [Upcall::HandoffInProgress]);
    hear(&mut mobile, at(3500), advertisement(SECOND, 6));
    assert!(requested(&mut mobile, at(3500)).is_some());
}

#[test]
fn the_same_base_after_a_gap_needs_no_registration() {
    let mut mobile = registered(config());
    mobile.handle_link(at(2000), LinkEvent::Down);
    mobile.handle_link(at(2500), LinkEvent::Up);
    hear(&mut mobile, at(2600), advertisement(FIRST, 2));
    let told = [Upcall::HandoffInProgress, Upcall::Returned { base: FIRST }];
    assert_eq!(upcalls(&mut mobile), told);
    assert_eq!(requested(&mut mobile, at(2600)), None);
}

#[test]
fn a_restarted_agent_is_asked_again() {
    let mut mobile = registered(config());
    for sequence in 1..5 {
        hear(&mut mobile, at(1000 * u64::from(sequence)), advertisement(FIRST, sequence));
        assert_eq!(requested(&mut mobile, at(1000 * u64::from(sequence))), None);
    }
    hear(&mut mobile, at(5000), advertisement(FIRST, 0));
    assert!(requested(&mut mobile, at(5000)).is_some());
}

/// MIP-2: without an answer requests repeat, ever more slowly, each above the last.
#[test]
fn requests_are_repeated_with_growing_gaps() {
    let mut mobile = MobileRegistration::new(config(), Time::ZERO);
    hear(&mut mobile, at(0), Advertisement { validity: Duration::MAX, ..advertisement(FIRST, 0) });
    let mut last = requested(&mut mobile, at(0)).unwrap().1.id;
    let mut gaps = vec![];
    let mut now = at(0);
    for _ in 0..9 {
        let next = mobile.next_timeout().unwrap();
        gaps.push((next - now).as_secs());
        now = next;
        let id = requested(&mut mobile, now).unwrap().1.id;
        assert!(id > last);
        last = id;
    }
    assert_eq!(gaps, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
    assert_eq!(mobile.stats().retransmits, 9);
}

#[test]
fn only_the_answer_to_the_latest_request_counts() {
    let mut mobile = MobileRegistration::new(config(), Time::ZERO);
    hear(&mut mobile, at(0), advertisement(FIRST, 0));
    let (_, first) = requested(&mut mobile, at(0)).unwrap();
    let (_, second) = requested(&mut mobile, at(1000)).unwrap();
    answer(&mut mobile, at(1001), &first, Code::Accepted);
    assert_eq!(mobile.base(at(1001)), None);
    answer(&mut mobile, at(1002), &second, Code::Accepted);
    assert_eq!(mobile.base(at(1002)), Some(FIRST));
}

/// MIP-1: the lifetime is renewed while a quarter of it is left; a binding that nobody renews ends.
#[test]
fn a_registration_is_renewed_before_it_ends() {
    let mut mobile = registered(config());
    let mut now = at(1000);
    while now < at(224_000) {
        hear(&mut mobile, now, advertisement(FIRST, 300));
        assert_eq!(requested(&mut mobile, now), None);
        now += Duration::from_secs(1);
    }
    assert_eq!(mobile.next_timeout(), Some(at(225_000)));
    hear(&mut mobile, at(225_000), advertisement(FIRST, 300));
    let (_, request) = requested(&mut mobile, at(225_000)).unwrap();
    answer(&mut mobile, at(225_010), &request, Code::Accepted);
    assert_eq!(mobile.base(at(524_999)), Some(FIRST));
    assert_eq!(upcalls(&mut mobile), [], "a renewal is no handoff");
    mobile.handle_link(at(226_000), LinkEvent::Down);
    assert_eq!(mobile.next_timeout(), Some(at(525_000)));
    mobile.handle_timeout(at(525_000));
    assert_eq!(mobile.base(at(525_000)), None);
    mobile.handle_link(at(526_000), LinkEvent::Up);
    hear(&mut mobile, at(526_100), advertisement(FIRST, 900));
    assert!(requested(&mut mobile, at(526_100)).is_some(), "the old base must be asked again");
}

/// MIP-2: a mobile that solicits asks when the link comes up, and less often as time goes by.
#[test]
fn a_mobile_may_ask_for_advertisements() {
    let mut mobile = MobileRegistration::new(MobileConfig { solicit: true, ..config() }, at(0));
    let mut times = vec![];
    let mut now = at(0);
    while times.len() < 6 {
        if let Some(envelope) = mobile.poll_transmit(now) {
            assert_eq!((envelope.dst, envelope.message), (ALL_ROUTERS, Message::Solicitation));
            times.push(now.as_micros() / 1_000_000);
        }
        now = mobile.next_timeout().unwrap();
    }
    assert_eq!(times, [0, 1, 2, 4, 8, 16]);
    hear(&mut mobile, at(20_000), advertisement(FIRST, 0));
    assert!(requested(&mut mobile, at(20_000)).is_some());
    assert_eq!(mobile.stats().solicitations, 6);
}

#[test]
fn denials_are_answered_as_they_deserve() {
    let mut mobile = MobileRegistration::new(MobileConfig { clock_ahead: -50, ..config() }, at(0));
    hear(&mut mobile, at(100_000), advertisement(FIRST, 0));
    let (_, slow) = requested(&mut mobile, at(100_000)).unwrap();
    assert_eq!(slow.id.seconds, 50);
    let id = Identification { seconds: 100, ..slow.id };
    let Request { home, home_agent, .. } = slow;
    let denial =
        |id, code, secs| Reply { home, home_agent, lifetime: Duration::from_secs(secs), id, code };
    hand(&mut mobile, at(100_010), denial(id, Code::Identification, 0));
    let (_, right) = requested(&mut mobile, at(100_010)).unwrap();
    assert_eq!(right.id.seconds, 100);
    hand(&mut mobile, at(100_020), denial(right.id, Code::HomeFull, 0));
    assert_eq!(requested(&mut mobile, at(100_020)), None, "the timer runs");
    let (_, long) = requested(&mut mobile, at(101_010)).unwrap();
    hand(&mut mobile, at(101_020), denial(long.id, Code::LifetimeTooLong, 20));
    let (_, short) = requested(&mut mobile, at(101_020)).unwrap();
    assert_eq!(short.lifetime, Duration::from_secs(20));
    hand(&mut mobile, at(101_030), denial(short.id, Code::Unauthenticated, 0));
    assert_eq!(upcalls(&mut mobile), [Upcall::Refused { code: Code::Unauthenticated }]);
    hear(&mut mobile, at(101_100), advertisement(FIRST, 1));
    assert_eq!(requested(&mut mobile, at(101_100)), None, "it does not ask there again");
    hear(&mut mobile, at(101_200), advertisement(SECOND, 1));
    assert!(requested(&mut mobile, at(101_200)).is_some());
}

#[test]
fn at_home_the_binding_is_ended() {
    let mut mobile = registered(config());
    hear(&mut mobile, at(2000), advertisement(HOME_AGENT, 8));
    let (to, request) = requested(&mut mobile, at(2000)).unwrap();
    assert_eq!((to, request.care_of, request.lifetime), (HOME_AGENT, HOME, Duration::ZERO));
    answer(&mut mobile, at(2001), &request, Code::Accepted);
    assert_eq!(mobile.base(Time::from_secs(1_000_000)), Some(HOME_AGENT));
    hear(&mut mobile, at(3000), advertisement(HOME_AGENT, 9));
    assert_eq!(requested(&mut mobile, at(3000)), None);
}

#[test]
fn a_busy_agent_is_not_asked() {
    let mut mobile = MobileRegistration::new(config(), at(0));
    hear(&mut mobile, at(0), Advertisement { busy: true, ..advertisement(FIRST, 0) });
    assert_eq!(requested(&mut mobile, at(0)), None);
}

/// MIP-4: if asked to, the mobile names the agent that it left.
#[test]
fn the_previous_agent_is_named_if_it_is_to_forward() {
    for notify_previous in [false, true] {
        let mut mobile = registered(MobileConfig { notify_previous, ..config() });
        hear(&mut mobile, at(2000), advertisement(SECOND, 8));
        let (_, request) = requested(&mut mobile, at(2000)).unwrap();
        assert_eq!(request.previous, notify_previous.then_some(FIRST));
    }
}

#[test]
fn upcalls_that_nobody_takes_are_bounded() {
    let mut mobile = registered(config());
    for n in 0..1000u64 {
        mobile.handle_link(at(2000 + 2 * n), LinkEvent::Down);
        mobile.handle_link(at(2001 + 2 * n), LinkEvent::Up);
        hear(&mut mobile, at(2001 + 2 * n), advertisement(FIRST, 300));
    }
    assert_eq!(upcalls(&mut mobile).len(), MobileRegistration::UPCALLS);
}
