//! The mailbox compared with other bounded queues, in one run: the queues alternate round by round, so that other load
//! on the machine affects all of them.
//!
//! `cargo bench -p fairlane-mailbox --bench mailbox`, on two idle cores. `-- --test` runs everything once and briefly.

mod measure;
mod queues;

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use fairlane_mailbox::mailbox;
use measure::{CASES, Case, Payload, cores, measure, work_alone};
use rtrb::RingBuffer;

const SLOTS: usize = 1024;

/// The amount to measure.
struct Effort {
    rounds: usize,
    /// Items of a round without work between them, ..
    fast: u64,
    /// .. and with work.
    slow: u64,
}

type Run = fn(Case, u64) -> f64;

fn queues<T: Payload>() -> [(&'static str, Run); 3] {
    [
        ("mailbox", |case, items| {
            measure::<T>(mailbox(SLOTS).expect("a power of two"), case, items)
        }),
        ("rtrb", |case, items| {
            measure::<T>(RingBuffer::new(SLOTS), case, items)
        }),
        ("ArrayQueue", |case, items| {
            let queue = Arc::new(ArrayQueue::new(SLOTS));
            measure::<T>((Arc::clone(&queue), queue), case, items)
        }),
    ]
}

/// Returns the lower quartile of the rounds: other load only adds time.
fn lower_quartile(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 4]
}

fn table<T: Payload>(effort: &Effort) {
    let queues = queues::<T>();
    let mut rows = queues.map(|(name, _)| (name, Vec::new()));
    for case in CASES {
        let at_full_speed = matches!(case, Case::Single | Case::Batch);
        let items = if at_full_speed {
            effort.fast
        } else {
            effort.slow
        };
        let mut times = queues.map(|_| Vec::new());
        let mut alone = Vec::new();
        for _ in 0..effort.rounds {
            for (times, (_, run)) in times.iter_mut().zip(&queues) {
                times.push(run(case, items));
            }
            alone.push(work_alone(case, effort.slow));
        }
        let work = if at_full_speed {
            0.0
        } else {
            lower_quartile(alone)
        };
        for (row, times) in rows.iter_mut().zip(times) {
            row.1.push(lower_quartile(times) - work);
        }
    }
    for (name, costs) in rows {
        print!("{:>5} {name:<10}", size_of::<T>());
        for cost in &costs[..2] {
            print!(" {cost:7.2} {:9.0}", 1e3 / cost);
        }
        for cost in &costs[2..] {
            print!(" {cost:12.1}");
        }
        println!();
    }
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    let effort = if test {
        Effort {
            rounds: 1,
            fast: 1000,
            slow: 100,
        }
    } else {
        Effort {
            rounds: 21,
            fast: 1_000_000,
            slow: 20_000,
        }
    };
    if cores().is_none() {
        println!("There are no two cores to be had: the ends take turns on one.");
    }
    println!(
        "Two threads, {SLOTS} slots; lower quartile of {} rounds",
        effort.rounds
    );
    println!(
        "{:5} {:10} {:^17} {:^17} {:>12} {:>12} {:>12}",
        "", "", "one by one", "batches of 32", "nearly empty", "read each us", "nearly full"
    );
    println!(
        "{:5} {:10} {:>7} {:>9} {:>7} {:>9} {:>12} {:>12} {:>12}",
        "bytes",
        "queue",
        "ns",
        "M items/s",
        "ns",
        "M items/s",
        "ns a push",
        "ns a push",
        "ns a pop"
    );
    table::<u64>(&effort);
    table::<[u64; 2]>(&effort);
}
