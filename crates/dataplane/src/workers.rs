//! Receive workers. Each takes the frames of one interface, classifies them, and hands them with their classes to the
//! forwarding thread through its own mailbox; emptied buffers return through another mailbox.
//!
//! A worker's notes come from an immutable, numbered copy of the filters. If a frame's number differs from that of the
//! filters in force when it is queued, the frame is classified again there. A frame is therefore classified as if the
//! forwarding thread had received it, even across configuration changes. `docs/internals/pipeline.md` has the design.

#[cfg(test)]
pub mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use fairlane_classify::{Origin, Scratch};
use fairlane_core::Nanos;
use fairlane_io::Waiter;
use fairlane_mailbox::{Consumer, Producer, Room, mailbox, most_waiting};
use fairlane_runtime::bridge::{BATCH, Came, MOST_TAKEN_IN};
use fairlane_runtime::{Clock, Idling, Next, Step, Steps, Woken, drive};
use fairlane_wire::Layer;

use crate::device::{Device, Losses};
use crate::frame::{Emptied, Frame, OwedRoom};
use crate::note::{ClassifiedFrame, Note, SharedFilters, Table};
use crate::threads::{Bell, lock};
use crate::transmitting::TransmitOptions;
use crate::waits::{Marks, Poll, WaitMeter, Waits};
use crate::worker::{self, Direction, End, WorkerThread};

/// Places of the mailbox to the forwarding thread: a millisecond at a million frames per second. Further frames stay in
/// the interface's ring, and are lost there when that is full.
pub const SLOTS: usize = 1_024;

/// Frames that a worker holds at most: a batch that is on its way, and a full mailbox.
pub const HELD: usize = BATCH + most_waiting::<ClassifiedFrame>(SLOTS);

/// Returns within how many rounds each frame that one of this many workers at an interface holds is taken: the round in
/// which it arrived, and then those it takes to empty all that the workers may hold. Each worker gets a batch in turn.
pub const fn arrival_rounds(workers: usize) -> usize {
    1 + (workers * HELD.div_ceil(BATCH)).div_ceil(MOST_TAKEN_IN / BATCH)
}

/// How frames are received at an interface by threads of their own.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    pub clock: Clock,
    pub filters: Arc<SharedFilters>,
    /// The side from which frames come, as filters know it.
    pub ingress: u16,
    /// Number of workers.
    pub count: usize,
    /// The core of each worker; empty, or one each.
    pub cores: Vec<usize>,
    /// Bytes of each one's stack.
    pub stack: usize,
    /// The transmit workers there, if any.
    pub transmit: Option<TransmitOptions>,
}

impl WorkerOptions {
    /// Returns the number of transmit devices: one per transmit worker, or that of the forwarding thread.
    pub fn senders(&self) -> usize {
        self.transmit.as_ref().map_or(1, |transmit| transmit.count)
    }
}

/// Interval at which a worker reports its interface's losses.
const PUBLISH_INTERVAL: Nanos = Nanos::from_millis(10);

/// State shared by a worker and the forwarding thread, in addition to the two mailboxes. Written rarely.
struct Shared {
    /// The forwarding thread waits for frames here.
    frames: Room,
    /// Frames that are in the mailbox, or were.
    handed: AtomicU64,
    end: Arc<End>,
    /// State and counts that the device reports.
    is_filling: AtomicBool,
    lost: AtomicU64,
    uncut: AtomicU64,
}

/// The thread that receives from a device.
pub struct Worker<D> {
    device: D,
    ingress: u16,
    filters: Arc<SharedFilters>,
    table: Option<Arc<Table>>,
    arrived: Vec<Frame>,
    /// Frames that found the mailbox full: at most a batch.
    classified: VecDeque<ClassifiedFrame>,
    scratch: Scratch,
    /// Notes on the frames that have just arrived.
    notes: Vec<Note>,
    frames: Producer<ClassifiedFrame>,
    /// Number of frames handed on.
    handed: u64,
    /// Emptied buffers, returned by the forwarding thread.
    back: Consumer<Emptied>,
    shared: Arc<Shared>,
    waiter: Waiter,
    /// Time of the last loss report.
    told: Nanos,
    was_filling: bool,
}

