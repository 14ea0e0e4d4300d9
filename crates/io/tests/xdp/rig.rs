//! Cables with a backend on each end, and numbered frames.

use std::collections::VecDeque;
use std::io::{self};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairlane_io::{Backend, Umem, XdpBackend, XdpFrame, XdpMode, XdpOptions};
use fairlane_netlab::{Link, cable, or_skip};

/// The modes of a virtual cable.
pub(crate) const MODES: [XdpMode; 2] = [XdpMode::Native, XdpMode::Generic];

/// Makes a memory with a number of frames of a size in bytes.
pub(crate) type NewMemory = fn(u32, u32) -> io::Result<Umem>;

/// How frames may lie.
pub(crate) const MEMORIES: [NewMemory; 2] = [Umem::new, Umem::unaligned];

/// Each mode with each memory.
pub(crate) fn modes_and_memories() -> impl Iterator<Item = (XdpMode, NewMemory)> {
    MODES
        .into_iter()
        .flat_map(|mode| MEMORIES.map(|memory| (mode, memory)))
}

/// Longer than any wait that is not a fault.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn options(mode: XdpMode) -> XdpOptions {
    XdpOptions {
        mode: Some(mode),
        ..XdpOptions::default()
    }
}

pub(crate) fn bind(umem: &Umem, link: &Link, options: &XdpOptions) -> io::Result<XdpBackend> {
    link.namespace()
        .run(|| XdpBackend::bind(umem, link.name(), 0, options))
}

/// A cable with a backend on each end, in memory of their own.
pub(crate) struct Lab {
    pub umem: Umem,
    pub near: XdpBackend,
    pub far: XdpBackend,
    pub near_link: Link,
    pub far_link: Link,
}

pub(crate) fn lab(test: &str, options: &XdpOptions) -> Option<Lab> {
    lab_in(Umem::new, test, options)
}

pub(crate) fn lab_in(memory: NewMemory, test: &str, options: &XdpOptions) -> Option<Lab> {
    let (near_link, far_link) = or_skip(test, cable(1_500))?;
    let umem = memory(8_192, 2_048).unwrap();
    Some(Lab {
        near: bind(&umem, &near_link, options).unwrap(),
        far: bind(&umem, &far_link, options).unwrap(),
        umem,
        near_link,
        far_link,
    })
}

/// Returns the length of the frame with this number: each from 60 to 1514 in its turn, in no simple
/// order.
pub(crate) fn length(number: u32) -> usize {
    60 + (number as usize * 907) % (1_514 - 60 + 1)
}

/// Returns a numbered frame, in which the number determines every byte.
pub(crate) fn packet(number: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    // Broadcast, from a local address, of a type for experiments.
    bytes[..14].copy_from_slice(&[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    for (place, byte) in bytes.iter_mut().enumerate().skip(18) {
        *byte = (number as usize + place) as u8;
    }
    bytes
}

/// Returns the number of an intact frame.
pub(crate) fn number(bytes: &[u8]) -> u32 {
    let number = u32::from_be_bytes(bytes[14..18].try_into().unwrap());
    assert!(
        bytes == packet(number, bytes.len()),
        "frame {number} came damaged"
    );
    number
}

/// Frames with the numbers from `next` on, as long as there are free ones, up to 64.
pub(crate) fn top_up(batch: &mut VecDeque<XdpFrame>, umem: &Umem, next: &mut u32, end: u32) {
    while batch.len() < 64 && *next < end {
        let Some(frame) = umem.frame_from(&packet(*next, length(*next))) else {
            break;
        };
        batch.push_back(frame);
        *next += 1;
    }
}

/// Receives until `wanted` frames are there.
pub(crate) fn collect(backend: &mut XdpBackend, wanted: usize) -> Vec<XdpFrame> {
    let patience = Instant::now() + PATIENCE;
    let mut arrived = Vec::new();
    while arrived.len() < wanted {
        if let Err(error) = backend.receive(&mut arrived, wanted) {
            panic!("{} of {wanted} came: {error}", arrived.len());
        }
        assert!(
            Instant::now() < patience,
            "{} of {wanted} came",
            arrived.len()
        );
    }
    arrived
}

/// Transmits all of `batch` and of the ring, and waits until the device has finished.
pub(crate) fn send(backend: &mut XdpBackend, batch: &mut VecDeque<XdpFrame>) {
    let patience = Instant::now() + PATIENCE;
    while !batch.is_empty() || backend.in_flight().unwrap() > 0 {
        backend.transmit(batch).unwrap();
        assert!(Instant::now() < patience, "{} are left", batch.len());
    }
}

/// Frames in the backends' own hands, of each with rings of this size, when nothing is on its way.
pub(crate) fn at_rest(backends: u32, options: &XdpOptions) -> u32 {
    backends * options.rx_ring
}

/// Ends the other threads with this one, panic or not.
pub(crate) struct Ending<'a>(pub &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
