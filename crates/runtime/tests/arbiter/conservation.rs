//! No packet is lost, duplicated or overtaken: random operations compared with a model that knows
//! the contents of each mailbox, for every algorithm.
//!
//! Packets count themselves, so their number is known independently of the arbiter's own counts.

use std::collections::BTreeMap;

use fairlane_core::sched::{Drr, Fifo, Qfq};
use fairlane_core::{FlowConfig, Limits, Nanos, Scheduler, SchedulerLimits, Weight};
use fairlane_runtime::{ArbiterConfig, Link, Next, Refusal, RegisterError, Step};
use proptest::prelude::*;

use crate::rig::{Packet, Rig, Sender, length, link, ms, weight};

const OVERHEAD: u32 = 38;
const MAX_LENGTH: u32 = 1500;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Register {
        weight: u32,
        holds: Option<u32>,
    },
    Push {
        who: usize,
        packets: u8,
        len: u32,
    },
    Leave {
        who: usize,
    },
    Step {
        micros: u32,
    },
    Receive {
        packets: usize,
    },
    Change {
        who: usize,
        weight: u32,
        holds: Option<u32>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    max_clients: usize,
    mailbox_slots: usize,
    drain_limit: usize,
    release_limit: usize,
    device: usize,
    /// Room for this many packets in all flows.
    packets: u32,
    bps: u64,
}

impl Setup {
    fn config(self) -> ArbiterConfig {
        ArbiterConfig {
            link: Link {
                overhead: OVERHEAD,
                ..link(self.bps)
            },
            limits: SchedulerLimits {
                packets: self.packets,
                ..SchedulerLimits::default()
            },
            max_clients: self.max_clients,
            mailbox_slots: self.mailbox_slots,
            drain_limit: self.drain_limit,
            release_limit: self.release_limit,
            read_interval: Nanos::ZERO,
            scan_limit: 64,
            ..ArbiterConfig::new(link(self.bps))
        }
    }
}

fn setup() -> impl Strategy<Value = Setup> {
    (
        1usize..8,
        prop_oneof![Just(8usize), Just(16), Just(64)],
        1usize..12,
        1usize..12,
        prop_oneof![1 => 0usize..3, 3 => 3usize..40],
        prop_oneof![1 => 1u32..20, 3 => Just(1000u32)],
        prop_oneof![Just(1_000_000u64), Just(100_000_000)],
    )
        .prop_map(
            |(max_clients, mailbox_slots, drain_limit, release_limit, device, packets, bps)| {
                Setup {
                    max_clients,
                    mailbox_slots,
                    drain_limit,
                    release_limit,
                    device,
                    packets,
                    bps,
                }
            },
        )
}

fn operation() -> impl Strategy<Value = Operation> {
    let who = 0usize..16;
    let weight = prop_oneof![Just(1u32), 1u32..100, 1u32..=1_000_000];
    let holds = prop_oneof![2 => Just(None), 1 => (0u32..10).prop_map(Some)];
    prop_oneof![
        2 => (weight.clone(), holds.clone())
            .prop_map(|(weight, holds)| Operation::Register { weight, holds }),
        8 => (who.clone(), 1u8..20, 1u32..=MAX_LENGTH)
            .prop_map(|(who, packets, len)| Operation::Push { who, packets, len }),
        1 => who.clone().prop_map(|who| Operation::Leave { who }),
        8 => prop_oneof![Just(0u32), 1u32..5_000, 5_000u32..100_000]
            .prop_map(|micros| Operation::Step { micros }),
        4 => (0usize..30).prop_map(|packets| Operation::Receive { packets }),
        1 => (who, weight, holds)
            .prop_map(|(who, weight, holds)| Operation::Change { who, weight, holds }),
    ]
}

/// The model's state of one client.
#[derive(Debug, Default)]
struct Known {
    /// `None` once it left.
    sender: Option<Sender>,
    in_mailbox: usize,
    /// Drops reported to pushes.
    told: u64,
    /// A step has seen it.
    taken_in: bool,
}

struct Model<A: Scheduler> {
    rig: Rig<A>,
    setup: Setup,
    /// By the sender's name.
    clients: BTreeMap<usize, Known>,
    /// The number expected at least next, by the sender's name.
    next_number: BTreeMap<usize, u32>,
    pushed: u64,
    transmitted: u64,
    received: u64,
    /// In carried bytes.
    received_bytes: u64,
}

