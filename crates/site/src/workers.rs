//! Threads that receive. Each takes the frames of one interface, finds out which class each is of, and hands
//! both on to the thread that forwards, by a mailbox of its own; what frames were in comes back by another.
//!
//! What a worker says is by a copy of the filters that never changes, and that has a number. A frame that comes
//! with another number than that of the filters that count when it is queued is looked at again there: so a frame
//! goes where it would have gone if the thread that forwards had received it, whatever takes over meanwhile.
//! `docs/internals/pipeline.md` has the design.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fairlane_classify::{Found, Layer, LinkClassifier, Origin};
use fairlane_config::{Near, Role, Site};
use fairlane_core::Nanos;
use fairlane_core::tree::{ClassFlow, ClassId};
use fairlane_io::{KeptBytes, Owed, Waiter};
use fairlane_mailbox::{Consumer, Producer, Room, mailbox};
use fairlane_runtime::bridge::{BATCH, Came};
use fairlane_runtime::{Clock, Idling, Next, Step, Steps, Woken, drive, pin_to_core};
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::daemon::near_role;
use crate::device::{Device, Losses};
use crate::error::{Doing, Result, unfit};
use crate::forward::before_all_others;
use crate::frame::Frame;

/// Frames that may wait for the thread that forwards: a millisecond of a million a second. Where there are more,
/// the worker leaves them in the ring of the interface, and they are lost there when that is full.
const SLOTS: usize = 1_024;

/// How often a worker tells what its interface has lost.
const TELLS: Nanos = Nanos::from_millis(10);

/// Numbers of tables; a worker's note has room for as many.
const NUMBERS: u32 = 1 << 29;

/// Filters that workers go by.
struct Table {
    /// 1 and more.
    number: u32,
    filters: LinkClassifier,
}

/// Where the filters lie that the workers at one interface go by: those of the link that its frames go to.
#[derive(Default)]
pub(crate) struct Sorting {
    /// Of the table; 0 while there is none.
    number: AtomicU32,
    table: Mutex<Option<Arc<Table>>>,
}

impl fmt::Debug for Sorting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sorting")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// Nothing that is done under these locks panics half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sorting {
    /// Workers go by these filters from now on: the number by which their notes name them. O(classes).
    pub(crate) fn publish(&self, filters: &LinkClassifier) -> u32 {
        let filters = filters.clone();
        let mut table = lock(&self.table);
        let number = self.number.load(Ordering::Relaxed) % (NUMBERS - 1) + 1;
        *table = Some(Arc::new(Table { number, filters }));
        self.number.store(number, Ordering::Release);
        number
    }

    /// The table, if it is another than the one that is known. One load where it is the same.
    fn renew(&self, known: &mut Option<Arc<Table>>) {
        let number = known.as_ref().map_or(0, |known| known.number);
        if self.number.load(Ordering::Acquire) != number {
            known.clone_from(&lock(&self.table));
        }
    }
}

/// What a worker says of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// By the table of this number; 0 for none, and nothing is known.
    pub(crate) table: u32,
    pub(crate) to: ClassFlow,
    pub(crate) found: Found,
}

/// A frame that a worker has received, and what it says of it: what goes by the mailbox.
#[derive(Debug)]
pub(crate) struct Sorted {
    pub(crate) frame: Frame,
    came: Nanos,
    flow: u64,
    class: ClassId,
    /// The table's number, what was found (two bits), and whether others were lost beside it.
    packed: u32,
}

/// One to a line of the mailbox.
const _: () = assert!(size_of::<Sorted>() <= 56);

impl Sorted {
    fn new(frame: Frame, came: Came, note: Note) -> Sorted {
        let found = match note.found {
            Found::Filter => 0,
            Found::NoFilter => 1,
            Found::Unreadable => 2,
        };
        Sorted {
            frame,
            came: came.at,
            flow: note.to.flow,
            class: note.to.class,
            packed: note.table << 3 | found << 1 | u32::from(came.losing),
        }
    }

    pub(crate) fn came(&self) -> Came {
        Came {
            at: self.came,
            losing: self.packed & 1 != 0,
        }
    }

    pub(crate) fn note(&self) -> Note {
        Note {
            table: self.packed >> 3,
            to: ClassFlow {
                class: self.class,
                flow: self.flow,
            },
            found: match self.packed >> 1 & 3 {
                0 => Found::Filter,
                1 => Found::NoFilter,
                _ => Found::Unreadable,
            },
        }
    }
}

