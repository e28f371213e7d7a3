//! Changes of what stands in the kernel, tried until they are made.

use std::thread;
use std::time::Duration;

/// How often it is tried, and after what pause.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);

/// Makes a `change`, again and again while it fails: what is not possible without descriptors, memory or
/// processes is once others have given some back. The calling thread waits for a second at most.
///
/// # Errors
///
/// The last of `change`.
pub fn insist<E>(mut change: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    for _ in 1..TRIES {
        if change().is_ok() {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    change()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_fails_is_tried_again_and_not_for_ever() {
        let mut left = 3;
        let change = || {
            left -= 1;
            if left == 0 { Ok(()) } else { Err(left) }
        };
        assert_eq!(insist(change), Ok(()));
        let mut tried = 0;
        let refuse = || {
            tried += 1;
            Err::<(), u32>(tried)
        };
        assert_eq!(insist(refuse), Err(TRIES));
    }
}
