//! The loop around the steps of an arbiter, a bridge or a dispatcher, for a thread of its own.

use std::io;
use std::time::Duration;

use fairlane_core::Nanos;

use crate::{Clock, Woken};

/// The results of one step, and when the next is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Packets taken from mailboxes or devices, those dropped included.
    pub drained: usize,
    /// Packets taken from queues in the algorithm's order.
    pub released: usize,
    /// Packets that the backend accepted.
    pub transmitted: usize,
    /// When there is more to do, as far as is known now.
    pub next: Next,
}

impl Step {
    /// Returns how often a packet moved: 0 in a step without work.
    #[inline]
    pub fn moved(&self) -> usize {
        self.drained + self.released + self.transmitted
    }
}

/// The next time with work, the soonest first; a push or an arrival may come earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Next {
    /// At once: a limit of this step was reached.
    Now,
    /// Soon: the backend is full and holds up the link. It is looked at again after a nap, which is
    /// shorter than most times of others.
    WhenBackendTakesMore,
    /// When the link will be idle, or when the algorithm lets a packet leave.
    At(Nanos),
    /// When a client pushes.
    WhenPushed,
}

/// The target of [`drive`]: an arbiter, a bridge, a dispatcher. As `dyn Steps`, it costs one indirect
/// call a step, and saves compiling the loop for every queue.
///
/// ```
/// use fairlane_core::Nanos;
/// use fairlane_runtime::{Clock, Idling, Next, Step, Steps, Woken, drive};
/// use std::io;
/// use std::time::Duration;
///
/// /// Has this much work, and no event that wakes it.
/// struct Work(u32);
///
/// impl Steps for Work {
///     fn step(&mut self, _now: Nanos) -> io::Result<Step> {
///         self.0 -= 1;
///         Ok(Step { drained: 1, released: 0, transmitted: 0, next: Next::Now })
///     }
///
///     fn sleep(&mut self, longest: Duration) -> io::Result<Option<Woken>> {
///         std::thread::sleep(longest);
///         Ok(Some(Woken::TimedOut))
///     }
///
///     fn is_done(&self) -> bool {
///         self.0 == 0
///     }
/// }
///
/// let mut work = Work(3);
/// drive(&mut work, &Clock::start(), Idling::default(), |work, _now, _step| !work.is_done())?;
/// assert_eq!(work.0, 0);
/// # Ok::<(), io::Error>(())
/// ```
pub trait Steps {
    /// Does the work due at `now`, which never goes backwards.
    ///
    /// # Errors
    ///
    /// The backend's error when it is unusable.
    fn step(&mut self, now: Nanos) -> io::Result<Step>;

    /// Waits for `span`, from which no client wakes it.
    ///
    /// # Errors
    ///
    /// It cannot wait.
    fn nap(&mut self, span: Duration) -> io::Result<()> {
        std::thread::sleep(span);
        Ok(())
    }

    /// Waits until there is work, or `longest` is over. `None`, at once, if there is work already.
    ///
    /// # Errors
    ///
    /// It cannot wait.
    fn sleep(&mut self, longest: Duration) -> io::Result<Option<Woken>>;

    /// Receives the result of a wait: how late it ended, and the event that ended it, if any.
    fn slept(&mut self, late: Nanos, woken: Option<Woken>) {
        let _ = (late, woken);
    }

    /// Receives the duration of each step, including the work right after it.
    fn took(&mut self, span: Nanos) {
        let _ = span;
    }

    /// Returns whether another step is due at once, whatever the last one said.
    fn is_hurried(&self) -> bool {
        false
    }

    /// Returns whether there will never be anything to do again.
    fn is_done(&self) -> bool {
        false
    }
}

/// Behaviour of a thread between two steps.
#[derive(Clone, Copy, Debug)]
pub struct Idling {
    /// With less than this to wait it spins, as a sleep would end too late.
    pub spin_below: Nanos,
    /// How long it spins for new packets before it sleeps: T_w of PSPAT, Section 3.5. A
    /// client pays for a wake-up at most once in so long.
    pub spin_for: Nanos,
    /// Longest sleep from which no client wakes it: while the link is busy, a device full,
    /// or packets held back. A pushed packet may go unseen for so long (Delta_A of Eq. 1),
    /// but could not have left either.
    pub nap: Nanos,
    /// Longest sleep at all, though clients wake it.
    pub longest_sleep: Nanos,
    /// Never sleeps: for an arbiter with a core of its own ([`pin_to_core`]).
    pub dedicated: bool,
}

impl Idling {
    /// Spins below 10 microseconds and for 50 when idle, naps for at most 100, and sleeps
    /// for at most 100 milliseconds.
    pub const USUAL: Idling = Idling {
        spin_below: Nanos::from_micros(10),
        spin_for: Nanos::from_micros(50),
        nap: Nanos::from_micros(100),
        longest_sleep: Nanos::from_millis(100),
        dedicated: false,
    };
}

impl Default for Idling {
    /// Returns the [usual](Self::USUAL) one.
    fn default() -> Self {
        Idling::USUAL
    }
}

impl Idling {
    /// Never sleeps.
    pub fn dedicated() -> Self {
        Idling {
            dedicated: true,
            ..Idling::default()
        }
    }
}

/// The pause before the next step.
enum Pause {
    /// The next step at once.
    Spin,
    /// A sleep that only the clock ends.
    Nap(Nanos),
    /// A sleep that clients end.
    Sleep(Nanos),
}

