//! The meters against the definitions: every interval of a small run is looked at.

use crate::support::{config, length, rate};
use fairlane_core::sched::{Drr, Fifo, Qfq};
use fairlane_core::scheduler::Scheduler;
use fairlane_core::{FlowConfig, FlowId, Rate, SchedulerLimits};
use fairlane_sim::{
    Backlogged, Completion, DelayMeter, Delays, Now, Observer, PacketInfo, Picos, Server,
    TransmitQueue, Wfi, WfiMeter, Work,
};
use proptest::prelude::*;

const BIT: i128 = 1_000_000_000_000;

/// The events, in order. Only times are copied: work is computed independently.
#[derive(Clone, Copy, Debug)]
enum Event {
    Added(FlowId, u32),
    Changed(FlowId, u32),
    Removed(FlowId),
    Arrived(u64, FlowId, u32),
    Dequeued(u64),
    Completed(u64),
}

#[derive(Default)]
struct Log(Vec<(u128, Event)>);

impl Observer for Log {
    fn flow_added(&mut self, at: Now, flow: FlowId, config: &FlowConfig) {
        let event = Event::Added(flow, config.weight.get());
        self.0.push((at.time.0, event));
    }
    fn flow_changed(&mut self, at: Now, flow: FlowId, config: &FlowConfig) {
        let event = Event::Changed(flow, config.weight.get());
        self.0.push((at.time.0, event));
    }
    fn flow_removed(&mut self, at: Now, flow: FlowId) {
        self.0.push((at.time.0, Event::Removed(flow)));
    }
    fn arrived(&mut self, at: Now, packet: &PacketInfo) {
        let event = Event::Arrived(packet.number, packet.flow, packet.len.get());
        self.0.push((at.time.0, event));
    }
    fn dequeued(&mut self, at: Now, packet: &PacketInfo) {
        self.0.push((at.time.0, Event::Dequeued(packet.number)));
    }
    fn completed(&mut self, completion: &Completion) {
        let event = Event::Completed(completion.packet.number);
        self.0.push((completion.end.time.0, event));
    }
}

/// Time is counted in the bits (10^-12 bit) that the link could have sent, which makes
/// every start and end of a packet a whole number: `x = t R`.
#[derive(Clone, Debug)]
struct Packet {
    life: usize,
    came: (usize, i128),
    bits: i128,
    /// Place of its departure from the scheduler in the log.
    dequeued: usize,
    /// When it was transmitted, and the place of its end in the log.
    sent: Option<(i128, i128, usize)>,
}

/// An interval in which a flow is backlogged and its weight the same.
#[derive(Clone, Copy, Debug)]
struct Backlog {
    life: usize,
    from: i128,
    to: i128,
    /// Place in the log of what ended it.
    end: usize,
    weight: i128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Indexes {
    t_wfi: u128,
    b_wfi: u128,
    b_wfi_backlogged: u128,
}

fn lcm(a: i128, b: i128) -> i128 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

/// A run, reconstructed from the log. A *life* of a flow is the time from its addition to its
/// removal.
struct History {
    reading: Backlogged,
    per_pico: i128,
    packets: Vec<Packet>,
    /// The weights of lives now, and whether they are over.
    lives: Vec<i128>,
    gone: Vec<bool>,
    /// By flow, the last one.
    life_of: Vec<usize>,
    /// Since when each life is backlogged, and with how many packets.
    open: Vec<Option<(i128, u32)>>,
    backlogs: Vec<Backlog>,
    /// Places in the log at which each life's weight changed.
    changes: Vec<Vec<usize>>,
    /// Sums of weights, from a place in the log and an x.
    sums: Vec<(usize, i128, i128)>,
    last_end: i128,
    /// A multiple of all sums of weights.
    scale: i128,
}

impl History {
    fn new(log: &[(u128, Event)], rate: Rate, reading: Backlogged) -> History {
        let mut history = History {
            reading,
            per_pico: rate.bps().into(),
            packets: Vec::new(),
            lives: Vec::new(),
            gone: Vec::new(),
            life_of: Vec::new(),
            open: Vec::new(),
            backlogs: Vec::new(),
            changes: Vec::new(),
            sums: vec![(0, 0, 0)],
            last_end: 0,
            scale: 1,
        };
        for (place, &(time, event)) in log.iter().enumerate() {
            history.note(place, time as i128, event);
        }
        let sums = history.sums.iter().map(|s| s.2).filter(|&s| s > 0);
        history.scale = sums.fold(1, lcm);
        history
    }

