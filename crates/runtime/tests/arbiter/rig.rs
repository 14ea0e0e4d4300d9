//! Building blocks of the tests: numbered packets, senders, an arbiter whose device is a queue in
//! memory, and a clock that stands still between two steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fairlane_core::{FlowConfig, Length, Limits, Nanos, PacketScheduler, Rate, Scheduler, Weight};
use fairlane_io::{Backend, ByteLen, MemoryBackend, memory};
use fairlane_runtime::{
    Arbiter, ArbiterConfig, Client, ClientStats, Link, Pushed, Refused, Registrar, Step, Straight,
};

/// How many packets exist, wherever they are. Each counts itself in when it is made
/// and out when it is dropped, so this number depends on no counter under test.
#[derive(Clone, Debug, Default)]
pub(crate) struct Population(Arc<AtomicUsize>);

impl Population {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn packet(&self, from: usize, number: u32, len: u32) -> Packet {
        self.0.fetch_add(1, Ordering::Relaxed);
        Packet {
            from,
            number,
            len,
            population: self.clone(),
        }
    }
}

/// A packet with its sender and its number.
#[derive(Debug)]
pub(crate) struct Packet {
    pub from: usize,
    pub number: u32,
    pub len: u32,
    population: Population,
}

impl ByteLen for Packet {
    fn byte_len(&self) -> usize {
        self.len as usize
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        self.population.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A client that numbers its packets from 0; a refused one keeps its number for the
/// next attempt.
#[derive(Debug)]
pub(crate) struct Sender {
    pub client: Client<Packet>,
    /// The same for no other sender of a rig, unlike the client's number.
    pub name: usize,
    /// Packets that the mailbox took.
    pub pushed: u32,
    population: Population,
}

impl Sender {
    pub(crate) fn push(&mut self, len: u32) -> Result<Pushed, Refused<Packet>> {
        let packet = self.population.packet(self.name, self.pushed, len);
        let pushed = self.client.push(length(len), packet)?;
        self.pushed += 1;
        Ok(pushed)
    }

    pub(crate) fn push_all(&mut self, packets: usize, len: u32) {
        for _ in 0..packets {
            self.push(len).expect("the mailbox has room");
        }
    }

    /// Pushes until the mailbox is full; returns how many went in.
    pub(crate) fn fill(&mut self, len: u32) -> usize {
        let mut packets = 0;
        while self.push(len).is_ok() {
            packets += 1;
        }
        packets
    }
}

/// An arbiter, the far end of its device, and the time.
pub(crate) struct Rig<A: Scheduler, B: Backend = MemoryBackend<Packet>> {
    pub arbiter: Arbiter<PacketScheduler<A, Packet>, Straight<B>>,
    pub far: MemoryBackend<Packet>,
    pub registrar: Registrar<Packet>,
    pub population: Population,
    pub now: Nanos,
    senders: usize,
}

impl<A: Scheduler> Rig<A> {
    /// Returns a device that is never full.
    pub(crate) fn new(algorithm: A, config: ArbiterConfig) -> Self {
        Self::with_device(algorithm, config, usize::MAX)
    }

    /// Returns a device that holds `packets`.
    pub(crate) fn with_device(algorithm: A, config: ArbiterConfig, packets: usize) -> Self {
        let (near, far) = memory::pair(packets);
        Rig::between(algorithm, config, near, far)
    }
}

impl<A: Scheduler, B: Backend<Tx = Packet>> Rig<A, B> {
    pub(crate) fn between(
        algorithm: A,
        config: ArbiterConfig,
        near: B,
        far: MemoryBackend<Packet>,
    ) -> Self {
        let arbiter = Arbiter::new(algorithm, config, near, Nanos::ZERO);
        Rig {
            registrar: arbiter.registrar(),
            arbiter,
            far,
            population: Population::default(),
            now: Nanos::ZERO,
            senders: 0,
        }
    }

    /// Returns a new client.
    pub(crate) fn join(&mut self, config: FlowConfig) -> Sender {
        let client = self.registrar.register(config).expect("room for a client");
        self.adopt(client)
    }

    pub(crate) fn adopt(&mut self, client: Client<Packet>) -> Sender {
        self.senders += 1;
        Sender {
            client,
            name: self.senders - 1,
            pushed: 0,
            population: self.population.clone(),
        }
    }

    /// Steps at the present time. Whatever is tested, the scheduler's own invariants hold after it.
    pub(crate) fn step(&mut self) -> Step {
        let step = self.arbiter.step(self.now).expect("the device works");
        if let Err(violation) = self.arbiter.invariants() {
            panic!("{violation}");
        }
        step
    }

    pub(crate) fn step_at(&mut self, now: Nanos) -> Step {
        self.now = now;
        self.step()
    }

    pub(crate) fn step_after(&mut self, span: Nanos) -> Step {
        self.step_at(self.now + span)
    }

    /// Returns the packets that have arrived at the far end since the last call.
    pub(crate) fn arrived(&mut self) -> Vec<Packet> {
        let mut packets = Vec::new();
        self.far.receive(&mut packets, usize::MAX).unwrap();
        packets
    }

    /// The same, as (sender, number).
    pub(crate) fn arrivals(&mut self) -> Vec<(usize, u32)> {
        names(&self.arrived())
    }

    pub(crate) fn stats(&self, sender: &Sender) -> ClientStats {
        self.arbiter
            .client_stats()
            .find(|(id, _)| *id == sender.client.id())
            .map(|(_, stats)| stats)
            .expect("the arbiter has taken the client in")
    }
}

pub(crate) fn names(packets: &[Packet]) -> Vec<(usize, u32)> {
    packets.iter().map(|p| (p.from, p.number)).collect()
}

/// `(sender, number)` for each number.
pub(crate) fn numbered(sender: usize, numbers: std::ops::Range<u32>) -> Vec<(usize, u32)> {
    numbers.map(|number| (sender, number)).collect()
}

pub(crate) fn length(bytes: u32) -> Length {
    Length::new(bytes).unwrap()
}

pub(crate) fn weight(weight: u32) -> FlowConfig {
    FlowConfig::new(Weight::new(weight).unwrap(), length(1500))
}

/// At most `packets` wait in the flow.
pub(crate) fn holding(packets: u32, config: FlowConfig) -> FlowConfig {
    let limits = Limits {
        packets,
        ..Limits::NONE
    };
    FlowConfig {
        limits: Some(limits),
        ..config
    }
}

/// 8 Mbit/s: a byte a microsecond, 1000 bytes a millisecond.
pub(crate) const BYTE_A_MICROSECOND: u64 = 8_000_000;

pub(crate) fn link(bps: u64) -> Link {
    Link::new(Rate::from_bps(bps).unwrap())
}

/// Returns a link of 8 Mbit/s without overhead, for few clients.
pub(crate) fn config() -> ArbiterConfig {
    on(link(BYTE_A_MICROSECOND))
}

pub(crate) fn on(link: Link) -> ArbiterConfig {
    ArbiterConfig {
        max_clients: 64,
        // Tests step as often as they like at one time.
        read_interval: Nanos::ZERO,
        scan_limit: 64,
        ..ArbiterConfig::new(link)
    }
}

/// Returns a link that never holds up a test of something else.
pub(crate) fn fast() -> ArbiterConfig {
    on(link(1_000_000_000_000))
}

pub(crate) const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

pub(crate) const fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}
