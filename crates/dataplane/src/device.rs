//! The devices that a site names, each a way for frames in and out.

mod entrance;
pub mod lasting;
pub mod open;
pub mod opener;
pub mod sent;
pub mod worked;
pub mod xdp;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::AddAssign;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use fairlane_io::early::Gate;
use fairlane_io::packet::{Position, Sockets};
use fairlane_io::{Backend, Hold, PacketBackend, TunBackend};
use fairlane_runtime::bridge::BATCH;

use crate::error::Result;
use crate::frame::Frame;
use crate::note::ClassifiedFrame;
use crate::threads::Bell;
use crate::waits::{Poll, Waits};

/// The receive side of a device.
pub trait Receive {
    /// Returns the losses that the counters common to all backends do not include.
    fn losses(&mut self) -> io::Result<Losses> {
        Ok(Losses::default())
    }

    /// Whether a good part of the receive ring is occupied. O(1).
    fn is_filling(&self) -> bool {
        false
    }

    /// Returns the gate where arriving frames can be dropped, if there is one.
    fn gate(&self) -> Option<Gate> {
        None
    }

    /// Starts or stops receiving, if the device supports that.
    fn set_receiving(&self, anything: bool) -> io::Result<()> {
        let _ = anything;
        Ok(())
    }

    /// Whether no other receiver gets the frames that this device receives.
    fn is_sole_receiver(&self) -> bool {
        false
    }
}

/// The transmit side of a device, in addition to [`Backend`].
pub trait Transmit {
    /// Returns the number of frames given to it for transmission that the kernel has not taken: they are lost once it
    /// is dropped.
    fn untaken(&self) -> u64 {
        0
    }

