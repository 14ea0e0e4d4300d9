//! The half of a backend that receives, or a part of it.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::epoll;

use super::{Attention, Bound, XdpFrame, XdpMode};
use crate::Arrival;
use crate::early::{Gate, Target};
use crate::sys::xdp::{Receiving, unroute};
use crate::waits::{Look, Waits};

/// Frames offered to the kernel at once: fewer would touch the shared lines more often.
const REFILL: u32 = 32;

/// A receiver of [`XdpFrame`]s from some queues of an interface, of a backend that was
/// [split](super::XdpBackend::split).
///
/// One thread at a time uses it, and may wait for it as for a backend, by a descriptor that covers its queues alone.
/// It gives the kernel frames that its thread [keeps](super::OwedFrames) to receive into, and then free ones.
pub struct XdpReceiver {
    /// At least one.
    sockets: Vec<Receiving>,
    /// Readable when one of several sockets is.
    any: Option<OwnedFd>,
    /// Which socket is received from first.
    first: usize,
    bound: Arc<Bound>,
    attention: Attention,
    waits: Waits,
    /// Of the frames of the last call of `receive`.
    arrivals: Vec<Arrival>,
}

impl XdpReceiver {
    /// Of these sockets, at least one.
    pub(super) fn new(sockets: Vec<Receiving>, bound: Arc<Bound>) -> io::Result<XdpReceiver> {
        Ok(XdpReceiver {
            any: any_of(&sockets)?,
            sockets,
            first: 0,
            bound,
            attention: Attention::new(),
            waits: Waits::new(),
            arrivals: Vec::new(),
        })
    }

    /// Offers the kernel as many frames as it has space for.
    pub(super) fn fill(&mut self) {
        for socket in &mut self.sockets {
            socket.refill(1);
        }
    }

    /// Divides it into `parts` receivers, each with every `parts`th socket.
    pub(super) fn divide(mut self, parts: usize) -> io::Result<Vec<XdpReceiver>> {
        let queues = self.queues();
        if !(1..=queues).contains(&parts) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{parts} threads cannot receive at interface {}: it has receive queues for 1 to {queues}",
                    self.bound.name
                ),
            ));
        }
        if parts == 1 {
            return Ok(vec![self]);
        }
        let mut each: Vec<_> = (0..parts).map(|_| Vec::new()).collect();
        for (at, socket) in self.sockets.drain(..).enumerate() {
            each[at % parts].push(socket);
        }
        let bound = &self.bound;
        each.into_iter()
            .map(|sockets| XdpReceiver::new(sockets, Arc::clone(bound)))
            .collect()
    }

    /// Returns which mode the interface offered.
    pub fn mode(&self) -> XdpMode {
        self.bound.mode
    }

    /// Returns the interface's name when this was bound.
    pub fn interface(&self) -> &str {
        &self.bound.name
    }

    /// Packets that arrived at its queues and were lost, since they were bound.
    ///
    /// # Errors
    ///
    /// None are known.
    pub fn dropped(&self) -> io::Result<u64> {
        self.sockets.iter().try_fold(0, |sum, socket| {
            let counted = socket.statistics()?;
            Ok(sum + counted.rx_dropped + counted.rx_ring_full)
        })
    }

    /// Returns how many queues of the interface it receives from.
    pub fn queues(&self) -> usize {
        self.sockets.len()
    }

    /// Delivers packets of its queues here from now on, or to the kernel's own stack.
    ///
    /// # Errors
    ///
    /// None are known.
    pub fn hear(&self, anything: bool) -> io::Result<()> {
        self.sockets
            .iter()
            .try_for_each(|socket| socket.hear(anything))
    }

    /// Returns whether at one of its queues a quarter of the frames that may be received into is full.
    /// O(queues).
    #[doc(hidden)]
    pub fn is_filling(&self) -> bool {
        self.sockets.iter().any(Receiving::is_filling)
    }

    /// Where packets arrive, on all queues of the interface that this process serves, those of others among them.
    pub fn gate(&self) -> Gate {
        let program = self.sockets.first().map(Receiving::program);
        let program = program.map(Arc::downgrade);
        Gate(Target::Interface(program.unwrap_or_default()))
    }

    /// Appends at most `max` received packets to `into`, oldest first of each queue, and returns how many. While more
    /// is queued than requested, every queue is served in turn, and none twice before the others have had as much, if
    /// they have it.
    ///
    /// # Errors
    ///
    /// `NetworkDown` when the interface was removed and all that had arrived is received.
    pub fn receive(&mut self, into: &mut Vec<XdpFrame>, max: usize) -> io::Result<usize> {
        self.arrivals.clear();
        let look = self.waits.look_by_uptime();
        let mut count = 0;
        loop {
            let (came, has_more) = self.receive_in_turns(into, max - count, look);
            count += came;
            if count == max || !has_more {
                break;
            }
        }
        if count < max {
            self.waits.emptied(look);
        }
        let (later, first) = self.sockets.split_at_mut(self.first);
        for socket in first.iter_mut().chain(later) {
            socket.refill(REFILL);
        }
        self.first = (self.first + 1) % self.sockets.len();
        if count == 0 && max > 0 {
            self.attend()?;
        }
        Ok(count)
    }

    /// Receives from every queue in turn, beginning at `first`: from each an equal share of the remaining `max`.
    /// Returns whether any queue had more than its share.
    fn receive_in_turns(
        &mut self,
        into: &mut Vec<XdpFrame>,
        max: usize,
        look: Look,
    ) -> (usize, bool) {
        let queues = self.sockets.len();
        let (mut count, mut has_more) = (0, false);
        for turn in 0..queues {
            let part = (max - count).div_ceil(queues - turn);
            let socket = &mut self.sockets[(self.first + turn) % queues];
            let losing = socket.is_full();
            let arrivals = &mut self.arrivals;
            let came = socket.receive(into, part, |came| {
                arrivals.push(Arrival {
                    waited: look.waited_if_noted(came),
                    losing,
                });
            });
            has_more |= came == part;
            count += came;
        }
        (count, has_more)
    }

    /// Nothing has arrived: looks now and then whether the interface is still there.
    fn attend(&mut self) -> io::Result<()> {
        self.bound.is_there()?;
        match self.sockets.first() {
            Some(socket) if self.attention.is_due() => self.bound.looked(socket.look()),
            _ => Ok(()),
        }
    }

    /// How the packets arrived that the last call of [`receive`](Self::receive) appended, in their order. O(1).
    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }
}

/// Returns a descriptor that is readable when one of several sockets is.
fn any_of(sockets: &[Receiving]) -> io::Result<Option<OwnedFd>> {
    if sockets.len() < 2 {
        return Ok(None);
    }
    let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for socket in sockets {
        epoll::add(
            &any,
            socket,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )?;
    }
    Ok(Some(any))
}

impl AsFd for XdpReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.any {
            Some(any) => any.as_fd(),
            None => self.sockets[0].as_fd(),
        }
    }
}

impl AsRawFd for XdpReceiver {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for XdpReceiver {
    fn drop(&mut self) {
        unroute(&self.sockets);
    }
}

impl fmt::Debug for XdpReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdpReceiver")
            .field("interface", &self.bound.name)
            .field("mode", &self.bound.mode)
            .field("queues", &self.queues())
            .finish_non_exhaustive()
    }
}
