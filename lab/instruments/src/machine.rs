//! The machine that measures.

use anyhow::{Context, Result};
pub(crate) use fairlane_cli::machine::cores;
use fairlane_runtime::pin_to_core;
use rustix::time::{ClockId, clock_gettime};

/// Keeps the calling thread on `core`.
pub(crate) fn pin(core: usize) -> Result<()> {
    pin_to_core(core).with_context(|| format!("moving a thread to core {core}"))
}

/// Returns the processor time of the calling thread, in nanoseconds. Time of other programs on its
/// processor does not count.
pub(crate) fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_runs_on_its_core_alone() {
        let core = *cores().unwrap().last().unwrap();
        let pinned = std::thread::spawn(move || {
            pin(core).unwrap();
            cores().unwrap()
        });
        assert_eq!(pinned.join().unwrap(), [core]);
    }
}