/// The forwarding thread's handle of a worker. Dropping it ends the worker and waits for its end.
struct WorkerHandle<D> {
    frames: Consumer<ClassifiedFrame>,
    back: Producer<Emptied>,
    /// Emptied buffers that the mailbox had no room for.
    owed: OwedRoom,
    /// Arrival marks of the frames in the mailbox.
    marks: Marks,
    shared: Arc<Shared>,
    thread: WorkerThread<EndedWorker<D>>,
}

/// The forwarding thread's handle of the workers at an interface. Dropping it ends them and waits for their end.
pub struct WorkerHandles<D> {
    each: Vec<WorkerHandle<D>>,
    /// Index of the worker that is polled first.
    first: usize,
    bell: Arc<Bell>,
    waker: Waker,
    /// It has waited, or was to, since it looked for frames last.
    has_waited: bool,
    /// The error with which the first of them ended, until all have ended.
    failed: Option<io::Error>,
    meter: WaitMeter,
}

/// The remains of a worker that has ended: its device, and the frames it could not hand on.
type EndedWorker<D> = (D, VecDeque<ClassifiedFrame>);

/// A worker's ends of the state it shares with the forwarding thread.
struct Ends {
    frames: Producer<ClassifiedFrame>,
    back: Consumer<Emptied>,
    shared: Arc<Shared>,
}

/// Creates the two ends of the workers' shared state, with mailboxes of `slots` places.
fn connect<D>(count: usize, slots: usize) -> io::Result<(WorkerHandles<D>, Vec<Ends>)> {
    let never = |error| io::Error::other(format!("{error}"));
    let pair = |_| {
        let (frames, received) = mailbox(slots).map_err(never)?;
        let (giving, back) = mailbox(slots).map_err(never)?;
        let shared = Arc::new(Shared {
            frames: Room::new(),
            handed: AtomicU64::new(0),
            end: End::new()?,
            is_filling: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            uncut: AtomicU64::new(0),
        });
        let handle = WorkerHandle {
            frames: received,
            back: giving,
            owed: OwedRoom::default(),
            marks: Marks::default(),
            thread: WorkerThread::new(Arc::clone(&shared.end)),
            shared: Arc::clone(&shared),
        };
        let ends = Ends {
            frames,
            back,
            shared,
        };
        Ok((handle, ends))
    };
    let pairs: io::Result<Vec<_>> = (0..count).map(pair).collect();
    let (each, ends) = pairs?.into_iter().unzip();
    let bell = Arc::new(Bell::new()?);
    let handles = WorkerHandles {
        each,
        first: 0,
        waker: Waker::from(Arc::clone(&bell)),
        bell,
        has_waited: false,
        failed: None,
        meter: WaitMeter::within(arrival_rounds(count)),
    };
    Ok((handles, ends))
}

impl<D: Device> Worker<D> {
    fn new(device: D, options: &WorkerOptions, ends: Ends) -> Worker<D> {
        let Ends {
            frames,
            back,
            shared,
        } = ends;
        let mut worker = Worker {
            device,
            ingress: options.ingress,
            filters: Arc::clone(&options.filters),
            table: None,
            arrived: Vec::with_capacity(BATCH),
            classified: VecDeque::with_capacity(BATCH),
            scratch: Scratch::default(),
            notes: Vec::with_capacity(BATCH),
            frames,
            handed: 0,
            back,
            shared,
            waiter: Waiter::new(),
            told: Nanos::ZERO,
            was_filling: false,
        };
        // Earlier losses are included from the start, since counters never decrease.
        worker.publish_losses();
        worker
    }

