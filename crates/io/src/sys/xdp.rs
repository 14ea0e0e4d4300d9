//! An AF_XDP socket: four rings of descriptors, shared with the kernel, of frames in a [`Umem`].
//!
//! | ring | who writes | an entry says |
//! | --- | --- | --- |
//! | fill | we | a frame to receive into: the kernel's now |
//! | rx | the kernel | a packet received: ours now |
//! | tx | we | a packet to send: the kernel's now |
//! | completion | the kernel | a packet sent, or dropped: its frame is ours now |
//!
//! A frame's note in the free list says which socket handed it to the kernel, and what for. So a
//! descriptor of a frame that the kernel should not have is passed over, and a socket that closes
//! finds what is its own.

mod ring;

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, socklen_t, xdp_desc};

use super::bpf::Program;
pub(crate) use super::bpf::QUEUES;
use super::umem::{TOLD, Tenancy, Umem, XdpFrame};
use super::{Plain, count_or_error, option_of, set_option, set_option_to, wait_for_readers};
use crate::xdp::program::STAMP;
use ring::{Incoming, Outgoing, Ring};

/// `XDP_MAX_TX_SKB_BUDGET`, since Linux 6.17: frames that one call sends in copy mode, 32 without.
const MAX_TX_SKB_BUDGET: c_int = 9;

// The note on a frame that the kernel has: what for, by which socket (in six bits, which a link of
// the free list leaves at zero, as it does these two), and how many bytes are to be sent.
const POSTED: u32 = 1 << 31;
const SENDING: u32 = 1 << 30;
const TENANT_SHIFT: u32 = 24;
const LENGTH: u32 = 0xffff;

/// Bytes that the kernel keeps free in front of a received packet.
pub(crate) const HEADROOM: usize = 256;

/// Whether the kernel may copy packets between frames and memory of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Copying {
    Never,
    IfNeeded,
    Always,
}

/// Counters that the kernel keeps for a socket.
pub(crate) type Statistics = libc::xdp_statistics;

// SAFETY: a struct of integers of one size.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: a struct of integers of one size.
unsafe impl Plain for libc::xdp_mmap_offsets {}

/// A socket with its rings. It holds the frames that the kernel has.
pub(crate) struct Socket {
    socket: OwnedFd,
    fill: Outgoing<u64>,
    received: Incoming<xdp_desc>,
    sending: Outgoing<xdp_desc>,
    completed: Incoming<u64>,
    umem: Umem,
    tenancy: Tenancy,
    /// The program that brings packets, and the queue, once there is one.
    route: Option<(Arc<Program>, u32)>,
    /// Whether the driver itself reads and writes the frames.
    zero_copy: bool,
    /// Whether the kernel reads before a packet what is left to do to it, if its descriptor says so.
    is_told: bool,
    /// Frames in the fill ring, or with the kernel, or in the rx ring: never more than either ring
    /// has places, so neither overflows.
    posted: u32,
    /// Frames handed over to be sent and not yet back.
    unsent: u32,
    /// Their bytes.
    unsent_bytes: u64,
    /// Numbers of frames on their way between a ring and the free list.
    passing: Vec<u32>,
}

