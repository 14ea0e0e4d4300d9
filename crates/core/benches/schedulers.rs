//! The cost of a packet with a standing backlog, and of a change of flows.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fairlane_core::sched::{Drr, Fifo, Qfq};
use fairlane_core::{FlowConfig, FlowId, Length, PacketScheduler, Scheduler, Weight};

const FLOWS: [u32; 3] = [1, 64, 4096];
/// Packets that wait in each flow.
const BACKLOG: u32 = 4;

/// Weights 1 to 512 and packets of many lengths, so that QFQ uses ten groups and more.
fn config(flow: u32) -> FlowConfig {
    FlowConfig::new(
        Weight::new(1 << (flow % 10)).unwrap(),
        Length::new(1500).unwrap(),
    )
}

fn bytes(n: u32) -> Length {
    Length::new(64 + n.wrapping_mul(2_654_435_761) % 1437).unwrap()
}

fn backlogged<A: Scheduler>(algorithm: A, flows: u32) -> PacketScheduler<A, u64> {
    let mut link = PacketScheduler::new(algorithm, Default::default());
    for flow in 0..flows {
        link.add_flow(config(flow)).unwrap();
    }
    for n in 0..BACKLOG * flows {
        let flow = FlowId::new(n % flows);
        link.enqueue(flow, bytes(n), n.into()).unwrap();
    }
    link
}

fn packets<A: Scheduler>(c: &mut Criterion, algorithm: fn() -> A) {
    let mut group = c.benchmark_group("enqueue+dequeue");
    group.throughput(Throughput::Elements(1));
    for flows in FLOWS {
        group.bench_function(BenchmarkId::new(A::NAME, flows), |b| {
            let mut link = backlogged(algorithm(), flows);
            b.iter(|| {
                let Some(packet) = link.dequeue() else {
                    unreachable!("each packet is replaced");
                };
                let packet = black_box(packet);
                link.enqueue(packet.owner, packet.len, packet.payload)
            });
        });
    }
    group.finish();
}

/// A flow that holds one packet is backlogged and idle again at each.
fn comings_and_goings<A: Scheduler>(c: &mut Criterion, algorithm: fn() -> A) {
    let mut group = c.benchmark_group("enqueue+dequeue, one packet a flow");
    group.throughput(Throughput::Elements(1));
    for flows in FLOWS {
        group.bench_function(BenchmarkId::new(A::NAME, flows), |b| {
            let mut link = PacketScheduler::new(algorithm(), Default::default());
            for flow in 0..flows {
                let flow = link.add_flow(config(flow)).unwrap();
                link.enqueue(flow, bytes(flow.number()), 0u64).unwrap();
            }
            b.iter(|| {
                let Some(packet) = link.dequeue() else {
                    unreachable!("each packet is replaced");
                };
                let packet = black_box(packet);
                link.enqueue(packet.owner, packet.len, packet.payload)
            });
        });
    }
    group.finish();
}

fn changes<A: Scheduler>(c: &mut Criterion, algorithm: fn() -> A) {
    let mut group = c.benchmark_group("add+remove flow");
    for flows in FLOWS {
        group.bench_function(BenchmarkId::new(A::NAME, flows), |b| {
            let mut link = backlogged(algorithm(), flows);
            b.iter(|| {
                let flow = link.add_flow(black_box(config(3))).unwrap();
                link.remove_flow(flow, drop).unwrap()
            });
        });
    }
    group.finish();

    let mut group = c.benchmark_group("change weight of a backlogged flow");
    for flows in FLOWS {
        group.bench_function(BenchmarkId::new(A::NAME, flows), |b| {
            let mut link = backlogged(algorithm(), flows);
            let mut n = 0u32;
            b.iter(|| {
                n = n.wrapping_add(1);
                let flow = FlowId::new(n % flows);
                link.change_flow(flow, black_box(config(n / 3))).unwrap();
            });
        });
    }
    group.finish();
}

fn each<A: Scheduler>(c: &mut Criterion, algorithm: fn() -> A) {
    packets(c, algorithm);
    comings_and_goings(c, algorithm);
    changes(c, algorithm);
}

fn fifo(c: &mut Criterion) {
    each(c, Fifo::new);
}

fn drr(c: &mut Criterion) {
    each(c, Drr::new);
}

fn qfq(c: &mut Criterion) {
    each(c, Qfq::new);
}

criterion_group!(benches, fifo, drr, qfq);
criterion_main!(benches);
