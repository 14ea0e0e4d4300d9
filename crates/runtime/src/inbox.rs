//! Where an arbiter takes a client's packets from.

use std::fmt;

use fairlane_core::Length;
use fairlane_mailbox::Consumer;

use crate::client::{ClientId, Request};

/// The arbiter's end of a mailbox of another kind than that of a thread: of another
/// process, say. It is visited by the arbiter's thread.
///
/// ```
/// use fairlane_core::{FlowConfig, Length, Nanos, Weight, sched::Qfq};
/// use fairlane_io::{Backend, memory};
/// use fairlane_runtime::{Arbiter, ArbiterConfig, Link, Remote, Source};
/// use std::collections::VecDeque;
///
/// /// Packets that are there from the start.
/// struct Given(VecDeque<Vec<u8>>);
///
/// impl Source<Vec<u8>> for Given {
///     fn pop(&mut self) -> Option<(Length, Vec<u8>)> {
///         let packet = self.0.pop_front()?;
///         Some((Length::try_from(packet.len()).ok()?, packet))
///     }
///
///     fn is_empty(&self) -> bool {
///         self.0.is_empty()
///     }
///
///     fn doze(&mut self, _dozing: bool) {}
/// }
///
/// let (near, mut far) = memory::pair::<Vec<u8>, Vec<u8>>(16);
/// let config = ArbiterConfig::new(Link::new("10mbit".parse()?));
/// let mut arbiter = Arbiter::new(Qfq::new(), config, near, Nanos::ZERO);
/// let flow = FlowConfig::new(Weight::ONE, Length::try_from(1_000u32)?);
/// let source = Box::new(Given([vec![7; 1_000]].into()));
/// let remote: Remote = arbiter.registrar().register_source(flow, source)?;
/// // More was pushed while the arbiter did not look.
/// remote.ring();
/// arbiter.step(Nanos::ZERO)?;
/// assert_eq!(far.receive(&mut Vec::new(), 16)?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Source<P>: Send {
    /// Takes the oldest packet out, with the length that the link will carry for it. Never
    /// waits, and does a bounded amount of work whatever the other side wrote.
    fn pop(&mut self) -> Option<(Length, P)>;

    /// Returns whether the inbox is empty. Checked after [`doze`](Self::doze) to find pushes made in
    /// between.
    fn is_empty(&self) -> bool;

    /// Whether visits have stopped (`true`), so that the other side must ring, or have resumed
    /// (`false`).
    fn doze(&mut self, dozing: bool);

    /// The arbiter has taken the client in, and knows it by this number.
    fn joined(&mut self, id: ClientId) {
        let _ = id;
    }

    /// Reports the total number of its packets dropped inside the arbiter since the start.
    fn dropped(&mut self, packets: u64) {
        let _ = packets;
    }
}

/// Upper bound of its packets: another process's mailbox has at most this many slots.
const MOST_IN_A_SOURCE: usize = 1 << 16;

/// A mailbox as the arbiter sees it.
pub(crate) enum Inbox<P> {
    Thread(Consumer<Request<P>>),
    Source(Box<dyn Source<P>>),
}

impl<P: Send> Inbox<P> {
    /// Takes at most `limit` packets out, oldest first; returns how many.
    #[inline]
    pub(crate) fn drain(&mut self, limit: usize, mut take: impl FnMut(Length, P)) -> usize {
        match self {
            Inbox::Thread(mailbox) => {
                mailbox.pop_batch(limit, |Request { carried, packet }| take(carried, packet))
            }
            Inbox::Source(source) => {
                let mut taken = 0;
                while taken < limit {
                    let Some((carried, packet)) = source.pop() else {
                        break;
                    };
                    take(carried, packet);
                    taken += 1;
                }
                taken
            }
        }
    }

    /// Drops its contents, and returns the number of packets. Does not wait for a client that continues
    /// to push.
    pub(crate) fn clear(&mut self) -> usize {
        let most = match self {
            // Fewer wait, however a mailbox was rounded up.
            Inbox::Thread(mailbox) => 2 * mailbox.capacity(),
            Inbox::Source(_) => MOST_IN_A_SOURCE,
        };
        self.drain(most, |_, _| ())
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Inbox::Thread(mailbox) => mailbox.is_empty(),
            Inbox::Source(source) => source.is_empty(),
        }
    }

    pub(crate) fn doze(&mut self, dozing: bool) {
        if let Inbox::Source(source) = self {
            source.doze(dozing);
        }
    }

    pub(crate) fn joined(&mut self, id: ClientId) {
        if let Inbox::Source(source) = self {
            source.joined(id);
        }
    }

    #[cold]
    pub(crate) fn dropped(&mut self, packets: u64) {
        if let Inbox::Source(source) = self {
            source.dropped(packets);
        }
    }

    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Inbox::Thread(mailbox) = self {
            mailbox.prefetch();
        }
    }
}

impl<P> fmt::Debug for Inbox<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inbox::Thread(mailbox) => mailbox.fmt(f),
            Inbox::Source(_) => f.write_str("Source"),
        }
    }
}
