//! The cost of a packet in and out from C, compared with Rust, interleaved: `cargo bench -p fairlane-capi`.

use std::process::Command;

use fairlane_core::sched::Qfq;
use fairlane_core::{FlowConfig, FlowId, Length, PacketScheduler, Weight};
use rustix::time::{ClockId, clock_gettime};

#[path = "../tests/support/c.rs"]
mod c;

const FLOWS: u32 = 512;
const BACKLOG: u32 = 2;

fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Runs the loop of `pairs.c` in Rust; returns nanoseconds per pair.
fn own(burst: u32, pairs: u64) -> f64 {
    let length = Length::new(1_000).unwrap();
    let mut link = PacketScheduler::new(Qfq::new(), Default::default());
    let ids: Vec<FlowId> = (0..FLOWS)
        .map(|_| link.add_flow(FlowConfig::new(Weight::ONE, length)).unwrap())
        .collect();
    for n in 0..BACKLOG * FLOWS {
        link.enqueue(ids[(n % FLOWS) as usize], length, 0).unwrap();
    }
    let (mut next, mut seen, mut done) = (0, 0, 0);
    let start = cpu_time();
    while done < pairs {
        for _ in 0..burst {
            link.enqueue(ids[next], length, next).unwrap();
            next = if next + 1 == ids.len() { 0 } else { next + 1 };
        }
        for _ in 0..burst {
            seen += link.dequeue().map_or(0, |packet| packet.payload & 1);
        }
        done += u64::from(burst);
    }
    let took = cpu_time() - start;
    std::hint::black_box(seen);
    took / pairs as f64
}

fn from_c(program: &std::path::Path, burst: u32, pairs: u64) -> f64 {
    let arguments = [FLOWS.into(), BACKLOG.into(), burst.into(), pairs].map(|n: u64| n.to_string());
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    said.split_whitespace().next().unwrap().parse().unwrap()
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() {
    let compilers = c::compilers();
    let Some(compiler) = compilers.first() else {
        println!("skipped: there is no C compiler here");
        return;
    };
    // A run that only shows that it works.
    let (pairs, rounds) = match std::env::args().any(|argument| argument == "--test") {
        true => (2_048, 1),
        false => (4 << 20, 11),
    };
    println!("qfq, {FLOWS} flows that are always busy, ns a pair, medians of {rounds}:");
    for library in [c::Library::Shared, c::Library::Static] {
        let program = c::build(compiler, "benches/pairs.c", library, &["-O2"]).unwrap();
        for burst in [32, 8, 1] {
            let (mut rust, mut c, mut over) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..rounds {
                let (own, from_c) = (own(burst, pairs), from_c(&program, burst, pairs));
                rust.push(own);
                c.push(from_c);
                over.push(from_c - own);
            }
            println!(
                "bursts of {burst:2}: Rust's own {:5.1}, from C ({library:?}) {:5.1}, over it {:5.1}",
                median(rust),
                median(c),
                median(over)
            );
        }
    }
}