    /// Continues transmitting the frames it was given, while its receive side is lent. Called in every round then.
    fn poll_transmit(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Handover of a device from one process to another.
pub trait Handover {
    /// Returns the state that another process needs to continue with the device, if the device supports that.
    fn export(&self) -> io::Result<Option<ExportedDevice>> {
        Ok(None)
    }

    /// Whether the device is still the one that another process received from [`export`](Self::export).
    fn is_exported(&self) -> bool {
        true
    }

    /// Moves frames that have arrived, and that neither this process nor its successor would receive, to `into`.
    /// Returns how long they have waited.
    fn quiesce(&mut self, into: &mut Vec<Frame>) -> Duration {
        let _ = into;
        Duration::ZERO
    }

    /// Moves frames that its transmit workers had not sent when they were [stopped](Self::quiesce) to `into`, oldest first
    /// for each worker.
    fn take_unsent(&mut self, into: &mut VecDeque<Frame>) {
        let _ = into;
    }

    /// Returns the position from which another process continues.
    fn position(&self) -> Position {
        Position::default()
    }

    /// Continues from the position that another process has reached.
    fn resume_from(&mut self, position: Position) {
        let _ = position;
    }

    /// Notes whether the interface belongs to this process from now on, or to another that has it too.
    fn set_owned(&mut self, ours: bool) {
        let _ = ours;
    }
}

/// The threads that receive and transmit at a device, if it has any.
pub trait Workers {
    /// Starts its workers, if it is to have any.
    fn start(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Appends at most `most` frames received by its workers, oldest first for each, and returns their number.
    fn take_classified(
        &mut self,
        into: &mut Vec<ClassifiedFrame>,
        most: usize,
    ) -> io::Result<usize> {
        let _ = (into, most);
        Ok(0)
    }

    /// Returns emptied buffers to its workers.
    fn return_buffers(&mut self) {}

    /// Starts a round: polls its workers' mailboxes.
    fn begin_round(&mut self, poll: Poll) {
        let _ = poll;
    }

    /// Returns how long frames have waited with its receive workers, if any.
    fn receive_waits(&self) -> Option<Waits> {
        None
    }

    /// Returns the same for transmit workers.
    fn transmit_waits(&self) -> Option<Waits> {
        None
    }

    /// Whether no frame is queued at those threads, so that the descriptor signals the next one.
    fn arm_wakeup(&mut self) -> bool {
        true
    }

    /// Whether its receive side may be [lent](Self::lend) now.
    fn can_lend(&self) -> bool {
        false
    }

    /// Lends out its receive side, if permitted. From then on no frame arrives here, and only transmission may be
    /// requested until [`reclaim`](Self::reclaim).
    fn lend(&mut self) -> Option<Lent> {
        None
    }

    /// Receives again: the lent part was dropped.
    fn reclaim(&mut self) {}

    /// Whether the lent part must be returned first, because the interface is gone.
    fn must_return(&self) -> bool {
        false
    }
}

/// Replacement of the interface behind a device.
pub trait Replace {
    /// Replaces the open interface by the given one, or by none; the former one is returned through `opened`. O(1);
    /// opens and closes nothing. Has no effect on a device that is no interface.
    fn exchange(&mut self, opened: &mut Option<Opened>) {
        let _ = opened;
    }

    /// Returns the keeper that opens replacements, if permitted.
    fn keeper(&self) -> Option<ToKeeper> {
        None
    }

    /// Returns the current backend, if it may change. Does not allocate.
    fn backend_now(&self) -> Option<Arc<str>> {
        None
    }
}

/// A way for frames in and out that can be waited for.
pub trait Device:
    Backend<Tx = Frame, Rx = Frame> + Receive + Transmit + Handover + AsFd + Send
{
    /// Returns a description of the backend.
    fn backend(&self) -> String;

    /// Stops receiving and ends the device's own threads. Returns the number of frames that had arrived and will not be
    /// received; the device still reports its [losses](Receive::losses). Takes tens of milliseconds for each of its
    /// sockets.
    fn end(&mut self) -> u64 {
        // A device that is gone receives nothing in any case.
        let _ = self.set_receiving(false);
        drop_frames(self, 1).0
    }
}

/// A device as the bridge has it: its interface may be replaced, and threads may receive and transmit there.
pub trait Port: Device + Workers + Replace {}

impl<D: Device + Workers + Replace> Port for D {}

/// The lent part of a device. Dropping it returns it.
pub struct Lent {
    /// Where frames arrive.
    pub entrance: AnyDevice,
    /// Ends a wait for frames.
    pub bell: Arc<Bell>,
}

/// Most batches that are dropped at once: more than any ring holds.
const MOST_DROPPED_BATCHES: usize = 1 << 14;

/// Receives and drops the frames that have arrived at a device, until a batch has fewer than `least` frames. Returns
/// the number of frames, and the result.
pub fn drop_frames<D: Backend<Rx = Frame> + ?Sized>(
    device: &mut D,
    least: usize,
) -> (u64, io::Result<()>) {
    let (mut arrived, mut dropped) = (Vec::new(), 0);
    for _ in 0..MOST_DROPPED_BATCHES {
        match device.receive(&mut arrived, BATCH) {
            Ok(came) => {
                dropped += came as u64;
                if came < least {
                    break;
                }
            }
            Err(error) => return (dropped, Err(error)),
        }
        arrived.clear();
    }
    (dropped, Ok(()))
}

/// The state that another process needs to continue with a device.
pub struct ExportedDevice {
    pub sockets: Sockets,
    /// The file in which the holder notes changes of the interface's settings.
    pub note: Option<File>,
}

/// Frames that arrived and went no further than the device, or were to leave and did not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// Frames not sent because the interface was absent, or was released first.
    pub away: u64,
    /// Frames accepted for transmission and not sent, or not yet; not counting those rejected, dropped as absent, or
    /// handed over.
    pub unsent: u64,
    /// Frames not received in time, or before the interface was released.
    pub lost: u64,
    /// Segments that their sender has left to be cut, and that cannot be.
    pub uncut: u64,
}

impl Losses {
    /// Returns the increase since `before`.
    fn since(self, before: Losses) -> Losses {
        Losses {
            away: self.away.saturating_sub(before.away),
            // Decreases when frames were sent since.
            unsent: self.unsent.wrapping_sub(before.unsent),
            lost: self.lost.saturating_sub(before.lost),
            uncut: self.uncut.saturating_sub(before.uncut),
        }
    }
}

impl AddAssign for Losses {
    fn add_assign(&mut self, more: Losses) {
        self.away += more.away;
        self.unsent = self.unsent.wrapping_add(more.unsent);
        self.lost += more.lost;
        self.uncut += more.uncut;
    }
}

/// Any device.
pub type AnyDevice = Box<dyn Port>;

/// The channel for requests to the keeper, the thread that opens and closes an interface.
pub type ToKeeper = Sender<ToKeep>;

/// Requests to the keeper.
pub enum ToKeep {
    /// The interface is gone: reopen it once it is back.
    Lost(Opened),
    /// Release the interface and do not reopen it; then call this.
    Release(Option<Opened>, Box<dyn FnOnce() + Send>),
    /// Open an interface of this name as a replacement, and call this with the result.
    Open(String, Box<dyn FnOnce(Result<Opened>) + Send>),
    /// Record the interface's owner in its note.
    Note(Box<dyn FnOnce() -> io::Result<()> + Send>),
    /// The interface is no longer needed.
    End,
}

/// A device that is open, and its interface, held. Dropping it takes a while.
pub struct Opened {
    pub device: AnyDevice,
    /// How frames are exchanged with it.
    backend: Arc<str>,
    /// After the device, which may still bring frames.
    hold: Hold,
    /// Its losses that were counted when it was taken out of use.
    told: Losses,
    /// Its rejected frames that were counted when it was taken out of use.
    told_refused: u64,
}

impl Opened {
    fn new(device: AnyDevice, hold: Hold) -> Opened {
        Opened {
            backend: device.backend().into(),
            device,
            hold,
            told: Losses::default(),
            told_refused: 0,
        }
    }

    /// Closes the device and releases the interface. Returns the losses not counted before.
    fn end(mut self) -> Losses {
        let left = self.device.end();
        let losses = self.device.losses().unwrap_or(self.told);
        let mut more = losses.since(self.told);
        more.lost += left;
        let untaken = self.device.untaken();
        more.away += untaken;
        // The rejected count is not read again after this.
        more.away += self.device.refused().saturating_sub(self.told_refused);
        more
    }
}

impl Receive for PacketBackend<Frame> {
    fn losses(&mut self) -> io::Result<Losses> {
        Ok(Losses {
            lost: self.lost()? + self.discarded(),
            uncut: self.uncut(),
            ..Losses::default()
        })
    }

    fn is_filling(&self) -> bool {
        PacketBackend::is_filling(self)
    }

    fn gate(&self) -> Option<Gate> {
        Some(PacketBackend::gate(self))
    }

    fn set_receiving(&self, anything: bool) -> io::Result<()> {
        PacketBackend::hear(self, anything)
    }
}

impl Transmit for PacketBackend<Frame> {}

impl Handover for PacketBackend<Frame> {
    fn export(&self) -> io::Result<Option<ExportedDevice>> {
        let sockets = self.sockets()?;
        Ok(sockets.map(|sockets| ExportedDevice {
            sockets,
            note: None,
        }))
    }

    fn quiesce(&mut self, into: &mut Vec<Frame>) -> Duration {
        PacketBackend::rest(self, into)
    }

    fn position(&self) -> Position {
        PacketBackend::position(self)
    }

    fn resume_from(&mut self, position: Position) {
        PacketBackend::go_on_from(self, position);
    }
}

impl Workers for PacketBackend<Frame> {}

impl Replace for PacketBackend<Frame> {}

/// An interface through packet sockets.
impl Device for PacketBackend<Frame> {
    fn backend(&self) -> String {
        "packet".to_owned()
    }
}

impl Receive for TunBackend<Frame> {}

impl Transmit for TunBackend<Frame> {}

impl Handover for TunBackend<Frame> {}

impl Workers for TunBackend<Frame> {}

impl Replace for TunBackend<Frame> {}

/// A virtual interface that the host uses instead of the outside one.
impl Device for TunBackend<Frame> {
    fn backend(&self) -> String {
        "tap".to_owned()
    }
}