impl<A: Scheduler> Model<A> {
    fn new(algorithm: A, setup: Setup) -> Self {
        Model {
            rig: Rig::with_device(algorithm, setup.config(), setup.device),
            setup,
            clients: BTreeMap::new(),
            next_number: BTreeMap::new(),
            pushed: 0,
            transmitted: 0,
            received: 0,
            received_bytes: 0,
        }
    }

    fn flow(weight: u32, holds: Option<u32>) -> FlowConfig {
        FlowConfig {
            weight: Weight::new(weight).unwrap(),
            max_length: length(MAX_LENGTH),
            limits: holds.map(|packets| Limits {
                packets,
                ..Limits::NONE
            }),
        }
    }

    /// Returns the name of a client that has not left, chosen by a number.
    fn pick(&self, number: usize) -> Option<usize> {
        let here = || self.clients.iter().filter(|(_, c)| c.sender.is_some());
        let count = here().count();
        (count > 0).then(|| *here().nth(number % count).unwrap().0)
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Register { weight, holds } => self.register(Self::flow(weight, holds)),
            Operation::Push { who, packets, len } => {
                if let Some(name) = self.pick(who) {
                    for _ in 0..packets {
                        self.push(name, len);
                    }
                }
            }
            Operation::Leave { who } => {
                if let Some(name) = self.pick(who) {
                    self.clients.get_mut(&name).unwrap().sender = None;
                }
            }
            Operation::Step { micros } => {
                self.step(Nanos::from_micros(micros.into()));
            }
            Operation::Receive { packets } => self.receive(packets),
            Operation::Change { who, weight, holds } => {
                if let Some(name) = self.pick(who) {
                    let client = self.clients.get_mut(&name).unwrap();
                    let sender = client.sender.as_ref().unwrap();
                    let config = Self::flow(weight, holds);
                    let id = sender.client.id();
                    assert_eq!(self.rig.arbiter.change_client(id, config), Ok(()));
                    // A change registers clients that have knocked.
                    self.all_taken_in();
                }
            }
        }
    }

    fn all_taken_in(&mut self) {
        for client in self.clients.values_mut() {
            client.taken_in = true;
        }
    }

    fn register(&mut self, config: FlowConfig) {
        let waiting = self.clients.values().filter(|c| !c.taken_in).count();
        let known = self.rig.arbiter.clients() + waiting;
        match self.rig.registrar.register(config) {
            Ok(client) => {
                assert!(known < self.setup.max_clients);
                let id = client.id();
                assert!(
                    self.rig
                        .arbiter
                        .client_stats()
                        .all(|(other, _)| other != id),
                    "{id:?} is in use"
                );
                let sender = self.rig.adopt(client);
                let name = sender.name;
                let known = Known {
                    sender: Some(sender),
                    ..Known::default()
                };
                self.clients.insert(name, known);
            }
            Err(error) => {
                assert_eq!(error, RegisterError::TooManyClients(self.setup.max_clients));
                assert_eq!(known, self.setup.max_clients);
            }
        }
    }

    fn push(&mut self, name: usize, len: u32) {
        let client = self.clients.get_mut(&name).unwrap();
        let sender = client.sender.as_mut().unwrap();
        match sender.push(len) {
            Ok(pushed) => {
                client.in_mailbox += 1;
                client.told += pushed.dropped_before;
                self.pushed += 1;
                if client.taken_in {
                    let dropped = self.rig.stats(sender).flow.dropped.packets;
                    assert_eq!(client.told, dropped, "drops told to {name}");
                }
            }
            Err(refused) => {
                assert_eq!(refused.reason, Refusal::MailboxFull);
                assert_eq!(
                    (refused.packet.from, refused.packet.number),
                    (name, sender.pushed)
                );
                assert!(client.in_mailbox * 2 >= self.setup.mailbox_slots);
            }
        }
    }

    fn step(&mut self, span: Nanos) -> Step {
        let sent_before = self.rig.arbiter.total_stats().sent.packets;
        let held_up = self.rig.arbiter.waiting_for_backend();
        let step = self.rig.step_after(span);
        self.all_taken_in();

        let mut drained = 0;
        for client in self.clients.values_mut() {
            let taken = client.in_mailbox.min(self.setup.drain_limit);
            client.in_mailbox -= taken;
            drained += taken;
        }
        assert_eq!(step.drained, drained);
        assert!(step.released <= self.setup.release_limit);
        let sent = self.rig.arbiter.total_stats().sent.packets;
        assert_eq!(sent - sent_before, step.released as u64);
        self.transmitted += step.transmitted as u64;
        let held_up_now = self.rig.arbiter.waiting_for_backend();
        assert_eq!(held_up + step.released, step.transmitted + held_up_now);
        assert!(
            step.released == 0 || step.transmitted >= held_up,
            "the batch goes first"
        );

        match step.next {
            Next::WhenBackendTakesMore => assert!(held_up_now > 0),
            Next::WhenPushed => {
                let queued = self.rig.arbiter.total_stats().queued.packets;
                let in_mailboxes: usize = self.clients.values().map(|c| c.in_mailbox).sum();
                assert_eq!((held_up_now, queued, in_mailboxes), (0, 0, 0));
            }
            Next::At(time) => assert!(time > self.rig.now && held_up_now == 0),
            Next::Now => assert_eq!(held_up_now, 0),
        }
        step
    }

    fn receive(&mut self, packets: usize) {
        let mut arrived = Vec::new();
        use fairlane_io::Backend as _;
        self.rig.far.receive(&mut arrived, packets).unwrap();
        for Packet {
            from, number, len, ..
        } in &arrived
        {
            let next = self.next_number.entry(*from).or_default();
            assert!(number >= next, "{number} of {from} comes after {next}");
            *next = number + 1;
            self.received_bytes += u64::from(len + OVERHEAD);
        }
        self.received += arrived.len() as u64;
    }

    /// Every packet that was pushed is in one place, and the counts say in which.
    fn check(&self) {
        if let Err(violation) = self.rig.arbiter.invariants() {
            panic!("{violation}");
        }
        let total = self.rig.arbiter.total_stats();
        let in_mailboxes: usize = self.clients.values().map(|c| c.in_mailbox).sum();
        let in_batch = self.rig.arbiter.waiting_for_backend();
        let in_device = self.rig.arbiter.backend().queued();
        let here = in_mailboxes as u64 + total.queued.packets + in_batch as u64;
        assert_eq!(self.transmitted, self.received + in_device as u64);
        assert_eq!(self.pushed, self.transmitted + total.dropped.packets + here);
        assert_eq!(self.rig.population.count() as u64, here + in_device as u64);
        assert_eq!(total.discarded.packets, 0);
        for client in self.clients.values().filter(|c| c.taken_in) {
            let Some(sender) = &client.sender else {
                continue;
            };
            let stats = self.rig.stats(sender);
            assert_eq!(stats.pushed, u64::from(sender.pushed));
            assert_eq!(
                stats.pushed,
                stats.flow.accepted.packets + stats.flow.dropped.packets + client.in_mailbox as u64
            );
        }
    }

    /// All clients leave and all packets arrive.
    fn finish(mut self) {
        for client in self.clients.values_mut() {
            client.sender = None;
        }
        if self.setup.device > 0 {
            let mut steps = 0;
            loop {
                self.step(ms(100));
                self.receive(usize::MAX);
                self.check();
                if self.rig.arbiter.clients() == 0 && self.rig.population.count() == 0 {
                    break;
                }
                steps += 1;
                assert!(steps < 5_000, "{:?}", self.rig.arbiter.total_stats());
            }
            let total = self.rig.arbiter.total_stats();
            assert_eq!(self.pushed, self.received + total.dropped.packets);
            assert_eq!(total.sent.bytes, self.received_bytes);
            let places: Vec<_> = (0..self.setup.max_clients)
                .map(|_| self.rig.join(weight(1)))
                .collect();
            assert!(self.rig.registrar.register(weight(1)).is_err());
            drop(places);
        }
        let in_device = self.rig.arbiter.backend().queued();
        drop(self.rig.arbiter);
        assert_eq!(self.rig.population.count(), in_device);
    }
}

fn run<A: Scheduler>(algorithm: A, setup: Setup, operations: &[Operation]) {
    let mut model = Model::new(algorithm, setup);
    for &operation in operations {
        model.apply(operation);
        model.check();
    }
    model.finish();
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec(operation(), 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn fifo_loses_no_packet_and_keeps_each_clients_order(
        setup in setup(), operations in operations(),
    ) {
        run(Fifo::new(), setup, &operations);
    }

    #[test]
    fn drr_loses_no_packet_and_keeps_each_clients_order(
        setup in setup(), operations in operations(),
    ) {
        run(Drr::new(), setup, &operations);
    }

    #[test]
    fn qfq_loses_no_packet_and_keeps_each_clients_order(
        setup in setup(), operations in operations(),
    ) {
        run(Qfq::new(), setup, &operations);
    }
}
