//! The trait that every backend implements.

use std::collections::VecDeque;
use std::io;

use crate::Arrival;

/// A device that packets leave by and arrive at.
///
/// The [crate's page](crate) has the contract on ownership and errors that all backends keep. No
/// call ever blocks; a thread that has nothing else to do waits by the means of the backend (for a
/// socket, `Waiter`).
pub trait Backend {
    /// The type of a transmitted packet. The backend owns it once it has left the batch.
    type Tx;
    /// The type of a received packet. The caller owns it.
    type Rx;

    /// Transmits from the front of `batch`, in order, and returns how many packets the device
    /// accepted.
    ///
    /// Accepted packets are removed from `batch`. So is a packet that the device will never take: it is
    /// dropped, counted by [`refused`](Self::refused) and not in the result. When the device is full the
    /// remaining packets stay in `batch`, in order, and the result is the number accepted until then,
    /// possibly 0.
    ///
    /// # Errors
    ///
    /// The device is unusable. Nothing was accepted by this call: an error met behind accepted
    /// packets is left for the next call to report.
    fn transmit(&mut self, batch: &mut VecDeque<Self::Tx>) -> io::Result<usize>;

    /// Appends at most `max` received packets to `into`, oldest first, and returns how many; 0 when none
    /// waits. Earlier elements of `into` stay.
    ///
    /// # Errors
    ///
    /// The device is unusable. Nothing was appended by this call.
    fn receive(&mut self, into: &mut Vec<Self::Rx>, max: usize) -> io::Result<usize>;

    /// Returns metadata for each packet appended by the last call of [`receive`](Self::receive), in
    /// order; empty where the device has none. O(1).
    fn arrivals(&self) -> &[Arrival] {
        &[]
    }

    /// Bytes handed to the device and not yet known to have left it: *Q*, the transmit queue's
    /// share of every delay bound.
    ///
    /// # Errors
    ///
    /// The device is unusable.
    fn in_flight(&self) -> io::Result<u64>;

    /// Returns the most bytes that were [in flight](Self::in_flight) after a
    /// [`transmit`](Self::transmit), since this backend was made; 0 where that is not kept. O(1).
    fn most_in_flight(&self) -> u64 {
        0
    }

    /// Keeps the transmit queue short from now on: no more than `bytes` are [in flight](Self::in_flight), or two of
    /// the longest packets if these are more; never more than the budget with which the backend was opened. A packet
    /// that is longer than that leaves alone. Returns the limit; `u64::MAX` for a device without a budget, on which this has no effect. O(1).
    fn keep_short(&mut self, bytes: u64) -> u64 {
        let _ = bytes;
        u64::MAX
    }

    /// Resumes transmission of accepted packets, where the device needs a call for that, and returns how
    /// many of the bytes [in flight](Self::in_flight) may be lost if this backend were dropped now. A
    /// caller that does not [receive](Self::receive) (which resumes transmission too) should call it
    /// periodically. O(1): one or two system calls, none while nothing is in flight, and no effect where
    /// accepted packets leave without a call.
    ///
    /// # Errors
    ///
    /// The device is unusable.
    fn go_on(&mut self) -> io::Result<u64> {
        if self.in_flight()? == 0 {
            return Ok(0);
        }
        self.transmit(&mut VecDeque::new())?;
        self.in_flight()
    }

    /// Packets that [`transmit`](Self::transmit) has taken from a batch and dropped because the
    /// device would never accept them, since this backend was made. O(1).
    fn refused(&self) -> u64;
}

impl<B: Backend + ?Sized> Backend for Box<B> {
    type Tx = B::Tx;
    type Rx = B::Rx;

    fn transmit(&mut self, batch: &mut VecDeque<Self::Tx>) -> io::Result<usize> {
        (**self).transmit(batch)
    }

    fn receive(&mut self, into: &mut Vec<Self::Rx>, max: usize) -> io::Result<usize> {
        (**self).receive(into, max)
    }

    fn arrivals(&self) -> &[Arrival] {
        (**self).arrivals()
    }

    fn in_flight(&self) -> io::Result<u64> {
        (**self).in_flight()
    }

    fn most_in_flight(&self) -> u64 {
        (**self).most_in_flight()
    }

    fn keep_short(&mut self, bytes: u64) -> u64 {
        (**self).keep_short(bytes)
    }

    fn go_on(&mut self) -> io::Result<u64> {
        (**self).go_on()
    }

    fn refused(&self) -> u64 {
        (**self).refused()
    }
}

/// A packet with a length on the wire.
///
/// Every [`Frame`](crate::Frame) has the length of its bytes.
pub trait ByteLen {
    /// Returns the length in bytes. O(1).
    fn byte_len(&self) -> usize;
}

impl<F: crate::Frame> ByteLen for F {
    fn byte_len(&self) -> usize {
        self.bytes().len()
    }
}

impl ByteLen for Vec<u8> {
    fn byte_len(&self) -> usize {
        self.len()
    }
}

impl ByteLen for Box<[u8]> {
    fn byte_len(&self) -> usize {
        self.len()
    }
}
