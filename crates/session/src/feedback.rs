//! What the user wants, as settings for the layers below (rwc-atcp-2003 section III).

use alloc::vec::Vec;

use lasthop_stream::{Shares, SharesError};
use lasthop_units::{Bytes, Duration, LinkEvent, Time};

/// The priority of flows that were given none.
const USUAL: u32 = 1;

/// What user feedback has to divide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeedbackConfig {
    /// Packets that the windows of all TCP flows together have: the paper's A, bandwidth times
    /// round trip. Without it windows are left alone.
    pub window: Option<u64>,
    /// Flows at once. One more is refused.
    pub flows_max: usize,
    /// How long before a hinted disconnection the layers below are notified of it: a helper that closes
    /// windows should not do so minutes ahead. It should cover a round trip (FRZ-1); of a
    /// disconnection that is nearer they are notified at once.
    pub notice: Duration,
}

impl Default for FeedbackConfig {
    fn default() -> Self {
        Self { window: None, flows_max: 1024, notice: Duration::from_millis(500) }
    }
}

/// What carries a flow, and so what its priority becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// TCP, whose windows count packets of this size: a share of the window (UFB-3).
    Tcp {
        /// Payload of a full segment.
        mss: Bytes,
    },
    /// A stream of a hop transport, which divides its own window and rate.
    Hop,
}

/// A setting for one of the layers below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting<K> {
    /// The advertised window of a TCP flow shall be at most this (RWC-6): for
    /// `Connection::set_window_share`.
    Window {
        /// Which.
        flow: K,
        /// Its share: packets times MSS (RWC-12).
        share: Bytes,
    },
    /// A stream of a hop has this priority: for [`Session::set_priority`](crate::Session::set_priority).
    Priority {
        /// Which.
        flow: K,
        /// Relative to the others'.
        priority: u32,
    },
    /// This is for all transports.
    Link(LinkEvent),
}

#[derive(Clone, Copy, Debug)]
struct Flow<K> {
    key: K,
    layer: Layer,
    priority: u32,
    /// The user has set it: the system's guess does not count.
    chosen: bool,
    /// The share in packets, or the priority, that was set in the layer below.
    told: Option<u64>,
}

/// The user's hints of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hint {
    None,
    /// It will be down from `at` until `until`.
    Coming {
        at: Time,
        until: Time,
    },
    /// The layers below were notified.
    Told {
        until: Time,
    },
}

/// The module that takes user feedback: priorities of flows and coming disconnections, at any time
/// (UFB-1), and gives settings for the layers below, which reach them beside the data (UFB-2).
///
/// A machine: after any input call [`poll_setting`](Self::poll_setting) until there is none. Flows
/// are named by whatever their carrier names them by. The paper leaves the interface open (UFB-5):
/// here it is [`set_priority`](Self::set_priority) and [`disconnect_hint`](Self::disconnect_hint).
#[derive(Clone, Debug)]
pub struct UserFeedback<K> {
    config: FeedbackConfig,
    flows: Vec<Flow<K>>,
    /// The TCP flows, if windows are divided.
    shares: Option<Shares<K>>,
    /// Flows before this one have been set.
    settled: usize,
    hint: Hint,
    link: Option<LinkEvent>,
}

impl<K: Copy + Eq> UserFeedback<K> {
    /// No flows, no hint.
    pub fn new(config: FeedbackConfig) -> Self {
        Self {
            config,
            flows: Vec::new(),
            shares: config.window.map(|packets| Shares::new(packets, config.flows_max)),
            settled: 0,
            hint: Hint::None,
            link: None,
        }
    }

    /// A flow begins, with priority 1.
    ///
    /// # Errors
    ///
    /// The flow has begun already, or there are too many. It goes on as if there were no feedback.
    pub fn begin(&mut self, flow: K, layer: Layer) -> Result<(), SharesError> {
        if self.find(flow).is_some() {
            return Err(SharesError::Known);
        }
        if self.flows.len() >= self.config.flows_max {
            return Err(SharesError::Full);
        }
        if let (Layer::Tcp { .. }, Some(shares)) = (layer, &mut self.shares) {
            shares.add(flow, USUAL)?;
        }
        self.flows.push(Flow { key: flow, layer, priority: USUAL, chosen: false, told: None });
        self.settled = 0;
        Ok(())
    }

    /// A flow is over; the others divide what it had.
    pub fn end(&mut self, flow: K) {
        self.flows.retain(|known| known.key != flow);
        if let Some(shares) = &mut self.shares {
            shares.remove(flow);
        }
        self.settled = 0;
    }

    /// The user gives a flow a priority, which counts relative to the others'; whether the flow is
    /// known. Nothing but another word of the user's changes it (UFB-4).
    pub fn set_priority(&mut self, flow: K, priority: u32) -> bool {
        self.change(flow, priority, true)
    }

    /// The system guesses a flow's priority, such as from its port. It counts until the user has
    /// set that flow's (UFB-4); whether it does.
    pub fn suggest_priority(&mut self, flow: K, priority: u32) -> bool {
        self.change(flow, priority, false)
    }

