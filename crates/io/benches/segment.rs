//! The cost of segmenting a frame of 64 KB, compared with a copy of it in the same run.
#![allow(missing_docs, reason = "criterion's macros make what has none")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fairlane_wire::segmentation::{Cut, Offload, Protocol, Segments};

/// TCP over IPv4, with timestamps.
const HEADERS: usize = 14 + 20 + 32;
const TCP: usize = 14 + 20;

/// Returns a frame of `count` full segments, and its pending offloads.
fn whole(segment: u16, count: usize) -> (Vec<u8>, Offload) {
    let payload = usize::from(segment) * count;
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend(((HEADERS - 14 + payload) as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.resize(HEADERS, 0);
    frame[TCP + 12] = 0x80;
    frame.extend((0..payload).map(|at| at as u8));
    let offload = Offload {
        checksum: Some((TCP, TCP + 16)),
        segments: Some(Segments {
            protocol: Some(Protocol::Tcp4),
            size: segment,
            reduced_once: true,
        }),
    };
    (frame, offload)
}

fn segment(c: &mut Criterion) {
    for (segment, count) in [(1_448, 45), (8_948, 7), (536, 120), (36, 1_800)] {
        let (frame, offload) = whole(segment, count);
        let mut group = c.benchmark_group(format!("{count} segments of {segment} bytes"));
        group.throughput(Throughput::Bytes(frame.len() as u64));
        // The backlog is received, so each frame is dropped only after all are made.
        group.bench_function("cut", |b| {
            b.iter(|| {
                let cut = Cut::new(black_box(&frame), &offload).unwrap();
                for number in 0..cut.frames() {
                    black_box(cut.frame(&frame, number));
                }
            })
        });
        group.bench_function("copied in as many pieces", |b| {
            b.iter(|| {
                for piece in black_box(&frame).chunks(frame.len().div_ceil(count)) {
                    black_box(piece.to_vec());
                }
            })
        });
        let mut copy = vec![0; frame.len()];
        group.bench_function("copied", |b| {
            b.iter(|| black_box(&mut copy).copy_from_slice(black_box(&frame)))
        });
        group.finish();
    }
}

criterion_group!(benches, segment);
criterion_main!(benches);
