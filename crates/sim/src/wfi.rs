//! Meters of worst-case fair indexes: how far a flow falls behind its share.
//!
//! # Definitions
//!
//! *Work* W(t) and the service W^k(t) of flow k count the bits that have left the link until t,
//! including the transmitted part of the packet in service.
//!
//! The definitions of a *backlogged* flow and of its backlog B^k in the T-WFI can be read in two
//! ways; [`Backlogged`] selects one. In the QFQ+ paper's words a flow is backlogged while it owns a
//! packet that is not completely transmitted, wherever that is: then B^k counts the bits in the
//! scheduler, in the transmit queue, and the rest of the packet in service, and a flow alone on a
//! link has indexes of zero. But a scheduler takes a flow for idle as soon as it has handed over
//! its last packet. A flow whose next packet always arrives while the last is in flight starts
//! afresh with each, and over the whole time may fall behind without limit. The proofs concern the
//! backlog in the scheduler, and so do the bounds in [`fairlane_core::bounds`].
//!
//! The share phi^k is the weight over the sum of the weights of all flows present, idle or not.
//! While flows are added and removed it varies, and a flow's guarantee over an interval becomes an
//! integral:
//!
//! ```text
//! G^k(t1, t2) = integral of phi^k dW from t1 to t2          (= phi^k W(t1, t2) if constant)
//!
//! B-WFI (QFQ report, Eq. 7)   max over [t1, t2] of  G^k(t1, t2) - W^k(t1, t2)
//! B-WFI (QFQ+ paper, Eq. 5)   max over [t1, t2] of  min(G^k(t1, t2), B^k(t1, t2)) - W^k(t1, t2)
//! T-WFI (Eq. 11 and Eq. 1)    max over packets of  (G^k(t_a, t_c) - B^k(t_a+)) / (phi^k(t_c) R)
//! ```
//!
//! where [t1, t2] is any interval in which the flow is continuously backlogged, and B^k(t1, t2) the
//! bits that it could have sent: those not transmitted at t1, and later arrivals. The link is busy
//! from t_a to t_c, so with constant weights the last line is `t_c - t_a - B / (phi R)`. No index
//! is less than zero, which an empty interval has.
//!
//! A flow's own change of weight cuts its intervals: they end, and new ones start, at the
//! change, and packets that are in the system then have no T-WFI.
//!
//! # How O(1) a packet is enough
//!
//! Let *owed* be `G - W^k` over the interval that ends now, started where that is largest. It grows
//! while others are served and falls while the flow is. So an interval that matters starts with the
//! backlog or at the end of one of the flow's packets, where owed becomes `max(owed, 0)`, and ends
//! at the start of another or with the backlog. In Eq. 5, `B^k(t1, t2) - W^k(t1, t2)` is the number
//! of bits not transmitted just before t2, whatever t1, so that the index is the largest `min(owed,
//! not transmitted)`; an arrival raises that, so the instant after it matters too.

use crate::observer::{Completion, Now, Observer};
use crate::queue::PacketInfo;
use crate::share::{FRACTION, ShareClock};
use crate::time::{Picos, Work};
use fairlane_core::{FlowConfig, FlowId, Rate};
use std::collections::VecDeque;

/// How long a packet keeps its flow backlogged, and counts in the backlog of the T-WFI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backlogged {
    /// Until it leaves the scheduler: what bounds are proved for.
    UntilDequeued,
    /// Until its last bit has left the link.
    UntilSent,
}

/// The indexes of one flow so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wfi {
    /// The last configuration of the flow.
    pub config: FlowConfig,
    /// T-WFI in picoseconds, rounded up.
    pub t_wfi: Picos,
    /// B-WFI after Eq. 5 of the QFQ+ paper, with the backlog, rounded up.
    pub b_wfi: Work,
    /// B-WFI after Eq. 7 of the QFQ report, rounded up.
    pub b_wfi_backlogged: Work,
    /// Packets in the T-WFI.
    pub packets: u64,
}

/// A packet in flight: its arrival time, and the backlog it found, itself included.
#[derive(Clone, Copy, Debug)]
struct Pending {
    work: Work,
    v: i128,
    epoch: u64,
    backlog: i128,
}

#[derive(Clone, Debug)]
struct Flow {
    wfi: Wfi,
    weight: i128,
    pending: VecDeque<Pending>,
    /// Packets on their way from before a change of weight.
    unmeasured: u64,
    /// Bits of packets not completed.
    backlog: Work,
    /// The work at which the flow's packet in service started.
    in_service: Option<Work>,
    /// Packets in the scheduler, and their bits.
    waiting: u64,
    waiting_work: Work,
    /// Whether it is backlogged, and `owed` is kept.
    backlogged: bool,
    /// `owed` times the sum of weights, when last looked at: at `work`, while the sum was
    /// `sum` in its `epoch`.
    owed: i128,
    work: Work,
    sum: i128,
    epoch: u64,
    /// v at some earlier work of that epoch.
    marked: Work,
    v: i128,
}

