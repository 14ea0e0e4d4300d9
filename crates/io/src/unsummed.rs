//! Frames whose checksum has yet to be computed.

use std::num::NonZeroU16;

use fairlane_wire::checksum;
use fairlane_wire::segmentation::{HEADER, NEEDS_CHECKSUM};

/// The missing checksum of a frame: the start of the checksummed bytes, and the place of the checksum.
/// The field holds the sum of the pseudo-header so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsummed {
    /// Behind the headers of Ethernet and IP, so that it is never 0.
    start: NonZeroU16,
    field: u16,
}

impl Unsummed {
    /// These positions in a frame of `length` bytes, if they are such as every kernel takes: both in the
    /// frame, behind the headers of Ethernet and IPv4.
    pub(crate) fn new((start, field): (usize, usize), length: usize) -> Option<Unsummed> {
        const LEAST: usize = 14 + 20;
        if start < LEAST || field < start || field + 2 > length {
            return None;
        }
        Some(Unsummed {
            start: NonZeroU16::new(start.try_into().ok()?)?,
            field: field.try_into().ok()?,
        })
    }

    /// Computes the checksum of the frame that lacks it, and writes it there. O(length).
    pub fn complete(self, frame: &mut [u8]) {
        let (start, field) = self.place();
        checksum::write(frame, start, field);
    }

    /// Returns the start of the checksummed bytes, and the place of the checksum.
    pub(crate) fn place(self) -> (usize, usize) {
        (self.start.get().into(), self.field.into())
    }

    /// Returns the header before a frame that requests the checksum from the kernel (`virtio_net_hdr`).
    pub(crate) fn header(self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[0] = NEEDS_CHECKSUM;
        let start = self.start.get();
        header[6..8].copy_from_slice(&start.to_ne_bytes());
        header[8..].copy_from_slice(&(self.field - start).to_ne_bytes());
        header
    }
}

/// A frame that a [`PacketBackend`](crate::PacketBackend) or a [`TunBackend`](crate::TunBackend)
/// transmits and receives.
///
/// A sender on the same machine leaves TCP and UDP checksums to hardware, or to the kernel where there is
/// none. A frame that can say that it lacks its checksum is transmitted as received: it costs no pass
/// over its bytes here, nor anywhere else if it stays on this machine. [`KeptBytes`](crate::KeptBytes)
/// can; `Vec<u8>` cannot, and is received with its checksum computed.
///
/// # Example
///
/// ```
/// use fairlane_io::packet::PacketFrame;
/// use fairlane_io::{Backend, KeptBytes, PacketBackend};
/// use std::collections::VecDeque;
///
/// fn forward<F: PacketFrame>(
///     from: &mut PacketBackend<F>,
///     to: &mut PacketBackend<F>,
/// ) -> std::io::Result<usize> {
///     let mut arrived = Vec::new();
///     from.receive(&mut arrived, 64)?;
///     to.transmit(&mut VecDeque::from(arrived))
/// }
///
/// // No frame is summed, and none takes new memory.
/// let _ = forward::<KeptBytes>;
/// ```
pub trait PacketFrame: AsRef<[u8]> + From<Vec<u8>> {
    /// Whether frames of this type can lack a checksum. Frames received as another type are complete.
    const MAY_LACK: bool = false;

    /// Returns a frame that lacks this checksum; one that cannot say so is completed.
    fn lacking(mut bytes: Vec<u8>, checksum: Unsummed) -> Self {
        checksum.complete(&mut bytes);
        bytes.into()
    }

    /// Returns the checksum that it lacks.
    fn lacks(&self) -> Option<Unsummed> {
        None
    }

    /// Computes a missing checksum, for a reader of the bytes other than the kernel.
    fn complete(&mut self) {}
}

impl PacketFrame for Vec<u8> {}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlane_wire::segmentation::Offload;

    #[test]
    fn the_kernel_is_told_what_it_told() {
        let lacks = Unsummed::new((34, 50), 60).unwrap();
        let told = Offload::decode(&lacks.header());
        let expected = Offload {
            checksum: Some((34, 50)),
            segments: None,
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn positions_that_a_kernel_refuses_are_none() {
        assert!(Unsummed::new((34, 50), 52).is_some());
        for (place, length) in [
            ((34, 50), 51),
            ((33, 50), 60),
            ((34, 33), 60),
            ((70_000, 70_006), 80_000),
            ((65_535, 65_540), 80_000),
        ] {
            assert_eq!(Unsummed::new(place, length), None, "{place:?} of {length}");
        }
    }
}
