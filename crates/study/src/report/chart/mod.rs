//! Charts as inline SVG. Colours are numbers of a palette that the document's style defines, for
//! light and dark and for eyes that tell no red from green.

mod frame;
mod lines;
mod ranges;
mod ratios;
mod rows;

use maud::{Markup, html};

pub use lines::{Line, Lines, Span};
pub use ranges::{Range, RangeSeries, Ranges};
pub use ratios::{RatioPoint, Ratios};
pub use rows::Rows;

/// How many colours there are; further ones begin again.
pub const COLOURS: usize = 6;

/// A chart.
#[derive(Clone, Debug)]
pub enum Chart {
    /// Means with intervals, by category.
    Ranges(Ranges),
    /// Our ratios against published ones.
    Ratios(Ratios),
    /// Means with intervals, by name.
    Rows(Rows),
    /// Values over time.
    Lines(Lines),
}

impl Chart {
    /// Means with intervals by category, with `[x, y]` labels.
    pub fn ranges<T: Into<String>>(
        title: impl Into<String>,
        [x_label, y_label]: [&str; 2],
        categories: impl IntoIterator<Item = T>,
        series: impl IntoIterator<Item = RangeSeries>,
    ) -> Self {
        Self::Ranges(Ranges {
            title: title.into(),
            x_label: x_label.to_owned(),
            y_label: y_label.to_owned(),
            categories: categories.into_iter().map(Into::into).collect(),
            series: series.into_iter().collect(),
        })
    }

    /// Values over time, with a label of what they are.
    pub fn lines(
        title: impl Into<String>,
        y_label: &str,
        spans: impl IntoIterator<Item = Span>,
        lines: impl IntoIterator<Item = Line>,
    ) -> Self {
        Self::Lines(Lines {
            title: title.into(),
            y_label: y_label.to_owned(),
            spans: spans.into_iter().collect(),
            lines: lines.into_iter().collect(),
        })
    }

    pub(super) fn render(&self) -> Markup {
        match self {
            Self::Ranges(chart) => chart.render(),
            Self::Ratios(chart) => chart.render(),
            Self::Rows(chart) => chart.render(),
            Self::Lines(chart) => chart.render(),
        }
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        match self {
            Self::Ranges(chart) => chart.keys(),
            Self::Ratios(chart) => chart.keys(),
            Self::Rows(chart) => chart.keys(),
            Self::Lines(chart) => chart.keys(),
        }
    }
}

/// A line of a legend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    shape: Shape,
    colour: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Dot,
    Hollow,
    Line,
}

impl Key {
    fn of(series: &RangeSeries) -> Self {
        let shape = if series.hollow { Shape::Hollow } else { Shape::Dot };
        Self { name: series.name.clone(), shape, colour: series.colour }
    }

    pub(super) fn swatch(&self) -> Markup {
        html! {
            svg viewBox="0 0 24 12" aria-hidden="true" {
                g class=(colour(self.colour)) {
                    line class="whisker" x1="1" y1="6" x2="23" y2="6" {}
                    @match self.shape {
                        Shape::Dot => { circle class="dot" cx="12" cy="6" r="4" {} }
                        Shape::Hollow => { circle class="dot hollow" cx="12" cy="6" r="4" {} }
                        Shape::Line => {}
                    }
                }
            }
        }
    }
}

fn colour(n: usize) -> &'static str {
    ["c0", "c1", "c2", "c3", "c4", "c5"][n % COLOURS]
}
