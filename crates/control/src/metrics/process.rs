//! Statistics of this process from the kernel.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// Statistics at one time. One that the kernel does not provide is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Process {
    /// User and system processor time.
    pub(super) cpu_seconds: Option<f64>,
    /// Seconds since 1970.
    pub(super) start_seconds: Option<f64>,
    pub(super) virtual_bytes: Option<f64>,
    pub(super) resident_bytes: Option<f64>,
    pub(super) threads: Option<f64>,
    pub(super) open_files: Option<f64>,
    /// The soft limit of open files.
    pub(super) most_files: Option<f64>,
}

impl Process {
    /// Reads the current statistics from `/proc`. O(open files).
    pub(super) fn now() -> Process {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name, which may contain spaces, ends with a bracket; field 3 of proc(5) follows.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let seconds = |number| Some(field(number)? / clock_ticks_per_second() as f64);
        let open = fs::read_dir("/proc/self/fd").map(|files| files.count() as f64);
        Process {
            cpu_seconds: seconds(14)
                .zip(seconds(15))
                .map(|(user, system)| user + system),
            start_seconds: seconds(22).zip(boot()).map(|(start, boot)| start + boot),
            virtual_bytes: field(23),
            resident_bytes: field(24).map(|pages| pages * page_size() as f64),
            threads: field(20),
            // One of them is the folder itself.
            open_files: open.ok().map(|open| open - 1.0),
            most_files: getrlimit(Resource::Nofile).current.map(|most| most as f64),
        }
    }
}

/// Returns the boot time in seconds since 1970.
fn boot() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.parse().ok()
}
