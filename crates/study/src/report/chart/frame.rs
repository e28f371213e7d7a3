//! Axes: where values go on the page, and what is written beside them.

use maud::{Markup, html};

/// Room round the plot for titles and labels.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;

/// How many labelled values an axis has at most.
const TICKS: usize = 7;

/// Maps values to a coordinate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    lo: f64,
    hi: f64,
    from: f64,
    to: f64,
    log: bool,
}

impl Scale {
    /// Equal differences get equal lengths. The values may be nonsense: what is not finite or has
    /// no width becomes a scale of width one.
    pub(super) fn linear(lo: f64, hi: f64) -> Self {
        let lo = if lo.is_finite() { lo } else { 0.0 };
        let hi = if hi.is_finite() && hi > lo { hi } else { lo + 1.0 };
        Self { lo, hi, from: 0.0, to: 1.0, log: false }
    }

    /// Equal ratios get equal lengths.
    pub(super) fn log(lo: f64, hi: f64) -> Self {
        let lo = if lo.is_finite() && lo > 0.0 { lo } else { 0.1 };
        let hi = if hi.is_finite() && hi > lo { hi } else { lo * 10.0 };
        Self { lo, hi, from: 0.0, to: 1.0, log: true }
    }

    pub(super) fn lo(&self) -> f64 {
        self.lo
    }

    pub(super) fn hi(&self) -> f64 {
        self.hi
    }

    pub(super) fn between(mut self, from: f64, to: f64) -> Self {
        (self.from, self.to) = (from, to);
        self
    }

    /// The coordinate of a value; one outside the scale goes to its nearer end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.lo, self.hi);
        let part = if self.log {
            libm::log(value / self.lo) / libm::log(self.hi / self.lo)
        } else {
            (value - self.lo) / (self.hi - self.lo)
        };
        self.from + part * (self.to - self.from)
    }

    /// The values to label.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.log { self.log_ticks() } else { self.linear_ticks() }
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let step = step((self.hi - self.lo) / TICKS as f64);
        let first = libm::ceil(self.lo / step - 1e-9);
        let ticks = (0..=2 * TICKS).map(|i| (first + i as f64) * step);
        ticks.take_while(|tick| *tick <= self.hi + step * 1e-9).collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let low = libm::floor(libm::log10(self.lo)) as i32;
        let high = libm::ceil(libm::log10(self.hi)) as i32;
        let decades = low..=high.min(low.saturating_add(12));
        let steps: &[f64] = if self.hi / self.lo > 100.0 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0]
        };
        decades
            .flat_map(|d| steps.iter().map(move |s| s * libm::pow(10.0, f64::from(d))))
            .filter(|tick| (self.lo..=self.hi).contains(tick))
            .collect()
    }
}

/// The least of 1, 2, 5, 10, 20, ... times a power of ten that is at least `rough`.
fn step(rough: f64) -> f64 {
    let power = libm::pow(10.0, libm::floor(libm::log10(rough)));
    let steps = [1.0, 2.0, 5.0, 10.0].map(|s| s * power);
    steps.into_iter().find(|s| *s >= rough).unwrap_or(10.0 * power)
}

/// A coordinate as SVG has it.
pub(super) fn px(x: f64) -> String {
    format!("{x:.1}")
}

/// A value as a label: no more digits than it needs.
pub(super) fn label(value: f64) -> String {
    let rounded = format!("{value:.4}");
    let short = rounded.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

/// A plot's frame.
pub(super) struct Frame<'a> {
    width: f64,
    height: f64,
    title: &'a str,
    x_label: &'a str,
    y_label: &'a str,
    pub(super) x: Scale,
    pub(super) y: Scale,
}

impl<'a> Frame<'a> {
    /// A frame of a size, `[width, height]`, with a title and `[x, y]` labels.
    pub(super) fn new(
        [width, height]: [f64; 2],
        title: &'a str,
        [x_label, y_label]: [&'a str; 2],
        x: Scale,
        y: Scale,
    ) -> Self {
        let x = x.between(LEFT, width - RIGHT);
        let y = y.between(height - BOTTOM, TOP);
        Self { width, height, title, x_label, y_label, x, y }
    }

    /// The plot: grid, axes and labels, with `inside` upon them. `categories` label the x axis in
    /// place of numbers, at the whole numbers from 0.
    pub(super) fn render(&self, categories: &[String], inside: Markup) -> Markup {
        let (bottom, left, right) = (self.height - BOTTOM, LEFT, self.width - RIGHT);
        let y_middle = (bottom + TOP) / 2.0;
        let turned = format!("rotate(-90 14 {})", px(y_middle));
        html! {
            svg viewBox={ "0 0 " (self.width) " " (self.height) } role="img" aria-label=(self.title) {
                text class="title" x=(px(left)) y="16" { (self.title) }
                @for tick in self.y.ticks() {
                    line class="grid" x1=(px(left)) x2=(px(right))
                        y1=(px(self.y.at(tick))) y2=(px(self.y.at(tick))) {}
                    text class="end" x=(px(left - 6.0)) y=(px(self.y.at(tick) + 4.0)) { (label(tick)) }
                }
                @if categories.is_empty() {
                    @for tick in self.x.ticks() {
                        line class="grid" x1=(px(self.x.at(tick))) x2=(px(self.x.at(tick)))
                            y1=(px(TOP)) y2=(px(bottom)) {}
                        (self.below(tick, &label(tick)))
                    }
                }
                @for (i, category) in categories.iter().enumerate() { (self.below(i as f64, category)) }
                (inside)
                line class="axis" x1=(px(left)) x2=(px(right)) y1=(px(bottom)) y2=(px(bottom)) {}
                text class="middle" x=(px((left + right) / 2.0)) y=(px(self.height - 8.0)) { (self.x_label) }
                text class="middle" x="14" y=(px(y_middle)) transform=(turned) { (self.y_label) }
            }
        }
    }

    fn below(&self, value: f64, text: &str) -> Markup {
        html! {
            text class="middle" x=(px(self.x.at(value))) y=(px(self.height - BOTTOM + 17.0)) { (text) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Scale::linear(0.0, 113.1).ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(Scale::linear(0.0, 0.7).ticks().len(), 8);
        assert_eq!(Scale::log(0.8, 3.5).ticks(), [1.0, 1.5, 2.0, 3.0]);
        assert_eq!(label(2.5), "2.5");
        assert_eq!(label(100.0), "100");
    }

    #[test]
    fn scales_of_nonsense_still_map_to_numbers() {
        for scale in [
            Scale::linear(f64::NAN, f64::INFINITY),
            Scale::linear(3.0, 3.0),
            Scale::log(-1.0, 0.0),
            Scale::log(f64::INFINITY, 1.0),
        ] {
            assert!(scale.at(2.0).is_finite(), "{scale:?}");
            assert!(scale.ticks().len() < 40, "{scale:?}");
        }
    }
}
