//! Dispatching clients: cleared packets come out in order, dropped ones do not, and a window bounds
//! the packets in between.

use std::collections::VecDeque;

use fairlane_core::sched::Qfq;
use fairlane_core::{FlowConfig, FlowStats, Nanos, PacketScheduler};
use fairlane_io::{Backend, ByteLen, MemoryBackend, memory};
use fairlane_runtime::{
    Arbiter, ArbiterConfig, Cleared, ClientsDispatch, DispatchingClient, Refusal, RegisterError,
    Registrar, Step,
};
use proptest::prelude::*;

use crate::rig::{config, fast, holding, length, link, ms, on, us, weight};

struct Numbered(u32);

impl ByteLen for Numbered {
    fn byte_len(&self) -> usize {
        1
    }
}

struct Clearing {
    arbiter: Arbiter<PacketScheduler<Qfq, Cleared>, ClientsDispatch>,
    registrar: Registrar<Cleared>,
    now: Nanos,
}

impl Clearing {
    fn new(config: ArbiterConfig) -> Self {
        let release = ClientsDispatch::new();
        let arbiter = Arbiter::releasing(Qfq::new(), config, release, Nanos::ZERO);
        Clearing {
            registrar: arbiter.registrar(),
            arbiter,
            now: Nanos::ZERO,
        }
    }

    fn join(&self, config: FlowConfig, window: u32) -> Dispatching {
        let client = self.registrar.register_dispatching(config, window);
        let (near, far) = memory::pair(usize::MAX);
        Dispatching {
            client: client.unwrap(),
            pushed: 0,
            near,
            far,
        }
    }

    fn step_after(&mut self, span: Nanos) -> Step {
        self.now += span;
        let step = self.arbiter.step(self.now).unwrap();
        self.arbiter.invariants().unwrap();
        step
    }

    fn stats(&self, of: &Dispatching) -> FlowStats {
        let mut all = self.arbiter.client_stats();
        all.find(|(id, _)| *id == of.client.id()).unwrap().1.flow
    }
}

/// A client that numbers its packets, and its device.
struct Dispatching {
    client: DispatchingClient<Numbered>,
    pushed: u32,
    near: MemoryBackend<Numbered>,
    far: MemoryBackend<Numbered>,
}

impl Dispatching {
    fn push(&mut self, len: u32) -> Result<(), Refusal> {
        let pushed = self.client.push(length(len), Numbered(self.pushed));
        if let Err(refused) = pushed {
            assert_eq!(refused.packet.0, self.pushed, "handed back");
            return Err(refused.reason);
        }
        self.pushed += 1;
        Ok(())
    }

    fn push_all(&mut self, packets: u32, len: u32) {
        for _ in 0..packets {
            self.push(len).unwrap();
        }
    }

    fn holding_in_the_device(self, packets: usize) -> Self {
        let (near, far) = memory::pair(packets);
        Dispatching { near, far, ..self }
    }

    /// Dispatches cleared packets; returns the numbers that the device has now.
    fn dispatch(&mut self) -> Vec<u32> {
        self.client.dispatch(&mut self.near).unwrap();
        let mut out = Vec::new();
        self.far.receive(&mut out, usize::MAX).unwrap();
        out.into_iter().map(|packet| packet.0).collect()
    }
}

#[test]
fn a_packet_stays_with_its_client_until_it_is_cleared() {
    let mut clearing = Clearing::new(config());
    let mut client = clearing.join(weight(1), 10);
    client.push_all(5, 1000);
    assert_eq!(client.dispatch(), []);
    // A thousand bytes are a millisecond of the link.
    let step = clearing.step_after(Nanos::ZERO);
    assert_eq!((step.released, step.transmitted), (1, 1));
    assert_eq!(client.dispatch(), [0]);
    assert_eq!(client.dispatch(), []);
    clearing.step_after(ms(1) - Nanos(1));
    assert_eq!(client.dispatch(), []);
    clearing.step_after(Nanos(1));
    clearing.step_after(ms(2));
    assert_eq!(client.dispatch(), [1, 2, 3]);
    assert_eq!((client.client.pending(), client.client.dropped()), (1, 0));
}

