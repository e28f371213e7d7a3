//! As `watch` where nothing can be watched but by `lasthop status`: a build without the feature
//! `views` has neither pages nor metrics.

use std::path::PathBuf;

use clap::Args;

/// No metrics.
#[derive(Args, Debug)]
pub(crate) struct MetricsOptions {}

/// No page either.
pub(crate) type PageOptions = MetricsOptions;

/// Nothing is served.
#[must_use]
pub(crate) struct Unwatched;

impl MetricsOptions {
    /// Opens no listener.
    pub(crate) fn bind(&self, _: &mut Option<PathBuf>, _: &str) -> anyhow::Result<Unwatched> {
        Ok(Unwatched)
    }
}

/// Serves nothing.
pub(crate) fn serve(nothing: Unwatched) -> anyhow::Result<Unwatched> {
    Ok(nothing)
}