    fn note(&mut self, place: usize, time: i128, event: Event) {
        let x = time * self.per_pico;
        match event {
            Event::Added(flow, weight) => {
                let number = flow.number() as usize;
                let known = self.life_of.len().max(number + 1);
                self.life_of.resize(known, usize::MAX);
                self.life_of[number] = self.lives.len();
                self.lives.push(weight.into());
                self.gone.push(false);
                self.open.push(None);
                self.changes.push(Vec::new());
                self.weigh(place, x);
            }
            Event::Changed(flow, weight) => {
                let life = self.life_of[flow.number() as usize];
                if self.lives[life] == i128::from(weight) {
                    return;
                }
                if let Some((from, count)) = self.open[life] {
                    self.close(life, from, (x, place));
                    self.open[life] = Some((x, count));
                }
                self.changes[life].push(place);
                self.lives[life] = weight.into();
                self.weigh(place, x);
            }
            Event::Removed(flow) => {
                let life = self.life_of[flow.number() as usize];
                if let Some((from, _)) = self.open[life].take() {
                    self.close(life, from, (x, place));
                }
                self.gone[life] = true;
                self.weigh(place, x);
            }
            Event::Arrived(number, flow, bytes) => {
                assert_eq!(number as usize, self.packets.len());
                let life = self.life_of[flow.number() as usize];
                self.packets.push(Packet {
                    life,
                    came: (place, x),
                    bits: i128::from(bytes) * 8 * BIT,
                    sent: None,
                    dequeued: usize::MAX,
                });
                let (from, count) = self.open[life].unwrap_or((x, 0));
                self.open[life] = Some((from, count + 1));
            }
            Event::Completed(number) => {
                let packet = &mut self.packets[number as usize];
                // The link is idle only if nothing is there.
                let start = packet.came.1.max(self.last_end);
                self.last_end = start + packet.bits;
                packet.sent = Some((start, self.last_end, place));
                assert_eq!(time, self.last_end / self.per_pico, "rounded down once");
                let life = packet.life;
                if self.reading == Backlogged::UntilSent {
                    self.leave(life, (self.last_end, place));
                }
            }
            Event::Dequeued(number) => {
                let packet = &mut self.packets[number as usize];
                packet.dequeued = place;
                let life = packet.life;
                if self.reading == Backlogged::UntilDequeued {
                    // Where a packet ended in the same picosecond, just after that.
                    self.leave(life, (x.max(self.last_end), place));
                }
            }
        }
    }

    /// The sum of weights changes.
    fn weigh(&mut self, place: usize, x: i128) {
        let alive = self
            .lives
            .iter()
            .zip(&self.gone)
            .filter(|(_, gone)| !**gone);
        self.sums
            .push((place, x, alive.map(|(weight, _)| weight).sum()));
    }

    fn close(&mut self, life: usize, from: i128, (to, end): (i128, usize)) {
        self.backlogs.push(Backlog {
            life,
            from,
            to,
            end,
            weight: self.lives[life],
        });
    }

    /// One of the packets that keep a life backlogged is gone.
    fn leave(&mut self, life: usize, at: (i128, usize)) {
        if let Some((from, count)) = self.open[life] {
            self.open[life] = Some((from, count - 1)).filter(|_| count > 1);
            if count == 1 {
                self.close(life, from, at);
            }
        }
    }

    /// Work until x, of a life or of all.
    fn sent(&self, x: i128, life: Option<usize>) -> i128 {
        let counted = self
            .packets
            .iter()
            .filter(|p| life.is_none_or(|life| p.life == life));
        counted
            .filter_map(|p| p.sent)
            .map(|(start, end, _)| (x - start).clamp(0, end - start))
            .sum()
    }

