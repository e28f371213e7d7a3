//! How far it is, on the terminal; plain lines where there is none.

use lasthop_lab::crash::{Phase, Plan, Sight, Way};

use crate::demo::progress::{Live, bar};
use lasthop_radio::Pacing;
use lasthop_units::Rate;

/// The live picture.
pub(super) struct Picture {
    pub(super) live: Live,
    title: String,
    connections: usize,
    /// What a full bar stands for: the radio's both ways.
    full: Rate,
}

impl Picture {
    pub(super) fn new(plan: &Plan) -> Self {
        let how = match plan.way {
            Way::Kill => "the process of base 1 is killed",
            Way::Cut => "base 1 loses all its links",
        };
        let title = format!("{}: {how} under {} connections", plan.way, plan.connections);
        let full = match plan.topology.radio.down.pacing {
            Pacing::Rate(rate) => rate.scale(2.0),
            _ => Rate::from_mbps(100),
        };
        Self { live: Live::new(&title), title, connections: plan.connections, full }
    }

    /// How things stand.
    pub(super) fn show(&self, sight: &Sight) {
        self.live.show(|| drawing(&self.title, sight, self.connections, self.full));
    }
}

fn drawing(title: &str, sight: &Sight, connections: usize, full: Rate) -> String {
    let Sight { phase, elapsed, open, moved, broken, rate } = sight;
    let what = match phase {
        Phase::Before => format!("{open} of {connections} connections run at base 1"),
        Phase::Dead => "base 1 is dead, the mobile on its way to base 2".to_owned(),
        Phase::After => {
            format!("{moved} of {connections} connections have gone on at base 2, {broken} broke")
        }
    };
    let (elapsed, bar) = (elapsed.as_secs_f64(), bar(*rate, full));
    format!("{title}\n\n  {elapsed:.1} s  {what}\n  {bar} {:>13}", rate.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_has_gone_on_is_counted_once_the_mobile_is_there() {
        let full = Rate::from_mbps(100);
        let (elapsed, rate) = (Duration::from_millis(500), Rate::from_mbps(50));
        let of = |phase| {
            let sight = Sight { phase, elapsed, open: 40, moved: 7, broken: 3, rate };
            drawing("t", &sight, 100, full)
        };
        assert!(of(Phase::Before).contains("40 of 100"));
        assert!(of(Phase::Dead).contains("dead") && !of(Phase::Dead).contains("100"));
        let after = of(Phase::After);
        assert!(after.contains("7 of 100") && after.contains("3 broke"), "{after}");
    }
}
