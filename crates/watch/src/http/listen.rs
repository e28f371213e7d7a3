//! Accepting connections: few, and none for ever.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// How long a request's header may take to come, and an idle connection is kept.
const HEADER: Duration = Duration::from_secs(10);
/// The longest header of a request, and the most that is written ahead of a client, bytes.
const BUFFER: usize = 16 * 1024;
/// The most fields in a header.
const FIELDS: usize = 64;
/// How long to wait when no descriptors are left.
const RELIEF: Duration = Duration::from_millis(200);
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// What clients of a listener may use.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Connections at once.
    clients: usize,
    /// How long a connection may last.
    lasting: Option<Duration>,
}

/// A browser keeps up to six connections, of which one lasts as long as the page is open.
pub(super) const PAGE: Bounds = Bounds { clients: 64, lasting: None };
/// Whoever collects metrics asks, and goes or asks again later.
pub(super) const METRICS: Bounds = Bounds { clients: 16, lasting: Some(Duration::from_secs(300)) };

/// Serves `routes` on `listener` for as long as the runtime lasts.
pub(super) fn spawn(listener: TcpListener, routes: Router, bounds: Bounds) {
    tokio::spawn(async move {
        match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => accept(listener, routes, bounds).await,
            Err(error) => tracing::error!(%error, "nothing is served"),
        }
    });
}

async fn accept(listener: tokio::net::TcpListener, routes: Router, bounds: Bounds) {
    let clients = Arc::new(Semaphore::new(bounds.clients));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "a client was not accepted");
                tokio::time::sleep(RELIEF).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&clients).try_acquire_owned() else {
            // What fits into an empty socket buffer is written at once or not at all.
            let _ = stream.try_write(TOO_MANY);
            continue;
        };
        let routes = routes.clone();
        tokio::spawn(async move {
            converse(stream, routes, bounds.lasting).await;
            drop(permit);
        });
    }
}

async fn converse(stream: TcpStream, routes: Router, lasting: Option<Duration>) {
    let talk = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .max_buf_size(BUFFER)
        .max_headers(FIELDS)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    // How a client ends is its own affair.
    match lasting {
        Some(lasting) => drop(tokio::time::timeout(lasting, talk).await),
        None => drop(talk.await),
    }
}
