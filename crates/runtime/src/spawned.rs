//! A link with its arbiter on a thread of its own.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_core::sched::Algorithm;
use fairlane_core::units::{LengthError, WeightError};
use fairlane_core::{AnyScheduler, ChangeError, FlowConfig, Nanos, Rate, TotalStats};
use fairlane_io::Backend;
use fairlane_mailbox::bell::{self, Woken};

use crate::AsyncClient;
use crate::arbiter::{Arbiter, ArbiterStats, ClientStats};
use crate::client::{Client, ClientId};
use crate::clock::Clock;
use crate::config::ArbiterConfig;
use crate::driver::{Idling, Next, Step, Steps, drive};
use crate::link::Link;
use crate::queue::Queue;
use crate::registrar::{RegisterError, Registrar};
use crate::release::Straight;

/// A client's request: [`Flow::weight`] begins it, and its longest packet completes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    weight: u32,
    max_len: u32,
}

/// A [`Flow`] whose longest packet is still to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a flow has a longest packet"]
pub struct Weighted {
    weight: u32,
}

impl Flow {
    /// Returns a flow of this weight, 1 to 1,000,000: it gets the link in proportion to it.
    pub const fn weight(weight: u32) -> Weighted {
        Weighted { weight }
    }
}

impl Weighted {
    /// Its packets have 1 to `bytes` bytes, at most 65,535 with the link's overhead. Say the length that
    /// they have: shares are exact to a few of these.
    pub const fn max_len(self, bytes: u32) -> Flow {
        Flow {
            weight: self.weight,
            max_len: bytes,
        }
    }
}

/// A number that no flow has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// Not a weight.
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// Not a length.
    #[error(transparent)]
    MaxLen(#[from] LengthError),
}

impl TryFrom<Flow> for FlowConfig {
    type Error = FlowError;

    fn try_from(flow: Flow) -> Result<FlowConfig, FlowError> {
        Ok(FlowConfig::new(
            flow.weight.try_into()?,
            flow.max_len.try_into()?,
        ))
    }
}

impl<P: Send> Registrar<P> {
    /// Returns a new client of a thread, as [`register`](Self::register) makes it.
    ///
    /// # Errors
    ///
    /// No flow is like this, or as of `register`.
    pub fn client(&self, flow: Flow) -> Result<Client<P>, RegisterError> {
        self.register(flow.try_into()?)
    }

    /// Returns a new client of a task, as [`register_async`](Self::register_async) makes it.
    ///
    /// # Errors
    ///
    /// No flow is like this, or as of `register_async`.
    pub fn async_client(&self, flow: Flow) -> Result<AsyncClient<P>, RegisterError> {
        self.register_async(flow.try_into()?)
    }
}

/// How a link's thread is set up.
#[derive(Clone, Debug)]
pub struct SpawnConfig {
    /// The arbiter and its link.
    pub arbiter: ArbiterConfig,
    /// The scheduling algorithm. [`spawn_over`] ignores it, as its queue has its own.
    pub algorithm: Algorithm,
    /// Behaviour of the thread between two steps.
    pub idling: Idling,
    /// The core that it keeps to, counted from 0.
    #[cfg(target_os = "linux")]
    pub core: Option<usize>,
    /// Its name, as the system shows it.
    pub name: String,
}

impl SpawnConfig {
    /// Returns a link shared by QFQ+, whose thread is called `fairlane`, sleeps where there is nothing
    /// to do and runs on whatever core is free.
    pub fn new(link: Link) -> Self {
        SpawnConfig {
            arbiter: ArbiterConfig::new(link),
            algorithm: Algorithm::QfqPlus(fairlane_core::sched::AUTOMATIC_MEMBERS),
            idling: Idling::default(),
            #[cfg(target_os = "linux")]
            core: None,
            name: "fairlane".to_owned(),
        }
    }
}

impl From<Link> for SpawnConfig {
    fn from(link: Link) -> Self {
        SpawnConfig::new(link)
    }
}

impl From<Rate> for SpawnConfig {
    fn from(rate: Rate) -> Self {
        SpawnConfig::new(Link::new(rate))
    }
}