impl Flow {
    fn new(config: FlowConfig) -> Flow {
        Flow {
            wfi: Wfi {
                config,
                t_wfi: Picos::ZERO,
                b_wfi: Work::ZERO,
                b_wfi_backlogged: Work::ZERO,
                packets: 0,
            },
            weight: config.weight.get().into(),
            pending: VecDeque::new(),
            unmeasured: 0,
            backlog: Work::ZERO,
            in_service: None,
            waiting: 0,
            waiting_work: Work::ZERO,
            backlogged: false,
            owed: 0,
            work: Work::ZERO,
            sum: 0,
            epoch: 0,
            marked: Work::ZERO,
            v: 0,
        }
    }

    /// Sets `owed` at `work`, where nothing is owed yet.
    fn restart(&mut self, clock: &ShareClock, work: Work) {
        self.owed = 0;
        self.mark(clock, work);
    }

    fn mark(&mut self, clock: &ShareClock, work: Work) {
        self.work = work;
        self.marked = work;
        self.v = clock.now(work);
        self.sum = clock.sum;
        self.epoch = clock.epoch;
    }

    /// Brings `owed` up to `work`. Since it was last brought up, either this flow was
    /// served all the time or it was not at all.
    fn update(&mut self, clock: &ShareClock, work: Work) {
        let all = (work - self.work).0 as i128;
        let own = if self.in_service.is_some() { all } else { 0 };
        if self.epoch == clock.epoch {
            self.owed += self.weight * all - clock.sum * own;
            self.work = work;
            return;
        }
        // Through v, in 2^-FRACTION units; whole and fraction apart, for the width.
        let (whole, part) = (
            self.owed.div_euclid(self.sum),
            self.owed.rem_euclid(self.sum),
        );
        let since_marked = (self.work - self.marked).0 as i128;
        let v = self.v + (since_marked << FRACTION) / self.sum;
        let owed = (whole << FRACTION)
            + ((part << FRACTION) + self.sum - 1) / self.sum
            + self.weight * (clock.now(work) - v)
            - (own << FRACTION);
        let (whole, part) = (owed >> FRACTION, owed & ((1 << FRACTION) - 1));
        self.owed = whole * clock.sum + ((part * clock.sum) >> FRACTION);
        self.mark(clock, work);
    }

    /// Bits not transmitted at the last update.
    fn left(&self) -> i128 {
        let sent = self
            .in_service
            .map_or(Work::ZERO, |start| self.work - start);
        (self.backlog - sent).0 as i128
    }

    /// An interval may end here.
    fn look(&mut self) {
        let with_backlog = self.owed.min(self.left() * self.sum);
        let raise = |worst: &mut Work, owed: i128| {
            if owed > worst.0 as i128 * self.sum {
                worst.0 = (owed as u128).div_ceil(self.sum as u128);
            }
        };
        raise(&mut self.wfi.b_wfi_backlogged, self.owed);
        raise(&mut self.wfi.b_wfi, with_backlog);
    }

    fn measure_time(&mut self, clock: &ShareClock, pending: Pending, end: Work, rate: i128) {
        let weight = self.weight;
        let late = if pending.epoch == clock.epoch {
            let all = (end - pending.work).0 as i128;
            weight * all - clock.sum * pending.backlog
        } else {
            let late = weight * (clock.now(end) - pending.v) - (pending.backlog << FRACTION);
            ((late + (1 << FRACTION) - 1) >> FRACTION) * clock.sum
        };
        self.wfi.packets += 1;
        if late > 0 {
            let time = (late as u128).div_ceil((weight * rate) as u128);
            self.wfi.t_wfi = self.wfi.t_wfi.max(Picos(time));
        }
    }
}

/// Measures the T-WFI and both B-WFIs of every flow, as the [module](self) defines them.
///
/// O(1) a packet, in memory for flows and packets in the system. Exact while the weights
/// present add up to the same; each time the sum changes during an interval, at most
/// 10^-12 bit is lost. Holds for rates, weights and lengths in their ranges while less
/// than 2^36 bits are owed or queued in a flow.
#[derive(Clone, Debug)]
pub struct WfiMeter {
    rate: i128,
    backlogged: Backlogged,
    clock: ShareClock,
    flows: Vec<Option<Flow>>,
    left: Vec<(FlowId, Wfi)>,
}

impl WfiMeter {
    /// Returns a meter for a link of this rate that reads the definitions as they are written:
    /// [`Backlogged::UntilSent`].
    pub fn new(rate: Rate) -> WfiMeter {
        WfiMeter::reading(rate, Backlogged::UntilSent)
    }

    /// Returns a meter for a link of this rate with this reading of the definitions. To compare
    /// with a bound, [`Backlogged::UntilDequeued`].
    pub fn reading(rate: Rate, backlogged: Backlogged) -> WfiMeter {
        WfiMeter {
            rate: rate.bps().into(),
            backlogged,
            clock: ShareClock::default(),
            flows: Vec::new(),
            left: Vec::new(),
        }
    }

    /// Returns the indexes of a flow that is present, or `None`. O(1).
    pub fn flow(&self, flow: FlowId) -> Option<Wfi> {
        Some(self.flows.get(flow.number() as usize)?.as_ref()?.wfi)
    }

