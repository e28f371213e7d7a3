//! What the commands that are watched and those that watch have in common.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use lasthop_control as control;
use lasthop_watch::{Bound, Handle};

use super::ask;

/// The roles of processes that can be watched, those first that people look at most.
const ROLES: [&str; 3] = ["mobile", "base", "agent"];

/// Metrics of a process.
#[derive(Args, Debug)]
pub(crate) struct MetricsOptions {
    /// Serve metrics for Prometheus on this address, under /metrics
    #[arg(long, value_name = "ADDRESS:PORT", env = "LASTHOP_METRICS")]
    metrics: Option<SocketAddr>,
}

/// A page beside a mobile, and its metrics.
#[derive(Args, Debug)]
pub(crate) struct PageOptions {
    /// Serve a page on this loopback address that shows what the mobile does and changes
    /// priorities, and the metrics beside it [default where no address is given: 127.0.0.1:8088]
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:8088"
    )]
    ui: Option<SocketAddr>,

    #[command(flatten)]
    metrics: MetricsOptions,
}

impl PageOptions {
    /// As [`MetricsOptions::bind`].
    pub(crate) fn bind(
        &self,
        control: &mut Option<PathBuf>,
        role: &str,
    ) -> anyhow::Result<Option<Bound>> {
        Ok(self.metrics.prepare(self.ui, control, role).map(Bound::bind).transpose()?)
    }
}

impl MetricsOptions {
    /// Listens where something is to be served beside a process that is about to start. Who serves
    /// anything needs the process's control socket, so that its default place is as good as one that
    /// was chosen.
    pub(crate) fn bind(
        &self,
        control: &mut Option<PathBuf>,
        role: &str,
    ) -> anyhow::Result<Option<Bound>> {
        Ok(self.prepare(None, control, role).map(Bound::bind).transpose()?)
    }

    fn prepare(
        &self,
        ui: Option<SocketAddr>,
        control: &mut Option<PathBuf>,
        role: &str,
    ) -> Option<lasthop_watch::Options> {
        let metrics = self.metrics;
        ui.or(metrics)?;
        let control = control.get_or_insert_with(|| control::default_path(role)).clone();
        Some(lasthop_watch::Options { ui, metrics, control, own: true })
    }
}

/// Serves what [`MetricsOptions::bind`] listens for until the handle is dropped.
pub(crate) fn serve(bound: Option<Bound>) -> anyhow::Result<Option<Handle>> {
    let Some(bound) = bound else { return Ok(None) };
    let handle = bound.serve()?;
    if let Some(address) = handle.ui() {
        tracing::info!("serving the page http://{address}/");
    }
    if let Some(address) = handle.metrics() {
        tracing::info!("serving metrics on http://{address}/metrics");
    }
    Ok(Some(handle))
}

/// The socket of the process that is meant: the one that was named, or the first that answers.
pub(crate) fn socket(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let mut found = ask::find(named, &ROLES, 1)?;
    Ok(found.swap_remove(0).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_serves_something_has_a_control_socket() {
        let metrics = MetricsOptions { metrics: None };
        let mut control = None;
        assert!(metrics.prepare(None, &mut control, "mobile").is_none() && control.is_none());
        let ui = Some(lasthop_watch::DEFAULT_UI);
        let options = metrics.prepare(ui, &mut control, "mobile").unwrap();
        assert_eq!((options.ui, options.metrics, options.own), (ui, None, true));
        assert_eq!(control.as_ref(), Some(&options.control));
        assert!(options.control.ends_with("mobile.sock"));
        let mut chosen = Some(PathBuf::from("/x.sock"));
        assert_eq!(metrics.prepare(ui, &mut chosen, "base").unwrap().control, Path::new("/x.sock"));
    }

    #[test]
    fn a_socket_that_nobody_serves_is_named() {
        let said = format!("{:#}", socket(Some(Path::new("/nonexistent.sock"))).unwrap_err());
        assert!(said.contains("answers on /nonexistent.sock"), "{said}");
    }
}