/// Decides between spinning and sleeping.
struct Rest {
    idling: Idling,
    worked_at: Nanos,
    /// A client kept the thread from sleeping, and no packet has moved since: one waits in
    /// a mailbox that is not to be emptied yet.
    kept_awake: bool,
}

impl Rest {
    fn new(idling: Idling) -> Self {
        Rest {
            idling,
            worked_at: Nanos::ZERO,
            kept_awake: false,
        }
    }

    /// After a step at `now`, which `worked` or found nothing to do until `next`.
    fn after(&mut self, now: Nanos, worked: bool, next: Next) -> Pause {
        if worked {
            self.worked_at = now;
            self.kept_awake = false;
        }
        let Idling {
            spin_below,
            spin_for,
            nap,
            longest_sleep,
            dedicated,
        } = self.idling;
        let spun = now.since(self.worked_at) >= spin_for;
        match next {
            _ if dedicated => Pause::Spin,
            Next::Now => Pause::Spin,
            Next::WhenBackendTakesMore if spun => Pause::Nap(nap),
            Next::WhenBackendTakesMore => Pause::Spin,
            Next::WhenPushed if spun => self.sleep(longest_sleep),
            Next::WhenPushed => Pause::Spin,
            Next::At(time) => match time.since(now) {
                wait if wait < spin_below => Pause::Spin,
                wait if wait > nap && spun => self.sleep(wait.min(longest_sleep)),
                wait => Pause::Nap(wait.min(nap)),
            },
        }
    }

    fn sleep(&self, longest: Nanos) -> Pause {
        match self.kept_awake {
            true => Pause::Nap(longest.min(self.idling.nap)),
            false => Pause::Sleep(longest),
        }
    }

    /// A push prevented the sleep at `now`: spins once more, then naps.
    fn kept_awake(&mut self, now: Nanos) {
        self.worked_at = now;
        self.kept_awake = true;
    }
}

/// The time of one thread, which never goes backwards, whatever becomes of its clock.
struct Time<'a> {
    clock: &'a Clock,
    now: Nanos,
    /// Steps since the clock was last looked at, of which one with a wait counts for [`WAIT`].
    steps: u32,
}

/// Steps between two looks: some milliseconds, or sixteen waits.
const STEPS_A_LOOK: u32 = 4_096;
const WAIT: u32 = STEPS_A_LOOK / 16;

impl<'a> Time<'a> {
    fn of(clock: &'a Clock) -> Time<'a> {
        Time {
            clock,
            now: clock.now(),
            steps: 0,
        }
    }

    /// Reads the clock, after `steps` steps.
    #[inline]
    fn go_on(&mut self, steps: u32) {
        self.steps += steps;
        if self.steps >= STEPS_A_LOOK {
            self.steps = 0;
            self.clock.look();
        }
        self.now = self.now.max(self.clock.now());
    }
}

/// Makes steps until `after_step` returns `false`, or there is nothing left to do. It is called after
/// every step, with its time, at least once in [`Idling::longest_sleep`]. A step without work is
/// followed by a wait, after the spinning that `idling` asks for.
///
/// Asks the system for timers without slack, where it can, so that waits end in time.
///
/// # Errors
///
/// The first error of a step, or of waiting.
pub fn drive<S: Steps + ?Sized>(
    steps: &mut S,
    clock: &Clock,
    idling: Idling,
    mut after_step: impl FnMut(&mut S, Nanos, &Step) -> bool,
) -> io::Result<()> {
    exact_timers();
    let mut rest = Rest::new(idling);
    let mut time = Time::of(clock);
    while !steps.is_done() {
        let began = time.now;
        let step = steps.step(began)?;
        let goes_on = after_step(steps, began, &step);
        // A step ends where the next one begins, if it waits for nothing.
        time.go_on(1);
        steps.took(time.now.since(began));
        if !goes_on {
            break;
        }
        if steps.is_hurried() {
            continue;
        }
        let (span, woken) = match rest.after(began, step.moved() > 0, step.next) {
            Pause::Spin => {
                std::hint::spin_loop();
                continue;
            }
            Pause::Nap(span) => {
                steps.nap(span.into())?;
                (span, None)
            }
            Pause::Sleep(span) => match steps.sleep(span.into())? {
                None => {
                    rest.kept_awake(began);
                    time.go_on(WAIT);
                    continue;
                }
                woken => (span, woken),
            },
        };
        time.go_on(WAIT);
        steps.slept(time.now.since(began + span), woken);
    }
    Ok(())
}

/// Lets the sleeps of the calling thread end without the slack of 50 microseconds that the
/// system adds by default.
#[cfg(target_os = "linux")]
fn exact_timers() {
    // A thread that may not is merely later.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

#[cfg(not(target_os = "linux"))]
fn exact_timers() {}

/// Keeps the calling thread on one core, counted from 0.
///
/// # Errors
///
/// There is no such core, or this thread may not run there.
///
/// ```
/// use fairlane_runtime::pin_to_core;
///
/// std::thread::spawn(|| match pin_to_core(0) {
///     Ok(()) => println!("on core 0 from now on"),
///     Err(error) => println!("wherever the system likes: {error}"),
/// })
/// .join()
/// .unwrap();
/// assert!(pin_to_core(1 << 20).is_err());
/// ```
#[cfg(target_os = "linux")]
pub fn pin_to_core(core: usize) -> io::Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    cores.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &cores)?)
}
