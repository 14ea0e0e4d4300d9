//! A frame in transit: its bytes, origin and arrival time.

use std::cell::Cell;

use crate::meter::Verdict;
use fairlane_classify::Origin;
use fairlane_core::Nanos;
use fairlane_core::tree::Payload;
use fairlane_io::packet::{PacketFrame, Unsummed};
use fairlane_io::{ByteLen, KeptBytes, Owed, OwedFrames, XdpFrame};
use fairlane_wire::{Layer, mark_ce};

/// A whole Ethernet frame, in its own memory or in memory shared with the kernel.
#[derive(Debug)]
pub enum Frame {
    Bytes(KeptBytes),
    Shared(XdpFrame),
}

impl Frame {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Frame::Bytes(bytes) => bytes,
            Frame::Shared(frame) => frame.bytes(),
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Frame::Bytes(bytes) => bytes,
            Frame::Shared(frame) => frame.bytes_mut(),
        }
    }
}

impl From<Vec<u8>> for Frame {
    fn from(bytes: Vec<u8>) -> Frame {
        Frame::Bytes(KeptBytes::new(bytes))
    }
}

/// A copy, in memory that is kept as that of received ones.
impl From<&[u8]> for Frame {
    fn from(bytes: &[u8]) -> Frame {
        Frame::Bytes(KeptBytes::from(bytes))
    }
}

/// Only a process that is handed a frame, or a tap device, needs its checksum: the kernel completes it on
/// its way out of this machine.
impl PacketFrame for Frame {
    const MAY_LACK: bool = true;

    fn lacking(bytes: Vec<u8>, checksum: Unsummed) -> Frame {
        Frame::Bytes(KeptBytes::lacking(bytes, checksum))
    }

    fn lacks(&self) -> Option<Unsummed> {
        match self {
            Frame::Bytes(bytes) => bytes.lacks(),
            Frame::Shared(frame) => frame.lacks(),
        }
    }

    fn complete(&mut self) {
        match self {
            Frame::Bytes(bytes) => bytes.complete(),
            Frame::Shared(frame) => frame.complete(),
        }
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl ByteLen for Frame {
    fn byte_len(&self) -> usize {
        self.bytes().len()
    }
}

/// An emptied frame buffer, for reuse.
#[derive(Debug)]
pub enum Emptied {
    Bytes(Vec<u8>),
    Shared(XdpFrame),
}

impl Emptied {
    /// Keeps it for frames that are received on this thread. O(1).
    pub fn keep(self) {
        match self {
            Emptied::Bytes(bytes) => KeptBytes::keep(bytes),
            Emptied::Shared(frame) => frame.keep(),
        }
    }
}

/// Emptied buffers that a thread is to return to the thread that receives.
#[derive(Debug, Default)]
pub struct OwedRoom {
    bytes: Owed,
    frames: OwedFrames,
}

impl OwedRoom {
    /// Notes that this thread has a frame that the other one received. O(1).
    #[inline]
    pub fn took(&mut self, frame: &Frame) {
        match frame {
            Frame::Bytes(bytes) => self.bytes.took(bytes),
            Frame::Shared(frame) => self.frames.took(frame),
        }
    }

    /// Removes the emptied buffers that this thread holds, in batches. O(1) each.
    pub fn pay(&mut self) -> impl Iterator<Item = Emptied> {
        let bytes = self.bytes.pay().map(Emptied::Bytes);
        bytes.chain(self.frames.pay().map(Emptied::Shared))
    }
}

/// A received frame with its metadata: the packet that a class queues.
#[derive(Debug)]
pub struct Received {
    pub frame: Frame,
    pub origin: Origin,
    /// When it arrived at the interface, or was taken from the mailbox of its process.
    pub came: Nanos,
    /// Other frames that arrived with it were lost.
    pub losing: bool,
    /// Whether it conformed to its class's guarantee when it was classified, and when it is late in that case.
    pub verdict: Cell<Verdict>,
}

impl From<Received> for Frame {
    fn from(received: Received) -> Frame {
        received.frame
    }
}

impl Payload for Received {
    fn mark(&mut self) -> bool {
        mark_ce(self.frame.bytes_mut(), Layer::Ethernet)
    }
}
