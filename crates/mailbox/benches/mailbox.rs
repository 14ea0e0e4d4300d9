//! What a value's way through a mailbox costs, on one thread and across two.

use std::{
    hint::{black_box, spin_loop},
    thread,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fairlane_mailbox::{Consumer, Full, mailbox};

const SLOTS: usize = 1024;

fn pairs<T: Send + Copy>(c: &mut Criterion, name: &str, value: T) {
    let mut group = c.benchmark_group("push+pop, one thread");
    group.throughput(Throughput::Elements(1));
    group.bench_function(BenchmarkId::from_parameter(name), |b| {
        let (mut producer, mut consumer) = mailbox::<T>(SLOTS).unwrap();
        // By reference: a copy of what was stored piecemeal just before would
        // wait for the stores, and measure them instead.
        b.iter(|| {
            producer.push(*black_box(&value)).unwrap();
            black_box(&consumer.pop());
        });
    });
    group.finish();
}

fn drain<T>(mut consumer: Consumer<T>, mut count: u64) {
    while count > 0 {
        match consumer.pop() {
            Some(value) => {
                black_box(&value);
                count -= 1;
            }
            None => spin_loop(),
        }
    }
}

fn stream<T: Send + Copy + 'static>(count: u64, value: T) -> Duration {
    let (mut producer, consumer) = mailbox::<T>(SLOTS).unwrap();
    let draining = thread::spawn(move || drain(consumer, count));
    let start = Instant::now();
    for _ in 0..count {
        let mut next = *black_box(&value);
        while let Err(Full(back)) = producer.push(next) {
            next = back;
            spin_loop();
        }
    }
    draining.join().unwrap();
    start.elapsed()
}

fn threads<T: Send + Copy + 'static>(c: &mut Criterion, name: &str, value: T) {
    // Enough values for the start of the thread to be lost in their number.
    const BATCH: u64 = 100_000;
    let mut group = c.benchmark_group("stream, two threads");
    group.throughput(Throughput::Elements(BATCH));
    group.bench_function(BenchmarkId::from_parameter(name), |b| {
        b.iter_custom(|iterations| stream(iterations * BATCH, value));
    });
    group.finish();
}

fn mailboxes(c: &mut Criterion) {
    pairs(c, "u64", 1_u64);
    pairs(c, "[u64; 2]", [1_u64, 2]);
    threads(c, "u64", 1_u64);
    threads(c, "[u64; 2]", [1_u64, 2]);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = mailboxes
}
criterion_main!(benches);