/// Counts of a link's packets so far. For packets that clients pushed, once it has ended:
///
/// ```text
/// pushed = sent + queued + discarded + dropped + in mailboxes
/// ```
///
/// Of those sent, the backend has all except [`waiting_for_backend`](Self::waiting_for_backend), and has
/// finished all except the last [`unsent_bytes`](Self::unsent_bytes).
///
/// Only pushes at the moment of the end may be missing in all counts: a push that had begun before, and whose
/// thread was suspended in the middle until the link was gone, returns `Ok` although its packet is lost; at
/// most one push, or batch, of each client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkStats {
    /// Time since the thread began, by its clock.
    pub uptime: Nanos,
    /// All packets, including those of removed clients, with their lengths on the link.
    pub total: TotalStats,
    /// Packets that are released, and counted as sent, and that the backend has not taken.
    pub waiting_for_backend: usize,
    /// Bytes that the backend has taken and that may be lost with it, as the device has not sent them
    /// ([`Backend::go_on`]).
    pub unsent_bytes: u64,
    /// Packets that lay in mailboxes when the link ended, and were dropped; 0 while it runs, and takes
    /// them out.
    pub in_mailboxes: u64,
    /// Clients that are there.
    pub clients: usize,
    /// How the thread fares.
    pub arbiter: ArbiterStats,
}

/// The link's thread has ended: it was stopped, or its backend failed, which [`LinkHandle::stop`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the link's thread has ended")]
pub struct Ended;

/// Requests to the thread, in order.
enum Order {
    Stats(oneshot::Sender<LinkStats>),
    Clients(oneshot::Sender<Vec<(ClientId, ClientStats)>>),
    Change(
        ClientId,
        FlowConfig,
        oneshot::Sender<Result<(), ChangeError>>,
    ),
    Rate(Rate),
    Drain(Duration),
    Stop,
}

/// State that a handle and the thread share.
struct Orders {
    /// Whether `waiting` is worth a lock.
    pending: AtomicBool,
    waiting: Mutex<Vec<Order>>,
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, Vec<Order>> {
        // A panic of another holder leaves a list that is whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pending requests. Empty while another thread is adding one, which wakes this one
    /// afterwards.
    fn take(&self) -> Vec<Order> {
        if !self.pending.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut waiting = match self.waiting.try_lock() {
            Ok(waiting) => waiting,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Vec::new(),
        };
        self.pending.store(false, Ordering::Relaxed);
        std::mem::take(&mut waiting)
    }
}

/// A link's thread: asked, changed and ended by this. From any thread; dropping it stops the link as
/// [`stop`](Self::stop) does, without waiting for the end.
///
/// ```
/// use fairlane_core::Rate;
/// use fairlane_io::memory;
/// use fairlane_runtime::{Ended, Ending, EndingFuture, LinkHandle, spawn};
/// use std::time::Duration;
///
/// /// For a supervisor: packets that were sent, or that the thread is no more.
/// fn sent(link: &LinkHandle) -> Result<u64, Ended> {
///     Ok(link.stats()?.total.sent.packets)
/// }
///
/// let (near, _far) = memory::pair::<Vec<u8>, Vec<u8>>(16);
/// let (_link, handle) = spawn("10mbit".parse::<Rate>()?, near)?;
/// assert_eq!(sent(&handle), Ok(0));
/// handle.change_rate("20mbit".parse()?)?;
///
/// // A thread waits for the end; a task awaits it, or holds the future.
/// let ending: Ending = handle.drain(Duration::from_secs(5));
/// let _future: EndingFuture = ending.into_future();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the link stops when its handle is dropped"]
pub struct LinkHandle {
    orders: Arc<Orders>,
    bell: bell::Handle,
    /// `None` while a caller waits for it.
    outcome: Mutex<Option<oneshot::Receiver<io::Result<LinkStats>>>>,
}

impl fmt::Debug for LinkHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkHandle").finish_non_exhaustive()
    }
}

/// Starts the link on a thread of its own: clients register through the first result, the second controls and
/// ends it.
///
/// Packets that clients push leave through `backend` at the pace of the link, in the order of the algorithm,
/// from now on. The thread sleeps while there is nothing to do. The first link of a process sends nothing for
/// some 50 ms, in which its clock is calibrated against the system's; this call does not wait for that.
///
/// ```
/// use fairlane_io::{Backend, MemoryBackend, memory};
/// use fairlane_core::{Length, Rate};
/// use fairlane_runtime::{Flow, spawn};
///
/// let (near, mut far): (MemoryBackend<Vec<u8>>, _) = memory::pair(16);
/// let (link, handle) = spawn("10mbit".parse::<Rate>()?, near)?;
///
/// let mut client = link.client(Flow::weight(4).max_len(1250))?;
/// client.push(Length::new(1250).unwrap(), vec![7; 1250]).unwrap();
///
/// let left = handle.drain(std::time::Duration::from_secs(5)).wait()?;
/// assert_eq!(left.total.sent.packets, 1);
/// assert_eq!(far.receive(&mut Vec::new(), 16)?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// The system cannot start a thread, or there is no such core.
pub fn spawn<B>(
    config: impl Into<SpawnConfig>,
    backend: B,
) -> io::Result<(Registrar<B::Tx>, LinkHandle)>
where
    B: Backend<Tx: Send + 'static> + Send + 'static,
{
    let config = config.into();
    let queue = AnyScheduler::new(config.algorithm, config.arbiter.limits);
    spawn_over(queue, config, backend)
}

