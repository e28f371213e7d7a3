use maud::{Markup, html};

use super::frame::{Scale, label, px};
use super::ranges::words;
use super::{Key, Range, RangeSeries, colour};

/// Room round the plot.
const LEFT: f64 = 142.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 40.0;
const WIDTH: f64 = 400.0;

/// How high a row is.
const ROW: f64 = 18.0;

/// Means with intervals: names down, values along from zero, the series above each other in a row.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Its title.
    pub title: String,
    /// What the values are, with their unit.
    pub x_label: String,
    /// Where the axis ends at least.
    pub at_least: f64,
    /// The names of the rows.
    pub names: Vec<String>,
    /// The series, with a range for each row or none.
    pub series: Vec<RangeSeries>,
    /// The row that the others are measured by: a line through the plot at each of its means.
    pub base: Option<usize>,
}

impl Rows {
    pub(super) fn keys(&self) -> Vec<Key> {
        self.series.iter().map(Key::of).collect()
    }

    pub(super) fn render(&self) -> Markup {
        let bottom = TOP + ROW * self.names.len() as f64;
        let height = bottom + BOTTOM;
        let tops = self.series.iter().flat_map(|s| s.ranges.iter().flatten()).map(Range::top);
        let highest = tops.filter(|v| v.is_finite()).fold(self.at_least, f64::max);
        let x = Scale::linear(0.0, highest).between(LEFT, WIDTH - RIGHT);
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(self.title) {
                text class="title" x=(px(LEFT)) y="16" { (self.title) }
                @for tick in x.ticks() {
                    @let at = px(x.at(tick));
                    line class="grid" x1=(at) x2=(at) y1=(px(TOP)) y2=(px(bottom)) {}
                    text class="middle" x=(at) y=(px(bottom + 15.0)) { (label(tick)) }
                }
                @for (row, name) in self.names.iter().enumerate() {
                    text class="end" x=(px(LEFT - 8.0)) y=(px(Self::middle_of(row) + 4.0)) { (name) }
                    @if self.is_empty(row) {
                        text x=(px(LEFT + 6.0)) y=(px(Self::middle_of(row) + 4.0)) { "n/a" }
                    }
                }
                @for (i, series) in self.series.iter().enumerate() {
                    g class=(colour(series.colour)) { (self.drawn(&x, i, series, bottom)) }
                }
                line class="axis" x1=(px(LEFT)) x2=(px(WIDTH - RIGHT)) y1=(px(bottom)) y2=(px(bottom)) {}
                text class="middle" x=(px(middle)) y=(px(height - 8.0)) { (self.x_label) }
            }
        }
    }

    fn middle_of(row: usize) -> f64 {
        TOP + ROW * (row as f64 + 0.5)
    }

    fn is_empty(&self, row: usize) -> bool {
        self.series.iter().all(|s| s.at(row).is_none())
    }

    fn drawn(&self, x: &Scale, i: usize, series: &RangeSeries, bottom: f64) -> Markup {
        let n = self.series.len() as f64;
        let beside = (i as f64 + 0.5 - n / 2.0) * 0.6 * ROW / n;
        let base = self.base.and_then(|row| series.at(row));
        html! {
            @if let Some(at) = base.map(|base| px(x.at(base.mean))) {
                line class="baseline" x1=(at) x2=(at) y1=(px(TOP)) y2=(px(bottom)) {}
            }
            @for (row, name) in self.names.iter().enumerate() {
                @if let Some(range) = series.at(row) {
                    @let y = px(Self::middle_of(row) + beside);
                    g {
                        title { (name) ", " (series.name) ": " (words(&range)) }
                        @if let Some(i) = range.interval {
                            line class="whisker" x1=(px(x.at(i.lo))) x2=(px(x.at(i.hi))) y1=(y) y2=(y) {}
                        }
                        circle class=(series.dot()) cx=(px(x.at(range.mean))) cy=(y) r="3.5" {}
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Interval;

    #[test]
    fn rows_are_named_drawn_and_told_apart_from_empty_ones() {
        let range =
            |mean| Range { mean, interval: Some(Interval { lo: mean - 1.0, hi: mean + 1.0 }) };
        let rows = Rows {
            title: "clean".to_owned(),
            at_least: 100.0,
            names: ["none", "snoop", "obtcp"].map(str::to_owned).to_vec(),
            series: vec![RangeSeries {
                name: "reno".to_owned(),
                colour: 0,
                hollow: true,
                ranges: vec![Some(range(50.0)), Some(range(f64::NAN)), None],
            }],
            base: Some(0),
            ..Rows::default()
        };
        let svg = rows.render().into_string();
        assert!(roxmltree::Document::parse(&svg).is_ok(), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 1, "what is no number is not drawn: {svg}");
        assert_eq!(svg.matches("n/a").count(), 2, "{svg}");
        // Half of the axis.
        assert!(svg.contains("cx=\"263.0\"") && svg.contains("class=\"baseline\""), "{svg}");
    }
}
