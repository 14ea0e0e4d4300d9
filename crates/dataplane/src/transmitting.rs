//! Transmit workers. Each has a device that frames leave by at one interface, and takes frames from its own mailbox,
//! which the forwarding thread fills; emptied buffers return through another mailbox.
//!
//! Frames in the mailboxes and frames that the devices have not sent share one budget, that of the interface. The
//! transmit queue is therefore no longer than if the forwarding thread transmitted itself. All frames of a flow use the
//! same mailbox, so they keep their order. `docs/internals/pipeline.md` has the design.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use fairlane_classify::{DigestKey, Origin, Per};
use fairlane_core::Nanos;
use fairlane_io::{Backend, Budget, ByteLen, Lent, Waiter};
use fairlane_mailbox::{Consumer, Full, Producer, Room, mailbox, most_waiting};
use fairlane_runtime::bridge::BATCH;
use fairlane_runtime::{Clock, Idling, Next, Step, Steps, Woken, drive};
use fairlane_wire::{Layer, parse_partly};

use crate::device::Device;
use crate::frame::{Emptied, Frame, OwedRoom};
use crate::threads::{Bell, lock};
use crate::waits::{Marks, Poll, WaitMeter, Waits};
use crate::worker::{self, Direction, End, WorkerThread};

/// Places of a worker's mailbox. The budget has space for few more even of the shortest frames.
pub const SLOTS: usize = 256;

/// The most frames a worker holds, not counting those its device took: a batch and a full mailbox.
pub const HELD: usize = BATCH + WAITING;
const WAITING: usize = most_waiting::<Frame>(SLOTS);

/// Within how many of a worker's rounds the device takes each frame that was handed over, if it has space: the round in
/// which the frame arrived, and then those it takes to empty a full mailbox.
pub const ROUNDS: usize = 1 + WAITING.div_ceil(BATCH);

/// How frames are transmitted at an interface by threads of their own.
#[derive(Clone, Debug)]
pub struct TransmitOptions {
    pub clock: Clock,
    /// Number of workers, at least one.
    pub count: usize,
    /// The core of each worker; empty, or one each.
    pub cores: Vec<usize>,
    /// Key of the flow digest that selects a worker. Workers started after others with frames left over use the same
    /// key.
    pub key: DigestKey,
    /// Bytes of each one's stack.
    pub stack: usize,
    /// The most that all may have, in the mailboxes and with the devices.
    pub budget: Budget,
    /// The cost of a frame of this many bytes against the budget; at least as much as the device counts for it.
    pub cost: fn(usize) -> u64,
}

/// Counts that a worker publishes. Only the worker writes them, once per batch.
#[derive(Default)]
#[repr(align(64))]
struct TransmitCounts {
    /// Budget that the worker held and has released.
    gone: AtomicU64,
    /// Frames that its device has taken, less those that [the kernel has not](crate::device::Transmit::untaken): modulo 2^64, as a former
    /// worker may have left some.
    sent: AtomicU64,
    /// Frames that its device has refused.
    refused: AtomicU64,
    /// It has ended, or is about to.
    has_ended: AtomicBool,
    /// The values of [`Waits`], written when they change.
    longest_round: AtomicU64,
    rounds: AtomicU64,
    longest: AtomicU64,
    beyond: AtomicU64,
}

impl TransmitCounts {
    fn publish_waits(&self, waits: Waits) {
        let words = [
            (&self.longest_round, waits.longest_round.0),
            (&self.rounds, waits.rounds as u64),
            (&self.longest, waits.longest.0),
            (&self.beyond, waits.beyond),
        ];
        for (word, value) in words {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn waits(&self) -> Waits {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Waits {
            longest_round: Nanos(word(&self.longest_round)),
            rounds: word(&self.rounds) as usize,
            longest: Nanos(word(&self.longest)),
            beyond: word(&self.beyond),
        }
    }
}

/// Number of frames ever put into the mailbox. The forwarding thread writes it, once per batch.
#[derive(Default)]
#[repr(align(64))]
struct HandedCount(AtomicU64);

/// State shared by a worker and the forwarding thread, in addition to the two mailboxes.
struct Shared {
    handed: HandedCount,
    told: TransmitCounts,
    /// The worker waits for frames here.
    frames: Room,
    end: Arc<End>,
}

/// Says that a worker has ended, also where it panics.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.told.has_ended.store(true, Ordering::Release);
    }
}

