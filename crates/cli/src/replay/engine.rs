//! The link: arrivals in, departures out.

use std::num::NonZeroU32;

use anyhow::{Context, Result, anyhow, bail, ensure};
use fairlane_core::units::MAX_LENGTH;
use fairlane_core::{Dequeue, FlowConfig, FlowId, Length, Limits, Nanos, Rate, SchedulerLimits};
use fairlane_runtime::Queue;
use fairlane_sim::{Completion, Link, Moment, Observer, PacketInfo, Picos, TransmitQueue};

use super::arrivals::{Arrival, Arrivals};
use super::departures::{Departure, Departures};
use super::flows::Flow;
use crate::algorithm::Algorithm;
use crate::any::AnyScheduler;

/// As many as the scheduler can number: nothing is dropped for want of room that
/// there is.
const LIMITS: SchedulerLimits = SchedulerLimits {
    packets: u32::MAX,
    bytes: u64::MAX,
    per_flow: Limits::NONE,
};

/// The link, and who may use it.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    pub algorithm: Algorithm,
    /// Most flows in an aggregate of SCHED+.
    pub members: NonZeroU32,
    pub rate: Rate,
    /// Bytes that each packet takes on the link beside its own.
    pub overhead: u32,
    /// Flows that there are before the first packet.
    pub flows: &'a [Flow],
}

impl Setup<'_> {
    /// A flow as the scheduler knows it: with overhead.
    pub fn config(&self, flow: &Flow) -> FlowConfig {
        let longest = flow.max_len.get() + self.overhead;
        FlowConfig::new(
            flow.weight,
            Length::new(longest.min(MAX_LENGTH)).unwrap_or(Length::MAX),
        )
    }
}

/// What waits with a packet.
struct Parcel<B> {
    arrival: u64,
    number: u64,
    body: B,
}

impl<B> Parcel<B> {
    fn info(&self, flow: FlowId, len: Length) -> PacketInfo {
        PacketInfo {
            number: self.number,
            flow,
            len,
            arrival: Picos::from_nanos(self.arrival),
            orphan: false,
        }
    }
}

/// Sends all `arrivals` over the link in the order of the algorithm. Holds what is queued
/// and the flows, however many packets pass.
pub fn replay<'a, B: Send>(
    setup: &'a Setup<'a>,
    arrivals: &mut dyn Arrivals<B>,
    departures: &mut dyn Departures<B>,
    observer: Option<&'a mut dyn Observer>,
) -> Result<()> {
    let mut engine = Engine {
        setup,
        scheduler: AnyScheduler::new(setup.algorithm, setup.members, LIMITS),
        link: Link::new(setup.rate, TransmitQueue::NONE),
        observer,
        flows: 0,
        number: 0,
    };
    for flow in setup.flows {
        engine.add_flow(Picos::ZERO, flow)?;
    }
    let mut next = arrivals.next()?;
    let mut now = Picos::ZERO;
    loop {
        now = match (engine.link.next_completion(), &next) {
            (Some(end), _) => end,
            (None, Some(arrival)) => Picos::from_nanos(arrival.time),
            (None, None) => break,
        };
        // At one instant arrivals come first: they count where the next is chosen.
        while let Some(arrival) = next.take_if(|a| Picos::from_nanos(a.time) <= now) {
            engine.arrive(arrival).with_context(|| arrivals.place())?;
            next = arrivals.next()?;
        }
        if let Some(departure) = engine.complete()? {
            departures.write(&departure)?;
        }
        engine.choose(now)?;
    }
    if let Some(observer) = engine.observer {
        observer.ended(moment(&engine.link, now));
    }
    Ok(())
}

struct Engine<'a, B> {
    setup: &'a Setup<'a>,
    scheduler: AnyScheduler<Parcel<B>>,
    link: Link<(FlowId, Parcel<B>)>,
    observer: Option<&'a mut dyn Observer>,
    /// Flows there are.
    flows: u32,
    /// Packets that have arrived.
    number: u64,
}

impl<B: Send> Engine<'_, B> {
    fn add_flow(&mut self, at: Picos, flow: &Flow) -> Result<()> {
        let config = self.setup.config(flow);
        let added = self.scheduler.add_flow(config)?;
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.flow_added(moment(&self.link, at), added, &config);
        }
        self.flows += 1;
        Ok(())
    }

    fn arrive(&mut self, arrival: Arrival<B>) -> Result<()> {
        let time = Picos::from_nanos(arrival.time);
        while self.flows <= arrival.flow {
            self.add_flow(time, &Flow::UNDECLARED)?;
        }
        let flow = FlowId::new(arrival.flow);
        let len = Length::new(arrival.len + self.setup.overhead).context("no such length")?;
        let parcel = Parcel {
            arrival: arrival.time,
            number: self.number,
            body: arrival.body,
        };
        if let Some(observer) = self.observer.as_deref_mut() {
            let at = moment(&self.link, time);
            observer.arrived(at, &parcel.info(flow, len));
        }
        self.number += 1;
        let accepted = self
            .scheduler
            .enqueue(flow, len, parcel, time.to_nanos(), drop);
        accepted.map_err(|refused| {
            anyhow!(
                "flow {} can hold {} bytes, arrivals are too far above the rate: {}",
                arrival.flow,
                LIMITS.per_flow.bytes,
                refused.reason
            )
        })
    }

    /// The packet in service, if there is one, has left.
    fn complete(&mut self) -> Result<Option<Departure<B>>> {
        let Some(sent) = self.link.complete() else {
            return Ok(None);
        };
        let (flow, parcel) = sent.payload;
        ensure!(
            sent.end.to_nanos() < Nanos::MAX,
            "the packet of flow {} that arrives at {} leaves too late for {} ns, the last time \
             that can be told",
            flow.number(),
            parcel.arrival,
            u64::MAX
        );
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.completed(&Completion {
                packet: parcel.info(flow, sent.len),
                start: Moment {
                    time: sent.start,
                    work: sent.start_work,
                },
                end: Moment {
                    time: sent.end,
                    work: sent.end_work,
                },
            });
        }
        Ok(Some(Departure {
            start: sent.start.to_nanos().0,
            end: sent.end.to_nanos().0,
            flow: flow.number(),
            len: sent.len.get() - self.setup.overhead,
            arrival: parcel.arrival,
            body: parcel.body,
        }))
    }

    /// The link is free: the next packet, if one waits, is put on it.
    fn choose(&mut self, now: Picos) -> Result<()> {
        let packet = match self.scheduler.dequeue(now.to_nanos(), drop) {
            Dequeue::Packet(packet) => packet,
            Dequeue::Empty if self.scheduler.is_empty() => return Ok(()),
            Dequeue::Empty | Dequeue::NotBefore(_) => {
                let name = self.setup.algorithm.name();
                bail!("{name} keeps packets back while the link is free")
            }
        };
        if let Some(observer) = self.observer.as_deref_mut() {
            let work = self.link.completed();
            let info = packet.payload.info(packet.flow, packet.len);
            let at = Moment { time: now, work };
            observer.dequeued(at, &info);
            observer.started(at, &info);
        }
        let pushed = self
            .link
            .push(now, packet.len, (packet.flow, packet.payload));
        ensure!(pushed.is_ok(), "the link is not free at {now}");
        Ok(())
    }
}

fn moment<P>(link: &Link<P>, time: Picos) -> Moment {
    Moment {
        time,
        work: link.work(time),
    }
}
