//! Where released packets go: to a backend, to dispatcher threads, or back to the clients.

mod clients_dispatch;
mod dispatchers;
mod straight;

use std::io;

use fairlane_core::{FlowId, Packet};

pub use clients_dispatch::{Cleared, ClientsDispatch, DispatchingClient, Outlet};
pub use dispatchers::{Dispatcher, Dispatchers};
pub use straight::Straight;

/// The arbiter's output for packets in the order of the algorithm.
///
/// Every implementation keeps the order of packets of one flow.
///
/// ```
/// use fairlane_core::{FlowId, Length, Nanos, Packet, sched::Qfq};
/// use fairlane_runtime::{Arbiter, ArbiterConfig, Flow, Link, Outlet, Release};
/// use std::io;
///
/// /// Counts the bytes that leave, and sends them nowhere.
/// struct Counted(u64);
///
/// impl<P> Release<P> for Counted {
///     fn joined(&mut self, _flow: FlowId, outlet: Option<Outlet>) {
///         assert!(outlet.is_none(), "no client of these dispatches its own packets");
///     }
///
///     fn release(&mut self, packet: Packet<P>) {
///         self.0 += u64::from(packet.len.get());
///     }
///
///     fn flush(&mut self, _more: bool) -> io::Result<usize> {
///         Ok(0)
///     }
///
///     fn waiting(&self) -> usize {
///         0
///     }
/// }
///
/// let config = ArbiterConfig::new(Link::new("10mbit".parse()?));
/// let mut arbiter = Arbiter::releasing(Qfq::new(), config, Counted(0), Nanos::ZERO);
/// let mut client = arbiter.registrar().client(Flow::weight(1).max_len(1_000))?;
/// client.push(Length::try_from(1_000u32)?, "a packet")?;
/// arbiter.step(Nanos::ZERO)?;
/// assert_eq!(arbiter.release().0, 1_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Release<P> {
    /// A flow begins; `outlet` is there if its client dispatches its own packets.
    fn joined(&mut self, flow: FlowId, outlet: Option<Outlet>) {
        let _ = (flow, outlet);
    }

    /// A flow has ended; all its packets were released or dropped.
    fn left(&mut self, flow: FlowId) {
        let _ = flow;
    }

    /// The flow's `position`-th packet, from 0, was dropped inside the arbiter.
    fn dropped(&mut self, flow: FlowId, position: u64) {
        let _ = (flow, position);
    }

    /// Takes the next packet. It need not be on its way before [`flush`](Self::flush).
    fn release(&mut self, packet: Packet<P>);

    /// The arbiter is looking into the mailbox of this flow's client: a good time to write to
    /// the lines that only that client reads. Returns how many packets went.
    fn visit(&mut self, flow: FlowId) -> usize {
        let _ = flow;
        0
    }

    /// Transmits accepted packets, as far as there is space, and returns how many. With `more`, the
    /// arbiter has further packets to release at once, and some may be kept back to go together
    /// with those.
    ///
    /// # Errors
    ///
    /// The device is unusable; packets that were not sent are kept.
    fn flush(&mut self, more: bool) -> io::Result<usize>;

    /// Returns whether drops are reported to clients by position ([`dropped`](Self::dropped)): a
    /// queue may then drop none that it has accepted.
    fn tells_positions(&self) -> bool {
        false
    }

    /// Packets that wait for room. While there are any, the arbiter commits no further ones
    /// to an order.
    fn waiting(&self) -> usize;
}

impl<P, R: Release<P> + ?Sized> Release<P> for Box<R> {
    fn joined(&mut self, flow: FlowId, outlet: Option<Outlet>) {
        (**self).joined(flow, outlet);
    }

    fn left(&mut self, flow: FlowId) {
        (**self).left(flow);
    }

    fn dropped(&mut self, flow: FlowId, position: u64) {
        (**self).dropped(flow, position);
    }

    fn release(&mut self, packet: Packet<P>) {
        (**self).release(packet);
    }

    fn visit(&mut self, flow: FlowId) -> usize {
        (**self).visit(flow)
    }

    fn flush(&mut self, more: bool) -> io::Result<usize> {
        (**self).flush(more)
    }

    fn tells_positions(&self) -> bool {
        (**self).tells_positions()
    }

    fn waiting(&self) -> usize {
        (**self).waiting()
    }
}