/// A transmit device without a worker, and the frames of its last worker that it has not taken, oldest first.
pub struct IdleSender<D> {
    pub device: D,
    pub left: VecDeque<Frame>,
}

impl<D> IdleSender<D> {
    pub fn new(device: D) -> IdleSender<D> {
        IdleSender {
            device,
            left: VecDeque::new(),
        }
    }
}

impl<D: Backend> IdleSender<D> {
    /// Returns the budget used by the remaining frames and by those that the device holds.
    fn has(&self, cost: fn(usize) -> u64) -> u64 {
        // A device that cannot report is gone.
        cost_of(&self.left, cost) + self.device.in_flight().unwrap_or(0)
    }
}

/// The thread that transmits by a device.
struct Transmitter<D> {
    device: D,
    frames: Consumer<Frame>,
    /// Frames that the device has not taken: a batch, or those left by a previous worker.
    batch: VecDeque<Frame>,
    /// Emptied buffers, returned to the forwarding thread.
    back: Producer<Emptied>,
    owed: OwedRoom,
    cost: fn(usize) -> u64,
    /// Budget consumed by all frames so far.
    taken: u64,
    gone: u64,
    /// Frames that the device has taken.
    sent: u64,
    shared: Arc<Shared>,
    waker: Waker,
    waiter: Waiter,
    meter: WaitMeter,
    marks: Marks,
    published_waits: Waits,
    /// It has waited since the last step.
    has_waited: bool,
}

/// A worker's ends of the state it shares with the forwarding thread.
struct Ends {
    frames: Consumer<Frame>,
    back: Producer<Emptied>,
    shared: Arc<Shared>,
}

/// The remains of a worker that has ended: its device with the frames not yet taken, and the mailbox.
struct EndedTransmitter<D> {
    idle: IdleSender<D>,
    frames: Consumer<Frame>,
    /// Frames that the device has taken, modulo 2^64, as [`TransmitCounts::sent`] counts them.
    taken: u64,
}

/// The forwarding thread's handle of a worker. Dropping it ends the worker and waits for its end.
struct TransmitHandle<D> {
    frames: Producer<Frame>,
    back: Consumer<Emptied>,
    lent: Lent,
    /// Budget consumed by all frames handed over.
    taken: u64,
    /// Number of frames handed over, and the number the worker was notified of.
    handed: u64,
    known: u64,
    shared: Arc<Shared>,
    thread: WorkerThread<EndedTransmitter<D>>,
}

/// The forwarding thread's handle of the transmit workers at an interface. Dropping it ends them and waits for their
/// end.
pub struct TransmitHandles<D> {
    each: Vec<TransmitHandle<D>>,
    /// Key of the flow digest that selects a worker.
    key: DigestKey,
    /// The budget that the workers were started with.
    most: u64,
    budget: u64,
    cost: fn(usize) -> u64,
    /// Number of frames longer than the whole budget.
    too_long: u64,
    most_in_flight: u64,
}

/// Creates the two ends of a worker's shared state, with mailboxes of `slots` places.
fn connect<D>(slots: usize) -> io::Result<(TransmitHandle<D>, Ends)> {
    let never = |error| io::Error::other(format!("{error}"));
    let (frames, to_send) = mailbox(slots).map_err(never)?;
    let (giving, back) = mailbox(slots).map_err(never)?;
    let shared = Arc::new(Shared {
        handed: HandedCount::default(),
        told: TransmitCounts::default(),
        frames: Room::new(),
        end: End::new()?,
    });
    let handle = TransmitHandle {
        frames,
        back,
        lent: Lent::default(),
        taken: 0,
        handed: 0,
        known: 0,
        thread: WorkerThread::new(Arc::clone(&shared.end)),
        shared: Arc::clone(&shared),
    };
    let ends = Ends {
        frames: to_send,
        back: giving,
        shared,
    };
    Ok((handle, ends))
}