/// As [`spawn`], with a queue of the caller's: a class tree, or a
/// [`PacketScheduler`](fairlane_core::PacketScheduler) of an algorithm known when compiling, which saves
/// an indirect call a packet.
///
/// # Errors
///
/// As of `spawn`.
///
/// ```
/// use fairlane_core::{PacketScheduler, Rate, sched::Drr};
/// use fairlane_io::memory;
/// use fairlane_runtime::{Flow, spawn_over};
///
/// let (near, _far) = memory::pair::<Vec<u8>, Vec<u8>>(16);
/// let queue = PacketScheduler::new(Drr::new(), Default::default());
/// let (link, handle) = spawn_over(queue, "10mbit".parse::<Rate>()?, near)?;
/// let _client = link.client(Flow::weight(1).max_len(1_500))?;
/// handle.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn spawn_over<Q, B>(
    queue: Q,
    config: impl Into<SpawnConfig>,
    backend: B,
) -> io::Result<(Registrar<Q::Payload>, LinkHandle)>
where
    Q: Queue + Send + 'static,
    Q::Payload: 'static,
    B: Backend<Tx = Q::Payload> + Send + 'static,
{
    let config = config.into();
    let arbiter = Arbiter::over(queue, config.arbiter, Straight::to(backend), Nanos::ZERO);
    let (registrar, bell) = (arbiter.registrar(), arbiter.bell());
    let orders = Arc::new(Orders {
        pending: AtomicBool::new(false),
        waiting: Mutex::new(Vec::new()),
    });
    let (tell, outcome) = oneshot::channel();
    let (begun, beginning) = oneshot::channel();
    let taken = Arc::clone(&orders);
    thread::Builder::new().name(config.name).spawn(move || {
        #[cfg(target_os = "linux")]
        let pinned = config.core.map_or(Ok(()), crate::pin_to_core);
        #[cfg(not(target_os = "linux"))]
        let pinned = Ok(());
        let (may_begin, began) = (pinned.is_ok(), Instant::now());
        // `spawn` waits for this, and not for the first clock of a process, which takes longer.
        let _ = begun.send(pinned);
        if may_begin {
            let clock = Clock::start();
            let clock = clock.set(began.elapsed().into());
            // The handle may be gone.
            let _ = tell.send(run(arbiter, config.idling, &clock, &taken));
        }
    })?;
    beginning.recv().map_err(io::Error::other)??;
    let handle = LinkHandle {
        orders,
        bell,
        outcome: Mutex::new(Some(outcome)),
    };
    Ok((registrar, handle))
}

/// How long the thread continues.
enum Phase {
    Running,
    /// Until all is sent, or this time.
    Draining(Nanos),
    Over,
}

fn run<Q: Queue, B: Backend<Tx = Q::Payload>>(
    arbiter: Arbiter<Q, Straight<B>>,
    idling: Idling,
    clock: &Clock,
    orders: &Orders,
) -> io::Result<LinkStats> {
    let mut link = Driven {
        arbiter,
        phase: Phase::Running,
        now: Nanos::ZERO,
        nap: idling.nap,
        unsent_bytes: 0,
    };
    let driven = drive(&mut link, clock, idling, |link, now, _| {
        link.obey(orders, now)
    });
    // Also if the backend failed: no client may push any more.
    let in_mailboxes = link.arbiter.drop_pushed();
    driven?;
    Ok(LinkStats {
        in_mailboxes,
        ..link.stats(clock.now())
    })
}

/// A link as its thread drives it.
struct Driven<Q: Queue, B: Backend> {
    arbiter: Arbiter<Q, Straight<B>>,
    phase: Phase,
    /// When the last step was.
    now: Nanos,
    /// Interval of checks of a backend with packets in flight.
    nap: Nanos,
    /// As of the last step.
    unsent_bytes: u64,
}

