use maud::{Markup, html};

use super::frame::{Frame, Scale, px};
use super::{Key, Shape, colour};

/// How many points of a line are drawn at most; of more, the extremes of equal parts are.
const POINTS: usize = 2_000;

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its colour's number.
    pub colour: usize,
    /// Whether a value holds until the next one, as a window does.
    pub steps: bool,
    /// Time in seconds and value, in the order of time.
    pub points: Vec<(f64, f64)>,
}

impl Line {
    /// A line that holds each value until the next.
    pub fn steps(name: impl Into<String>, colour: usize, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), colour, steps: true, points }
    }
}

/// A stretch of time to shade, such as a pause.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Span {
    /// Its begin, in seconds.
    pub from: f64,
    /// Its end.
    pub to: f64,
}

/// Values over time.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Its title.
    pub title: String,
    /// What the values are, with their unit.
    pub y_label: String,
    /// What to shade.
    pub spans: Vec<Span>,
    /// The lines.
    pub lines: Vec<Line>,
}

impl Lines {
    pub(super) fn keys(&self) -> Vec<Key> {
        let key = |l: &Line| Key { name: l.name.clone(), shape: Shape::Line, colour: l.colour };
        self.lines.iter().map(key).collect()
    }

    pub(super) fn render(&self) -> Markup {
        let frame = self.frame();
        let (top, bottom) = (frame.y.at(frame.y.hi()), frame.y.at(frame.y.lo()));
        let inside = html! {
            @for span in &self.spans {
                @let (from, to) = (frame.x.at(span.from), frame.x.at(span.to));
                rect class="span" x=(px(from)) y=(px(top))
                    width=(px((to - from).max(0.0))) height=(px(bottom - top)) {}
            }
            @for line in &self.lines {
                path class={ "line " (colour(line.colour)) } d=(path(&frame, line)) {
                    title { (line.name) }
                }
            }
        };
        frame.render(&[], inside)
    }

    fn frame(&self) -> Frame<'_> {
        let points = || self.lines.iter().flat_map(|l| &l.points);
        let most = |values: &mut dyn Iterator<Item = f64>| {
            values.filter(|v| v.is_finite()).fold(0.0, f64::max)
        };
        let x = Scale::linear(0.0, most(&mut points().map(|p| p.0)));
        let y = Scale::linear(0.0, most(&mut points().map(|p| p.1)) * 1.05);
        Frame::new([520.0, 300.0], &self.title, ["time in s", &self.y_label], x, y)
    }
}

fn path(frame: &Frame<'_>, line: &Line) -> String {
    let mut d = String::new();
    let finite = line.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
    let points: Vec<(f64, f64)> = finite.copied().collect();
    for (i, (x, y)) in thinned(&points).into_iter().enumerate() {
        let (x, y) = (px(frame.x.at(x)), px(frame.y.at(y)));
        d += &match i {
            0 => format!("M{x} {y}"),
            _ if line.steps => format!("H{x}V{y}"),
            _ => format!("L{x} {y}"),
        };
    }
    d
}

/// The line with at most about [`POINTS`] points: of each of equal parts, the least and the
/// greatest value.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= POINTS {
        return points.to_vec();
    }
    let part = points.len().div_ceil(POINTS / 2);
    points.chunks(part).flat_map(extremes).collect()
}

fn extremes(part: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let value = |i: &usize| part[*i].1;
    let least = (0..part.len()).min_by(|a, b| value(a).total_cmp(&value(b)));
    let greatest = (0..part.len()).max_by(|a, b| value(a).total_cmp(&value(b)));
    let mut both: Vec<usize> = least.into_iter().chain(greatest).collect();
    both.sort_unstable();
    both.dedup();
    both.into_iter().map(|i| part[i]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_keeps_its_extremes() {
        let mut points: Vec<(f64, f64)> = (0..50_000).map(|i| (f64::from(i), 1.0)).collect();
        points[31_234].1 = 9.0;
        points[777].1 = 0.0;
        let thin = thinned(&points);
        assert!(thin.len() <= POINTS + 2, "{}", thin.len());
        assert!(thin.contains(&(31_234.0, 9.0)) && thin.contains(&(777.0, 0.0)));
        assert!(thin.is_sorted_by(|a, b| a.0 < b.0));
    }
}