impl Socket {
    /// A socket with `umem` and rings of these sizes, powers of two, not bound yet. If it is `to_be_told`
    /// what is left to do to a packet, and the kernel knows how (since Linux 6.11), it is.
    pub(crate) fn open(umem: &Umem, rx: u32, tx: u32, to_be_told: bool) -> io::Result<Self> {
        // SAFETY: takes no pointer.
        let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        count_or_error(socket)?;
        // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };

        let tenancy = umem.settle().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "64 sockets have this memory already, the most that can",
            )
        })?;
        let is_told = to_be_told && register(socket.as_fd(), umem, TOLD).is_ok();
        if !is_told {
            register(socket.as_fd(), umem, 0)?;
        }

        let fd = socket.as_fd();
        let offsets: libc::xdp_mmap_offsets = option_of(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let fill = Outgoing(Ring::map(
            fd,
            libc::XDP_UMEM_FILL_RING,
            rx,
            libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t,
            &offsets.fr,
        )?);
        let completed = Incoming(Ring::map(
            fd,
            libc::XDP_UMEM_COMPLETION_RING,
            tx,
            libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t,
            &offsets.cr,
        )?);
        let received = Incoming(Ring::map(
            fd,
            libc::XDP_RX_RING,
            rx,
            libc::XDP_PGOFF_RX_RING,
            &offsets.rx,
        )?);
        let sending = Outgoing(Ring::map(
            fd,
            libc::XDP_TX_RING,
            tx,
            libc::XDP_PGOFF_TX_RING,
            &offsets.tx,
        )?);
        // A kernel that does not know it sends 32 a call.
        let _ = set_option(fd, libc::SOL_XDP, MAX_TX_SKB_BUDGET, tx);
        Ok(Self {
            socket,
            fill,
            received,
            sending,
            completed,
            umem: umem.clone(),
            tenancy,
            route: None,
            zero_copy: false,
            is_told,
            posted: 0,
            unsent: 0,
            unsent_bytes: 0,
            passing: Vec::with_capacity(rx.max(tx) as usize),
        })
    }

    /// Binds to a queue of the interface with this index.
    pub(crate) fn bind(&mut self, interface: u32, queue: u32, copy: Copying) -> io::Result<()> {
        let mode = match copy {
            Copying::Never => libc::XDP_ZEROCOPY,
            Copying::IfNeeded => 0,
            Copying::Always => libc::XDP_COPY,
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: mode | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        // SAFETY: the kernel reads as many bytes as said, one address, at the pointer.
        let result = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as socklen_t,
            )
        };
        count_or_error(result)?;
        let options: u32 = option_of(self.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS)?;
        self.zero_copy = options & libc::XDP_OPTIONS_ZEROCOPY != 0;
        Ok(())
    }

    /// Whether the driver itself reads and writes the frames.
    pub(crate) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// `program` is what may bring the packets of `queue`.
    pub(crate) fn route(&mut self, program: Arc<Program>, queue: u32) {
        self.route = Some((program, queue));
    }

    /// Lets it bring them, or not any more.
    pub(crate) fn hear(&self, anything: bool) -> io::Result<()> {
        match &self.route {
            Some((program, queue)) if anything => program.serve(*queue, self.socket.as_fd()),
            Some((program, queue)) => left(program.leave(*queue)),
            None => Ok(()),
        }
    }

    /// The longest packet that it sends: there is to be room before it.
    pub(crate) fn longest(&self) -> usize {
        self.umem.frame_size() as usize - TOLD
    }

    pub(crate) fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Offers the kernel frames to receive into, once at least `least` are wanting.
    pub(crate) fn refill(&mut self, least: u32) {
        let wanting = self.fill.size() - self.posted;
        if wanting < least.max(1) {
            return;
        }
        let room = self.fill.room(wanting);
        let mark = self.mark(POSTED);
        let (umem, fill, posted) = (&self.umem, &mut self.fill, &mut self.posted);
        umem.take(room as usize, |frame| {
            umem.note(frame, mark);
            // There is room for as many as are taken.
            fill.write(u64::from(frame) * u64::from(umem.frame_size()));
            *posted += 1;
        });
        fill.publish();
        if fill.needs_wakeup() {
            // An error is met again by who looks at the device's state.
            let _ = self.look();
        }
    }

    /// Appends at most `max` received packets to `into`, and tells of each when it may have come,
    /// since the start of the machine; returns how many.
    pub(crate) fn receive(
        &mut self,
        into: &mut Vec<XdpFrame>,
        max: usize,
        mut came: impl FnMut(Duration),
    ) -> usize {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let waiting = self.received.waiting(max);
        let before = into.len();
        for ahead in 0..waiting {
            let descriptor = self.received.peek(ahead);
            if let Some(frame) = self.admit(descriptor) {
                let stamp = self.umem.before::<STAMP>(&frame).unwrap_or_default();
                came(Duration::from_nanos(u64::from_ne_bytes(stamp)));
                into.push(frame);
            }
        }
        if waiting > 0 {
            self.received.release(waiting);
            self.posted = self.posted.saturating_sub(waiting);
        }
        into.len() - before
    }

    /// Whether a quarter of the places for what is received is taken.
    pub(crate) fn is_filling(&self) -> bool {
        4 * self.received.waiting_now() >= self.posted
    }

    /// The program that brings packets, once there is one.
    pub(crate) fn program(&self) -> Option<&Arc<Program>> {
        self.route.as_ref().map(|(program, _)| program)
    }

    /// Whether so many packets wait to be received that there is room for no more.
    pub(crate) fn is_full(&self) -> bool {
        self.received.waiting_now() >= self.posted
    }

    /// The frame of a received packet, if the descriptor is of one that was offered.
    fn admit(&self, descriptor: xdp_desc) -> Option<XdpFrame> {
        let size = u64::from(self.umem.frame_size());
        let length = u64::from(descriptor.len);
        let (frame, note) = self.umem.noted(self.umem.number(descriptor.addr))?;
        if note != self.mark(POSTED) || descriptor.addr % size + length > size {
            return None;
        }
        self.umem.note(frame, 0);
        // SAFETY: the note says that this socket has handed this frame to the kernel to be received
        // into, and the kernel has now handed it back; no second descriptor of it passes, for the
        // note is gone. The packet lies within it. There is such a frame, so its address is below
        // 2^32.
        Some(unsafe { self.umem.adopt(descriptor.addr as u32, length as u16) })
    }

    /// Hands a packet over to be sent, once [`publish`](Self::publish) is called; gives it back if
    /// the ring is full.
    ///
    /// The frame must be of this socket's memory.
    pub(crate) fn send(&mut self, mut frame: XdpFrame) -> Result<(), XdpFrame> {
        assert!(self.umem.owns(&frame), "a frame of another memory");
        if self.sending.room(1) == 0 {
            return Err(frame);
        }
        let told = self.is_told && frame.tell();
        if !told {
            frame.complete();
        }
        let (start, length) = frame.into_place();
        let number = self.umem.number(u64::from(start)) as u32;
        self.umem
            .note(number, self.mark(SENDING) | u32::from(length));
        self.sending.write(xdp_desc {
            addr: u64::from(start),
            len: u32::from(length),
            options: if told { libc::XDP_TX_METADATA } else { 0 },
        });
        self.unsent += 1;
        self.unsent_bytes += u64::from(length);
        Ok(())
    }

    pub(crate) fn publish(&mut self) {
        self.sending.publish();
    }

    /// Packets handed over that the kernel has not taken up yet.
    pub(crate) fn pending(&self) -> u32 {
        self.sending.pending()
    }

    /// Bytes handed over to be sent and not known to be done, as of the last [`reap`](Self::reap).
    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }

    /// The same, as of now. O(packets done since).
    pub(crate) fn unsent_bytes_now(&self) -> u64 {
        let done = (0..self.completed.waiting_now())
            .filter_map(|ahead| self.done(self.completed.peek(ahead)))
            .map(|(_, length)| length)
            .sum();
        self.unsent_bytes.saturating_sub(done)
    }

    /// Makes the frames of packets that are done with free.
    pub(crate) fn reap(&mut self) {
        let done = self.completed.waiting(self.unsent);
        if done == 0 {
            return;
        }
        for ahead in 0..done {
            if let Some((frame, length)) = self.done(self.completed.peek(ahead)) {
                self.umem.note(frame, 0);
                self.passing.push(frame);
                self.unsent_bytes = self.unsent_bytes.saturating_sub(length);
            }
        }
        self.completed.release(done);
        self.unsent -= done;
        // SAFETY: the notes said that the kernel had these frames to send, and it has handed them
        // back; each is here once, for its note is gone.
        unsafe { self.umem.give(self.passing.drain(..)) };
    }

    /// The frame and the length of a packet that the kernel is done with, if it had it.
    fn done(&self, address: u64) -> Option<(u32, u64)> {
        let (frame, note) = self.umem.noted(self.umem.number(address))?;
        (note & !LENGTH == self.mark(SENDING)).then_some((frame, u64::from(note & LENGTH)))
    }

    /// The note of this socket on a frame that the kernel has for this `purpose`.
    fn mark(&self, purpose: u32) -> u32 {
        purpose | self.tenancy.number << TENANT_SHIFT
    }

    /// Makes the kernel send. Only where the kernel asks for it, a system call.
    pub(crate) fn kick(&self) -> io::Result<()> {
        if !self.sending.needs_wakeup() {
            return Ok(());
        }
        // SAFETY: no bytes are sent and no address is given; a null pointer goes with both.
        let result = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                ptr::null(),
                0,
            )
        };
        count_or_error(result as c_int).map(drop)
    }

    /// Makes the kernel look at the fill ring if it needs to, and say what it thinks of the device.
    pub(crate) fn look(&self) -> io::Result<()> {
        // SAFETY: no bytes are received and no address is asked for.
        let result = unsafe {
            libc::recvfrom(
                self.socket.as_raw_fd(),
                ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        count_or_error(result as c_int).map(drop)
    }

    pub(crate) fn statistics(&self) -> io::Result<Statistics> {
        option_of(self.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS)
    }

    /// A number that no other network namespace has.
    pub(crate) fn namespace(&self) -> io::Result<u64> {
        option_of(self.as_fd(), libc::SOL_SOCKET, libc::SO_NETNS_COOKIE)
    }
}

/// Lets nothing more be brought to any of these sockets, which end after this: all together wait once
/// for who was about to bring a packet. A socket that could not be taken out of its map ends as if this
/// had not been called.
pub(crate) fn unroute(sockets: &mut [Socket]) {
    let unheard: Vec<bool> = sockets
        .iter()
        .map(|socket| socket.hear(false).is_ok())
        .collect();
    if !wait_for_readers() {
        return;
    }
    for (socket, unheard) in sockets.iter_mut().zip(unheard) {
        if unheard {
            socket.route = None;
        }
    }
}

/// What is known at the end of a socket.
#[derive(Clone, Copy, Debug)]
struct Ending {
    /// The driver itself reads and writes frames.
    zero_copy: bool,
    /// No packet is brought any more, and nobody is left who was about to.
    unrouted: bool,
    /// Of the packets that the kernel has taken from the transmit ring, none is on its way.
    taken_done: bool,
}

impl Ending {
    /// Whether frames that were posted to be received into are the kernel's no more.
    ///
    /// A driver that writes to frames goes on until the kernel has stopped it, some time after the
    /// socket is closed. Else only who brings a packet writes to them.
    fn received(self) -> bool {
        self.unrouted && !self.zero_copy
    }

    /// Whether frames that were to be sent, and have not come back, are the kernel's no more.
    ///
    /// Where packets are copied, only a system call on the socket takes from the ring, and there is
    /// none any more: what is still there has not been looked at. A driver takes from it whenever
    /// it likes, up to where it saw the ring end when it last looked, and moves the index that
    /// tells how far it is only after a batch. So it may send at any time what was taken back from
    /// the ring, or seems to be there yet: the completion ring alone says what it is done with.
    fn sent(self) -> bool {
        self.taken_done && !self.zero_copy
    }
}

impl Drop for Socket {
    /// Takes back what the kernel has, as far as it is known to let go of it; other frames are
    /// lost to the memory's users rather than written by two.
    ///
    /// Closing the socket would say as much only if nobody had a duplicate of its descriptor.
    fn drop(&mut self) {
        let patience = Instant::now() + Duration::from_millis(100);
        self.reap();
        // A driver goes on with all that is in the ring; else what is there stays there.
        let in_ring = |socket: &Socket| match socket.zero_copy {
            true => 0,
            false => socket.pending(),
        };
        while self.unsent > in_ring(self) && Instant::now() < patience {
            thread::sleep(Duration::from_millis(1));
            self.reap();
        }
        let taken_done = self.unsent == self.pending();
        // What the kernel has not taken up, it is not to.
        self.sending.take_back();

        let unrouted = match self.route.take() {
            Some((program, queue)) => left(program.leave(queue)).is_ok() && wait_for_readers(),
            None => true,
        };
        let ending = Ending {
            zero_copy: self.zero_copy,
            unrouted,
            taken_done,
        };

        let (posted, sending) = (self.mark(POSTED), self.mark(SENDING));
        let mut lost = 0;
        for frame in 0..self.umem.frames() {
            let note = self
                .umem
                .noted(frame.into())
                .map_or(0, |(_, note)| note & !LENGTH);
            if note == posted || note == sending {
                self.umem.note(frame, 0);
                if (note == posted && ending.received()) || (note == sending && ending.sent()) {
                    self.passing.push(frame);
                } else {
                    lost += 1;
                }
            }
        }
        // SAFETY: by their notes, this socket held all these frames. `Ending` argues that the kernel
        // touches none of those given.
        unsafe {
            self.umem.give(self.passing.drain(..));
            self.umem.lose(lost);
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Tells the kernel of the memory, and that before a packet there are so many bytes that may say what is
/// left to do to it.
///
/// Each socket registers the memory for itself. What the kernel calls a shared UMEM would bind the second
/// device to the mode of the first, and to its lifetime.
fn register(socket: BorrowedFd<'_>, umem: &Umem, told: usize) -> io::Result<()> {
    let (start, bytes) = umem.memory();
    // SAFETY: made of integers, for which all zeros is a value.
    let mut registration: libc::xdp_umem_reg = unsafe { mem::zeroed() };
    registration.addr = start.as_ptr() as u64;
    registration.len = bytes as u64;
    registration.chunk_size = umem.frame_size();
    if told > 0 {
        registration.flags = libc::XDP_UMEM_TX_METADATA_LEN;
        registration.tx_metadata_len = told as u32;
    }
    // SAFETY: the memory registered is that of frames; the kernel touches those that it is handed, and
    // keeps the pages for as long as it may.
    unsafe { set_option_to(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration) }
}

/// What came of taking a socket out of a map: it may not have been there.
fn left(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_driver_has_nothing_is_taken_for_free_that_it_has_not_given_back() {
        for unrouted in [false, true] {
            for taken_done in [false, true] {
                let ending = |zero_copy| Ending {
                    zero_copy,
                    unrouted,
                    taken_done,
                };
                assert!(!ending(true).sent() && !ending(true).received());
                assert_eq!(ending(false).sent(), taken_done);
                assert_eq!(ending(false).received(), unrouted);
            }
        }
    }
}
