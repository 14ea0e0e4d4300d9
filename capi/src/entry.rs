//! Where C comes in.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::status::fl_status;

/// Does what an entry is for; a panic becomes a code.
#[inline]
pub(crate) fn entry(work: impl FnOnce() -> Result<(), fl_status>) -> fl_status {
    // What a panic leaves half done is in a table, and closed there.
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