/// How frames are to be received at an interface by a thread of its own.
#[derive(Clone, Debug)]
pub(crate) struct Hiring {
    pub(crate) clock: Clock,
    pub(crate) sorting: Arc<Sorting>,
    /// Where frames come from, as filters know it.
    ingress: u16,
    /// Where the thread stays.
    core: Option<usize>,
}

/// The workers that a site asks for, by side: one at each interface.
///
/// # Errors
///
/// It names a core that is not there.
pub(crate) fn hirings(site: &Site, clock: Clock) -> Result<[Option<Hiring>; 2]> {
    let (Some(workers), Some(interfaces)) = (&site.workers, &site.interfaces) else {
        return Ok([None, None]);
    };
    let here = sched_getaffinity(None).doing("asking which cores there are")?;
    let is_here = |&core: &usize| core < CpuSet::MAX_CPU && here.is_set(core);
    if let Some(core) = workers.cores.iter().find(|core| !is_here(core)) {
        let all = (0..CpuSet::MAX_CPU).filter(is_here);
        let all: Vec<_> = all.map(|core| core.to_string()).collect();
        return unfit(format!(
            "[workers] names core {core}, and this process may run on {} alone: name one of these, or \
             leave out 'cores'",
            all.join(", ")
        ));
    }
    let mut cores = workers.cores.iter().copied();
    let mut hiring = |role: Role| Hiring {
        clock,
        sorting: Arc::default(),
        ingress: role.ingress(),
        core: cores.next(),
    };
    let near = match interfaces.near {
        Near::Inside(_) => Some(hiring(near_role(interfaces))),
        Near::Tap(_) | Near::Nothing => None,
    };
    Ok([near, Some(hiring(Role::Outside))])
}

/// An event that ends a wait.
struct Bell(OwnedFd);

