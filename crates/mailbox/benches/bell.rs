//! The cost of the client list: for a client, at each push and after a doze; for the arbiter, at each round and when it
//! puts clients to doze. For comparison, the cost of an arbiter that visits every mailbox, and of a client that fences.
//!
//! `cargo bench -p fairlane-mailbox --bench bell`

use std::{
    hint::{black_box, spin_loop},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering, fence},
    },
    thread,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use fairlane_mailbox::{
    Consumer, Producer,
    bell::{Listener, Ringer, bell},
    mailbox,
};

const CLIENTS: u32 = 1000;

struct Registered {
    listener: Listener,
    ringers: Vec<Ringer>,
    producers: Vec<Producer<u64>>,
    consumers: Vec<Consumer<u64>>,
}

impl Registered {
    fn new() -> Self {
        let listener = bell(CLIENTS);
        let handle = listener.handle();
        let (producers, consumers) = (0..CLIENTS)
            .map(|_| mailbox::<u64>(64).expect("a power of two"))
            .unzip();
        Self {
            listener,
            ringers: (0..CLIENTS).map(|client| handle.ringer(client)).collect(),
            producers,
            consumers,
        }
    }

    fn push(&mut self, client: u32) {
        self.producers[client as usize]
            .push(black_box(7))
            .expect("one value at a time");
        self.ringers[client as usize].ring();
    }

    fn pop(&mut self, client: u32) -> usize {
        usize::from(black_box(self.consumers[client as usize].pop()).is_some())
    }
}

/// One client, one value at a time.
fn pushes(c: &mut Criterion) {
    let mut group = c.benchmark_group("push+pop");
    let mut clients = Registered::new();
    group.bench_function("alone", |b| {
        b.iter(|| {
            let _ = clients.producers[0].push(black_box(7));
            clients.pop(0)
        });
    });
    group.bench_function("and ring, awake", |b| {
        b.iter(|| {
            clients.push(0);
            clients.pop(0)
        });
    });
    group.bench_function("and fence", |b| {
        b.iter(|| {
            let _ = clients.producers[0].push(black_box(7));
            fence(Ordering::SeqCst);
            clients.pop(0)
        });
    });
    group.finish();
}

/// A client dozes, rings and is collected, on one thread: the instructions of both sides, without transfers of cache
/// lines.
fn comings(c: &mut Criterion) {
    let mut clients = Registered::new();
    c.bench_function("doze+ring+collect", |b| {
        b.iter(|| {
            clients.listener.doze(500);
            clients.ringers[500].ring();
            clients.listener.collect(|client| {
                black_box(client);
            })
        });
    });
}

/// A round of the arbiter in which each active client has one value.
fn rounds(c: &mut Criterion) {
    let mut group = c.benchmark_group("a round, 1000 registered");
    for active in [5, 50, CLIENTS] {
        let mut clients = Registered::new();
        let list: Vec<u32> = (0..active).map(|i| i * (CLIENTS / active)).collect();
        for client in (0..CLIENTS).filter(|client| !list.contains(client)) {
            clients.listener.doze(client);
        }
        clients.listener.settle();
        let mut measure = |name, scan: fn(&mut Registered, &[u32]) -> usize| {
            group.bench_function(BenchmarkId::new(name, active), |b| {
                b.iter_custom(|rounds| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..rounds {
                        list.iter().for_each(|&client| clients.push(client));
                        let start = Instant::now();
                        let taken = scan(&mut clients, &list);
                        spent += start.elapsed();
                        assert_eq!(taken, list.len());
                    }
                    spent
                });
            });
        };
        measure("active list", |clients, list| {
            let rung = clients.listener.collect(|_| ());
            rung + list
                .iter()
                .map(|&client| clients.pop(client))
                .sum::<usize>()
        });
        measure("every mailbox", |clients, _| {
            (0..CLIENTS).map(|client| clients.pop(client)).sum()
        });
    }
    group.finish();
}

/// The heavy fence, while another thread of the process sleeps or runs.
fn settling(c: &mut Criterion) {
    let mut group = c.benchmark_group("settle");
    for (name, runs) in [("another sleeps", false), ("another runs", true)] {
        let done = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&done);
        let other = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                if runs {
                    spin_loop();
                } else {
                    thread::park();
                }
            }
        });
        let mut listener = bell(1);
        group.bench_function(name, |b| b.iter(|| listener.settle()));
        done.store(true, Ordering::Relaxed);
        other.thread().unpark();
        other.join().expect("it only spins");
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = pushes, comings, rounds, settling
}
criterion_main!(benches);