#[test]
fn clients_are_cleared_by_their_weights() {
    let mut clearing = Clearing::new(config());
    let mut clients = [clearing.join(weight(1), 100), clearing.join(weight(3), 100)];
    clients
        .iter_mut()
        .for_each(|client| client.push_all(80, 100));
    clearing.step_after(Nanos::ZERO);
    clearing.step_after(ms(6));
    let cleared = clients.map(|mut client| client.dispatch().len());
    assert_eq!(cleared[0] + cleared[1], 60 + 1);
    assert!((14..=17).contains(&cleared[0]), "{cleared:?}");
}

#[test]
fn a_client_is_told_at_once_or_while_the_arbiter_is_behind_at_the_next_look() {
    let mut clearing = Clearing::new(config());
    let mut client = clearing.join(weight(1), 200);
    client.push_all(128, 100);
    clearing.step_after(Nanos::ZERO);
    assert_eq!(client.dispatch().len(), 1);
    // 64 in a step are the most; more were due.
    clearing.step_after(ms(8));
    assert_eq!(client.dispatch().len(), 0);
    clearing.step_after(Nanos(1));
    assert_eq!(client.dispatch().len(), 64 + 16);
}

#[test]
fn no_more_than_a_window_of_packets_is_under_way() {
    for window in [1, 7, 64] {
        let mut clearing = Clearing::new(config());
        let mut client = clearing.join(weight(1), window);
        client.push_all(window, 1000);
        assert_eq!(client.push(1000), Err(Refusal::MailboxFull));
        clearing.step_after(Nanos::ZERO);
        // Cleared, but still the client's.
        assert_eq!(client.push(1000), Err(Refusal::MailboxFull));
        assert_eq!(client.dispatch(), [0]);
        client.push_all(1, 1000);
        assert_eq!(client.push(1000), Err(Refusal::MailboxFull));
        assert_eq!(client.client.pending(), window as usize);
    }
}

#[test]
fn a_window_larger_than_the_mailbox_is_bounded_by_the_mailbox() {
    let mut clearing = Clearing::new(ArbiterConfig {
        mailbox_slots: 64,
        ..fast()
    });
    let mut client = clearing.join(weight(1), 1000);
    while client.push(100).is_ok() {}
    let held = client.client.pending() as u32;
    assert!((64..1000).contains(&held) && held == client.pushed);
    while clearing.step_after(us(1)).moved() > 0 {}
    assert_eq!(client.dispatch(), (0..held).collect::<Vec<_>>());
}

#[test]
fn a_batch_takes_what_fits_and_leaves_the_rest() {
    let mut clearing = Clearing::new(fast());
    let mut client = clearing
        .registrar
        .register_dispatching(weight(1), 10)
        .unwrap();
    let mut packets = (0..25).map(|number| (length(100), number));
    for from in [0, 10, 20] {
        let taken = client.push_batch(&mut packets).unwrap();
        assert_eq!(taken, (25 - from).min(10));
        clearing.step_after(us(1));
        for number in (from..25).take(10) {
            assert_eq!(client.next_cleared(), Some(number));
        }
        assert_eq!(client.next_cleared(), None);
    }
}

#[test]
fn a_packet_too_long_ends_a_batch_and_comes_back() {
    let mut clearing = Clearing::new(fast());
    let mut client = clearing
        .registrar
        .register_dispatching(weight(1), 10)
        .unwrap();
    let lengths = [100, 1500, 1501, 60];
    let mut packets = (0..)
        .zip(lengths)
        .map(|(number, len)| (length(len), number));
    let refused = client.push_batch(&mut packets).unwrap_err();
    let (len, max) = (length(1501), length(1500));
    assert_eq!(
        (refused.packet, refused.reason),
        (2, Refusal::TooLong { len, max })
    );
    assert_eq!(client.push_batch(&mut packets), Ok(1), "those behind it");
    clearing.step_after(us(1));
    let cleared: Vec<_> = std::iter::from_fn(|| client.next_cleared()).collect();
    assert_eq!((cleared, client.pending()), (vec![0, 1, 3], 0));
}