impl Bell {
    fn new() -> io::Result<Bell> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Bell(eventfd(0, flags)?))
    }

    fn ring(&self) {
        // It fails where it has rung as often as can be counted.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn rang(&self) {
        // It fails where nobody has rung.
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

/// What a worker shares with the thread that forwards, beside the two mailboxes. Written seldom.
struct Shared {
    /// Where the thread that forwards waits for frames.
    frames: Room,
    /// The worker is to end, and its wait with it.
    stop: AtomicBool,
    bell: Bell,
    /// What the device says of itself.
    is_filling: AtomicBool,
    lost: AtomicU64,
    uncut: AtomicU64,
    /// Why the worker has ended by itself.
    failed: Mutex<Option<io::Error>>,
}

/// The thread that receives from a device.
pub(crate) struct Worker<D> {
    device: D,
    ingress: u16,
    sorting: Arc<Sorting>,
    table: Option<Arc<Table>>,
    arrived: Vec<Frame>,
    /// What the mailbox has had no room for yet: a batch at most.
    sorted: VecDeque<Sorted>,
    frames: Producer<Sorted>,
    /// What frames were in.
    back: Consumer<Vec<u8>>,
    shared: Arc<Shared>,
    waiter: Waiter,
    /// When it told last, and what.
    told: Nanos,
    was_filling: bool,
}

/// A worker, to the thread that forwards. Dropping it ends the worker, and waits for that.
pub(crate) struct Hired<D> {
    frames: Consumer<Sorted>,
    back: Producer<Vec<u8>>,
    /// Of what is to go there.
    owed: Owed,
    shared: Arc<Shared>,
    bell: Arc<Bell>,
    waker: Waker,
    /// It has waited, or was to, since it looked for frames last.
    has_waited: bool,
    thread: Option<JoinHandle<Left<D>>>,
}

/// What a worker leaves at its end: its device, and what it could not hand on.
type Left<D> = (D, VecDeque<Sorted>);

/// A worker at a device, and what the thread that forwards has of it.
pub(crate) fn hire<D: Device>(device: D, hiring: &Hiring) -> io::Result<(Worker<D>, Hired<D>)> {
    with_slots(device, hiring, SLOTS)
}

/// The same with mailboxes of so many places.
fn with_slots<D: Device>(
    mut device: D,
    hiring: &Hiring,
    slots: usize,
) -> io::Result<(Worker<D>, Hired<D>)> {
    let never = |error| io::Error::other(format!("{error}"));
    let (frames, received) = mailbox(slots).map_err(never)?;
    let (giving, back) = mailbox(slots).map_err(never)?;
    // What it has lost before counts from the start: a count never goes back.
    let Losses { lost, uncut, .. } = device.losses().unwrap_or_default();
    let shared = Arc::new(Shared {
        frames: Room::new(),
        stop: AtomicBool::new(false),
        bell: Bell::new()?,
        is_filling: AtomicBool::new(false),
        lost: AtomicU64::new(lost),
        uncut: AtomicU64::new(uncut),
        failed: Mutex::new(None),
    });
    let worker = Worker {
        device,
        ingress: hiring.ingress,
        sorting: Arc::clone(&hiring.sorting),
        table: None,
        arrived: Vec::with_capacity(BATCH),
        sorted: VecDeque::with_capacity(BATCH),
        frames,
        back,
        shared: Arc::clone(&shared),
        waiter: Waiter::new(),
        told: Nanos::ZERO,
        was_filling: false,
    };
    let bell = Arc::new(Bell::new()?);
    let hired = Hired {
        frames: received,
        back: giving,
        owed: Owed::default(),
        shared,
        waker: Waker::from(Arc::clone(&bell)),
        bell,
        has_waited: false,
        thread: None,
    };
    Ok((worker, hired))
}

impl<D: Device> Worker<D> {
    /// Receives until it is to end, or the device is gone.
    fn run(mut self, hiring: &Hiring) -> Left<D> {
        before_all_others();
        if let Some(core) = hiring.core {
            // It was there when the site was opened; if it is not any more, any other will do.
            let _ = pin_to_core(core);
        }
        let goes_on = |worker: &mut Self, _, _: &Step| !worker.shared.stop.load(Ordering::Relaxed);
        let outcome = drive(&mut self, &hiring.clock, Idling::default(), goes_on);
        self.tell_losses();
        let Worker {
            device,
            sorted,
            frames,
            shared,
            ..
        } = self;
        *lock(&shared.failed) = outcome.err();
        // Whoever waits for frames looks, and finds that there will be none.
        drop(frames);
        shared.frames.freed();
        (device, sorted)
    }

    /// Hands on what has been looked at, as far as there is room: how many.
    fn hand_on(&mut self) -> usize {
        let sorted = &mut self.sorted;
        let mut oldest = std::iter::from_fn(|| sorted.pop_front());
        let count = self.frames.push_batch(&mut oldest);
        if count > 0 {
            self.shared.frames.freed();
        }
        count
    }

    /// Finds out where the frames go that have just come.
    fn sort(&mut self, now: Nanos) {
        self.sorting.renew(&mut self.table);
        let origin = Origin {
            ingress: self.ingress,
            owner: None,
        };
        let mut arrivals = self.device.arrivals().iter();
        for frame in self.arrived.drain(..) {
            let arrival = arrivals.next().copied().unwrap_or_default();
            let came = Came {
                at: now.since(arrival.waited.into()),
                losing: arrival.losing,
            };
            let note = note(self.table.as_deref(), &frame, &origin);
            self.sorted.push_back(Sorted::new(frame, came, note));
        }
    }

    /// Keeps what as many frames were in as have come, so that what is kept here grows no further than the
    /// frames that were on their way at a time.
    fn keep(&mut self, came: usize) {
        self.back.pop_batch(came, KeptBytes::keep);
    }

    fn tell(&mut self, now: Nanos) {
        let is_filling = self.device.is_filling();
        if is_filling != self.was_filling {
            self.was_filling = is_filling;
            self.shared.is_filling.store(is_filling, Ordering::Relaxed);
        }
        if now.since(self.told) >= TELLS {
            self.told = now;
            self.tell_losses();
        }
    }

    fn tell_losses(&mut self) {
        // A device that is gone has nothing more to tell.
        let Ok(Losses { lost, uncut, .. }) = self.device.losses() else {
            return;
        };
        self.shared.lost.store(lost, Ordering::Relaxed);
        self.shared.uncut.store(uncut, Ordering::Relaxed);
    }
}

/// Where a frame goes by a table.
#[inline]
fn note(table: Option<&Table>, frame: &Frame, origin: &Origin) -> Note {
    let Some(Table { number, filters }) = table else {
        return Note {
            table: 0,
            to: ClassId::ROOT.into(),
            found: Found::Filter,
        };
    };
    let (to, found) = filters.find(frame.bytes(), Layer::Ethernet, origin);
    Note {
        table: *number,
        to,
        found,
    }
}

impl<D: Device> Steps for Worker<D> {
    fn step(&mut self, now: Nanos) -> io::Result<Step> {
        let (mut came, mut handed) = (0, self.hand_on());
        if self.sorted.is_empty() {
            came = self.device.receive(&mut self.arrived, BATCH)?;
            if came > 0 {
                self.keep(came);
                self.sort(now);
                handed += self.hand_on();
            }
        }
        self.tell(now);
        Ok(Step {
            drained: came,
            released: 0,
            transmitted: handed,
            next: match (self.sorted.is_empty(), came) {
                (false, _) => Next::WhenBackendTakesMore,
                (true, BATCH) => Next::Now,
                (true, _) => Next::WhenPushed,
            },
        })
    }

    fn sleep(&mut self, longest: Duration) -> io::Result<Option<Woken>> {
        let both = [self.device.as_fd(), self.shared.bell.0.as_fd()];
        self.waiter.wait_readable(&both, longest)?;
        Ok(Some(Woken::TimedOut))
    }
}

impl<D: Device + 'static> Hired<D> {
    /// Has the worker work, on a thread of this name.
    pub(crate) fn start(
        &mut self,
        worker: Worker<D>,
        hiring: &Hiring,
        name: String,
    ) -> io::Result<()> {
        let hiring = hiring.clone();
        let thread = thread::Builder::new().name(name);
        self.thread = Some(thread.spawn(move || worker.run(&hiring))?);
        Ok(())
    }
}