impl<Q: Queue, B: Backend<Tx = Q::Payload>> Steps for Driven<Q, B> {
    fn step(&mut self, now: Nanos) -> io::Result<Step> {
        self.now = now;
        let step = self.arbiter.step(now)?;
        self.unsent_bytes = self.arbiter.backend_mut().go_on()?;
        let next = match step.next {
            next if self.unsent_bytes == 0 => next,
            Next::At(time) => Next::At(time.min(now + self.nap)),
            next => next.min(Next::WhenBackendTakesMore),
        };
        Ok(Step { next, ..step })
    }

    fn nap(&mut self, span: Duration) -> io::Result<()> {
        thread::sleep(self.until_the_deadline(span));
        Ok(())
    }

    fn sleep(&mut self, longest: Duration) -> io::Result<Option<Woken>> {
        Ok(self.arbiter.sleep(self.until_the_deadline(longest)))
    }

    fn slept(&mut self, late: Nanos, woken: Option<Woken>) {
        self.arbiter.slept(late, woken);
    }
}

impl<Q: Queue, B: Backend<Tx = Q::Payload>> Driven<Q, B> {
    /// Returns a link that drains waits no longer than it may.
    fn until_the_deadline(&self, span: Duration) -> Duration {
        match self.phase {
            Phase::Draining(until) => span.min(until.since(self.now).into()),
            Phase::Running | Phase::Over => span,
        }
    }

    /// Executes the requests; returns whether the link continues.
    fn obey(&mut self, orders: &Orders, now: Nanos) -> bool {
        for order in orders.take() {
            self.follow(order, now);
        }
        match self.phase {
            Phase::Running => true,
            Phase::Draining(until) => {
                now < until && !(self.unsent_bytes == 0 && self.arbiter.has_sent_all())
            }
            Phase::Over => false,
        }
    }

    fn follow(&mut self, order: Order, now: Nanos) {
        let arbiter = &mut self.arbiter;
        // Clients registered before the request are among them.
        arbiter.take_in_registered();
        // The requester may be gone.
        match order {
            Order::Stats(to) => drop(to.send(self.stats(now))),
            Order::Clients(to) => drop(to.send(arbiter.client_stats().collect())),
            Order::Change(client, flow, to) => drop(to.send(arbiter.change_client(client, flow))),
            Order::Rate(rate) => arbiter.change_rate(rate, now),
            Order::Drain(longest) => {
                arbiter.refuse_pushes();
                self.phase = Phase::Draining(now + Nanos::from(longest));
            }
            Order::Stop => self.phase = Phase::Over,
        }
    }

    fn stats(&self, uptime: Nanos) -> LinkStats {
        LinkStats {
            uptime,
            total: self.arbiter.total_stats(),
            waiting_for_backend: self.arbiter.waiting_for_backend(),
            unsent_bytes: self.unsent_bytes,
            in_mailboxes: 0,
            clients: self.arbiter.clients(),
            arbiter: self.arbiter.stats(),
        }
    }
}

impl LinkHandle {
    fn order(&self, order: Order) {
        let mut waiting = self.orders.lock();
        waiting.push(order);
        self.orders.pending.store(true, Ordering::Release);
        // The thread finds the list free when it wakes.
        drop(waiting);
        self.bell.nudge();
    }

