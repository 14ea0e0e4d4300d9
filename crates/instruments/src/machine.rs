//! The machine that measures.

use std::fs;

use std::time::Instant;

use anyhow::{Context, Result};
use fairlane_runtime::pin_to_core;
use rustix::thread::{CpuSet, sched_getaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// What a reader needs to know of the machine to judge a figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Machine {
    /// The processor, as it calls itself.
    pub cpu: String,
    /// Cores that this program may run on.
    pub cores: usize,
    /// Whether other machines may share them.
    pub virtual_machine: bool,
    /// Operating system and its version.
    pub system: String,
    /// Whether this program was built to be fast.
    pub optimised: bool,
}

impl Machine {
    /// This one.
    pub(super) fn this() -> Result<Machine> {
        let cpuinfo = read("/proc/cpuinfo");
        let entry = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let flags = entry("flags").unwrap_or_default();
        Ok(Machine {
            cpu: entry("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: cores()?.len(),
            virtual_machine: flags.split_whitespace().any(|flag| flag == "hypervisor"),
            system: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            optimised: !cfg!(debug_assertions),
        })
    }

    /// In a few words.
    pub(super) fn line(&self) -> String {
        format!(
            "{}, {} {}{}, {}",
            self.cpu,
            self.cores,
            if self.cores == 1 { "core" } else { "cores" },
            if self.virtual_machine {
                ", virtual"
            } else {
                ""
            },
            self.system,
        )
    }
}

/// A file of the system, or nothing where there is none.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The cores that this program may run on, by the system's numbers.
pub(super) fn cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("asking which cores there are")?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect())
}

/// Keeps the calling thread on `core`.
pub(super) fn pin(core: usize) -> Result<()> {
    pin_to_core(core).with_context(|| format!("moving a thread to core {core}"))
}

/// Processor time that the calling thread has had, in nanoseconds. What another program
/// takes away from it does not count.
pub(super) fn thread_ns() -> f64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

fn nanoseconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Processor time that this process has had, and the programs that it started and waited for.
fn own_ns() -> f64 {
    nanoseconds(ClockId::ProcessCPUTime) + children_ns(&read("/proc/self/stat"))
}

/// From a process's line in the system's tables: what its children had, in nanoseconds.
fn children_ns(stat: &str) -> f64 {
    // Behind the name, which may have spaces and parentheses, come state, parent, .., and the
    // twelfth to fifteenth are own time in user mode and in the kernel, then the children's.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(13).take(2);
    ticks
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        * 1e7
}

/// Watches how much of the machine other programs take.
pub(super) struct Watch {
    since: Instant,
    own_ns: f64,
    ticks: Option<Ticks>,
}

/// All processors' time since the start, in the system's ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    all: f64,
    busy: f64,
}

impl Ticks {
    /// From the first line of `/proc/stat`: user, nice, system, idle, waiting, .., of
    /// which guests' time at the end is in user's already.
    fn of(stat: &str) -> Option<Ticks> {
        let fields = stat
            .lines()
            .next()?
            .strip_prefix("cpu ")?
            .split_whitespace();
        let fields: Vec<f64> = fields
            .map_while(|field| field.parse().ok())
            .take(8)
            .collect();
        let all: f64 = fields.iter().sum();
        Some(Ticks {
            all,
            busy: all - fields.get(3)? - fields.get(4)?,
        })
    }
}

impl Watch {
    /// Begins now.
    pub(super) fn start() -> Watch {
        Watch {
            since: Instant::now(),
            own_ns: own_ns(),
            ticks: Ticks::of(&read("/proc/stat")),
        }
    }

    /// The part of all cores' time that others had since then, 0 to 1; nothing where the
    /// system does not say, or too little time has passed to tell.
    pub(super) fn others(&self) -> Option<f64> {
        let (then, now) = (self.ticks?, Ticks::of(&read("/proc/stat"))?);
        let elapsed = now.all - then.all;
        // A tick is a hundredth of a second of one core.
        let cores = elapsed / self.since.elapsed().as_secs_f64() / 100.0;
        let own = (own_ns() - self.own_ns) / 1e9;
        let own = own / (self.since.elapsed().as_secs_f64() * cores.round());
        (elapsed >= 20.0).then(|| ((now.busy - then.busy) / elapsed - own).clamp(0.0, 1.0))
    }
}