    /// The user takes back a flow's priority: its priority stays until the system guesses
    /// another. Whether the flow is known.
    pub fn withdraw_priority(&mut self, flow: K) -> bool {
        let known = self.flows.iter_mut().find(|known| known.key == flow);
        known.map(|flow| flow.chosen = false).is_some()
    }

    /// A flow's priority.
    pub fn priority(&self, flow: K) -> Option<u32> {
        self.find(flow).map(|flow| flow.priority)
    }

    /// The bandwidth or the round trip has changed: the windows of all TCP flows together have so
    /// many packets. Does nothing where windows are left alone.
    pub fn set_window(&mut self, packets: u64) {
        if let Some(shares) = &mut self.shares {
            shares.set_total(packets);
            self.settled = 0;
        }
    }

    /// The user sees a disconnection coming, such as a tunnel: in `after` from now, for about
    /// `lasting`. A later hint replaces an earlier one.
    ///
    /// The layers below get [`LinkEvent::Imminent`], [`FeedbackConfig::notice`] ahead. If the link
    /// has not gone down by the end of the time given, the hint was wrong or the link does not tell,
    /// and they get [`LinkEvent::Up`], so that nobody waits for ever.
    pub fn disconnect_hint(&mut self, now: Time, after: Duration, lasting: Duration) {
        let at = now + after;
        self.hint = Hint::Coming { at, until: at + lasting };
        self.handle_timeout(now);
    }

    /// What the link itself says, which beats hints: once it has gone down it says when it is back.
    pub fn handle_link_event(&mut self, event: LinkEvent) {
        let told = matches!(self.hint, Hint::Told { .. });
        if event == LinkEvent::Down || (told && event == LinkEvent::Up) {
            self.hint = Hint::None;
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        match self.hint {
            Hint::None => None,
            Hint::Coming { at, .. } => Some(at - self.config.notice),
            Hint::Told { until } => Some(until),
        }
    }

    /// The time asked for has come.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.next_timeout().is_none_or(|due| now < due) {
            return;
        }
        match self.hint {
            Hint::None => {}
            Hint::Coming { at, until } => {
                self.link = Some(LinkEvent::Imminent { lead: at.since(now) });
                self.hint = Hint::Told { until };
            }
            Hint::Told { .. } => {
                self.link = Some(LinkEvent::Up);
                self.hint = Hint::None;
            }
        }
    }

    /// The next setting for a layer below, if any: the present ones only, however often they have
    /// changed.
    pub fn poll_setting(&mut self) -> Option<Setting<K>> {
        if let Some(event) = self.link.take() {
            return Some(Setting::Link(event));
        }
        let Self { flows, shares, settled, .. } = self;
        while let Some(flow) = flows.get_mut(*settled) {
            *settled += 1;
            let setting = flow.setting(shares.as_ref());
            if setting.is_some() {
                return setting;
            }
        }
        None
    }

    fn find(&self, flow: K) -> Option<&Flow<K>> {
        self.flows.iter().find(|known| known.key == flow)
    }

    fn change(&mut self, key: K, priority: u32, chosen: bool) -> bool {
        let Some(flow) = self.flows.iter_mut().find(|known| known.key == key) else { return false };
        if flow.chosen && !chosen {
            return false;
        }
        flow.chosen = chosen;
        flow.priority = priority;
        if let Some(shares) = &mut self.shares {
            shares.set_priority(key, priority);
        }
        self.settled = 0;
        true
    }
}

