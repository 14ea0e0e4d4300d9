//! How much memory the process holds.

use std::fs;

/// In KiB.
pub(crate) fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let size = line.and_then(|line| line.split_whitespace().next());
    size.and_then(|size| size.parse().ok()).unwrap()
}

/// Returns by how many KiB the second half of the samples grows: the median of its last quarter
/// minus that of its first, since a process start or a wake-up at that moment causes fluctuations.
pub(crate) fn growth(samples: &[u64]) -> i64 {
    let half = &samples[samples.len() / 2..];
    let quarter = (half.len() / 4).max(1);
    median(&half[half.len() - quarter..]) - median(&half[..quarter])
}

fn median(samples: &[u64]) -> i64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2] as i64
}
