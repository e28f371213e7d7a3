//! Events for pages as they happen: one look at the process a second, however many look at it, and
//! none while nobody does.

use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::response::sse::Event;
use futures_util::stream::{self, Stream};
use lasthop_control::{self as control, Report};
use lasthop_units::Time;
use serde::{Serialize, Serializer};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::MissedTickBehavior;

use crate::history::{History, Ring};

/// How often the process is polled.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// Pages that are served at once.
const PAGES_MAX: usize = 32;
/// Connections that are sent to a page; of more the fastest.
const CONNECTIONS_MAX: usize = 500;
/// After so long without anybody looking, plots begin anew.
const STALE: Duration = Duration::from_secs(5);

/// An event for pages.
#[derive(Clone, Debug)]
struct PageEvent {
    event: &'static str,
    data: Arc<str>,
}

/// What is new for pages.
#[derive(Clone, Debug)]
struct News {
    /// Plots of the time before, where this is the first that is known of the process.
    plots: Option<PageEvent>,
    event: PageEvent,
}

impl From<PageEvent> for News {
    fn from(event: PageEvent) -> Self {
        Self { plots: None, event }
    }
}

/// The events for pages.
pub(super) struct Feed {
    told: watch::Sender<News>,
    wanted: Notify,
    pages: Arc<Semaphore>,
    history: Mutex<History>,
}

impl Feed {
    /// Begins to ask the process behind `control` when somebody wants to know.
    pub(super) fn start(control: Arc<Path>) -> Arc<Self> {
        let nothing = PageEvent { event: "gone", data: "{}".into() };
        let feed = Arc::new(Self {
            told: watch::Sender::new(nothing.into()),
            wanted: Notify::new(),
            pages: Arc::new(Semaphore::new(PAGES_MAX)),
            history: Mutex::default(),
        });
        tokio::spawn(poll_control(control, Arc::clone(&feed)));
        feed
    }

    /// The first events of a page that is opened at this moment; none if there are too many already.
    pub(super) fn subscribe(
        &self,
    ) -> Option<impl Stream<Item = Result<Event, Infallible>> + use<>> {
        let permit = Arc::clone(&self.pages).try_acquire_owned().ok()?;
        let mut news = self.told.subscribe();
        news.mark_unchanged();
        self.wanted.notify_one();
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        // Where nothing is known yet, what was before comes with the first sample.
        let first = (!history.is_new()).then(|| plots(&history));
        drop(history);
        let state = Following { first, news, _permit: permit };
        Some(stream::unfold(state, |mut state| async {
            let told = state.next().await?;
            let event = Event::default().event(told.event).data(&*told.data);
            Some((Ok(event), state))
        }))
    }

    fn is_new(&self) -> bool {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).is_new()
    }

    fn take(&self, now: Time, report: &Report) -> News {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let before = history.is_new().then(|| {
            report.past.iter().for_each(|past| history.remember(past, INTERVAL));
            plots(&history)
        });
        let mut sample = history.feed(now, report);
        sample.truncate(CONNECTIONS_MAX);
        News { plots: before, event: PageEvent { event: "sample", data: json(&sample) } }
    }
}

fn plots(history: &History) -> PageEvent {
    let plots = history.plots();
    let data = json(&PlotsText {
        interval_s: INTERVAL.as_secs_f64(),
        to_hop_bps: Values(&plots.to_hop),
        from_hop_bps: Values(&plots.from_hop),
        loss: Values(&plots.loss),
        queue_ms: Values(&plots.queue_ms),
    });
    PageEvent { event: "plots", data }
}

/// A page that is open.
struct Following {
    /// What it is sent next, before what is new.
    first: Option<PageEvent>,
    news: watch::Receiver<News>,
    _permit: OwnedSemaphorePermit,
}

impl Following {
    async fn next(&mut self) -> Option<PageEvent> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        self.news.changed().await.ok()?;
        let News { plots, event } = self.news.borrow_and_update().clone();
        let Some(plots) = plots else { return Some(event) };
        self.first = Some(event);
        Some(plots)
    }
}

async fn poll_control(control: Arc<Path>, feed: Arc<Feed>) {
    let start = Instant::now();
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if feed.told.receiver_count() == 0 {
            let idle = Instant::now();
            feed.wanted.notified().await;
            if idle.elapsed() > STALE {
                *feed.history.lock().unwrap_or_else(PoisonError::into_inner) = History::default();
            }
            ticks.reset_immediately();
        }
        ticks.tick().await;
        let path = Arc::clone(&control);
        let query = if feed.is_new() { control::query_with_past } else { control::query };
        let answer = tokio::task::spawn_blocking(move || query(&path)).await;
        let now = Time::ZERO + start.elapsed();
        let told = match answer {
            Ok(Ok(report)) => feed.take(now, &report),
            Ok(Err(error)) => gone(&control, &error.to_string()).into(),
            Err(error) => gone(&control, &error.to_string()).into(),
        };
        feed.told.send_replace(told);
    }
}

fn gone(control: &Path, why: &str) -> PageEvent {
    let why = format!("nobody answers on {}: {why}", control.display());
    PageEvent { event: "gone", data: json(&Gone { why }) }
}

#[derive(Serialize)]
struct Gone {
    why: String,
}

#[derive(Serialize)]
struct PlotsText<'a> {
    interval_s: f64,
    to_hop_bps: Values<'a>,
    from_hop_bps: Values<'a>,
    loss: Values<'a>,
    queue_ms: Values<'a>,
}

/// Numbers, and null for what is unknown.
struct Values<'a>(&'a Ring);

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|v| v.is_finite().then_some(v)))
    }
}

fn json<T: Serialize>(value: &T) -> Arc<str> {
    // These types have no maps with keys that are no strings.
    serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned()).into()
}