impl<K: Copy + Eq> Flow<K> {
    /// The setting that is still to be passed to the layer below.
    fn setting(&mut self, shares: Option<&Shares<K>>) -> Option<Setting<K>> {
        let flow = self.key;
        let (value, setting) = match self.layer {
            Layer::Tcp { mss } => {
                let packets = shares?.share(flow)?;
                let share = Bytes::new(packets.saturating_mul(mss.get()));
                (packets, Setting::Window { flow, share })
            }
            // A hop divides nothing until a priority is set, and so it has to be by the user only.
            Layer::Hop if !self.chosen && self.told.is_none() && self.priority == USUAL => {
                return None;
            }
            Layer::Hop => {
                let priority = self.priority;
                (u64::from(priority), Setting::Priority { flow, priority })
            }
        };
        (self.told.replace(value) != Some(value)).then_some(setting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: Layer = Layer::Tcp { mss: Bytes::new(1000) };

    fn feedback(window: Option<u64>) -> UserFeedback<char> {
        UserFeedback::new(FeedbackConfig { window, flows_max: 4, ..FeedbackConfig::default() })
    }

    fn settings(feedback: &mut UserFeedback<char>) -> Vec<Setting<char>> {
        core::iter::from_fn(|| feedback.poll_setting()).collect()
    }

    fn window(flow: char, packets: u64) -> Setting<char> {
        Setting::Window { flow, share: Bytes::new(packets * 1000) }
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// UFB-1, UFB-3, RWC-12: priorities of TCP flows become windows, at any time, in packets times
    /// MSS, and only what has changed is passed on.
    #[test]
    fn priorities_of_tcp_flows_become_window_shares() {
        let mut f = feedback(Some(32));
        assert_eq!((f.begin('a', TCP), f.begin('b', TCP)), (Ok(()), Ok(())));
        assert_eq!(settings(&mut f), [window('a', 16), window('b', 16)]);
        assert!(f.set_priority('a', 2));
        assert_eq!(settings(&mut f), [window('a', 21), window('b', 11)]);
        assert!(f.set_priority('a', 2));
        assert_eq!(settings(&mut f), []);
        f.end('b');
        assert_eq!(settings(&mut f), [window('a', 32)]);
        f.set_window(10);
        assert_eq!(settings(&mut f), [window('a', 10)]);
        assert!(!f.set_priority('b', 1));
    }

    /// UFB-2: settings are made for the layer that carries the flow, apart from its data: a hop's
    /// streams get priorities, TCP without a window to divide gets nothing.
    #[test]
    fn each_layer_gets_its_own_settings() {
        let mut f = feedback(None);
        assert_eq!((f.begin('a', TCP), f.begin('h', Layer::Hop)), (Ok(()), Ok(())));
        assert_eq!(settings(&mut f), []);
        assert!(f.set_priority('a', 7) && f.set_priority('h', 3));
        assert_eq!(settings(&mut f), [Setting::Priority { flow: 'h', priority: 3 }]);
        assert_eq!((f.priority('a'), f.priority('x')), (Some(7), None));
    }

    /// UFB-3: a hop whose streams are all alike gets no priorities, unless the user wants
    /// them alike.
    #[test]
    fn a_hop_divides_nothing_before_somebody_speaks() {
        let mut f = feedback(None);
        assert_eq!((f.begin('h', Layer::Hop), f.begin('i', Layer::Hop)), (Ok(()), Ok(())));
        assert!(f.suggest_priority('h', 1));
        assert_eq!(settings(&mut f), []);
        assert!(f.set_priority('i', 1));
        assert_eq!(settings(&mut f), [Setting::Priority { flow: 'i', priority: 1 }]);
        assert!(f.suggest_priority('h', 4) && f.suggest_priority('h', 1));
        assert_eq!(settings(&mut f), []);
    }

    /// UFB-4: the user may put ftp before video whatever the system thinks.
    #[test]
    fn the_users_choice_beats_the_systems() {
        let mut f = feedback(Some(32));
        let (ftp, video) = ('f', 'v');
        assert_eq!((f.begin(ftp, TCP), f.begin(video, TCP)), (Ok(()), Ok(())));
        assert!(f.suggest_priority(video, 3));
        assert_eq!(settings(&mut f), [window(ftp, 8), window(video, 24)]);
        assert!(f.set_priority(video, 1) && f.set_priority(ftp, 3));
        assert!(!f.suggest_priority(video, 9));
        assert_eq!(settings(&mut f), [window(ftp, 24), window(video, 8)]);
        assert!(f.withdraw_priority(video) && !f.withdraw_priority('x'));
        assert_eq!(settings(&mut f), []);
        assert!(f.suggest_priority(video, 3));
        assert_eq!(settings(&mut f), [window(ftp, 16), window(video, 16)]);
    }

    /// UFB-1, UFB-5: a hint becomes a link event shortly before its time, and is taken back if
    /// nothing happens.
    #[test]
    fn a_hint_warns_in_time_and_is_taken_back() {
        let mut f = feedback(None);
        f.disconnect_hint(at(1000), Duration::from_secs(10), Duration::from_secs(5));
        assert_eq!((settings(&mut f).len(), f.next_timeout()), (0, Some(at(10_500))));
        f.handle_timeout(at(10_500));
        let lead = Duration::from_millis(500);
        assert_eq!(settings(&mut f), [Setting::Link(LinkEvent::Imminent { lead })]);
        assert_eq!(f.next_timeout(), Some(at(16_000)));
        f.handle_timeout(at(16_000));
        assert_eq!(settings(&mut f), [Setting::Link(LinkEvent::Up)]);
        assert_eq!(f.next_timeout(), None);
    }

    /// UFB-5: the link's own event beats the hint's end; a hint for now is passed on now.
    #[test]
    fn a_link_that_goes_down_says_itself_when_it_is_up() {
        let mut f = feedback(None);
        f.disconnect_hint(at(1000), Duration::from_millis(200), Duration::from_secs(5));
        let lead = Duration::from_millis(200);
        assert_eq!(settings(&mut f), [Setting::Link(LinkEvent::Imminent { lead })]);
        f.handle_link_event(LinkEvent::Down);
        assert_eq!(f.next_timeout(), None);
        f.handle_timeout(at(9000));
        assert_eq!(settings(&mut f), []);
    }

    #[test]
    fn flows_are_bounded() {
        let mut f = feedback(Some(100));
        for flow in ['a', 'b', 'c', 'd'] {
            assert_eq!(f.begin(flow, TCP), Ok(()));
        }
        assert_eq!(f.begin('e', Layer::Hop), Err(SharesError::Full));
        assert_eq!(f.begin('a', TCP), Err(SharesError::Known));
    }
}
