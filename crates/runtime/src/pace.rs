//! When the link may send: by a leaky bucket of its own, or by whatever else says so.

use fairlane_core::leaky_bucket::Window;
use fairlane_core::{Length, Nanos};

use crate::driver::Next;
use crate::link::{Link, Pacer};

/// When the link may send, as a [`Shaper`](crate::Shaper) asks for it: a [`Pacer`], which has the link to itself, or
/// one that divides it with others.
///
/// ```
/// use fairlane_core::{FlowConfig, Length, Nanos, PacketScheduler, Weight, sched::Drr};
/// use fairlane_io::{MemoryBackend, memory};
/// use fairlane_runtime::{Arbiter, ArbiterConfig, Link, Next, Opening, Pace, Straight};
///
/// /// A packet for each millisecond that has begun.
/// struct Ticks {
///     link: Link,
///     sent: u64,
/// }
///
/// struct Tick {
///     left: u64,
/// }
///
/// impl Opening for Tick {
///     fn may_release(&self) -> bool {
///         self.left > 0
///     }
///
///     fn charge(&mut self, _len: Length) {
///         self.left -= 1;
///     }
/// }
///
/// impl Pace for Ticks {
///     type Opening = Tick;
///
///     fn link(&self) -> &Link {
///         &self.link
///     }
///
///     fn open(&mut self, now: Nanos, _waiting: impl FnOnce() -> u64) -> Tick {
///         let begun = now.0 / 1_000_000 + 1;
///         let left = begun.saturating_sub(self.sent);
///         self.sent += left;
///         Tick { left }
///     }
///
///     fn close(&mut self, tick: Tick, _now: Nanos) {
///         self.sent -= tick.left;
///     }
///
///     fn idled(&mut self, _now: Nanos) {}
///
///     fn next(&self, now: Nanos) -> Next {
///         Next::At(Nanos(now.0 / 1_000_000 * 1_000_000 + 1_000_000))
///     }
/// }
///
/// let link = Link::new("8mbit".parse()?);
/// let (near, _far): (MemoryBackend<Vec<u8>>, MemoryBackend<Vec<u8>>) = memory::pair(16);
/// let queue = PacketScheduler::new(Drr::new(), Default::default());
/// let ticks = Ticks { link, sent: 0 };
/// let mut arbiter = Arbiter::paced(queue, ArbiterConfig::new(link), Straight::to(near), ticks, Nanos::ZERO);
/// let len = Length::try_from(100u32)?;
/// let flow = arbiter.open_flow(FlowConfig::new(Weight::ONE, len))?;
/// for _ in 0..2 {
///     arbiter.admit(flow, len, vec![0; 100], Nanos::ZERO)?;
/// }
/// let step = arbiter.step(Nanos::ZERO)?;
/// assert_eq!((step.released, step.next), (1, Next::At(Nanos::from_millis(1))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Pace {
    /// The packets that may be released at one time.
    type Opening: Opening;

    /// Returns the link. Its rate is the whole link's.
    fn link(&self) -> &Link;

    /// Returns the packets that may be released at `now`, with `waiting` bytes queued, overhead included. It must be
    /// [closed](Self::close) again.
    fn open(&mut self, now: Nanos, waiting: impl FnOnce() -> u64) -> Self::Opening;

    /// Ends an opening; the packets charged meanwhile were released by `now`.
    fn close(&mut self, opening: Self::Opening, now: Nanos);

    /// There is nothing to release at `now`: nothing waits, or ceilings hold all that does.
    fn idled(&mut self, now: Nanos);

    /// The output accepts nothing more at present: nothing is released until it does.
    fn held_up(&mut self) {}

    /// When more may be released, while packets wait that nothing else holds.
    fn next(&self, now: Nanos) -> Next;
}

/// The packets that a [`Pace`] allows at one time.
pub trait Opening {
    /// Returns whether a packet may be released.
    fn may_release(&self) -> bool;

    /// A packet of this length, overhead included, is released.
    fn charge(&mut self, len: Length);
}

impl Opening for Window {
    #[inline]
    fn may_release(&self) -> bool {
        Window::may_release(self)
    }

    #[inline]
    fn charge(&mut self, len: Length) {
        Window::charge(self, len);
    }
}

impl Pace for Pacer {
    type Opening = Window;

    #[inline]
    fn link(&self) -> &Link {
        Pacer::link(self)
    }

    /// Idle time further back than the link makes up for is lost.
    #[inline]
    fn open(&mut self, now: Nanos, _: impl FnOnce() -> u64) -> Window {
        self.forget_before(now);
        Pacer::open(self, now)
    }

    #[inline]
    fn close(&mut self, window: Window, _: Nanos) {
        Pacer::close(self, window);
    }

    #[inline]
    fn idled(&mut self, now: Nanos) {
        Pacer::idled(self, now);
    }

    #[inline]
    fn next(&self, now: Nanos) -> Next {
        match self.may_release(now) {
            true => Next::Now,
            false => Next::At(self.idle_at()),
        }
    }
}