    /// Receives until it is stopped or the device is gone.
    fn run(mut self, clock: &Clock) -> EndedWorker<D> {
        let continues = |worker: &mut Self, _, _: &Step| !worker.shared.end.is_requested();
        let outcome = drive(&mut self, clock, Idling::default(), continues);
        self.publish_losses();
        let Worker {
            device,
            classified,
            frames,
            shared,
            ..
        } = self;
        shared.end.record(outcome);
        // A reader that waits for frames looks again, and finds the mailbox closed.
        drop(frames);
        shared.frames.freed();
        (device, classified)
    }

    /// Hands on classified frames while the mailbox has room. Returns their number.
    fn hand_on(&mut self) -> usize {
        let classified = &mut self.classified;
        let mut oldest = std::iter::from_fn(|| classified.pop_front());
        let count = self.frames.push_batch(&mut oldest);
        if count > 0 {
            self.handed += count as u64;
            // Released after the push: a reader of this count finds as many frames in the mailbox.
            self.shared.handed.store(self.handed, Ordering::Release);
            self.shared.frames.freed();
        }
        count
    }

    /// Classifies the frames that have just arrived.
    fn classify(&mut self, now: Nanos) {
        self.filters.renew(&mut self.table);
        let origin = Origin {
            ingress: self.ingress,
            owner: None,
        };
        self.notes.clear();
        if let Some(Table { number, filters }) = self.table.as_deref() {
            let (scratch, notes) = (&mut self.scratch, &mut self.notes);
            let frames = self.arrived.iter().map(|frame| (frame.bytes(), origin));
            filters.find_all(frames, Layer::Ethernet, scratch, |to, found| {
                let table = *number;
                notes.push(Note { table, to, found });
            });
        }
        let mut notes = self.notes.iter();
        let mut arrivals = self.device.arrivals().iter();
        for frame in self.arrived.drain(..) {
            let arrival = arrivals.next().copied().unwrap_or_default();
            let came = Came {
                at: now.since(arrival.waited.into()),
                losing: arrival.losing,
            };
            let note = notes.next().copied().unwrap_or(Note::NONE);
            self.classified
                .push_back(ClassifiedFrame::new(frame, came, note));
        }
    }

    /// Keeps one emptied buffer for each received frame, so the store grows no larger than the number of frames in
    /// transit at a time.
    fn keep(&mut self, came: usize) {
        self.back.pop_batch(came, Emptied::keep);
    }

    fn tell(&mut self, now: Nanos) {
        let is_filling = self.device.is_filling();
        if is_filling != self.was_filling {
            self.was_filling = is_filling;
            self.shared.is_filling.store(is_filling, Ordering::Relaxed);
        }
        if now.since(self.told) >= PUBLISH_INTERVAL {
            self.told = now;
            self.publish_losses();
        }
    }

    fn publish_losses(&mut self) {
        // A device that is gone has no further losses to report.
        let Ok(Losses { lost, uncut, .. }) = self.device.losses() else {
            return;
        };
        self.shared.lost.store(lost, Ordering::Relaxed);
        self.shared.uncut.store(uncut, Ordering::Relaxed);
    }
}

impl<D: Device> Steps for Worker<D> {
    fn step(&mut self, now: Nanos) -> io::Result<Step> {
        let (mut came, mut handed) = (0, self.hand_on());
        if self.classified.is_empty() {
            came = self.device.receive(&mut self.arrived, BATCH)?;
            if came > 0 {
                self.keep(came);
                self.classify(now);
                handed += self.hand_on();
            }
        }
        self.tell(now);
        Ok(Step {
            drained: came,
            released: 0,
            transmitted: handed,
            next: match (self.classified.is_empty(), came) {
                (false, _) => Next::WhenBackendTakesMore,
                (true, BATCH) => Next::Now,
                (true, _) => Next::WhenPushed,
            },
        })
    }

