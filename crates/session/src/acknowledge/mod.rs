//! End-to-end acknowledgements over a split connection: the fixed host is acknowledged what the mobile has.

mod hold;

pub use self::hold::{Due, Hold};
