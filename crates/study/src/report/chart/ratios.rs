use maud::{Markup, html};

use super::frame::{Frame, Scale, px};
use super::{Key, Shape, colour};
use crate::stats::Ratio;

/// One ratio, published and ours.
#[derive(Clone, Debug)]
pub struct RatioPoint {
    /// Which ratio, such as `tcp / srp`; points of a name share a line of the legend.
    pub name: String,
    /// Where it was measured, such as `2.8 s, 5 %`.
    pub place: String,
    /// Its colour's number.
    pub colour: usize,
    /// The published ratio.
    pub published: Ratio,
    /// Ours.
    pub ours: Ratio,
}

/// Our ratios against published ones, both logarithmic. On the diagonal the two are equal.
#[derive(Clone, Debug, Default)]
pub struct Ratios {
    /// Its title.
    pub title: String,
    /// How far from the diagonal is still close, as a part of the published ratio: below 1.
    pub band: f64,
    /// The ratios.
    pub points: Vec<RatioPoint>,
}

impl Ratios {
    pub(super) fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = Vec::new();
        for point in &self.points {
            let key = Key { name: point.name.clone(), shape: Shape::Dot, colour: point.colour };
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    pub(super) fn render(&self) -> Markup {
        let scale = self.scale();
        let labels = ["published ratio", "our ratio"];
        let frame = Frame::new([620.0, 560.0], &self.title, labels, scale, scale);
        let inside = html! {
            polygon class="band" points=(self.band(&frame)) {}
            line class="diagonal"
                x1=(px(frame.x.at(scale.lo()))) y1=(px(frame.y.at(scale.lo())))
                x2=(px(frame.x.at(scale.hi()))) y2=(px(frame.y.at(scale.hi()))) {}
            @for point in &self.points { (self::point(&frame, point)) }
        };
        frame.render(&[], inside)
    }

    fn scale(&self) -> Scale {
        let values = self.points.iter().flat_map(|p| [p.published.value, p.ours.value]);
        let (lo, hi) = values
            .filter(|v| v.is_finite() && *v > 0.0)
            .fold((1.0_f64, 1.0_f64), |(lo, hi), v| (lo.min(v), hi.max(v)));
        Scale::log(lo / 1.4, hi * 1.4)
    }

    /// The corners of the band, clipped where it leaves the plot.
    fn band(&self, frame: &Frame<'_>) -> String {
        let (lo, hi) = (frame.x.lo(), frame.x.hi());
        let (above, below) = (1.0 + self.band, 1.0 - self.band);
        let corners = [
            (lo, lo),
            (lo, lo * above),
            (hi / above, hi),
            (hi, hi),
            (hi, hi * below),
            (lo / below, lo),
        ];
        let corner = |(x, y)| format!("{},{}", px(frame.x.at(x)), px(frame.y.at(y)));
        corners.map(corner).join(" ")
    }
}

fn point(frame: &Frame<'_>, point: &RatioPoint) -> Markup {
    let (x, y) = (frame.x.at(point.published.value), frame.y.at(point.ours.value));
    html! {
        g class=(colour(point.colour)) {
            title {
                (point.name) ", " (point.place) ": published "
                (format!("{:.2}", point.published.value)) ", ours " (format!("{:.2}", point.ours.value))
            }
            @if let Some(i) = point.published.interval {
                line class="whisker" x1=(px(frame.x.at(i.lo))) x2=(px(frame.x.at(i.hi))) y1=(px(y)) y2=(px(y)) {}
            }
            @if let Some(i) = point.ours.interval {
                line class="whisker" x1=(px(x)) x2=(px(x)) y1=(px(frame.y.at(i.lo))) y2=(px(frame.y.at(i.hi))) {}
            }
            circle class="dot" cx=(px(x)) cy=(px(y)) r="4" {}
        }
    }
}