    fn sleep(&mut self, longest: Duration) -> io::Result<Option<Woken>> {
        let both = [self.device.as_fd(), self.shared.end.bell.as_fd()];
        self.waiter.wait_readable(&both, longest)?;
        Ok(Some(Woken::TimedOut))
    }
}

impl<D> WorkerHandle<D> {
    /// Waits for a worker whose end was requested. Returns its device and the frames not yet
    /// taken, oldest first, or `None` if it has panicked.
    fn end(mut self) -> Option<(D, Vec<ClassifiedFrame>)> {
        let (device, left) = self.thread.join()?;
        let mut classified = Vec::new();
        self.frames
            .pop_batch(usize::MAX, |frame| classified.push(frame));
        classified.extend(left);
        Some((device, classified))
    }

    /// Appends at most `most` frames, oldest first, and returns their number.
    fn take(&mut self, into: &mut Vec<ClassifiedFrame>, most: usize) -> usize {
        let took = self.frames.pop_batch(most, |classified| {
            self.owed.took(&classified.frame);
            into.push(classified);
        });
        self.marks.took(took);
        took
    }

    /// Whether the worker has ended and all frames that it handed on were taken.
    fn has_ended(&self) -> bool {
        self.frames.is_abandoned() && self.frames.is_empty()
    }

    /// Whether no frame is queued; if so, the waker is woken for the next one.
    fn arm_wakeup(&self, waits: &mut Context<'_>) -> bool {
        let frames = &self.frames;
        let nothing = || frames.is_empty() && !frames.is_abandoned();
        self.shared.frames.poll_room(waits, nothing).is_pending()
    }
}

impl<D: Device + 'static> WorkerHandles<D> {
    /// Starts a worker for each of the devices, all of the interface `name`. If one cannot start, none does, and the
    /// devices are returned.
    pub fn start(
        devices: Vec<D>,
        options: &WorkerOptions,
        name: &str,
    ) -> std::result::Result<WorkerHandles<D>, (io::Error, Vec<D>)> {
        Self::with_slots(devices, options, name, SLOTS)
    }

    /// Like `new`, with mailboxes of `slots` places.
    fn with_slots(
        devices: Vec<D>,
        options: &WorkerOptions,
        name: &str,
        slots: usize,
    ) -> std::result::Result<WorkerHandles<D>, (io::Error, Vec<D>)> {
        let count = devices.len();
        let prepared = connect(count, slots).and_then(|(mut handles, ends)| {
            let threads = handles.each.iter_mut().map(|each| &mut each.thread);
            let clock = options.clock;
            let run = move |worker: Worker<D>| worker.run(&clock);
            let place = (&options.cores[..], options.stack);
            let threads = threads.collect();
            let threads = worker::start(Direction::Receive, name, threads, place, run)?;
            Ok((threads, handles, ends))
        });
        let (threads, handles, ends) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err((error, devices)),
        };
        for ((thread, device), ends) in threads.into_iter().zip(devices).zip(ends) {
            // The thread waits for its worker only.
            let _ = thread.send(Worker::new(device, options, ends));
        }
        Ok(handles)
    }
}

impl<D> WorkerHandles<D> {
    /// Ends the workers and waits for them. Returns the device of each and the frames not yet taken, oldest first, or
    /// `None` if one has panicked.
    pub fn end(mut self) -> Option<Vec<(D, Vec<ClassifiedFrame>)>> {
        self.stop();
        let each = std::mem::take(&mut self.each);
        each.into_iter().map(WorkerHandle::end).collect()
    }

    fn stop(&self) {
        self.each.iter().for_each(|each| each.thread.end.request());
    }

    /// Returns the number of workers.
    pub fn count(&self) -> usize {
        self.each.len()
    }

