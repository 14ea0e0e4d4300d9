//! The parameters of a measurement.

use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use clap::ValueEnum;
use fairlane_core::{FlowConfig, Length, Limits, Nanos, Rate, SchedulerLimits, Weight};

use super::outcome::Outcome;
use super::victim::Victim;
use super::{arbiter, lock, none};
use fairlane_core::bounds::Guarantees;
use fairlane_core::sched::Algorithm;

/// The deciding component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// An arbiter that clients reach by mailboxes
    Pspat,
    /// The clients themselves, behind one spinlock
    Lock,
    /// None: clients transmit as they like
    None,
}

/// The handling of a released packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transmit {
    /// Nothing
    Noop,
    /// It is sent to a port of loopback
    Udp,
    /// It is sent through an AF_XDP socket on a veth pair of its own (needs root)
    Xdp,
}

/// The transmitting threads, in [`Mode::Pspat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// The clients, after clearance by the arbiter
    Clients,
    /// The arbiter
    Straight,
    /// Dispatcher threads
    Dispatchers,
}

/// Returns the name that the command line has for a value.
pub fn name(value: impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Case {
    /// Registered clients, without the victim.
    pub clients: u32,
    /// Of which this many send.
    pub active: u32,
    /// Most clients that the arbiter admits.
    pub max_clients: u32,
    /// Threads that the sending clients are spread over.
    pub threads: u32,
    pub alg: Algorithm,
    pub mode: Mode,
    pub transmit: Transmit,
    pub way: Way,
    /// Threads of [`Way::Dispatchers`], at least 1 there.
    pub dispatchers: u32,
    pub rate: Rate,
    /// Of the clients, in turns.
    pub weights: Vec<Weight>,
    pub packet: Length,
    /// Slots of a client's mailbox.
    pub mailbox: usize,
    /// Packets that a flow may queue behind the mailbox.
    pub queue: u32,
    pub read_interval: Nanos,
    /// Most mailboxes looked at in one step of an arbiter, at least 1.
    pub scan_limit: u32,
    pub victim: Option<Victim>,
    /// Whether an idle arbiter sleeps.
    pub sleep: bool,
    pub seconds: f64,
}

impl Case {
    pub fn weight(&self, client: u32) -> Weight {
        self.weights[client as usize % self.weights.len()]
    }

    pub fn flow(&self, client: u32) -> FlowConfig {
        self.flow_of(self.weight(client))
    }

    /// Returns the configuration of all clients of a weight.
    pub fn flow_of(&self, weight: Weight) -> FlowConfig {
        FlowConfig::new(weight, self.packet)
    }

    /// Returns the algorithm's guarantees, over `packets` packets.
    pub fn guarantees(&self, packets: u64) -> Guarantees {
        let clients = (0..self.clients).map(|client| self.flow(client));
        let victim = self.victim.map(|victim| self.flow_of(victim.weight));
        let flows: Vec<FlowConfig> = clients.chain(victim).collect();
        let sent = packets * u64::from(self.packet.get());
        Guarantees::new(self.alg, &flows, sent)
    }

    /// Packets of a client that may be under way: as many as its mailbox has slots.
    pub fn window(&self) -> u32 {
        self.mailbox as u32
    }

    /// Returns the limits of the flows. Further packets wait in the mailboxes.
    pub fn limits(&self) -> SchedulerLimits {
        SchedulerLimits {
            packets: self.queue.saturating_mul(self.clients + 1),
            bytes: u64::MAX,
            per_flow: Limits {
                packets: self.queue,
                ..Limits::NONE
            },
        }
    }

    pub fn span(&self) -> Nanos {
        Nanos((self.seconds * 1e9) as u64)
    }
}

/// Measures until the time is over or `stop` is set.
pub fn measure(case: &Case, stop: &AtomicBool) -> Result<Outcome> {
    match case.mode {
        Mode::None => none::measure(case, stop),
        Mode::Lock => lock::measure(case, stop),
        Mode::Pspat => arbiter::measure(case, stop),
    }
    .with_context(|| format!("mode {}", name(case.mode)))
}
