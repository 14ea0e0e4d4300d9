//! The ideal fluid server (generalised processor sharing, GPS): all backlogged flows are
//! served at once, each in proportion to its weight.

use crate::observer::{Completion, Now, Observer};
use crate::queue::PacketInfo;
use crate::time::{Picos, Work};
use fairlane_core::{FlowConfig, FlowId, Length, Rate, Weight};
use std::collections::{BTreeSet, VecDeque};

/// Bits of fraction, below 10^-12 bit, of virtual time and of the work behind it.
const FRACTION: u32 = 20;

/// A packet that the fluid server has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FluidFinish {
    /// Its flow.
    pub flow: FlowId,
    /// The number given at arrival.
    pub number: u64,
    /// When, rounded down.
    pub time: Picos,
}

#[derive(Clone, Debug)]
struct FluidFlow {
    weight: u128,
    /// Packets not finished: number, and bits of the flow until its end.
    packets: VecDeque<(u64, u128)>,
    /// Bits arrived.
    arrived: u128,
    /// Since the flow had been served `base` bits, at virtual time `base_v`, it has been
    /// backlogged and its weight the same.
    base: u128,
    base_v: u128,
}

impl FluidFlow {
    fn backlogged(&self) -> bool {
        !self.packets.is_empty()
    }

    fn served(&self, v: u128) -> u128 {
        if self.backlogged() {
            (self.base + self.weight * (v - self.base_v)).min(self.arrived)
        } else {
            self.arrived
        }
    }

    /// Virtual finish time of its first packet, rounded up.
    fn finish(&self) -> Option<u128> {
        let &(_, end) = self.packets.front()?;
        Some(self.base_v + (end - self.base).div_ceil(self.weight))
    }
}

/// The fluid server, event by event: between two events all quantities are linear.
///
/// While flows of weights adding up to S are backlogged, virtual time v grows by work / S,
/// and a packet of l bits of a flow of weight w takes l / w of it. Work, and v for each unit
/// of weight, are counted in 2^-20 of 10^-12 bit.
///
/// **Error.** Work is exact at every whole picosecond. The remainder of work modulo S is carried
/// over, as is the excess of a flow whose last virtual finish is rounded up to a unit, so nothing
/// is lost in the sum of service: at any time it lags the work by less than two units for each unit
/// of all weights, below 2 10^-18 bit. A virtual finish is rounded up once, relative to when its
/// flow became backlogged or was changed. That instant, between two events, is rounded down by less
/// than a unit at each event; so after n events of a busy period a flow of weight w has its service
/// to within n w units, and a packet its finish to within n S units of work and one picosecond.
///
/// O(log flows) for a packet's arrival, its finish, and a change; memory for packets and
/// flows in the fluid system, and finishes not yet [taken](Self::take_finished).
#[derive(Clone, Debug)]
pub struct Gps {
    rate: u128,
    flows: Vec<Option<FluidFlow>>,
    /// The backlogged flows by the virtual finish of their first packets.
    order: BTreeSet<(u128, u32)>,
    /// Sum of the weights of the backlogged flows.
    sum: u128,
    v: u128,
    clock: Picos,
    /// Start of the busy period, work in it until now, and work not handed out.
    start: Picos,
    work: u128,
    carry: u128,
    finished: VecDeque<FluidFinish>,
}

impl Gps {
    /// Returns an idle server of this rate.
    pub fn new(rate: Rate) -> Gps {
        Gps {
            rate: rate.bps().into(),
            flows: Vec::new(),
            order: BTreeSet::new(),
            sum: 0,
            v: 0,
            clock: Picos::ZERO,
            start: Picos::ZERO,
            work: 0,
            carry: 0,
            finished: VecDeque::new(),
        }
    }

    /// Adds an idle flow, and replaces one with the same number.
    pub fn add_flow(&mut self, at: Picos, flow: FlowId, weight: Weight) {
        self.remove_flow(at, flow);
        let number = flow.number() as usize;
        if self.flows.len() <= number {
            self.flows.resize_with(number + 1, || None);
        }
        self.flows[number] = Some(FluidFlow {
            weight: weight.get().into(),
            packets: VecDeque::new(),
            arrived: 0,
            base: 0,
            base_v: 0,
        });
    }

