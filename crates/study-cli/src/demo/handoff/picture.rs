//! Who is where, and what moves, on the terminal; plain lines where there is none.

use std::fmt::Write;

use lasthop_lab::journey::{Plan, Sight};
use lasthop_lab::roam::{BASES, Mode};
use lasthop_radio::Pacing;
use lasthop_units::{Bytes, Rate};

use crate::demo::progress::{Live, bar};

/// How far apart bases are drawn.
const COLUMN: usize = 16;

/// The live picture.
pub(super) struct Picture {
    pub(super) live: Live,
    title: String,
    /// What a full bar stands for.
    full: Rate,
}

impl Picture {
    pub(super) fn new(mode: Mode, plan: &Plan) -> Self {
        let title = format!(
            "{mode} over {}: {} moves, dead zones of {:.1} s",
            plan.settings.hop,
            plan.handoffs,
            plan.dead_zone.as_secs_f64()
        );
        let full = match plan.topology.radio.down.pacing {
            Pacing::Rate(rate) => rate,
            _ => Rate::from_mbps(20),
        };
        Self { live: Live::new(&title), title, full }
    }

    /// How things stand.
    pub(super) fn show(&self, sight: &Sight) {
        self.live.show(|| drawing(&self.title, sight, self.full));
    }
}

fn drawing(title: &str, sight: &Sight, full: Rate) -> String {
    let mut out = format!("{title}    {:.1} s\n\n  ", sight.elapsed.as_secs_f64());
    for base in 1..=BASES {
        let _ = write!(out, "{:<COLUMN$}", format!("[base {base}]"));
    }
    let at = match sight.place {
        Some(place) => format!("{:indent$}  ||", "", indent = indent(place)),
        None => String::new(),
    };
    let mobile = match (sight.place, sight.warned) {
        (Some(place), true) => {
            format!("{:indent$}mobile, soon at base {}", "", sight.next, indent = indent(place))
        }
        (Some(place), false) => format!("{:indent$}mobile", "", indent = indent(place)),
        (None, _) => format!("  mobile in a dead zone, on its way to base {}", sight.next),
    };
    let _ = write!(out, "\n{at}\n{mobile}\n");
    for (kind, rate, total) in &sight.flows {
        let (bar, total) = (bar(*rate, full), Bytes::new(*total).to_string());
        let _ = write!(out, "\n  {kind:<10}{bar} {:>13} {total:>10}", rate.to_string());
    }
    out
}

fn indent(place: usize) -> usize {
    2 + (place - 1) * COLUMN
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lasthop_lab::traffic::Traffic;

    use super::*;

    fn sight(place: Option<usize>) -> Sight {
        Sight {
            elapsed: Duration::from_secs(3),
            place,
            next: 2,
            warned: false,
            flows: vec![(Traffic::Download, Rate::from_mbps(10), 5000)],
        }
    }

    #[test]
    fn the_mobile_stands_below_its_base() {
        let column = |place| {
            let text = drawing("t", &sight(Some(place)), Rate::from_mbps(20));
            let line = |what: &str| text.lines().find_map(|l| l.find(what)).unwrap();
            (line(&format!("[base {place}]")), line("mobile"))
        };
        for place in 1..=BASES {
            let (base, mobile) = column(place);
            assert_eq!(base, mobile);
        }
        assert!(drawing("t", &sight(None), Rate::ZERO).contains("dead zone"));
    }
}