    /// Returns the worker that is polled `turn` places after the first.
    fn turn(&mut self, turn: usize) -> &mut WorkerHandle<D> {
        let at = (self.first + turn) % self.each.len();
        &mut self.each[at]
    }

    /// Appends at most `most` frames, oldest first for each worker, and returns their number. Each worker has an equal
    /// share; unused shares go to the others.
    ///
    /// # Errors
    ///
    /// The error with which the first worker ended, once all workers have ended and all frames they handed on were
    /// taken. When one ends, the others are stopped.
    pub fn take(&mut self, into: &mut Vec<ClassifiedFrame>, most: usize) -> io::Result<usize> {
        if std::mem::take(&mut self.has_waited) {
            self.bell.rang();
        }
        let count = self.each.len();
        let (mut came, mut has_one_ended) = (0, false);
        for share in [most.div_ceil(count), most] {
            for turn in 0..count {
                let worker = self.turn(turn);
                let took = worker.take(into, share.min(most - came));
                has_one_ended |= took == 0 && worker.has_ended();
                came += took;
            }
            if count == 1 || came == most {
                break;
            }
        }
        self.first = (self.first + 1) % count;
        match has_one_ended && self.have_ended() && came == 0 && most > 0 {
            true => Err(self
                .failed
                .take()
                .unwrap_or_else(|| Direction::Receive.panicked())),
            false => Ok(came),
        }
    }

    /// Makes [`take`](Self::take) return this error, the reason for the workers' end, again.
    pub fn restore_error(&mut self, failed: io::Error) {
        self.failed = Some(failed);
    }

    /// Stops all workers after one has ended. Returns whether all have ended.
    fn have_ended(&mut self) -> bool {
        self.stop();
        let ended = self.each.iter().filter(|worker| worker.has_ended());
        let reason = ended.filter_map(|worker| lock(&worker.shared.end.failed).take());
        for reason in reason.collect::<Vec<_>>() {
            self.failed.get_or_insert(reason);
        }
        self.each.iter().all(WorkerHandle::has_ended)
    }

    /// Starts a round: notes the backlog, and how long the frames that the last round took have waited.
    pub fn begin_round(&mut self, poll: Poll) {
        let WorkerHandles { each, meter, .. } = self;
        let seen = meter.poll(poll);
        for worker in each {
            let handed = worker.shared.handed.load(Ordering::Acquire);
            meter.see(&mut worker.marks, handed, seen);
        }
    }

    /// Returns how long frames have waited in the mailboxes.
    pub fn waits(&self) -> Waits {
        self.meter.waits()
    }

    /// Returns emptied buffers to the workers, as far as there is space.
    pub fn return_buffers(&mut self) {
        for turn in 0..self.each.len() {
            let WorkerHandle { back, owed, .. } = self.turn(turn);
            back.push_batch(&mut owed.pay());
        }
    }

    /// Whether no frame is queued; if so, the [bell](Self::bell) is rung for the next one.
    pub fn arm_wakeup(&mut self) -> bool {
        let mut waits = Context::from_waker(&self.waker);
        let waiting = self
            .each
            .iter()
            .take_while(|worker| worker.arm_wakeup(&mut waits));
        let waiting = waiting.count();
        self.has_waited |= waiting > 0;
        waiting == self.each.len()
    }

    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    pub fn is_filling(&self) -> bool {
        let is_filling =
            |worker: &WorkerHandle<D>| worker.shared.is_filling.load(Ordering::Relaxed);
        self.each.iter().any(is_filling)
    }

    /// Returns the losses as of the workers' last reports.
    pub fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        for worker in &self.each {
            losses += Losses {
                lost: worker.shared.lost.load(Ordering::Relaxed),
                uncut: worker.shared.uncut.load(Ordering::Relaxed),
                ..Losses::default()
            };
        }
        losses
    }
}

impl<D> Drop for WorkerHandles<D> {
    fn drop(&mut self) {
        // All at once, before each is waited for.
        self.stop();
    }
}