#[test]
fn what_was_dropped_inside_is_dropped_by_its_client_and_the_rest_comes_out_in_order() {
    let mut clearing = Clearing::new(config());
    let mut client = clearing.join(holding(3, weight(1)), 20);
    client.push_all(8, 1000);
    clearing.step_after(Nanos::ZERO);
    assert_eq!(clearing.stats(&client).dropped.packets, 5);
    // One left the queue, so one more fits.
    client.push_all(2, 1000);
    clearing.step_after(us(1));
    let mut out = client.dispatch();
    assert_eq!(out, [0]);
    for _ in 0..5 {
        clearing.step_after(ms(1));
        out.extend(client.dispatch());
    }
    assert_eq!(out, [0, 1, 2, 8]);
    assert_eq!((client.client.dropped(), client.client.pending()), (6, 0));
}

#[test]
fn a_window_of_drops_alone_is_told_and_makes_room() {
    let mut clearing = Clearing::new(config());
    let mut client = clearing.join(holding(0, weight(1)), 16);
    for round in 1..4 {
        client.push_all(16, 1000);
        assert_eq!(client.push(1000), Err(Refusal::MailboxFull));
        clearing.step_after(us(1));
        assert_eq!(client.dispatch(), []);
        assert_eq!(
            (client.client.dropped(), client.client.pending()),
            (16 * round, 0)
        );
    }
}

#[test]
fn a_device_that_takes_few_at_a_time_gets_all_in_order() {
    let mut clearing = Clearing::new(fast());
    let mut client = clearing.join(weight(1), 64).holding_in_the_device(3);
    client.push_all(50, 100);
    clearing.step_after(us(1));
    let mut out = Vec::new();
    for left in (0..50_usize).rev().step_by(3) {
        out.extend(client.dispatch());
        assert_eq!(client.client.pending(), left.saturating_sub(2));
    }
    assert!(out.into_iter().eq(0..50));
}

#[test]
fn a_device_that_is_full_for_ever_holds_up_its_client_and_nobody_else() {
    let mut clearing = Clearing::new(fast());
    let mut stuck = clearing.join(weight(1), 16).holding_in_the_device(0);
    let mut other = clearing.join(weight(1), 16);
    for _ in 0..100 {
        while stuck.push(100).is_ok() {}
        other.push_all(16, 100);
        clearing.step_after(us(1));
        assert_eq!((stuck.dispatch().len(), other.dispatch().len()), (0, 16));
        // A window that was cleared, and another.
        assert!(stuck.client.pending() <= 32);
    }
    assert_eq!(stuck.push(100), Err(Refusal::MailboxFull));
}

#[test]
fn a_client_that_leaves_early_takes_its_packets_with_it_and_its_place_is_free() {
    let mut clearing = Clearing::new(ArbiterConfig {
        max_clients: 1,
        ..config()
    });
    for round in 0..3 {
        let mut client = clearing.join(weight(1), 16);
        assert_eq!(
            clearing
                .registrar
                .register_dispatching::<()>(weight(1), 16)
                .err(),
            Some(RegisterError::TooManyClients(1))
        );
        client.push_all(10, 1000);
        clearing.step_after(Nanos::ZERO);
        assert_eq!(client.dispatch(), [0], "round {round}");
        drop(client);
        // The link is charged for cleared packets.
        for _ in 0..10 {
            clearing.step_after(ms(1));
        }
        assert_eq!(clearing.arbiter.clients(), 0);
        assert_eq!(
            clearing.arbiter.total_stats().sent.packets,
            10 * (round + 1)
        );
    }
}

#[test]
fn when_the_arbiter_is_gone_what_was_cleared_is_still_dispatched() {
    let mut clearing = Clearing::new(config());
    let mut client = clearing.join(weight(1), 4);
    client.push_all(4, 1000);
    clearing.step_after(Nanos::ZERO);
    clearing.step_after(ms(1));
    drop(clearing.arbiter);
    assert_eq!(client.push(1000), Err(Refusal::ArbiterGone));
    assert_eq!(client.dispatch(), [0, 1]);
    assert_eq!(client.dispatch(), []);
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Push { who: usize, packets: u8, len: u32 },
    Step { micros: u32 },
    Dispatch { who: usize },
    Drain { who: usize },
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    window: u32,
    holds: u32,
    device: usize,
}

