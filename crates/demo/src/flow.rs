//! The flows of a run: their identities, and each thread's counts.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairlane_core::{FlowConfig, Length, Nanos, Weight};
use fairlane_io::Frame;
use fairlane_runtime::ClientId;

/// Bytes that IPv4 and UDP add to a datagram on the link.
pub(crate) const OVERHEAD: u32 = 28;

/// A datagram on its way through the arbiter.
#[derive(Debug)]
pub struct Outgoing {
    /// Number of its flow.
    pub flow: u32,
    /// When its client pushed it.
    pub pushed_at: Nanos,
    /// The flow's sink.
    pub peer: SocketAddr,
    pub payload: Vec<u8>,
}

/// In a mailbox a outgoing is one pointer.
impl Frame for Box<Outgoing> {
    fn bytes(&self) -> &[u8] {
        &self.payload
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }
}

/// A number of datagrams and their bytes on the link.
#[derive(Debug, Default)]
pub struct Counter {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    /// Counts a datagram with `payload` bytes.
    pub fn add(&self, payload: usize) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes
            .fetch_add(payload as u64 + u64::from(OVERHEAD), Ordering::Relaxed);
    }

    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// An amount of fluid, in bytes and parts of them; one thread adds to it.
#[derive(Debug, Default)]
pub struct Bytes(AtomicU64);

impl Bytes {
    pub fn add(&self, bytes: f64) {
        let sum = self.get() + bytes;
        self.0.store(sum.to_bits(), Ordering::Relaxed);
    }

    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// A flow of the run. Each counter is written by one thread.
#[derive(Debug)]
pub struct Flow {
    pub name: String,
    pub weight: Weight,
    /// Of its packets on the link.
    pub max_length: Length,
    /// The client that owns it now; `None` for a process that left.
    client: Mutex<Option<ClientId>>,
    /// Where its datagrams are received.
    pub sink: SocketAddr,
    /// By the sender: all it wanted to send.
    pub offered: Counter,
    /// By the sender: handed back because the mailbox was full.
    pub backpressure: AtomicU64,
    /// By the arbiter's thread: dropped because the flow's queue was full.
    pub dropped: AtomicU64,
    /// By the arbiter's thread: taken by the socket.
    pub sent: Counter,
    /// By the arbiter's thread: bytes that an ideal fluid server would have sent.
    pub expected: Bytes,
    /// By the receiver's thread.
    pub received: Counter,
    /// From push to socket, in nanoseconds, so far: by the arbiter's thread.
    pub delay: Delay,
}

impl Flow {
    fn client(&self) -> MutexGuard<'_, Option<ClientId>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns its configuration on the link.
    pub fn config(&self) -> FlowConfig {
        FlowConfig::new(self.weight, self.max_length)
    }

    pub fn is_of(&self, client: ClientId) -> bool {
        *self.client() == Some(client)
    }

    /// Returns a flow of which nothing was counted yet. On the link, its packets have the overhead
    /// on top of `config`'s maximum length.
    pub fn new(name: String, config: FlowConfig, client: ClientId, sink: SocketAddr) -> Flow {
        let longest = config.max_length.get().saturating_add(OVERHEAD);
        Flow {
            name,
            weight: config.weight,
            max_length: Length::new(longest).unwrap_or(Length::MAX),
            client: Mutex::new(Some(client)),
            sink,
            offered: Counter::default(),
            backpressure: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            sent: Counter::default(),
            expected: Bytes::default(),
            received: Counter::default(),
            delay: Delay::default(),
        }
    }
}

#[derive(Debug, Default)]
pub struct Delay {
    pub p50: AtomicU64,
    pub p99: AtomicU64,
    pub max: AtomicU64,
}

/// All flows, in order of their numbers; flows are added and never removed.
#[derive(Clone, Debug, Default)]
pub struct Flows(Arc<Mutex<Vec<Arc<Flow>>>>);

impl Flows {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Flow>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a flow and gives it its number.
    pub fn add(&self, flow: Flow) -> (u32, Arc<Flow>) {
        let mut flows = self.lock();
        let flow = Arc::new(flow);
        flows.push(Arc::clone(&flow));
        (flows.len() as u32 - 1, flow)
    }

    /// From now on the flow is that client's; no other is, as numbers of clients that left are
    /// given again.
    pub fn hand_over(&self, to: &Flow, client: ClientId) {
        for flow in self.lock().iter().filter(|flow| flow.is_of(client)) {
            *flow.client() = None;
        }
        *to.client() = Some(client);
    }

    pub fn all(&self) -> Vec<Arc<Flow>> {
        self.lock().clone()
    }
}
