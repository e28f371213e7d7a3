use maud::{Markup, html};

use super::frame::{Frame, Scale, px};
use super::{Key, colour};
use crate::stats::{Estimate, Interval, Ratio};

/// A mean with its interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Range {
    /// The mean.
    pub mean: f64,
    /// Its interval, where one is known.
    pub interval: Option<Interval>,
}

impl Range {
    /// The upper end of what is drawn of it.
    pub(super) fn top(&self) -> f64 {
        self.interval.map_or(self.mean, |i| i.hi.max(self.mean))
    }
}

impl From<f64> for Range {
    fn from(mean: f64) -> Self {
        Self { mean, interval: None }
    }
}

impl From<Estimate> for Range {
    fn from(estimate: Estimate) -> Self {
        Self { mean: estimate.mean, interval: estimate.interval() }
    }
}

impl From<Ratio> for Range {
    fn from(ratio: Ratio) -> Self {
        Self { mean: ratio.value, interval: ratio.interval }
    }
}

/// One series: a range in each category, or none.
#[derive(Clone, Debug)]
pub struct RangeSeries {
    /// Its name in the legend.
    pub name: String,
    /// Its colour's number.
    pub colour: usize,
    /// Whether its dots are hollow, as those of published values are.
    pub hollow: bool,
    /// Its ranges, one for each category.
    pub ranges: Vec<Option<Range>>,
}

impl RangeSeries {
    /// A series of what was measured: with full dots.
    pub fn new<R: Into<Range>>(
        name: impl Into<String>,
        colour: usize,
        ranges: impl IntoIterator<Item = Option<R>>,
    ) -> Self {
        let ranges = ranges.into_iter().map(|range| range.map(Into::into)).collect();
        Self { name: name.into(), colour, hollow: false, ranges }
    }

    /// The same with hollow dots.
    pub fn hollow(self) -> Self {
        Self { hollow: true, ..self }
    }

    /// The range of a category or row, if there is one that can be drawn.
    pub(super) fn at(&self, place: usize) -> Option<Range> {
        self.ranges.get(place).copied().flatten().filter(|range| range.mean.is_finite())
    }

    pub(super) fn dot(&self) -> &'static str {
        if self.hollow { "dot hollow" } else { "dot" }
    }
}

/// Means with intervals: categories along, values up from zero, the series beside each other.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    /// Its title.
    pub title: String,
    /// What the categories are.
    pub x_label: String,
    /// What the values are, with their unit.
    pub y_label: String,
    /// The categories.
    pub categories: Vec<String>,
    /// The series.
    pub series: Vec<RangeSeries>,
}

impl Ranges {
    pub(super) fn keys(&self) -> Vec<Key> {
        self.series.iter().map(Key::of).collect()
    }

    pub(super) fn render(&self) -> Markup {
        let ranges = self.series.iter().flat_map(|s| s.ranges.iter().flatten());
        let highest = ranges.map(Range::top).filter(|v| v.is_finite()).fold(0.0, f64::max);
        let x = Scale::linear(-0.5, self.categories.len() as f64 - 0.5);
        let y = Scale::linear(0.0, highest * 1.05);
        let labels = [self.x_label.as_str(), self.y_label.as_str()];
        // Labels of categories stand beside each other and must not meet.
        let width = f64::max(340.0, 66.0 + 40.0 * self.categories.len() as f64);
        let frame = Frame::new([width, 310.0], &self.title, labels, x, y);
        let inside = html! {
            @for (i, series) in self.series.iter().enumerate() {
                g class=(colour(series.colour)) {
                    @for (category, range) in series.ranges.iter().enumerate() {
                        @if let Some(range) = range {
                            (self.range(&frame, series, category as f64 + self.offset(i), range))
                        }
                    }
                }
            }
        };
        frame.render(&self.categories, inside)
    }

    /// Where a series stands beside the middle of its category.
    fn offset(&self, series: usize) -> f64 {
        let n = self.series.len() as f64;
        (series as f64 + 0.5 - n / 2.0) * 0.7 / n
    }

    fn range(&self, frame: &Frame<'_>, series: &RangeSeries, x: f64, range: &Range) -> Markup {
        let (x, y) = (frame.x.at(x), frame.y.at(range.mean));
        html! {
            g {
                title { (series.name) ": " (words(range)) }
                @if let Some(interval) = range.interval {
                    @let (lo, hi) = (frame.y.at(interval.lo), frame.y.at(interval.hi));
                    line class="whisker" x1=(px(x)) x2=(px(x)) y1=(px(lo)) y2=(px(hi)) {}
                    @for end in [lo, hi] {
                        line class="whisker" x1=(px(x - 3.0)) x2=(px(x + 3.0)) y1=(px(end)) y2=(px(end)) {}
                    }
                }
                circle class=(series.dot()) cx=(px(x)) cy=(px(y)) r="3.5" {}
            }
        }
    }
}

pub(super) fn words(range: &Range) -> String {
    match range.interval {
        Some(Interval { lo, hi }) => format!("{:.1} [{lo:.1}, {hi:.1}]", range.mean),
        None => format!("{:.1}", range.mean),
    }
}