impl<D: Device> Transmitter<D> {
    /// Creates a worker that first sends the frames that its predecessor left.
    fn new(idle: IdleSender<D>, cost: fn(usize) -> u64, ends: Ends) -> Transmitter<D> {
        let Ends {
            frames,
            back,
            shared,
        } = ends;
        let taken = idle.has(cost);
        let IdleSender { device, left } = idle;
        let sent = 0_u64.wrapping_sub(device.untaken());
        shared.told.sent.store(sent, Ordering::Relaxed);
        Transmitter {
            device,
            frames,
            taken,
            batch: left,
            back,
            owed: OwedRoom::default(),
            cost,
            gone: 0,
            sent: 0,
            waker: Waker::from(Arc::clone(&shared.end.bell)),
            shared,
            waiter: Waiter::new(),
            meter: WaitMeter::within(ROUNDS),
            marks: Marks::default(),
            published_waits: Waits::default(),
            has_waited: false,
        }
    }

    /// Transmits until it is stopped and has sent as many of its frames as the device takes, or until the device is
    /// gone.
    fn run(mut self, clock: &Clock) -> EndedTransmitter<D> {
        let ending = Ending(Arc::clone(&self.shared));
        let continues = |worker: &mut Self, _, _: &Step| !worker.shared.end.is_requested();
        let outcome = drive(&mut self, clock, Idling::default(), continues);
        let outcome = outcome.and_then(|()| self.send_rest(clock));
        let Transmitter {
            device,
            batch,
            frames,
            sent,
            shared,
            ..
        } = self;
        let known = sent.wrapping_sub(device.untaken());
        shared.told.sent.store(known, Ordering::Relaxed);
        shared.end.record(outcome);
        drop(ending);
        let idle = IdleSender {
            device,
            left: batch,
        };
        EndedTransmitter {
            idle,
            frames,
            // The next owner of the device asks it for the frames that the kernel has not taken.
            taken: sent,
        }
    }

    /// Sends the rest of the mailbox and of the batch until the device takes no more.
    fn send_rest(&mut self, clock: &Clock) -> io::Result<()> {
        while self.step(clock.now())?.moved() > 0 {}
        Ok(())
    }

    /// Takes frames from the mailbox while the batch has space. Returns their number.
    fn take(&mut self) -> usize {
        let room = BATCH.saturating_sub(self.batch.len());
        let took = self.frames.pop_batch(room, |frame| {
            self.owed.took(&frame);
            self.taken += (self.cost)(frame.byte_len());
            self.batch.push_back(frame);
        });
        self.marks.took(took);
        took
    }

    /// Starts a step: notes the backlog, and how long the frames that the last step took have waited.
    fn look(&mut self, now: Nanos) {
        let seen = self.meter.poll(Poll {
            now,
            has_waited: std::mem::take(&mut self.has_waited),
            takes_all: self.batch.is_empty(),
        });
        let handed = self.shared.handed.0.load(Ordering::Acquire);
        self.meter.see(&mut self.marks, handed, seen);
        let waits = self.meter.waits();
        if waits != self.published_waits {
            self.published_waits = waits;
            self.shared.told.publish_waits(waits);
        }
    }

    /// Publishes the counts of frames sent so far.
    fn tell(&mut self) -> io::Result<()> {
        let has = cost_of(&self.batch, self.cost) + self.device.in_flight()?;
        self.gone = self.taken.saturating_sub(has);
        let told = &self.shared.told;
        told.refused.store(self.device.refused(), Ordering::Relaxed);
        let sent = self.sent.wrapping_sub(self.device.untaken());
        told.sent.store(sent, Ordering::Relaxed);
        // Released after `sent`: a reader that sees all of the budget released also sees the number of frames sent.
        told.gone.store(self.gone, Ordering::Release);
        Ok(())
    }

    /// Waits for frames or the stop request, for at most `longest`; returns at once if either is present.
    fn wait(&mut self, longest: Duration) -> io::Result<Option<Woken>> {
        let (frames, shared) = (&self.frames, &self.shared);
        let nothing = || frames.is_empty() && !shared.end.is_requested();
        let mut waits = Context::from_waker(&self.waker);
        if shared.frames.poll_room(&mut waits, nothing).is_ready() {
            return Ok(None);
        }
        self.waiter
            .wait_readable(&[shared.end.bell.as_fd()], longest)?;
        shared.end.bell.rang();
        self.has_waited = true;
        Ok(Some(Woken::TimedOut))
    }
}

/// Returns the budget that `frames` use.
fn cost_of(frames: &VecDeque<Frame>, cost: fn(usize) -> u64) -> u64 {
    frames.iter().map(|frame| cost(frame.byte_len())).sum()
}

