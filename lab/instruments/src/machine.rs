//! The machine that measures.

use std::fs;

use anyhow::{Context, Result};
use fairlane_runtime::pin_to_core;
use rustix::thread::{CpuSet, sched_getaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Returns the cores that this program may run on, by the system's numbers.
///
/// # Errors
///
/// Fails if the system does not report them.
pub(crate) fn cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("asking which cores there are")?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect())
}

/// Returns two of these cores, without shared caches if possible; `None` if there is only one core.
pub(crate) fn two_cores() -> Result<Option<[usize; 2]>> {
    let cores = cores()?;
    let [first, others @ ..] = &cores[..] else {
        return Ok(None);
    };
    let path = format!("/sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list");
    let siblings = numbers(&fs::read_to_string(path).unwrap_or_default());
    let apart = others.iter().find(|core| !siblings.contains(core));
    Ok(apart.or(others.first()).map(|&other| [*first, other]))
}

/// Returns the numbers of a list in the system's format, `0-1,8`. Ignores anything else in it.
fn numbers(list: &str) -> Vec<usize> {
    let parts = list.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    });
    parts.flatten().collect()
}

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

    #[test]
    fn lists_of_cores_are_read_as_the_system_writes_them() {
        assert_eq!(numbers("0-1,8\n"), [0, 1, 8]);
        assert_eq!(numbers("3"), [3]);
        assert!(numbers("").is_empty());
    }

    #[test]
    fn two_cores_are_two_of_those_that_there_are() {
        let all = cores().unwrap();
        let two = two_cores().unwrap();
        assert_eq!(two.is_some(), all.len() > 1);
        assert!(two.is_none_or(|[one, other]| one != other && all.contains(&other)));
    }
}