fn operation() -> impl Strategy<Value = Operation> {
    let who = 0_usize..3;
    prop_oneof![
        4 => (who.clone(), 1_u8..20, 1_u32..1500)
            .prop_map(|(who, packets, len)| Operation::Push { who, packets, len }),
        4 => prop_oneof![Just(0_u32), 1_u32..10_000].prop_map(|micros| Operation::Step { micros }),
        3 => who.clone().prop_map(|who| Operation::Dispatch { who }),
        2 => who.prop_map(|who| Operation::Drain { who }),
    ]
}

fn setup() -> impl Strategy<Value = Setup> {
    (1_u32..40, 0_u32..12, 1_usize..10).prop_map(|(window, holds, device)| Setup {
        window,
        holds,
        device,
    })
}

/// A client and its expected state: a queue that mirrors the arbiter's.
struct Known {
    client: Dispatching,
    /// In the mailbox, oldest first; the model knows how many the arbiter took.
    mailbox: VecDeque<u32>,
    queue: VecDeque<u32>,
    /// In the order in which they were cleared, and not yet transmitted.
    cleared: VecDeque<u32>,
    drops: u64,
    seen: FlowStats,
}

impl Known {
    /// The arbiter has drained first, then released.
    fn after_step(&mut self, stats: FlowStats, holds: u32) {
        let taken = |stats: FlowStats| stats.accepted.packets + stats.dropped.packets;
        for _ in taken(self.seen)..taken(stats) {
            let number = self.mailbox.pop_front().unwrap();
            if self.queue.len() < holds as usize {
                self.queue.push_back(number);
            } else {
                self.drops += 1;
            }
        }
        assert_eq!(self.drops, stats.dropped.packets);
        for _ in self.seen.sent.packets..stats.sent.packets {
            self.cleared.push_back(self.queue.pop_front().unwrap());
        }
        self.seen = stats;
    }

    fn drain(&mut self) {
        let mut out = Vec::new();
        self.client.far.receive(&mut out, usize::MAX).unwrap();
        for Numbered(number) in out {
            assert_eq!(Some(number), self.cleared.pop_front());
        }
    }

    fn dispatch(&mut self) {
        self.client.client.dispatch(&mut self.client.near).unwrap();
        assert!(self.client.client.dropped() <= self.drops);
    }
}

fn run(setup: Setup, operations: &[Operation]) {
    let mut clearing = Clearing::new(on(link(8_000_000)));
    let mut clients: Vec<_> = (1..4)
        .map(|w| Known {
            client: clearing
                .join(holding(setup.holds, weight(w)), setup.window)
                .holding_in_the_device(setup.device),
            mailbox: VecDeque::new(),
            queue: VecDeque::new(),
            cleared: VecDeque::new(),
            drops: 0,
            seen: FlowStats::default(),
        })
        .collect();
    let mut step = |clients: &mut Vec<Known>, span| {
        clearing.step_after(span);
        for known in clients {
            let stats = clearing.stats(&known.client);
            known.after_step(stats, setup.holds);
        }
        clearing.arbiter.total_stats().queued.packets
    };
    for &operation in operations {
        match operation {
            Operation::Push { who, packets, len } => {
                for _ in 0..packets {
                    let Known {
                        client, mailbox, ..
                    } = &mut clients[who];
                    let number = client.pushed;
                    match client.push(len) {
                        Ok(()) => mailbox.push_back(number),
                        Err(refusal) => {
                            assert_eq!(refusal, Refusal::MailboxFull);
                            assert!(client.client.pending() >= setup.window as usize);
                        }
                    }
                }
            }
            Operation::Step { micros } => _ = step(&mut clients, us(micros.into())),
            Operation::Dispatch { who } => clients[who].dispatch(),
            Operation::Drain { who } => clients[who].drain(),
        }
    }
    while step(&mut clients, ms(10)) > 0 {}
    for known in &mut clients {
        while known.client.client.pending() > 0 {
            let before = known.client.client.pending();
            known.drain();
            known.dispatch();
            assert!(known.client.client.pending() < before);
        }
        known.drain();
        assert_eq!((known.cleared.len(), known.mailbox.len()), (0, 0));
        let client = &known.client;
        assert_eq!(client.client.dropped(), known.drops);
        assert_eq!(
            u64::from(client.pushed),
            known.seen.sent.packets + known.drops
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_the_interleaving_each_client_transmits_just_what_was_cleared(
        setup in setup(), operations in proptest::collection::vec(operation(), 1..150),
    ) {
        run(setup, &operations);
    }
}
