//! What is served.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use lasthop_control::{self as control, Request, RequestError, Target};
use serde::Deserialize;

use super::feed::{Feed, INTERVAL};
use super::guard::{self, Token};
use crate::metrics::{self, Exporter, Process};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// What the script is made of.
const PARTS: &str = include_str!("parts.js");
const SCRIPT: &str = include_str!("page.js");
const ICON: &str = include_str!("icon.svg");
/// Stands in the page where the token comes.
const TOKEN_PLACE: &str = "{token}";

/// What a priority is written in, bytes.
const BODY_MAX: usize = 1024;
/// How long a request's body may take to come.
const BODY_TIME: Duration = Duration::from_secs(5);

/// What every answer says: the page loads nothing but what is served here, nobody may frame it, and
/// nothing of it is kept.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// The page and everything that it needs, and the metrics.
pub(super) fn page(control: Arc<Path>, feed: Arc<Feed>, token: Token, metrics: Router) -> Router {
    let page: Arc<str> = PAGE.replace(TOKEN_PLACE, token.text()).into();
    let fixed = |kind, text: Arc<str>| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text.to_string()) })
    };
    Router::new()
        .route("/", fixed("text/html; charset=utf-8", page))
        .route("/page.css", fixed("text/css; charset=utf-8", STYLE.into()))
        .route("/parts.js", fixed("text/javascript; charset=utf-8", PARTS.into()))
        .route("/page.js", fixed("text/javascript; charset=utf-8", SCRIPT.into()))
        .route("/icon.svg", fixed("image/svg+xml", ICON.into()))
        .route("/events", get(move || events(feed)))
        .route("/priority", post(move |body| set_priority(control, body)))
        .merge(metrics)
        .layer(middleware::from_fn(move |request, next: Next| {
            guard::check(token.clone(), request, next)
        }))
        .layer(middleware::map_response(with_headers))
}

/// The metrics alone. `own`: the process that is asked is this one.
pub(super) fn metrics(control: Arc<Path>, own: bool) -> Router {
    let exporter = Arc::new(Mutex::new(Exporter::default()));
    Router::new().route("/metrics", get(move || scrape(control, own, exporter)))
}

async fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn events(feed: Arc<Feed>) -> Response {
    match feed.subscribe() {
        Some(told) => {
            // A page that has gone is noticed when something is written to it.
            let alive = KeepAlive::new().interval(10 * INTERVAL);
            Sse::new(told).keep_alive(alive).into_response()
        }
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open"),
    }
}

async fn scrape(control: Arc<Path>, own: bool, exporter: Arc<Mutex<Exporter>>) -> Response {
    let render = move || {
        let report = control::query(&control)?;
        let process = own.then(Process::read);
        let mut exporter = exporter.lock().unwrap_or_else(PoisonError::into_inner);
        io::Result::Ok(exporter.render(&report, process.as_ref()))
    };
    match tokio::task::spawn_blocking(render).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Ok(Err(error)) => refuse(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// What the page posts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Priority {
    of: Target,
    /// None: as the configuration says.
    priority: Option<u32>,
}

async fn set_priority(control: Arc<Path>, body: Body) -> Response {
    let body = match tokio::time::timeout(BODY_TIME, to_bytes(body, BODY_MAX)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return refuse(StatusCode::PAYLOAD_TOO_LARGE, "that is too long"),
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the request did not come"),
    };
    let Priority { of, priority } = match serde_json::from_slice(&body) {
        Ok(priority) => priority,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let request = Request::Priority { of, priority };
    let asked = tokio::task::spawn_blocking(move || control::request(&control, &request)).await;
    match asked {
        Ok(Ok(_)) => StatusCode::NO_CONTENT.into_response(),
        Ok(Err(RequestError::Refused(why))) => refuse(StatusCode::CONFLICT, &why),
        Ok(Err(error)) => refuse(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn refuse(status: StatusCode, why: &str) -> Response {
    (status, format!("{why}\n")).into_response()
}