impl<D> Hired<D> {
    /// Ends the worker, and waits for that: its device, and the frames that nobody has taken, oldest first.
    /// Nothing of one that has panicked.
    pub(crate) fn end(mut self) -> Option<(D, Vec<Sorted>)> {
        self.stop();
        let (device, left) = self.thread.take()?.join().ok()?;
        let mut sorted = Vec::new();
        self.frames
            .pop_batch(usize::MAX, |frame| sorted.push(frame));
        sorted.extend(left);
        Some((device, sorted))
    }

    fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.bell.ring();
    }

    /// Appends at most `most` frames, the oldest first; how many.
    ///
    /// # Errors
    ///
    /// What has ended the worker, once all that it had handed on was taken.
    pub(crate) fn take(&mut self, into: &mut Vec<Sorted>, most: usize) -> io::Result<usize> {
        if std::mem::take(&mut self.has_waited) {
            self.bell.rang();
        }
        let came = self.frames.pop_batch(most, |sorted| {
            if let Frame::Bytes(bytes) = &sorted.frame {
                self.owed.took(bytes);
            }
            into.push(sorted);
        });
        if came == 0 && most > 0 && self.frames.is_abandoned() && self.frames.is_empty() {
            let failed = lock(&self.shared.failed).take();
            return Err(
                failed.unwrap_or_else(|| io::Error::other("a thread that receives has ended"))
            );
        }
        Ok(came)
    }

    /// Gives back what frames were in that this thread has dropped, as far as there is room.
    pub(crate) fn give_back(&mut self) {
        self.back.push_batch(&mut self.owed.pay());
    }

    /// Whether no frame waits: then the [bell](Self::bell) is rung when one does.
    pub(crate) fn may_wait(&mut self) -> bool {
        let frames = &self.frames;
        let nothing = || frames.is_empty() && !frames.is_abandoned();
        let mut waits = Context::from_waker(&self.waker);
        let may = self
            .shared
            .frames
            .poll_room(&mut waits, nothing)
            .is_pending();
        self.has_waited |= may;
        may
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.0.as_fd()
    }

    pub(crate) fn is_filling(&self) -> bool {
        self.shared.is_filling.load(Ordering::Relaxed)
    }

    /// What was lost by the time at which the worker told it.
    pub(crate) fn losses(&self) -> Losses {
        Losses {
            lost: self.shared.lost.load(Ordering::Relaxed),
            uncut: self.shared.uncut.load(Ordering::Relaxed),
            ..Losses::default()
        }
    }
}

impl<D> Drop for Hired<D> {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // What it leaves goes with it; a panic of its has been seen.
            let _ = thread.join();
        }
    }
}
