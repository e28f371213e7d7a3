//! Explicit congestion notification (RFC 3168 section 6.1): what both halves of a connection
//! remember of it.

use lasthop_wire::tcp::Flags;

/// What a SYN says that offers it (RFC 3168 section 6.1.1).
const OFFER: Flags = Flags::ECE.with(Flags::CWR);

/// Both directions' state.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Ecn {
    /// Both sides agreed.
    pub(crate) on: bool,
    /// A mark came that the peer has not answered: acknowledgements echo it.
    echo: bool,
    /// The window was cut and the peer does not know.
    cut_untold: bool,
    /// What was out when the window was last cut ends here: echoes and losses below belong to the
    /// same congestion.
    cut_below: u64,
}

impl Ecn {
    /// The flags of our SYN, which `answers` the peer's or comes first.
    pub(crate) fn syn_flags(&self, wanted: bool, answers: bool) -> Flags {
        match (answers, wanted) {
            (true, _) if self.on => Flags::ECE,
            (false, true) => OFFER,
            _ => Flags::empty(),
        }
    }

    /// The peer's SYN came.
    pub(crate) fn take_syn(&mut self, wanted: bool, flags: Flags) {
        let agreed = if flags.contains(Flags::ACK) {
            flags.contains(Flags::ECE) && !flags.contains(Flags::CWR)
        } else {
            flags.contains(OFFER)
        };
        self.on = wanted && agreed;
    }

    /// Data came that lies in the window: a mark is echoed from here on, and CWR ends that
    /// (RFC 3168 section 6.1.3).
    pub(crate) fn on_data(&mut self, flags: Flags, marked: bool) {
        if flags.contains(Flags::CWR) {
            self.echo = false;
        }
        self.echo |= marked && self.on;
    }

    /// What an acknowledgement carries beside its own flags.
    #[inline]
    pub(crate) fn ack_flags(&self) -> Flags {
        if self.echo { Flags::ECE } else { Flags::empty() }
    }

    /// The window was cut, for whatever reason, with data out up to `max`.
    pub(crate) fn on_cut(&mut self, max: u64) {
        self.cut_untold = self.on;
        self.cut_below = max;
    }

    /// What an acknowledgement up to `una` tells of was out when the window was last cut.
    pub(crate) fn is_answered(&self, una: u64) -> bool {
        una <= self.cut_below
    }

    /// A loss at `una` belongs to a congestion that an echo has reported already.
    pub(crate) fn was_cut_for(&self, una: u64) -> bool {
        self.on && una < self.cut_below
    }

    /// New data goes out; what it carries beside its own flags (RFC 3168 section 6.1.2).
    #[inline]
    pub(crate) fn on_new_data(&mut self) -> Flags {
        if core::mem::take(&mut self.cut_untold) { Flags::CWR } else { Flags::empty() }
    }
}