    /// Returns all flows present, by number.
    pub fn flows(&self) -> impl Iterator<Item = (FlowId, Wfi)> + '_ {
        (0..).zip(&self.flows).filter_map(|(number, flow)| {
            let flow = flow.as_ref()?;
            Some((FlowId::new(number), flow.wfi))
        })
    }

    /// Hands over the indexes of flows that were removed, in this order. They are kept
    /// until then, so a run of many removals should ask from time to time.
    pub fn take_removed(&mut self) -> Vec<(FlowId, Wfi)> {
        std::mem::take(&mut self.left)
    }

    fn get(&mut self, flow: FlowId) -> Option<(&mut Flow, &ShareClock)> {
        let flow = self.flows.get_mut(flow.number() as usize)?.as_mut()?;
        Some((flow, &self.clock))
    }

    /// Intervals of `flow` end at `work`, if it is backlogged.
    fn look(&mut self, flow: FlowId, work: Work) {
        if let Some((flow, clock)) = self.get(flow)
            && flow.backlogged
        {
            flow.update(clock, work);
            flow.look();
        }
    }
}

impl Observer for WfiMeter {
    fn flow_added(&mut self, at: Now, flow: FlowId, config: &FlowConfig) {
        let number = flow.number() as usize;
        if self.flows.len() <= number {
            self.flows.resize_with(number + 1, || None);
        }
        self.flows[number] = Some(Flow::new(*config));
        self.clock.add(at.work(), config.weight.get().into());
    }

    fn flow_changed(&mut self, at: Now, flow: FlowId, config: &FlowConfig) {
        let work = at.work();
        self.look(flow, work);
        let Some((changed, _)) = self.get(flow) else {
            return;
        };
        let weight = i128::from(config.weight.get());
        let more = weight - changed.weight;
        changed.wfi.config = *config;
        if more == 0 {
            return;
        }
        changed.weight = weight;
        changed.unmeasured += changed.pending.len() as u64;
        changed.pending.clear();
        self.clock.add(work, more);
        if let Some((changed, clock)) = self.get(flow)
            && changed.backlogged
        {
            changed.restart(clock, work);
        }
    }

    fn flow_removed(&mut self, at: Now, flow: FlowId) {
        let work = at.work();
        self.look(flow, work);
        let entry = self.flows.get_mut(flow.number() as usize);
        if let Some(removed) = entry.and_then(Option::take) {
            self.clock.add(work, -removed.weight);
            self.left.push((flow, removed.wfi));
        }
    }

    fn arrived(&mut self, at: Now, packet: &PacketInfo) {
        let (reading, now) = (self.backlogged, at.work());
        let Some((flow, clock)) = self.get(packet.flow) else {
            return;
        };
        if flow.backlogged {
            flow.update(clock, now);
        } else {
            flow.backlogged = true;
            flow.restart(clock, now);
        }
        let work = Work::of(packet.len);
        flow.backlog += work;
        flow.waiting += 1;
        flow.waiting_work += work;
        flow.look();
        flow.pending.push_back(Pending {
            work: now,
            v: clock.now(now),
            epoch: clock.epoch,
            backlog: match reading {
                Backlogged::UntilDequeued => flow.waiting_work.0 as i128,
                Backlogged::UntilSent => flow.left(),
            },
        });
    }

    fn dequeued(&mut self, at: Now, packet: &PacketInfo) {
        let reading = self.backlogged;
        let Some((flow, _)) = self.get(packet.flow) else {
            return;
        };
        flow.waiting -= 1;
        flow.waiting_work = flow.waiting_work - Work::of(packet.len);
        if flow.waiting == 0 && reading == Backlogged::UntilDequeued {
            self.look(packet.flow, at.work());
            if let Some((flow, _)) = self.get(packet.flow) {
                flow.backlogged = false;
            }
        }
    }

    fn started(&mut self, at: Now, packet: &PacketInfo) {
        if packet.orphan {
            return;
        }
        let work = at.work();
        self.look(packet.flow, work);
        if let Some((flow, _)) = self.get(packet.flow) {
            flow.in_service = Some(work);
        }
    }

    fn completed(&mut self, completion: &Completion) {
        let packet = &completion.packet;
        if packet.orphan {
            return;
        }
        let (rate, end) = (self.rate, completion.end.work);
        let Some((flow, clock)) = self.get(packet.flow) else {
            return;
        };
        if flow.backlogged {
            flow.update(clock, end);
            flow.owed = flow.owed.max(0);
        }
        flow.in_service = None;
        flow.backlog = flow.backlog - Work::of(packet.len);
        if flow.backlog == Work::ZERO {
            flow.backlogged = false;
        }
        if flow.unmeasured > 0 {
            flow.unmeasured -= 1;
        } else if let Some(pending) = flow.pending.pop_front() {
            flow.measure_time(clock, pending, end, rate);
        }
    }

    fn ended(&mut self, at: Now) {
        let work = at.work();
        for number in 0..self.flows.len() {
            self.look(FlowId::new(number as u32), work);
        }
    }
}
