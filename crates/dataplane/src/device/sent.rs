//! The devices that the frames of an interface leave by.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::Device;
use crate::frame::Frame;
use crate::threads::Bell;
use crate::transmitting::{IdleSender, TransmitHandles, TransmitOptions, TransmitTotals};
use crate::waits::Waits;
use crate::worker::Direction;

/// The transmit devices at one interface: one, by which the owner of this transmits; or one for each transmit worker,
/// once these have [started](Self::start). Until then frames go to the first device only, and all devices are driven.
pub struct Sending<D> {
    /// The devices while there are no workers; at least one, unless a worker has panicked.
    devices: Vec<IdleSender<D>>,
    workers: Option<TransmitHandles<D>>,
    options: Option<TransmitOptions>,
    /// Bytes that may be in flight, unless two of the longest frames, the next, are more.
    short: u64,
    two_longest: u64,
    /// The bell of the last workers; it is not rung here.
    bell: Option<Arc<Bell>>,
    former_waits: Option<Waits>,
    former_most_in_flight: u64,
    /// Frames that were longer than the whole budget, or rejected by former devices.
    refused: u64,
    /// The frames that former workers were given.
    former: TransmitTotals,
    /// Frames that they have left and that were dropped.
    away: u64,
}

impl<D: Device + 'static> Sending<D> {
    /// Creates it from one device; or from at least one, and one per transmit worker.
    pub fn new(devices: Vec<D>, options: Option<&TransmitOptions>) -> Sending<D> {
        Sending {
            devices: devices.into_iter().map(IdleSender::new).collect(),
            workers: None,
            options: options.cloned(),
            short: u64::MAX,
            two_longest: 0,
            bell: None,
            former_waits: None,
            former_most_in_flight: 0,
            refused: 0,
            former: TransmitTotals::default(),
            away: 0,
        }
    }

    /// Sums a value over the devices here.
    fn sum(&self, of: impl Fn(&D) -> u64) -> u64 {
        self.devices.iter().map(|one| of(&one.device)).sum()
    }

    /// Returns the number of frames that are lost once these devices are dropped.
    pub fn untaken(&self) -> u64 {
        self.sum(D::untaken)
    }

    /// Returns the number of frames that workers have left here.
    fn left(&self) -> usize {
        self.devices.iter().map(|one| one.left.len()).sum()
    }

    /// Limits the bytes in flight, as [`Backend::keep_short`](fairlane_io::Backend::keep_short) does. Workers limit
    /// those of all devices together.
    pub fn keep_short(&mut self, bytes: u64) -> u64 {
        self.short = bytes;
        let limits = self.devices.iter_mut();
        let limit = limits.map(|one| one.device.keep_short(bytes)).max();
        match &mut self.workers {
            Some(workers) => workers.keep_short(bytes.max(self.two_longest)),
            None => limit.unwrap_or(u64::MAX),
        }
    }

    pub fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
        if let Some(workers) = &mut self.workers {
            return workers.transmit(batch);
        }
        if self.left() > 0 {
            // These go first once there are workers again.
            return Ok(0);
        }
        let Some(first) = self.devices.first_mut() else {
            return Err(Direction::Transmit.panicked());
        };
        first.device.transmit(batch)
    }

    /// Continues pending transmissions while the device is not receiving; for every round.
    ///
    /// # Errors
    ///
    /// The device, or one of the workers, cannot be used.
    pub fn poll_transmit(&mut self) -> io::Result<()> {
        match &self.workers {
            Some(workers) => workers.unsent().map(drop),
            None => self
                .devices
                .iter_mut()
                .try_for_each(|one| one.device.poll_transmit()),
        }
    }

    pub fn in_flight(&self) -> io::Result<u64> {
        match &self.workers {
            Some(workers) => workers.unsent(),
            None if self.devices.is_empty() => Err(Direction::Transmit.panicked()),
            None => self.devices.iter().map(|one| one.device.in_flight()).sum(),
        }
    }

    pub fn most_in_flight(&self) -> u64 {
        let workers = self.workers.as_ref().map(TransmitHandles::most_in_flight);
        let here = self.devices.iter().map(|one| one.device.most_in_flight());
        let now = here.chain(workers).max();
        self.former_most_in_flight.max(now.unwrap_or(0))
    }

    pub fn go_on(&mut self) -> io::Result<u64> {
        match &self.workers {
            // The workers continue without calls.
            Some(workers) => workers.unsent(),
            None => self.devices.iter_mut().map(|one| one.device.go_on()).sum(),
        }
    }

    pub fn refused(&self) -> u64 {
        let workers = self.workers.as_ref();
        let workers = workers.map_or(0, |workers| workers.too_long() + workers.refused());
        self.refused + workers + self.sum(D::refused)
    }

    /// Returns the number of frames accepted for transmission and not sent, or not yet.
    pub fn unsent(&self) -> u64 {
        let now = self.workers.as_ref().map(TransmitHandles::totals);
        let with_workers = self.former.with(now.unwrap_or_default()).unsent();
        with_workers.wrapping_add(self.untaken())
    }

    /// Returns the number of these that were dropped when this [ended](Self::end).
    pub fn away(&self) -> u64 {
        self.away
    }

    /// Returns how long frames have waited with the workers.
    pub fn waits(&self) -> Option<Waits> {
        let workers = self.workers.as_ref();
        Waits::of_both(self.former_waits, workers.and_then(TransmitHandles::waits))
    }

    /// Returns the number of workers, running or configured: one for each device.
    pub fn workers(&self) -> usize {
        match (&self.options, &self.workers) {
            (None, _) => 0,
            (Some(_), Some(workers)) => workers.count(),
            (Some(_), None) => self.devices.len(),
        }
    }

    /// Starts the transmit workers, if configured; they first send the frames that former ones left.
    ///
    /// # Errors
    ///
    /// A thread cannot be started. Nothing has changed then.
    pub fn start(&mut self, name: &str) -> io::Result<()> {
        let Some(options) = &self.options else {
            return Ok(());
        };
        if self.devices.is_empty() {
            return Ok(());
        }
        for one in &mut self.devices {
            self.two_longest = one.device.keep_short(0);
            one.device.keep_short(u64::MAX);
        }
        match TransmitHandles::start(std::mem::take(&mut self.devices), options, name) {
            Ok(workers) => {
                self.bell = workers.bell();
                self.workers = Some(workers);
                self.keep_short(self.short);
                Ok(())
            }
            Err((error, devices)) => {
                self.devices = devices;
                self.keep_short(self.short);
                let sentence = format!("cannot start a transmit worker at {name}: {error}");
                Err(io::Error::new(error.kind(), sentence))
            }
        }
    }

    /// Ends the workers, which first send their frames as far as the devices take them. Their remains return here.
    pub fn quiesce(&mut self) {
        let Some(workers) = self.workers.take() else {
            return;
        };
        self.former_waits = Waits::of_both(self.former_waits, workers.waits());
        let most_in_flight = workers.most_in_flight();
        self.former_most_in_flight = self.former_most_in_flight.max(most_in_flight);
        self.refused += workers.too_long();
        let refused = workers.refused();
        let (devices, totals) = workers.end();
        self.former = self.former.with(totals);
        match devices {
            Some(devices) => self.devices = devices,
            None => self.refused += refused,
        }
        self.keep_short(self.short);
    }

    /// Takes the frames left by workers that have [ended](Self::quiesce), oldest first for each.
    pub fn take_left(&mut self, into: &mut VecDeque<Frame>) {
        for IdleSender { left, .. } in &mut self.devices {
            into.append(left);
        }
    }

    /// Ends the workers, and drops their remains.
    pub fn end(&mut self) {
        self.quiesce();
        let mut left = VecDeque::new();
        self.take_left(&mut left);
        self.away += left.len() as u64;
    }
}

impl<D: AsFd> AsFd for Sending<D> {
    /// Never readable while there are workers.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.bell {
            Some(bell) => bell.as_fd(),
            None => self.devices[0].device.as_fd(),
        }
    }
}
