//! A bridge between two hosts that are not kernels: every frame that enters it, and every frame that
//! leaves it, byte for byte.

use std::time::{Duration, Instant};

use lasthop_kernel::netns::Netns;
use lasthop_kernel::tun::Tun;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::path::{BRIDGE, FIXED_IF, MOBILE_IF, make_bridge};
use crate::carrier::quiet;
use crate::error::LabError;

const LONGEST: usize = 70_000;

/// An end of the bridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Where the fixed hosts are.
    Fixed,
    /// Where the mobiles are.
    Mobile,
}

impl End {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Fixed, Self::Mobile];

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Fixed => Self::Mobile,
            Self::Mobile => Self::Fixed,
        }
    }
}

/// The bridge. It is gone when this is dropped.
#[derive(Debug)]
pub struct Ends {
    fixed: Tun,
    mobile: Tun,
    /// Where the bridge is.
    pub base: Netns,
}

impl Ends {
    /// A bridge whose ports carry packets of up to `mtu` bytes. It says nothing of its own accord.
    ///
    /// # Errors
    ///
    /// Namespaces or interfaces are not permitted.
    pub fn start(mtu: u32) -> Result<Self, LabError> {
        let base = quiet()?;
        let open = |name| base.enter(|| Tun::open_ethernet(name))?.map_err(LabError::Tun);
        let (fixed, mobile) = (open(FIXED_IF)?, open(MOBILE_IF)?);
        make_bridge(&base, mtu, mtu)?;
        base.ip(&format!("link set dev {BRIDGE} up\n"))?;
        Ok(Self { fixed, mobile, base })
    }

    /// Sends a frame into the bridge.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub fn send(&self, from: End, frame: &[u8]) -> Result<(), LabError> {
        self.tun(from).send(frame).map_err(|e| LabError::io("sending a frame", e))
    }

    /// What leaves the bridge at `end`, in order, until `is_enough` or `patience` is over.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub fn receive(
        &self,
        end: End,
        patience: Duration,
        mut is_enough: impl FnMut(&[Vec<u8>]) -> bool,
    ) -> Result<Vec<Vec<u8>>, LabError> {
        let deadline = Instant::now() + patience;
        let (mut frames, mut room) = (Vec::new(), vec![0; LONGEST]);
        while !is_enough(&frames) && Instant::now() < deadline {
            match self.tun(end).receive(&mut room) {
                Ok(Some(length)) => frames.push(room[..length].to_vec()),
                Ok(None) => wait_for_one(self.tun(end), deadline),
                Err(e) => return Err(LabError::io("receiving a frame", e)),
            }
        }
        Ok(frames)
    }

    fn tun(&self, end: End) -> &Tun {
        match end {
            End::Fixed => &self.fixed,
            End::Mobile => &self.mobile,
        }
    }
}

/// Sleeps until a frame is there, or the time is over.
fn wait_for_one(tun: &Tun, deadline: Instant) {
    let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
    // Whatever else ends it is one more look.
    let _ = poll(&mut [PollFd::new(tun, PollFlags::IN)], left.as_ref());
}