impl<D: Device> Steps for Transmitter<D> {
    fn step(&mut self, now: Nanos) -> io::Result<Step> {
        self.look(now);
        let took = self.take();
        let sent = match self.batch.is_empty() {
            false => self.device.transmit(&mut self.batch)?,
            true if self.gone < self.taken => self.device.go_on().map(|_| 0)?,
            true => 0,
        };
        self.sent += sent as u64;
        if self.gone < self.taken {
            self.tell()?;
        }
        if took > 0 || sent > 0 {
            self.back.push_batch(&mut self.owed.pay());
        }
        Ok(Step {
            drained: took,
            released: 0,
            transmitted: sent,
            next: match self.batch.is_empty() {
                true if took == BATCH => Next::Now,
                // No event reports that the device has sent the batch, so poll while any of the budget is in use.
                true if self.gone == self.taken => Next::WhenPushed,
                _ => Next::WhenBackendTakesMore,
            },
        })
    }

    fn nap(&mut self, span: Duration) -> io::Result<()> {
        match self.batch.is_empty() {
            true => self.wait(span).map(drop),
            // The batch is full: new frames could not be taken.
            false => {
                std::thread::sleep(span);
                Ok(())
            }
        }
    }

    fn sleep(&mut self, longest: Duration) -> io::Result<Option<Woken>> {
        self.wait(longest)
    }
}

impl<D> TransmitHandle<D> {
    fn in_flight(&self) -> u64 {
        let gone = self.shared.told.gone.load(Ordering::Acquire);
        self.taken.saturating_sub(gone)
    }

    fn has_ended(&self) -> bool {
        self.shared.told.has_ended.load(Ordering::Acquire)
    }

    fn refused(&self) -> u64 {
        self.shared.told.refused.load(Ordering::Relaxed)
    }

    /// Hands over a frame with this cost against the budget. Returns the frame if the mailbox is full.
    #[inline]
    fn hand_over(&mut self, frame: Frame, cost: u64) -> Result<(), Frame> {
        if let Frame::Bytes(bytes) = &frame {
            self.lent.gave(bytes);
        }
        match self.frames.push(frame) {
            Ok(()) => {
                self.taken += cost;
                self.handed += 1;
                Ok(())
            }
            Err(Full(frame)) => {
                if let Frame::Bytes(bytes) = &frame {
                    self.lent.kept(bytes);
                }
                Err(frame)
            }
        }
    }

    /// Notifies the worker of the frames handed to it.
    fn tell(&mut self) {
        if self.known != self.handed {
            self.known = self.handed;
            // Released after the push: a reader of this count finds as many frames in the mailbox.
            self.shared.handed.0.store(self.handed, Ordering::Release);
            self.shared.frames.freed();
        }
    }

    /// Waits for a worker whose end was requested. Returns its device with the frames not sent,
    /// and the number of frames that the device has taken, or `None` if the worker has panicked.
    fn end(mut self) -> Option<(IdleSender<D>, u64)> {
        let EndedTransmitter {
            mut idle,
            mut frames,
            taken,
        } = self.thread.join()?;
        frames.pop_batch(usize::MAX, |frame| idle.left.push_back(frame));
        Some((idle, taken))
    }
}

impl<D: Device + 'static> TransmitHandles<D> {
    /// Starts a worker for each of the devices, all of the interface `name`. If one cannot start, none does, and the
    /// devices are returned.
    pub fn start(
        devices: Vec<IdleSender<D>>,
        options: &TransmitOptions,
        name: &str,
    ) -> Result<TransmitHandles<D>, (io::Error, Vec<IdleSender<D>>)> {
        Self::with_slots(devices, options, name, SLOTS)
    }

    /// Like `new`, with mailboxes of `slots` places.
    fn with_slots(
        devices: Vec<IdleSender<D>>,
        options: &TransmitOptions,
        name: &str,
        slots: usize,
    ) -> Result<TransmitHandles<D>, (io::Error, Vec<IdleSender<D>>)> {
        let count = devices.len();
        let prepare = || -> io::Result<_> {
            let pairs: io::Result<Vec<_>> = (0..count).map(|_| connect(slots)).collect();
            let (mut each, ends): (Vec<TransmitHandle<D>>, Vec<Ends>) = pairs?.into_iter().unzip();
            let clock = options.clock;
            let run = move |worker: Transmitter<D>| worker.run(&clock);
            let handles = each.iter_mut().map(|each| &mut each.thread).collect();
            let place = (&options.cores[..], options.stack);
            let threads = worker::start(Direction::Transmit, name, handles, place, run)?;
            let threads: Vec<_> = threads.into_iter().zip(ends).collect();
            Ok((each, threads))
        };
        let (each, threads) = match prepare() {
            Ok(prepared) => prepared,
            Err(error) => return Err((error, devices)),
        };
        let mut handles = TransmitHandles::over(each, options);
        let with_threads = handles.each.iter_mut().zip(devices).zip(threads);
        for ((handle, device), (thread, ends)) in with_threads {
            handle.begins_with(&device, options.cost);
            // The thread waits for its worker only.
            let _ = thread.send(Transmitter::new(device, options.cost, ends));
        }
        Ok(handles)
    }
}

