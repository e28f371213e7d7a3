//! One test for each requirement on a handoff.

use super::*;