    fn ask<T>(&self, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> Result<T, Ended> {
        if self.is_ended() {
            return Err(Ended);
        }
        let (to, answer) = oneshot::channel();
        self.order(order(to));
        loop {
            match answer.recv_timeout(LOOK) {
                Ok(answer) => return Ok(answer),
                // It may have ended since, with the order in the list.
                Err(oneshot::RecvTimeoutError::Timeout) if !self.is_ended() => {}
                Err(_) => return Err(Ended),
            }
        }
    }

    /// Returns whether the thread has ended: its backend failed, say. O(1).
    pub fn is_ended(&self) -> bool {
        Arc::strong_count(&self.orders) == 1
    }

    /// Returns the counts of packets so far. Waits for the next step of the thread, which is awake within
    /// some 100 microseconds.
    ///
    /// # Errors
    ///
    /// The thread has ended.
    pub fn stats(&self) -> Result<LinkStats, Ended> {
        self.ask(Order::Stats)
    }

    /// The same of each client, in the order of their numbers. The thread spends O(clients) on it.
    ///
    /// # Errors
    ///
    /// The thread has ended.
    pub fn client_stats(&self) -> Result<Vec<(ClientId, ClientStats)>, Ended> {
        self.ask(Order::Clients)
    }

    /// Gives a client another weight or longest packet, as
    /// [`Arbiter::change_client`] does.
    ///
    /// # Errors
    ///
    /// The thread has ended, or the flow cannot be so; nothing was changed then.
    pub fn change(&self, client: ClientId, flow: Flow) -> Result<(), ChangeLinkError> {
        let flow = flow.try_into()?;
        self.ask(|to| Order::Change(client, flow, to))??;
        Ok(())
    }

    /// Changes the link's rate. Does not wait; later requests see the change.
    ///
    /// # Errors
    ///
    /// The thread has ended.
    pub fn change_rate(&self, rate: Rate) -> Result<(), Ended> {
        if self.is_ended() {
            return Err(Ended);
        }
        self.order(Order::Rate(rate));
        Ok(())
    }

    /// Ends the link when pushed packets have been sent and the device has finished, or after `longest`:
    /// pushes and new clients are rejected from now on. Packets pushed by another process are sent until the
    /// end comes. The rest is then counted, and lost.
    ///
    /// A task (`.await`) or a thread ([`Ending::wait`]) may wait for the end; the link drains either way.
    pub fn drain(mut self, longest: Duration) -> Ending {
        self.order(Order::Drain(longest));
        self.ending()
    }

    /// Ends the link at once, within some 100 microseconds. Packets that are queued, or in mailboxes, are not
    /// sent; the counts include them.
    ///
    /// # Errors
    ///
    /// The backend failed, before or now.
    pub fn stop(mut self) -> io::Result<LinkStats> {
        self.order(Order::Stop);
        self.ending().wait()
    }

    fn ending(&mut self) -> Ending {
        let outcome = self.outcome.get_mut();
        Ending {
            outcome: outcome.unwrap_or_else(PoisonError::into_inner).take(),
        }
    }
}

impl Drop for LinkHandle {
    fn drop(&mut self) {
        // Unless a caller waits for it.
        if self.ending().outcome.is_some() {
            self.order(Order::Stop);
        }
    }
}

/// How often it is looked whether the thread that owes an answer is there.
const LOOK: Duration = Duration::from_millis(50);

/// Why a client was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeLinkError {
    /// No flow is like this.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// Its flow cannot be.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The thread that would change it is gone.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// The end of a link that [drains](LinkHandle::drain). Its outcome is what became of its packets, those in
/// `queued`, `in_mailboxes` and `waiting_for_backend` not sent; or how the backend failed.
#[derive(Debug)]
#[must_use = "the end was not waited for"]
pub struct Ending {
    /// `None` if a caller waits already.
    outcome: Option<oneshot::Receiver<io::Result<LinkStats>>>,
}

fn panicked() -> io::Error {
    io::Error::other("the link's thread panicked")
}

impl Ending {
    /// Lets the thread wait for the end.
    ///
    /// # Errors
    ///
    /// The backend failed.
    pub fn wait(self) -> io::Result<LinkStats> {
        match self.outcome.map(oneshot::Receiver::recv) {
            Some(Ok(outcome)) => outcome,
            _ => Err(panicked()),
        }
    }
}

impl IntoFuture for Ending {
    type Output = io::Result<LinkStats>;
    type IntoFuture = EndingFuture;

    fn into_future(self) -> EndingFuture {
        EndingFuture {
            outcome: self.outcome.map(IntoFuture::into_future),
        }
    }
}

/// An [`Ending`] that a task waits for.
#[derive(Debug)]
#[must_use = "the end was not waited for"]
pub struct EndingFuture {
    /// `None` once it was returned.
    outcome: Option<oneshot::AsyncReceiver<io::Result<LinkStats>>>,
}

impl Future for EndingFuture {
    type Output = io::Result<LinkStats>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(outcome) = &mut self.outcome else {
            return Poll::Ready(Err(panicked()));
        };
        let told = std::task::ready!(Pin::new(outcome).poll(cx));
        self.outcome = None;
        Poll::Ready(told.unwrap_or_else(|_| Err(panicked())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_links_thread_waits_for_nobody_who_is_asking_and_hears_him_later() {
        let orders = Orders {
            pending: AtomicBool::new(true),
            waiting: Mutex::new(vec![Order::Stop]),
        };
        let asking = orders.lock();
        assert!(orders.take().is_empty());
        drop(asking);
        assert!(matches!(orders.take()[..], [Order::Stop]));
        assert!(orders.take().is_empty());
    }
}
