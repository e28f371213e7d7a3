//! What the tests of all reproductions have in common.

use super::study::Request;

/// A request for some cells; for all of them if `only` is empty.
pub(super) fn request(only: &[&str], runs: u32) -> Request {
    Request {
        runs,
        seed: 1,
        jobs: None,
        only: only.iter().map(|only| only.parse().unwrap()).collect(),
        full: false,
        processing: None,
        version: "0.0.0".to_owned(),
    }
}

/// A report without what XML does not know, for a parser that is strict about the rest.
pub(crate) fn as_xml(html: &str) -> String {
    let body = html.strip_prefix("<!DOCTYPE html>").unwrap();
    let (before, meta) = body.split_once("<meta").unwrap();
    let (_, after) = meta.rsplit_once("<meta").unwrap();
    let (_, rest) = after.split_once('>').unwrap();
    format!("{before}{rest}")
}
