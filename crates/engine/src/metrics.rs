//! The numbers that a run gives.

/// Metrics by name, in order.
#[derive(Default)]
pub(super) struct Metrics(pub(super) Vec<(String, f64)>);

impl Metrics {
    pub(super) fn add(&mut self, of: &str, name: &str, value: f64) {
        self.0.push((format!("{of}.{name}"), value));
    }
}