/// How far two cores are from each other, as the paper's Table 2 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Distance {
    /// Hyperthreads of one core.
    #[serde(rename = "HT-HT")]
    Hyperthreads,
    /// Cores of one socket.
    #[serde(rename = "CPU-CPU")]
    Cores,
    /// Different sockets.
    #[serde(rename = "SKT-SKT")]
    Sockets,
}

impl Distance {
    /// All, from near to far.
    pub(super) const ALL: [Distance; 3] =
        [Distance::Hyperthreads, Distance::Cores, Distance::Sockets];

    /// The paper's name for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Distance::Hyperthreads => "HT-HT",
            Distance::Cores => "CPU-CPU",
            Distance::Sockets => "SKT-SKT",
        }
    }
}

/// Socket and core that a core's number stands for; by itself where the system does not say.
fn place(core: usize) -> (String, String) {
    let topology = |file| {
        read(&format!(
            "/sys/devices/system/cpu/cpu{core}/topology/{file}"
        ))
    };
    match topology("core_id") {
        unknown if unknown.is_empty() => (String::new(), core.to_string()),
        known => (topology("physical_package_id"), known),
    }
}

/// For each distance that can be had here, two cores that far from each other.
pub(super) fn pairs() -> Result<Vec<(Distance, [usize; 2])>> {
    let places: Vec<_> = cores()?
        .into_iter()
        .map(|core| (core, place(core)))
        .collect();
    Ok(pairs_of(&places))
}

fn pairs_of(places: &[(usize, (String, String))]) -> Vec<(Distance, [usize; 2])> {
    let far = |(socket, core): &(String, String), (other_socket, other_core): &(String, String)| {
        if socket != other_socket {
            Distance::Sockets
        } else if core != other_core {
            Distance::Cores
        } else {
            Distance::Hyperthreads
        }
    };
    let pair = |distance| {
        let two = |(i, (one, at)): (usize, &(usize, (String, String)))| {
            let mut others = places[i + 1..].iter();
            let (other, _) = others.find(|(_, place)| far(at, place) == distance)?;
            Some((distance, [*one, *other]))
        };
        places.iter().enumerate().find_map(two)
    };
    Distance::ALL.into_iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_cores_is_found_for_each_distance_there_is() {
        let at = |number, socket: &str, core: &str| (number, (socket.into(), core.into()));
        let two_sockets = [
            at(0, "0", "0"),
            at(1, "0", "1"),
            at(2, "1", "0"),
            at(4, "0", "0"),
        ];
        let expected = [
            (Distance::Hyperthreads, [0, 4]),
            (Distance::Cores, [0, 1]),
            (Distance::Sockets, [0, 2]),
        ];
        assert_eq!(pairs_of(&two_sockets), expected);
        assert_eq!(pairs_of(&two_sockets[1..3]), [(Distance::Sockets, [1, 2])]);
        assert_eq!(pairs_of(&two_sockets[..1]), []);
    }

    #[test]
    fn time_is_busy_unless_it_was_idle_or_waited() {
        let stat = "cpu  10 2 5 100 50 1 1 1 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let ticks = Ticks {
            all: 170.0,
            busy: 20.0,
        };
        assert_eq!(Ticks::of(stat), Some(ticks));
        assert_eq!(Ticks::of("cpu  1 2"), None);
        assert_eq!(Ticks::of(""), None);
    }

    #[test]
    fn time_of_children_is_behind_a_name_of_any_kind() {
        let stat = "1 (a ) b) S 0 1 1 0 -1 4 1 2 3 4 500 600 70 8 20 0 1 0 9\n";
        assert_eq!(children_ns(stat), 78e7);
        assert_eq!(children_ns(""), 0.0);
    }

    #[test]
    fn own_work_is_not_counted_as_that_of_others() {
        let watch = Watch::start();
        let own = thread_ns();
        while thread_ns() - own < 3e8 {}
        // Whatever else runs: this thread had a part of the time.
        let others = watch.others().unwrap();
        let own = (thread_ns() - own) / 1e9 / watch.since.elapsed().as_secs_f64();
        assert!(
            others + own / cores().unwrap().len() as f64 <= 1.1,
            "{others} {own}"
        );
    }

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
