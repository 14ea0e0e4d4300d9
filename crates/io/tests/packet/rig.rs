//! A cable with packet sockets on it, and numbered frames.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::packet::Options;
use fairlane_io::{Backend, PacketBackend};
use fairlane_netlab::{Link, cable, or_skip};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::support::PATIENCE;

/// A protocol for experiments: the kernel's own network does not answer it.
pub(crate) const PROTOCOL: [u8; 2] = [0x88, 0xb5];

pub(crate) fn new_cable(test: &str) -> Option<(Link, Link)> {
    or_skip(test, cable(1_500))
}

pub(crate) fn open(link: &Link) -> PacketBackend {
    open_with(link, &Options::default())
}

pub(crate) fn open_with(link: &Link, options: &Options) -> PacketBackend {
    link.namespace()
        .run(|| PacketBackend::open(link.name(), options).unwrap())
}

/// Both ways in which frames are handed over.
pub(crate) fn rings() -> [Options; 2] {
    [false, true].map(|prompt| Options {
        prompt,
        ..Options::default()
    })
}

/// Returns a broadcast frame of `length` bytes that carries `flow` and `number`.
pub(crate) fn frame(flow: u8, number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, flow]);
    frame.extend(PROTOCOL);
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..length).map(|at| (at as u32 ^ number) as u8));
    frame
}

pub(crate) fn numbered(numbers: std::ops::Range<u32>) -> VecDeque<Vec<u8>> {
    numbers.map(|number| frame(0, number, 60)).collect()
}

/// Receives until `count` have arrived, and then checks that no more do.
pub(crate) fn collect(backend: &mut PacketBackend, count: usize) -> VecDeque<Vec<u8>> {
    crate::support::collect(backend, count).into()
}

/// Transmits all of `batch`, and calls `between` after each attempt. From one core: a virtual cable hands a frame
/// over where it was sent, so that frames of a thread that moves to another core may overtake those before.
pub(crate) fn transmit_all(
    backend: &mut PacketBackend,
    batch: &mut VecDeque<Vec<u8>>,
    mut between: impl FnMut(&mut PacketBackend),
) {
    let cores = sched_getaffinity(None).unwrap();
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !batch.is_empty() {
        assert!(Instant::now() < deadline, "{} frames are left", batch.len());
        backend.transmit(batch).unwrap();
        between(backend);
    }
    sched_setaffinity(None, &cores).unwrap();
}

/// Receives until each transmitted frame has arrived or is counted as lost; returns the number of lost ones.
pub(crate) fn receive_rest(
    backend: &mut PacketBackend,
    arrived: &mut Vec<Vec<u8>>,
    sent: u64,
) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        backend.receive(arrived, usize::MAX).unwrap();
        let (came, lost) = (arrived.len() as u64, backend.lost().unwrap());
        if came + lost >= sent {
            return lost;
        }
        assert!(Instant::now() < deadline, "{came} and {lost} of {sent}");
        thread::sleep(Duration::from_millis(1));
    }
}
