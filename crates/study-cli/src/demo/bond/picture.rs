//! What each link carries at the moment, on the terminal.

use std::fmt::Write;

use lasthop_lab::bond::Sight;
use lasthop_units::{Bytes, Rate};

use super::{LINKS, Options, Scheme, table};
use crate::demo::progress::{Live, bar};

/// The live picture.
pub(super) struct Picture {
    pub(super) live: Live,
    /// How long a way takes, in seconds.
    whole: f64,
}

impl Picture {
    pub(super) fn new(options: &Options) -> Self {
        let whole = (options.settle() + options.lasting).as_secs_f64();
        Self { live: Live::new(&table::title(options)), whole }
    }

    /// How things stand.
    pub(super) fn show(&self, scheme: Scheme, sight: &Sight) {
        self.live.show(|| drawing(scheme, sight, self.whole));
    }
}

fn drawing(scheme: Scheme, sight: &Sight, whole: f64) -> String {
    let elapsed = sight.elapsed.as_secs_f64();
    let mut out = format!("{scheme}    {elapsed:.1} of {whole:.0} s\n");
    for (n, (link, [down, up])) in LINKS.iter().zip(&sight.radios).enumerate() {
        let bars = [*down, *up].map(|rate| bar(rate, Rate::from_mbps(link.mbps)));
        let dark = if n == 0 && sight.dark { "in a tunnel" } else { "" };
        let _ = write!(out, "\n  {:<10}down {}  up {}  {dark}", link.name, bars[0], bars[1]);
    }
    let sum = Rate::from_mbps(LINKS.iter().map(|link| link.mbps).sum());
    out.push('\n');
    for (direction, rate, total) in &sight.transfers {
        let (name, total) = (direction.to_string(), Bytes::new(*total).to_string());
        let _ =
            write!(out, "\n  {name:<10}{} {:>13} {total:>10}", bar(*rate, sum), rate.to_string());
    }
    out
}

#[cfg(test)]
mod tests {
    use lasthop_lab::transfer::Direction;
    use lasthop_units::Duration;

    use super::*;

    #[test]
    fn each_link_has_its_line_and_the_tunnel_is_told() {
        let full = Rate::from_mbps(20);
        let sight = Sight {
            elapsed: Duration::from_secs(3),
            dark: true,
            transfers: vec![(Direction::Download, full, 5000)],
            radios: vec![[Rate::ZERO; 2], [full; 2], [full; 2]],
        };
        let text = drawing(Scheme::Bond, &sight, 19.0);
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap();
        assert!(line("modem 1").contains("tunnel") && !line("modem 1").contains('█'), "{text}");
        assert!(line("dish").contains('█') && !line("dish").contains("tunnel"), "{text}");
        assert!(line("download").contains("20"), "{text}");
        assert!(line("bond").contains("3.0 of 19 s"), "{text}");
        let after = drawing(Scheme::Bond, &Sight { dark: false, ..sight }, 19.0);
        assert!(!after.contains("tunnel"), "{after}");
    }
}