    /// Gives a flow another weight from now on. Without effect if it is not there.
    pub fn change_flow(&mut self, at: Picos, flow: FlowId, weight: Weight) {
        self.advance(at);
        let (v, number) = (self.v, flow.number());
        let Some(changed) = entry(&mut self.flows, flow) else {
            return;
        };
        let old = changed.finish();
        changed.base = changed.served(v);
        changed.base_v = v;
        let before = std::mem::replace(&mut changed.weight, weight.get().into());
        if let (Some(old), Some(new)) = (old, changed.finish()) {
            self.sum = self.sum - before + changed.weight;
            self.order.remove(&(old, number));
            self.order.insert((new, number));
        }
    }

    /// Removes a flow and its remaining work.
    pub fn remove_flow(&mut self, at: Picos, flow: FlowId) {
        self.advance(at);
        let slot = self.flows.get_mut(flow.number() as usize);
        if let Some(removed) = slot.and_then(Option::take)
            && let Some(finish) = removed.finish()
        {
            self.order.remove(&(finish, flow.number()));
            self.sum -= removed.weight;
        }
    }

    /// Adds a packet; `number` will be returned with its finish. Without effect if there is no such
    /// flow.
    pub fn arrive(&mut self, at: Picos, flow: FlowId, len: Length, number: u64) {
        self.advance(at);
        let idle = self.order.is_empty();
        let v = self.v;
        let Some(arriving) = entry(&mut self.flows, flow) else {
            return;
        };
        if !arriving.backlogged() {
            arriving.base = arriving.arrived;
            arriving.base_v = v;
        }
        arriving.arrived += Work::of(len).0 << FRACTION;
        let first = !arriving.backlogged();
        arriving.packets.push_back((number, arriving.arrived));
        if first && let Some(finish) = arriving.finish() {
            self.sum += arriving.weight;
            self.order.insert((finish, flow.number()));
        }
        if idle {
            self.start = self.clock;
            self.work = 0;
            self.carry = 0;
        }
    }

    /// Serves until `to`, inclusive.
    pub fn advance(&mut self, to: Picos) {
        let elapsed = to.since(self.start).0;
        let until = elapsed
            .saturating_mul(self.rate)
            .saturating_mul(1 << FRACTION);
        while let Some(&(finish, number)) = self.order.first() {
            // Too much to count is too much to do.
            let all = (finish - self.v).saturating_mul(self.sum);
            let need = all.saturating_sub(self.carry);
            if need > until.saturating_sub(self.work) {
                let done = until.saturating_sub(self.work) + self.carry;
                self.v += done / self.sum;
                self.carry = done % self.sum;
                self.work = self.work.max(until);
                break;
            }
            self.carry = (self.carry + need) - all;
            self.work += need;
            self.v = finish;
            self.finish_first(FlowId::new(number));
        }
        self.clock = self.clock.max(to);
    }

    /// Serves all that has arrived.
    pub fn finish(&mut self) {
        let clock = self.clock;
        self.advance(Picos::MAX);
        self.clock = clock.max(self.work_time());
    }

    fn work_time(&self) -> Picos {
        self.start + Picos(self.work / (self.rate << FRACTION))
    }

    /// The packet whose virtual finish v has reached.
    fn finish_first(&mut self, flow: FlowId) {
        let time = self.work_time();
        let number = flow.number();
        let Some(served) = entry(&mut self.flows, flow) else {
            return;
        };
        if let Some(finish) = served.finish() {
            self.order.remove(&(finish, number));
        }
        if let Some((packet, _)) = served.packets.pop_front() {
            self.finished.push_back(FluidFinish {
                flow,
                number: packet,
                time,
            });
        }
        match served.finish() {
            Some(next) => {
                self.order.insert((next, number));
            }
            None => {
                self.sum -= served.weight;
                // The excess from rounding its finish up goes to the other flows.
                let given = served.weight * (self.v - served.base_v);
                self.carry += given - (served.arrived - served.base);
            }
        }
    }