    /// Returns the integral of dW / sum from 0 to x, times `scale`.
    fn guaranteed(&self, x: i128) -> i128 {
        let mut all = 0;
        for (n, &(_, from, sum)) in self.sums.iter().enumerate() {
            let to = self.sums.get(n + 1).map_or(i128::MAX, |next| next.1).min(x);
            if sum > 0 && to > from {
                all += (self.sent(to, None) - self.sent(from, None)) * self.scale / sum;
            }
        }
        all
    }

    /// Where anything begins or ends, and some points in between, at which nothing should be worse.
    fn points(&self) -> Vec<i128> {
        let mut points: Vec<i128> = self.packets.iter().map(|p| p.came.1).collect();
        let sent = self.packets.iter().filter_map(|p| p.sent);
        points.extend(sent.flat_map(|s| [s.0, s.1]));
        points.extend(self.sums.iter().map(|s| s.1));
        points.sort_unstable();
        points.dedup();
        let between: Vec<i128> = points.windows(2).map(|w| (w[0] + w[1]) / 2).collect();
        points.extend(between);
        points.sort_unstable();
        points
    }

    /// Returns the B-WFI of each life, times `scale`: of a backlogged flow, and limited by its
    /// backlog.
    fn worst(&self) -> Vec<[i128; 2]> {
        let points = self.points();
        let mut worst = vec![[0i128; 2]; self.lives.len()];
        for backlog in &self.backlogs {
            let life = backlog.life;
            let inside: Vec<_> = points
                .iter()
                .filter(|&&x| backlog.from <= x && x <= backlog.to)
                .map(|&x| {
                    let own = self.packets.iter().filter(|p| p.life == life);
                    let arrived = own.filter(|p| p.came.1 <= x && p.came.0 < backlog.end);
                    let arrived: i128 = arrived.map(|p| p.bits).sum();
                    (self.guaranteed(x), self.sent(x, Some(life)), arrived)
                })
                .collect();
            for (n, &(v1, served1, arrived1)) in inside.iter().enumerate() {
                for &(v2, served2, arrived2) in &inside[n..] {
                    let due = backlog.weight * (v2 - v1);
                    let service = (served2 - served1) * self.scale;
                    let backlog_at_start = arrived1 - served1;
                    let possible = (backlog_at_start + arrived2 - arrived1) * self.scale;
                    worst[life][0] = worst[life][0].max(due - service);
                    worst[life][1] = worst[life][1].max(due.min(possible) - service);
                }
            }
        }
        worst
    }

    /// Returns whether the life of a packet was over, or its weight changed, before the packet was
    /// sent.
    fn is_cut_off(&self, log: &[(u128, Event)], packet: &Packet, end: usize) -> bool {
        let (life, came) = (packet.life, packet.came.0);
        let orphan = log[..end].iter().enumerate().any(|(at, (_, event))| {
            matches!(event, Event::Removed(flow) if at > came && {
                // The life that ended there is the one that began last under this number.
                let began = log[..at].iter().filter(|(_, e)| matches!(e, Event::Added(..)));
                let ids: Vec<_> = began
                    .map(|(_, e)| if let Event::Added(id, _) = e { *id } else { *flow })
                    .collect();
                ids.iter().rposition(|id| id == flow) == Some(life)
            })
        });
        orphan || self.changes[life].iter().any(|&at| came < at && at < end)
    }

