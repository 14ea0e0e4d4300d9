//! The entry of calls from C.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::status::fl_status;

/// Runs the work of a call; a panic becomes a code.
#[inline]
pub(crate) fn entry(work: impl FnOnce() -> Result<(), fl_status>) -> fl_status {
    // A value that a panic leaves inconsistent is in a table, and closed there.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => fl_status::FL_OK,
        Ok(Err(code)) => code,
        Err(panic) => {
            // Dropping it may panic again.
            mem::forget(panic);
            fl_status::FL_ERR_PANIC
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_code() {
        let panics = || {
            assert_eq!(fl_status::ALL.len(), 0, "a test of it");
            Ok(())
        };
        assert_eq!(entry(panics), fl_status::FL_ERR_PANIC);
        assert_eq!(entry(|| Ok(())), fl_status::FL_OK);
        assert_eq!(
            entry(|| Err(fl_status::FL_ERR_FLOW)),
            fl_status::FL_ERR_FLOW
        );
    }
}
