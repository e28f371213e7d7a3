//! The page and the metrics by HTTP.

mod feed;
mod guard;
mod listen;
mod routes;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use thiserror::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use self::feed::Feed;
use self::guard::Token;

/// Where the page is served unless somebody says otherwise.
pub const DEFAULT_UI: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8088);

/// What to serve, and of which process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Where the page is served; a loopback address.
    pub ui: Option<SocketAddr>,
    /// Where nothing but `/metrics` is served; any address.
    pub metrics: Option<SocketAddr>,
    /// The control socket of the process.
    pub control: PathBuf,
    /// Whether that process is this one; then the metrics tell what it uses of its host, too.
    pub own: bool,
}

/// Why nothing can be served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The page shows who talks to whom and changes priorities, so it is for this host only.
    #[error(
        "the page is served on loopback only, and {0} is not: choose {DEFAULT_UI} or another port \
         of it, and look from elsewhere through `ssh -L`"
    )]
    NotLoopback(SocketAddr),
    /// An address cannot be listened on.
    #[error("{what} cannot be served on {address}: {source}")]
    Listen {
        /// The page or the metrics.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// No thread, no descriptors or no entropy is left.
    #[error("the page and the metrics cannot be served: {0}")]
    Start(#[from] io::Error),
}

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Handle {
    ui: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// Where the page is served.
    pub fn ui(&self) -> Option<SocketAddr> {
        self.ui
    }

    /// Where the metrics alone are served.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The page and the metrics of the process behind a control socket, on addresses that are listened on
/// but not served yet: who connects in the meantime waits.
///
/// A process that binds this before anything else of its own has told everything that cannot be served
/// before it starts, and whoever finds the process there finds the page there, too.
#[derive(Debug)]
pub struct Bound {
    options: Options,
    ui: Option<TcpListener>,
    metrics: Option<TcpListener>,
}

impl Bound {
    /// Listens on the addresses.
    ///
    /// # Errors
    ///
    /// [`ServeError::NotLoopback`] and [`ServeError::Listen`].
    pub fn bind(options: Options) -> Result<Self, ServeError> {
        if let Some(address) = options.ui.filter(|a| !a.ip().to_canonical().is_loopback()) {
            return Err(ServeError::NotLoopback(address));
        }
        let ui = options.ui.map(|address| bind("the page", address)).transpose()?;
        let metrics = options.metrics.map(|address| bind("metrics", address)).transpose()?;
        Ok(Self { options, ui, metrics })
    }

    /// Serves, in a thread of its own.
    ///
    /// # Errors
    ///
    /// [`ServeError::Start`].
    pub fn serve(self) -> Result<Handle, ServeError> {
        let Self { options: Options { control, own, .. }, ui, metrics } = self;
        let (stop, stopped) = oneshot::channel();
        let mut handle = Handle {
            ui: ui.as_ref().and_then(|listener| listener.local_addr().ok()),
            metrics: metrics.as_ref().and_then(|listener| listener.local_addr().ok()),
            stop: Some(stop),
            thread: None,
        };
        let token = Token::new()?;
        // Questions to the process block, but never more than a few at once.
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(4).build()?;
        let control: Arc<Path> = control.into();
        let metrics_routes = routes::metrics(Arc::clone(&control), own);
        let start = move || {
            if let Some(listener) = ui {
                let feed = Feed::start(Arc::clone(&control));
                let routes = routes::page(control, feed, token, metrics_routes.clone());
                listen::spawn(listener, routes, listen::PAGE);
            }
            if let Some(listener) = metrics {
                listen::spawn(listener, metrics_routes, listen::METRICS);
            }
        };
        let run = move || run(runtime, start, stopped);
        handle.thread = Some(std::thread::Builder::new().name("watch".into()).spawn(run)?);
        Ok(handle)
    }
}

/// [`Bound::bind`] and [`Bound::serve`] of a process that runs already.
///
/// # Errors
///
/// See [`ServeError`].
pub fn serve(options: Options) -> Result<Handle, ServeError> {
    Bound::bind(options)?.serve()
}

fn bind(what: &'static str, address: SocketAddr) -> Result<TcpListener, ServeError> {
    let bind = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    bind().map_err(|source| ServeError::Listen { what, address, source })
}

fn run(runtime: Runtime, start: impl FnOnce(), stopped: oneshot::Receiver<()>) {
    runtime.block_on(async {
        start();
        // An error is the handle's end.
        let _ = stopped.await;
    });
    // Whoever waits for a process that does not answer is not waited for.
    runtime.shutdown_background();
}