    /// T-WFI of each life.
    fn late(&self, log: &[(u128, Event)]) -> Vec<u128> {
        let mut late = vec![0u128; self.lives.len()];
        for packet in &self.packets {
            let Some((_, end, place)) = packet.sent else {
                continue;
            };
            if self.is_cut_off(log, packet, place) {
                continue;
            }
            let life = packet.life;
            let (came, x) = packet.came;
            let own = |b: &&Backlog| b.life == life && b.end > came;
            let weight = self.backlogs.iter().find(own).unwrap().weight;
            let before = self
                .packets
                .iter()
                .filter(|p| p.life == life && p.came.0 <= came);
            let backlog = match self.reading {
                Backlogged::UntilSent => {
                    before.map(|p| p.bits).sum::<i128>() - self.sent(x, Some(life))
                }
                Backlogged::UntilDequeued => {
                    before.filter(|p| p.dequeued > came).map(|p| p.bits).sum()
                }
            };
            let sum = self.sums.iter().rfind(|s| s.0 < place).unwrap().2;
            let owed = weight * (self.guaranteed(end) - self.guaranteed(x)) - backlog * self.scale;
            if owed > 0 {
                let share = (self.scale * weight * self.per_pico) as u128;
                late[life] = late[life].max((owed as u128 * sum as u128).div_ceil(share));
            }
        }
        late
    }
}

/// Returns the indexes of every life of a flow, in the order in which they began.
fn by_definition(log: &[(u128, Event)], rate: Rate, reading: Backlogged) -> Vec<Indexes> {
    let history = History::new(log, rate, reading);
    let bits = |scaled: i128| (scaled as u128).div_ceil(history.scale as u128);
    let late = history.late(log);
    let indexes = history.worst().into_iter().zip(late);
    indexes
        .map(|([b_wfi_backlogged, b_wfi], t_wfi)| Indexes {
            t_wfi,
            b_wfi_backlogged: bits(b_wfi_backlogged),
            b_wfi: bits(b_wfi),
        })
        .collect()
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Arrive { flow: u32, bytes: u32 },
    Add { weight: u32 },
    Change { flow: u32, weight: u32 },
    Remove { flow: u32 },
}

/// A run: gaps in bits of the link and picoseconds, and what happens after them.
#[derive(Clone, Debug)]
struct Run {
    rate: u64,
    queue: TransmitQueue,
    weights: Vec<u32>,
    ops: Vec<(u32, u32, Op)>,
}

const MAX_LENGTH: u32 = 1500;

/// Returns the meter's results for every life, in the order in which they began, and the log.
fn measure<A: Scheduler>(
    algorithm: A,
    run: &Run,
    reading: Backlogged,
) -> (Vec<Wfi>, Log, DelayMeter) {
    let link = rate(run.rate);
    let observer = (
        WfiMeter::reading(link, reading),
        Log::default(),
        DelayMeter::new(),
    );
    let mut server = Server::new(
        algorithm,
        SchedulerLimits::default(),
        link,
        run.queue,
        observer,
    );
    let mut at = Picos::ZERO;
    let mut present = Vec::new();
    let mut order: Vec<(FlowId, Option<Wfi>)> = Vec::new();
    for &weight in &run.weights {
        let id = server.add_flow(at, config(weight, MAX_LENGTH)).unwrap();
        present.push((id, order.len()));
        order.push((id, None));
    }
    for &(bits, picos, op) in &run.ops {
        at +=
            Picos(u128::from(bits) * 1_000_000_000_000 / u128::from(run.rate) + u128::from(picos));
        let pick = |flow: u32| flow as usize % present.len().max(1);
        match op {
            Op::Add { weight } => {
                if present.len() < 4 {
                    let id = server.add_flow(at, config(weight, MAX_LENGTH)).unwrap();
                    present.push((id, order.len()));
                    order.push((id, None));
                }
            }
            _ if present.is_empty() => {}
            Op::Arrive { flow, bytes } => {
                server
                    .arrive(at, present[pick(flow)].0, length(bytes), ())
                    .unwrap();
            }
            Op::Change { flow, weight } => {
                let (id, _) = present[pick(flow)];
                server
                    .change_flow(at, id, config(weight, MAX_LENGTH))
                    .unwrap();
            }
            Op::Remove { flow } => {
                let (id, life) = present.remove(pick(flow));
                server.remove_flow(at, id).unwrap();
                let removed = server.observer_mut().0.take_removed();
                assert_eq!((removed.len(), removed[0].0), (1, id));
                order[life].1 = Some(removed[0].1);
            }
        }
    }
    server.finish();
    let (meter, log, delays) = server.into_observer();
    let all = order
        .iter()
        .map(|&(id, removed)| removed.or(meter.flow(id)).unwrap());
    (all.collect(), log, delays)
}

fn arrivals() -> impl Strategy<Value = Op> {
    (
        any::<u32>(),
        prop_oneof![1..=MAX_LENGTH, Just(1), Just(MAX_LENGTH)],
    )
        .prop_map(|(flow, bytes)| Op::Arrive { flow, bytes })
}

fn churn() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => arrivals(),
        1 => (1..6u32).prop_map(|weight| Op::Add { weight }),
        1 => (any::<u32>(), 1..6u32).prop_map(|(flow, weight)| Op::Change { flow, weight }),
        1 => any::<u32>().prop_map(|flow| Op::Remove { flow }),
    ]
}

