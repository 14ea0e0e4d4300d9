//! A link in memory, for tests and measurements.
//!
//! [`pair`] makes a link and gives its two ends. Packets that one end transmits wait in its device
//! queue until the other end receives them, so a test plays the wire: the queue fills until it is
//! drained, and its bytes are in flight. The ends may live on different threads.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use crate::{Backend, ByteLen};

/// Makes a link whose ends each hold at most `capacity` packets in their transmit queue.
///
/// The first end sends `A` and receives `B`, the second the reverse. A `capacity` of 0 makes a
/// device that is always full.
pub fn pair<A: ByteLen, B: ByteLen>(capacity: usize) -> (MemoryBackend<A, B>, MemoryBackend<B, A>) {
    let there = Arc::new(Mutex::new(DeviceQueue::new()));
    let back = Arc::new(Mutex::new(DeviceQueue::new()));
    let near = MemoryBackend::new(Arc::clone(&there), Arc::clone(&back), capacity);
    let far = MemoryBackend::new(back, there, capacity);
    (near, far)
}

/// One end of a link in memory: sends `T`, receives `R`.
///
/// Made by [`pair`]. A call takes one uncontended lock and O(1) for each packet moved; nothing is
/// allocated once the queues have grown to their capacity.
pub struct MemoryBackend<T, R = T> {
    outgoing: Arc<Mutex<DeviceQueue<T>>>,
    incoming: Arc<Mutex<DeviceQueue<R>>>,
    capacity: usize,
    mtu: usize,
    refused: u64,
}

/// Packets that one end has sent and the other has not yet received.
struct DeviceQueue<T> {
    /// Each with the length it had when it was accepted.
    packets: VecDeque<(T, usize)>,
    /// The sum of those lengths.
    bytes: u64,
}

impl<T> DeviceQueue<T> {
    fn new() -> Self {
        Self {
            packets: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl<T, R> MemoryBackend<T, R> {
    fn new(
        outgoing: Arc<Mutex<DeviceQueue<T>>>,
        incoming: Arc<Mutex<DeviceQueue<R>>>,
        capacity: usize,
    ) -> Self {
        Self {
            outgoing,
            incoming,
            capacity,
            mtu: usize::MAX,
            refused: 0,
        }
    }

    /// Makes this end refuse packets longer than `bytes`. Without it there is no limit.
    ///
    /// Such a packet is refused even when the queue is full, so it never waits.
    pub fn with_mtu(self, bytes: usize) -> Self {
        Self { mtu: bytes, ..self }
    }

    /// Returns how many packets this end has sent that the other has not yet received.
    pub fn queued(&self) -> usize {
        lock(&self.outgoing).packets.len()
    }
}

impl<T: ByteLen, R> Backend for MemoryBackend<T, R> {
    type Tx = T;
    type Rx = R;

    /// # Errors
    ///
    /// `BrokenPipe` when the other end has been dropped.
    fn transmit(&mut self, batch: &mut VecDeque<T>) -> io::Result<usize> {
        // The other end holds the only other handle on this queue.
        if Arc::strong_count(&self.outgoing) == 1 {
            return Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "the other end of this link in memory has been dropped",
            ));
        }
        let mut queue = lock(&self.outgoing);
        let mut accepted = 0;
        while let Some(length) = batch.front().map(ByteLen::byte_len) {
            if length > self.mtu {
                batch.pop_front();
                self.refused += 1;
            } else if queue.packets.len() < self.capacity {
                queue
                    .packets
                    .extend(batch.pop_front().map(|packet| (packet, length)));
                queue.bytes += length as u64;
                accepted += 1;
            } else {
                break;
            }
        }
        Ok(accepted)
    }

    /// # Errors
    ///
    /// None: packets from an end that has been dropped still arrive.
    fn receive(&mut self, into: &mut Vec<R>, max: usize) -> io::Result<usize> {
        let mut queue = lock(&self.incoming);
        let count = queue.packets.len().min(max);
        if count == 0 {
            return Ok(0);
        }
        let DeviceQueue { packets, bytes } = &mut *queue;
        into.extend(packets.drain(..count).map(|(packet, length)| {
            *bytes -= length as u64;
            packet
        }));
        Ok(count)
    }

    /// # Errors
    ///
    /// None.
    fn in_flight(&self) -> io::Result<u64> {
        Ok(lock(&self.outgoing).bytes)
    }

    /// Always 0: what this end has sent arrives though it is dropped.
    fn go_on(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}

/// A panic in the packets' own code leaves the queue consistent, so a poisoned lock still serves.
fn lock<T>(queue: &Mutex<DeviceQueue<T>>) -> MutexGuard<'_, DeviceQueue<T>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T, R> fmt::Debug for MemoryBackend<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