impl<D: Device + 'static> TransmitHandle<D> {
    /// Hands the worker the device and frames that its predecessor left.
    fn begins_with(&mut self, idle: &IdleSender<D>, cost: fn(usize) -> u64) {
        self.taken = idle.has(cost);
        let refused = &self.shared.told.refused;
        refused.store(idle.device.refused(), Ordering::Relaxed);
    }
}

impl<D> TransmitHandles<D> {
    fn over(each: Vec<TransmitHandle<D>>, options: &TransmitOptions) -> TransmitHandles<D> {
        TransmitHandles {
            each,
            key: options.key,
            most: options.budget.as_bytes(),
            budget: options.budget.as_bytes(),
            cost: options.cost,
            too_long: 0,
            most_in_flight: 0,
        }
    }

    /// Lowers the budget to `bytes`, or raises it again, up to the one that the workers were started with. Returns it.
    pub fn keep_short(&mut self, bytes: u64) -> u64 {
        self.budget = bytes.min(self.most);
        self.budget
    }

    /// Hands over frames from the front of `batch`, in order, while the budget and the mailboxes have space. Returns
    /// their number.
    ///
    /// # Errors
    ///
    /// The error with which a worker ended. Nothing was handed over then.
    pub fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
        if self.has_one_ended() {
            return Err(self.reason());
        }
        self.reclaim_buffers();
        let (mut in_flight, mut handed) = (self.in_flight(), 0);
        while let Some(length) = batch.front().map(Frame::byte_len) {
            let cost = (self.cost)(length);
            if cost > self.budget {
                batch.pop_front();
                self.too_long += 1;
                continue;
            }
            if in_flight + cost > self.budget {
                break;
            }
            let Some(frame) = batch.pop_front() else {
                break;
            };
            let at = self.queue_of(&frame);
            if let Err(frame) = self.each[at].hand_over(frame, cost) {
                batch.push_front(frame);
                break;
            }
            in_flight += cost;
            handed += 1;
        }
        if handed > 0 {
            self.most_in_flight = self.most_in_flight.max(in_flight);
            self.each.iter_mut().for_each(TransmitHandle::tell);
        }
        Ok(handed)
    }

    /// Returns the worker that has the flow of a frame. All fragments between two hosts are of one flow.
    #[inline]
    fn queue_of(&self, frame: &Frame) -> usize {
        match self.each.len() {
            1 => 0,
            count => queue_of(frame.bytes(), &self.key, count),
        }
    }

    /// Keeps the emptied buffers of sent frames for reuse.
    fn reclaim_buffers(&mut self) {
        for TransmitHandle { back, lent, .. } in &mut self.each {
            back.pop_batch(usize::MAX, |piece| match piece {
                // Buffers beyond those lent are freed.
                Emptied::Bytes(bytes) => drop(lent.took_back(bytes)),
                Emptied::Shared(frame) => frame.keep(),
            });
        }
    }

    fn has_one_ended(&self) -> bool {
        self.each.iter().any(TransmitHandle::has_ended)
    }

    /// Returns why one of the workers has ended; the same reason at each call.
    fn reason(&self) -> io::Error {
        let reasons = self.each.iter().filter_map(|worker| {
            let failed = lock(&worker.shared.end.failed);
            failed.as_ref().map(|error| match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(error.kind(), error.to_string()),
            })
        });
        reasons
            .into_iter()
            .next()
            .unwrap_or_else(|| Direction::Transmit.panicked())
    }

    pub fn count(&self) -> usize {
        self.each.len()
    }

    /// Returns the bytes that were handed over and are not known to have left, as the budget counts them.
    fn in_flight(&self) -> u64 {
        self.each.iter().map(TransmitHandle::in_flight).sum()
    }

    /// Returns the same, or the error of a worker, as a device does.
    ///
    /// # Errors
    ///
    /// Why one of the workers has ended by itself.
    pub fn unsent(&self) -> io::Result<u64> {
        match self.has_one_ended() {
            true => Err(self.reason()),
            false => Ok(self.in_flight()),
        }
    }

    pub fn most_in_flight(&self) -> u64 {
        self.most_in_flight
    }

    /// Returns the number of frames longer than the whole budget.
    pub fn too_long(&self) -> u64 {
        self.too_long
    }

    /// Returns the number of frames that the devices have rejected, under any owner.
    pub fn refused(&self) -> u64 {
        self.each.iter().map(TransmitHandle::refused).sum()
    }

    /// Returns the counts of the frames that these workers were given.
    pub fn totals(&self) -> TransmitTotals {
        TransmitTotals {
            handed: self.each.iter().map(|worker| worker.handed).sum(),
            sent: sent(self.each.iter().map(|worker| &worker.shared)),
        }
    }

    /// Returns how long frames have waited in the mailboxes.
    pub fn waits(&self) -> Option<Waits> {
        let each = self.each.iter().map(|worker| worker.shared.told.waits());
        each.fold(None, |all, waits| Waits::of_both(all, Some(waits)))
    }

    /// Returns the bell that wakes the first of them.
    pub fn bell(&self) -> Option<Arc<Bell>> {
        let first = self.each.first();
        first.map(|worker| Arc::clone(&worker.shared.end.bell))
    }

    /// Ends the workers and waits for them. They send their frames as far as the devices take them. Returns their
    /// remains, or `None` if one has panicked, and the counts of all frames.
    pub fn end(mut self) -> (Option<Vec<IdleSender<D>>>, TransmitTotals) {
        self.stop();
        let mut totals = self.totals();
        let each = std::mem::take(&mut self.each);
        let shared: Vec<_> = each.iter().map(|it| Arc::clone(&it.shared)).collect();
        let left: Option<(Vec<_>, Vec<_>)> = each.into_iter().map(TransmitHandle::end).collect();
        match left {
            Some((devices, taken)) => {
                totals.sent = taken.into_iter().fold(0, u64::wrapping_add);
                (Some(devices), totals)
            }
            // Frames that the kernel has not taken are lost with the devices.
            None => {
                totals.sent = sent(&shared);
                (None, totals)
            }
        }
    }

    fn stop(&self) {
        self.each.iter().for_each(|each| each.thread.end.request());
    }
}