fn runs(op: impl Strategy<Value = Op>) -> impl Strategy<Value = Run> {
    let rates = prop_oneof![
        Just(1_000),
        Just(7_000),
        Just(3_000_000_000),
        Just(999_999_999_989u64)
    ];
    let queues = prop_oneof![
        Just(TransmitQueue::NONE),
        (1..4u32).prop_map(TransmitQueue::Packets),
        (1..4000u64).prop_map(TransmitQueue::Bytes),
    ];
    let gaps = prop_oneof![Just(0u32), 0..2_000u32, 0..30_000u32];
    let op = (gaps, 0..3u32, op);
    let weights = prop::collection::vec(prop_oneof![1..6u32, Just(40)], 1..4);
    (rates, queues, weights, prop::collection::vec(op, 1..50)).prop_map(
        |(rate, queue, weights, ops)| Run {
            rate,
            queue,
            weights,
            ops,
        },
    )
}

fn check(run: &Run, reading: Backlogged, exactly: bool) -> Result<(), TestCaseError> {
    for (name, (measured, log, _)) in [
        ("fifo", measure(Fifo::new(), run, reading)),
        ("drr", measure(Drr::new(), run, reading)),
        ("qfq", measure(Qfq::new(), run, reading)),
    ] {
        let expected = by_definition(&log.0, rate(run.rate), reading);
        prop_assert_eq!(measured.len(), expected.len());
        for (wfi, expected) in measured.iter().zip(expected) {
            let measured = Indexes {
                t_wfi: wfi.t_wfi.0,
                b_wfi: wfi.b_wfi.0,
                b_wfi_backlogged: wfi.b_wfi_backlogged.0,
            };
            if exactly {
                prop_assert_eq!(measured, expected, "{}", name);
                continue;
            }
            // A change of the sum loses at most 10^-12 bit, and each has one rounding.
            let changes = run.ops.len() as u128 + 1;
            prop_assert!(
                measured.b_wfi.abs_diff(expected.b_wfi) <= changes
                    && measured
                        .b_wfi_backlogged
                        .abs_diff(expected.b_wfi_backlogged)
                        <= changes
                    && measured.t_wfi.abs_diff(expected.t_wfi) <= 1,
                "{name}: {measured:?}, by definition {expected:?}"
            );
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn indexes_are_those_of_the_definitions_to_the_last_unit(run in runs(arrivals())) {
        check(&run, Backlogged::UntilSent, true)?;
        check(&run, Backlogged::UntilDequeued, true)?;
    }

    #[test]
    fn indexes_are_those_of_the_definitions_while_flows_come_change_and_go(run in runs(churn())) {
        check(&run, Backlogged::UntilSent, false)?;
        check(&run, Backlogged::UntilDequeued, false)?;
    }

    #[test]
    fn delays_are_counted_to_the_packet(run in runs(arrivals())) {
        let (_, log, delays) = measure(Qfq::new(), &run, Backlogged::UntilSent);
        let mut came = Vec::new();
        let mut expected = vec![(0, 0, 0); run.weights.len()];
        for &(time, event) in &log.0 {
            match event {
                Event::Arrived(_, flow, _) => came.push((flow.number() as usize, time)),
                Event::Completed(number) => {
                    let (flow, came) = came[number as usize];
                    let (count, sum, longest) = &mut expected[flow];
                    *count += 1;
                    *sum += time - came;
                    *longest = (time - came).max(*longest);
                }
                _ => {}
            }
        }
        for (flow, (count, sum, longest)) in (0..).zip(expected) {
            let delays = delays.flow(FlowId::new(flow)).unwrap();
            let mean = sum.checked_div(u128::from(count)).unwrap_or(0);
            prop_assert_eq!(
                (delays.count(), delays.mean(), delays.max()),
                (count, Picos(mean), Picos(longest))
            );
        }
    }
}

#[test]
fn a_flow_alone_has_indexes_of_zero() {
    let ops = vec![
        (
            0,
            0,
            Op::Arrive {
                flow: 0,
                bytes: 1000,
            },
        ),
        (
            3000,
            0,
            Op::Arrive {
                flow: 0,
                bytes: 500,
            },
        ),
        (9000, 0, Op::Arrive { flow: 0, bytes: 9 }),
        (
            0,
            0,
            Op::Arrive {
                flow: 0,
                bytes: 1500,
            },
        ),
    ];
    let run = Run {
        rate: 7_000,
        queue: TransmitQueue::Packets(1),
        weights: vec![3],
        ops,
    };
    let (measured, ..) = measure(Drr::new(), &run, Backlogged::UntilSent);
    assert_eq!(
        (
            measured[0].t_wfi,
            measured[0].b_wfi,
            measured[0].b_wfi_backlogged
        ),
        (Picos::ZERO, Work::ZERO, Work::ZERO)
    );
    assert_eq!(measured[0].packets, 4);
}

#[test]
fn indexes_of_a_run_computed_by_hand() {
    // Weights 1 and 3. At 8 bit/ms: A (1000 bytes) of flow 0 at 0 s; in its middle, at
    // 0.5 s, B (500 bytes) of flow 1, which leaves from 1 s to 1.5 s.
    let ops = vec![
        (
            0,
            0,
            Op::Arrive {
                flow: 0,
                bytes: 1000,
            },
        ),
        (
            4000,
            0,
            Op::Arrive {
                flow: 1,
                bytes: 500,
            },
        ),
    ];
    let run = Run {
        rate: 8_000,
        queue: TransmitQueue::NONE,
        weights: vec![1, 3],
        ops,
    };
    let (measured, ..) = measure(Fifo::new(), &run, Backlogged::UntilSent);
    // B: 1 s after arrival, less 500 bytes at 3/4 of the link, 2/3 s.
    let third = 1_000_000_000_000u128.div_ceil(3);
    assert_eq!(measured[1].t_wfi, Picos(third));
    // From 0.5 s to 1 s the link did 500 bytes of work, 375 for flow 1.
    assert_eq!(measured[1].b_wfi, Work::from_bytes(375));
    assert_eq!(measured[1].b_wfi_backlogged, Work::from_bytes(375));
    assert_eq!(measured[0].t_wfi, Picos::ZERO);
}

#[test]
fn only_the_backlog_bounds_what_eq_5_counts() {
    // One byte of flow 1 waits behind 1000 bytes: 750 are due, 1 could have been sent.
    let ops = vec![
        (
            0,
            0,
            Op::Arrive {
                flow: 0,
                bytes: 1000,
            },
        ),
        (0, 0, Op::Arrive { flow: 1, bytes: 1 }),
    ];
    let run = Run {
        rate: 8_000,
        queue: TransmitQueue::NONE,
        weights: vec![1, 3],
        ops,
    };
    let (measured, ..) = measure(Fifo::new(), &run, Backlogged::UntilSent);
    assert_eq!(measured[1].b_wfi, Work::from_bytes(1));
    assert_eq!(measured[1].b_wfi_backlogged, Work::from_bytes(750));
}

#[test]
fn percentiles_are_right_to_a_hundredth() {
    let mut delays = Delays::new();
    for n in 1..=10_000u64 {
        delays.record(Picos::from_nanos(n));
    }
    assert_eq!(delays.count(), 10_000);
    assert_eq!(delays.mean(), Picos(5_000_500));
    assert_eq!(delays.max(), Picos::from_nanos(10_000));
    for percent in [1.0, 50.0, 90.0, 99.0, 100.0] {
        let exact = percent * 100_000.0;
        let off = (delays.percentile(percent).0 as f64 - exact) / exact;
        assert!((-1e-9..0.01).contains(&off), "{percent}%: off by {off}");
    }
    assert_eq!(Delays::new().mean(), Picos::ZERO);
}