    /// Hands over the packets finished since the last call, in order.
    pub fn take_finished(&mut self) -> impl Iterator<Item = FluidFinish> + '_ {
        self.finished.drain(..)
    }

    /// W_gps(t) of a flow until the clock, rounded down; `None` if it is not there. O(1).
    pub fn service(&self, flow: FlowId) -> Option<Work> {
        let flow = self.flows.get(flow.number() as usize)?.as_ref()?;
        Some(Work(flow.served(self.v) >> FRACTION))
    }

    /// Returns whether a flow has fluid left at the clock. O(1).
    pub fn is_backlogged(&self, flow: FlowId) -> bool {
        let flow = self.flows.get(flow.number() as usize);
        flow.is_some_and(|flow| flow.as_ref().is_some_and(FluidFlow::backlogged))
    }
}

fn entry(flows: &mut [Option<FluidFlow>], flow: FlowId) -> Option<&mut FluidFlow> {
    flows.get_mut(flow.number() as usize)?.as_mut()
}

/// Completions of one flow in both systems, of which one is ahead of the other.
#[derive(Clone, Debug, Default)]
struct Race {
    fluid: VecDeque<Picos>,
    packet: VecDeque<Picos>,
    worst: Picos,
}

impl Race {
    fn compare(&mut self) {
        while let (Some(&fluid), Some(&packet)) = (self.fluid.front(), self.packet.front()) {
            self.worst = self.worst.max(packet - fluid);
            self.fluid.pop_front();
            self.packet.pop_front();
        }
    }
}

/// Runs the fluid server in parallel with a link and measures how much later than there the packets
/// of each flow leave the link. For WFQ and WF2Q, at most L / R (Parekh, Gallager).
///
/// O(log flows) a packet. Where flows are removed the two systems drop different bits, and
/// the comparison with what follows is only approximate.
#[derive(Clone, Debug)]
pub struct LagMeter {
    gps: Gps,
    flows: Vec<Race>,
}

impl LagMeter {
    /// Returns a meter for a link of this rate.
    pub fn new(rate: Rate) -> LagMeter {
        LagMeter {
            gps: Gps::new(rate),
            flows: Vec::new(),
        }
    }

    /// Returns the fluid server.
    pub fn gps(&self) -> &Gps {
        &self.gps
    }

    /// By how much, at most, a packet of the flow left the link after the fluid server had
    /// finished it; zero if none did. `None` if there never was such a flow.
    pub fn worst(&self, flow: FlowId) -> Option<Picos> {
        Some(self.flows.get(flow.number() as usize)?.worst)
    }

    fn catch_up(&mut self) {
        for finish in self.gps.finished.drain(..) {
            let race = &mut self.flows[finish.flow.number() as usize];
            race.fluid.push_back(finish.time);
            race.compare();
        }
    }
}

impl Observer for LagMeter {
    fn flow_added(&mut self, at: Now, flow: FlowId, config: &FlowConfig) {
        self.gps.add_flow(at.time, flow, config.weight);
        self.catch_up();
        let number = flow.number() as usize;
        if self.flows.len() <= number {
            self.flows.resize_with(number + 1, Race::default);
        }
        self.flows[number] = Race::default();
    }

    fn flow_changed(&mut self, at: Now, flow: FlowId, config: &FlowConfig) {
        self.gps.change_flow(at.time, flow, config.weight);
        self.catch_up();
    }

    fn flow_removed(&mut self, at: Now, flow: FlowId) {
        self.gps.remove_flow(at.time, flow);
        self.catch_up();
        let race = &mut self.flows[flow.number() as usize];
        race.fluid.clear();
        race.packet.clear();
    }

    fn arrived(&mut self, at: Now, packet: &PacketInfo) {
        self.gps
            .arrive(at.time, packet.flow, packet.len, packet.number);
        self.catch_up();
    }

    fn completed(&mut self, completion: &Completion) {
        let packet = &completion.packet;
        if !packet.orphan {
            let race = &mut self.flows[packet.flow.number() as usize];
            race.packet.push_back(completion.end.time);
            race.compare();
        }
    }

    fn ended(&mut self, _: Now) {
        self.gps.finish();
        self.catch_up();
    }
}
