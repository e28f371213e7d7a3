//! Which side hosts are on, as a bridge learns it.

use lasthop_agent::Side;

/// An Ethernet address.
type Mac = [u8; 6];

/// Places in the table, a power of two. Two hosts that share one take turns in it.
const PLACES: usize = 4096;

/// On which side each host last sent. A frame for a host on the side that it comes from is not for
/// the other side, wherever a switch has flooded it to.
#[derive(Debug)]
pub(super) struct Stations {
    places: Box<[Option<(Mac, Side)>]>,
    /// Addresses of this host itself: what is for them the kernel takes.
    own: Vec<Mac>,
}

impl Stations {
    pub(super) fn new() -> Self {
        Self { places: vec![None; PLACES].into(), own: Vec::new() }
    }

    /// This host answers to these.
    pub(super) fn set_own(&mut self, own: Vec<Mac>) {
        self.own = own;
    }

    /// Learns from a frame that came from `from`; whether the bridge would hand it to the other side.
    pub(super) fn crosses(&mut self, from: Side, frame: &[u8]) -> bool {
        let Some((&to, rest)) = frame.split_first_chunk::<6>() else { return false };
        let Some((&source, _)) = rest.split_first_chunk::<6>() else { return false };
        if let Some(place) = self.places.get_mut(place(source)) {
            *place = Some((source, from));
        }
        let known = self.places.get(place(to)).copied().flatten();
        let is_near = known.is_some_and(|(mac, side)| mac == to && side == from);
        !is_near && !self.own.contains(&to)
    }
}

/// Where an address stands. Its last bytes differ most.
fn place(mac: Mac) -> usize {
    let n = mac.iter().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(to: u8, from: u8) -> Vec<u8> {
        [[2, 0, 0, 0, 0, to], [2, 0, 0, 0, 0, from]].concat()
    }

    #[test]
    fn a_frame_for_a_host_on_its_own_side_does_not_cross() {
        let mut stations = Stations::new();
        assert!(stations.crosses(Side::Fixed, &frame(2, 1)), "nobody knows where 2 is");
        assert!(stations.crosses(Side::Mobile, &frame(1, 2)));
        assert!(stations.crosses(Side::Fixed, &frame(2, 1)));
        assert!(!stations.crosses(Side::Fixed, &frame(1, 3)), "1 is on that side");
        assert!(stations.crosses(Side::Mobile, &frame(9, 1)), "1 has moved");
        assert!(stations.crosses(Side::Fixed, &frame(1, 3)));
    }

    #[test]
    fn what_is_for_this_host_stays_here() {
        let mut stations = Stations::new();
        stations.set_own(vec![[2, 0, 0, 0, 0, 7]]);
        assert!(!stations.crosses(Side::Fixed, &frame(7, 1)));
        assert!(!stations.crosses(Side::Fixed, &[2; 11]), "that is no frame");
    }
}