impl<D> Drop for TransmitHandles<D> {
    fn drop(&mut self) {
        // All at once, before each is waited for.
        self.stop();
    }
}

/// The number of frames given to workers, and the number of those that the kernel has taken, modulo 2^64. Neither
/// decreases while they transmit. Frames left by the last workers are not counted as given again; they count as sent
/// when they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitTotals {
    handed: u64,
    sent: u64,
}

impl TransmitTotals {
    pub fn with(self, more: TransmitTotals) -> TransmitTotals {
        TransmitTotals {
            handed: self.handed + more.handed,
            sent: self.sent.wrapping_add(more.sent),
        }
    }

    /// Returns the number of those that were not sent, or not yet.
    pub fn unsent(self) -> u64 {
        self.handed.wrapping_sub(self.sent)
    }
}

/// Returns the number of frames that these workers have sent, modulo 2^64.
fn sent<'a>(workers: impl IntoIterator<Item = &'a Arc<Shared>>) -> u64 {
    let each = workers.into_iter();
    each.map(|shared| shared.told.sent.load(Ordering::Relaxed))
        .fold(0, u64::wrapping_add)
}

/// Returns the queue of a frame out of `count`: that of its flow, by addresses, protocol and ports, as classes
/// distinguish flows. Frames without any of these form one flow.
fn queue_of(frame: &[u8], key: &DigestKey, count: usize) -> usize {
    let (headers, _) = parse_partly(frame, Layer::Ethernet);
    let digest = Per::FiveTuple.digest(&headers, &Origin::default(), key);
    ((u128::from(digest) * count as u128) >> 64) as usize
}
