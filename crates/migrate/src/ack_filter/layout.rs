//! How a slot lies in memory, as `lasthop_session::acknowledge` has it: words of two halves each.

use lasthop_session::acknowledge;

/// Where the lower half of a word lies, bytes from the slot's beginning.
const fn lower(word: i16) -> i16 {
    word * 8 + if cfg!(target_endian = "little") { 0 } else { 4 }
}

const fn upper(word: i16) -> i16 {
    word * 8 + if cfg!(target_endian = "little") { 4 } else { 0 }
}

// Flags, and from bit 8 on the window's scale.
pub(super) const CONTROL: i16 = lower(0);
pub(super) const LIVE: i32 = 1;
pub(super) const HOLD: i32 = 1 << 1;
pub(super) const MAY_END: i32 = 1 << 2;
pub(super) const MUTE: i32 = 1 << 3;
pub(super) const SCALE_KNOWN: i32 = 1 << 4;
pub(super) const OPENING: i32 = 1 << 5;
pub(super) const SCALE_SHIFT: i32 = 8;

/// The whole word: offset in its lower half, TSecr in its upper one.
pub(super) const TOLD: i16 = 8;

pub(super) const INHERITED: i16 = lower(2);
pub(super) const IS_INHERITED: i16 = upper(2);

pub(super) const BASE: i16 = lower(8);
pub(super) const KNOWN: i16 = upper(8);
pub(super) const KNOWN_BASE: i32 = 1;
pub(super) const KNOWN_KERNEL: i32 = 1 << 1;
pub(super) const KNOWN_EDGE: i32 = 1 << 2;
pub(super) const KNOWN_LET_OUT: i32 = 1 << 3;
pub(super) const KERNEL_ACK: i16 = lower(9);
pub(super) const KERNEL_ECHO: i16 = upper(9);
pub(super) const NEXT_SEQ: i16 = lower(10);
pub(super) const NEXT_VALUE: i16 = upper(10);
pub(super) const EDGE: i16 = lower(11);
pub(super) const LET_OUT: i16 = upper(11);
/// The whole word.
pub(super) const REPEATED: i16 = 12 * 8;
pub(super) const LOWERED: i16 = lower(13);
pub(super) const SWALLOWED: i16 = upper(13);
pub(super) const ENDED: i16 = lower(14);
pub(super) const INJECTED_COUNT: i16 = upper(14);
pub(super) const CUT: i16 = lower(15);

/// Between two acknowledgements that say nothing new, nanoseconds.
pub(super) const REPEAT_NS: i32 = acknowledge::REPEAT_NS as i32;
