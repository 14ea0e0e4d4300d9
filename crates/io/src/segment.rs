//! Software segmentation of frames that a sender left to hardware.
//!
//! A sender that relies on its hardware hands over up to 64 KiB of one connection as one frame (TSO, or GSO
//! over UDP), and a receiving kernel coalesces frames of one connection into similar ones (GRO). A virtual
//! device segments nothing, and no interface transmits a frame longer than its MTU. The kernel describes the
//! pending work in a header of such a frame ([`Offload`], its `virtio_net_hdr`), and a [`Cut`] makes the
//! frames that the kernel would have made, byte by byte:
//!
//! | field | in the frames |
//! | --- | --- |
//! | addresses, VLAN tags, IP options, IPv6 extension headers, TOS with ECN, TCP options | copied |
//! | IPv4 total length, IPv6 payload length, UDP length | of each |
//! | IPv4 identification | counted up from that of the whole; 0 with *don't fragment* over TCP stays 0 |
//! | IPv4 header checksum, TCP and UDP checksum | computed; none over UDP stays none |
//! | TCP sequence number | that of its first byte |
//! | TCP FIN and PSH | in the last alone |
//! | TCP CWR | in the first alone; in all where the kernel says that it means something else (Accurate ECN) |
//!
//! The identification is the exception, as the kernel does not report whether all frames that it coalesced
//! had the same one. Senders that do not number their packets (RFC 6864 allows that, where nothing may be
//! fragmented) write 0, so 0 is kept, even from a sender that numbers and has just wrapped to 0. If all had
//! the same non-zero number, they differ here, which no receiver checks.
//!
//! [`Uncut`] gives the reasons why a frame cannot be segmented: tunnels (VXLAN, GRE, IP in IP), whose inner
//! packet would be segmented and whose outer headers the kernel's header does not describe; fragments; and
//! frames that contradict their headers.
//!
//! # Cost
//!
//! One pass over the bytes copies and sums them: some 300 ns for a frame of 1,500 bytes (`cargo bench -p
//! fairlane-io`).
//!
//! # Example
//!
//! ```
//! use fairlane_io::segment::{Cut, Offload, Protocol, Segments, Uncut};
//!
//! /// The frames that a long one was left to be cut into.
//! fn frames(whole: &[u8], offload: &Offload) -> Result<Vec<Vec<u8>>, Uncut> {
//!     let cut = Cut::new(whole, offload)?;
//!     Ok((0..cut.frames()).map(|number| cut.frame(whole, number)).collect())
//! }
//!
//! // 2,500 bytes of UDP over IPv4, to leave as datagrams of 1,000 bytes at most.
//! let mut whole = vec![0; 12]; // two Ethernet addresses
//! whole.extend([0x08, 0x00, 0x45, 0, 0x09, 0xe0, 0, 7, 0, 0, 64, 17, 0, 0]);
//! whole.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0x00, 0x35, 0x09, 0xcc, 0, 0]);
//! whole.extend([1; 2_500]);
//! let segments = Segments { protocol: Some(Protocol::Udp), size: 1_000, reduced_once: false };
//! let offload = Offload { segments: Some(segments), ..Offload::default() };
//! let lengths: Vec<_> = frames(&whole, &offload)?.iter().map(Vec::len).collect();
//! assert_eq!(lengths, [1_042, 1_042, 542]);
//!
//! // Headers are untrusted: contradictions are reported, and nothing beyond the frame is read.
//! assert_eq!(frames(&whole[..30], &offload), Err(Uncut::Headers));
//! # Ok::<(), Uncut>(())
//! ```

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod whole;

pub use fairlane_classify::offload::{
    Cut, HEADER, MOST_FRAMES, Offload, Protocol, Segments, Uncut,
};

use crate::kept;
use crate::unsummed::{PacketFrame, Unsummed};

/// Returns the frame of this number, in memory that is [kept](crate::KeptBytes), lacking its checksum
/// if it can say so.
fn piece<F: PacketFrame>(cut: &Cut, whole: &[u8], number: usize) -> F {
    let room = kept::room(cut.headers() + cut.part(number).len());
    let lacks = cut.checksum().filter(|_| F::MAY_LACK);
    match lacks.and_then(|place| Unsummed::new(place, whole.len())) {
        Some(checksum) => F::lacking(cut.unsummed_in(room, whole, number), checksum),
        None => cut.frame_in(room, whole, number).into(),
    }
}

/// The segments of one frame, handed out as space permits.
///
/// Until all are, the whole frame is kept here, so that one long frame never causes more work in a round than
/// as many short ones would.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    whole: Vec<u8>,
    cut: Option<Cut>,
    /// The next frame's number.
    next: usize,
    uncut: u64,
}

impl Cutter {
    /// Frames that could not be cut.
    pub(crate) fn uncut(&self) -> u64 {
        self.uncut
    }

    /// Gives out at most `room` frames of the one that was begun, and returns how many.
    pub(crate) fn go_on<F: PacketFrame>(&mut self, into: &mut Vec<F>, room: usize) -> usize {
        let Some(cut) = self.cut else { return 0 };
        let end = cut.frames().min(self.next.saturating_add(room));
        let count = end - self.next;
        into.extend((self.next..end).map(|number| piece::<F>(&cut, &self.whole, number)));
        self.next = end;
        if end == cut.frames() {
            self.cut = None;
        }
        count
    }

    /// Segments the next frame, which `write` puts into the given buffer, once the frame before is used up;
    /// returns how many of its segments fit. Counts frames that cannot be segmented.
    pub(crate) fn cut_next<F: PacketFrame>(
        &mut self,
        offload: &Offload,
        write: impl FnOnce(&mut Vec<u8>),
        into: &mut Vec<F>,
        room: usize,
    ) -> usize {
        debug_assert!(self.cut.is_none());
        self.whole.clear();
        write(&mut self.whole);
        match Cut::new(&self.whole, offload) {
            Ok(cut) => (self.cut, self.next) = (Some(cut), 0),
            Err(_) => self.uncut += 1,
        }
        self.go_on(into, room)
    }
}
