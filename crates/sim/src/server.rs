//! A packet scheduler that drains through a transmit queue onto a link, in simulated time.

use crate::link::{Link, TransmitQueue};
use crate::observer::{Completion, Moment, Observer, PacketInfo};
use crate::time::Picos;
use fairlane_core::scheduler::Scheduler;
use fairlane_core::{
    ChangeError, Dequeue, FlowConfig, FlowId, FlowStats, Length, PacketScheduler, Rate, Rejection,
    SchedulerLimits,
};

/// What a packet carries through the scheduler and the transmit queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    info: PacketInfo,
    life: u32,
}

/// What happened in one [`Server::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A packet left the link.
    Completed(Completion),
    /// A packet moved from the scheduler to the transmit queue.
    Dequeued(PacketInfo),
    /// Nothing more can happen at this instant.
    Settled,
}

/// A [`PacketScheduler`], the same as in production, in front of a simulated link.
///
/// The caller makes things happen in the order of time; the server completes what is due
/// before, tells its [`Observer`], and keeps the link busy while a packet waits. At one
/// instant the caller's statements come first, in his order, then the end of a packet,
/// then the scheduler is asked for as much as the transmit queue takes. A time before
/// the clock counts as the clock.
///
/// Memory is proportional to the flows and the packets queued at a time.
#[derive(Debug)]
pub struct Server<A: Scheduler, O> {
    scheduler: PacketScheduler<A, Stamp>,
    link: Link<Stamp>,
    observer: O,
    clock: Picos,
    /// Something happened at the clock, and the scheduler was not asked since.
    unsettled: bool,
    /// When the scheduler is asked again, as it wished.
    wake: Option<Picos>,
    accepted: u64,
    /// How often each flow number was given back.
    lives: Vec<u32>,
}

impl<A: Scheduler, O: Observer> Server<A, O> {
    /// A server without flows at time 0.
    pub fn new(
        algorithm: A,
        limits: SchedulerLimits,
        rate: Rate,
        transmit_queue: TransmitQueue,
        observer: O,
    ) -> Self {
        Server {
            scheduler: PacketScheduler::new(algorithm, limits),
            link: Link::new(rate, transmit_queue),
            observer,
            clock: Picos::ZERO,
            unsettled: false,
            wake: None,
            accepted: 0,
            lives: Vec::new(),
        }
    }

    /// The time until which everything has happened.
    pub fn clock(&self) -> Picos {
        self.clock
    }

    /// The packet scheduler, to look at.
    pub fn scheduler(&self) -> &PacketScheduler<A, impl Copy + use<A, O>> {
        &self.scheduler
    }

    /// Who watches.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Who watches, to ask or to empty.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// Who watched.
    pub fn into_observer(self) -> O {
        self.observer
    }

    /// Packets of a flow that are in the scheduler, or `None` if there is no such flow.
    /// O(1).
    pub fn queued(&self, flow: FlowId) -> Option<u64> {
        Some(self.scheduler.flow_stats(flow)?.queued.packets)
    }

    /// Adds a flow, idle. O(1) amortised.
    pub fn add_flow(&mut self, at: Picos, config: FlowConfig) -> Result<FlowId, ChangeError> {
        self.advance(at);
        let flow = self.scheduler.add_flow(config)?;
        let number = flow.number() as usize;
        if self.lives.len() <= number {
            self.lives.resize(number + 1, 0);
        }
        let moment = self.moment();
        self.observer.flow_added(moment, flow, &config);
        Ok(flow)
    }

    /// Gives a flow another configuration, as [`PacketScheduler::change_flow`].
    pub fn change_flow(
        &mut self,
        at: Picos,
        flow: FlowId,
        config: FlowConfig,
    ) -> Result<(), ChangeError> {
        self.advance(at);
        self.scheduler.change_flow(flow, config)?;
        let moment = self.moment();
        self.observer.flow_changed(moment, flow, &config);
        self.unsettled = true;
        Ok(())
    }

    /// Removes a flow and discards what it has in the scheduler; what has left the
    /// scheduler is still sent. O(packets discarded).
    pub fn remove_flow(&mut self, at: Picos, flow: FlowId) -> Result<FlowStats, ChangeError> {
        self.advance(at);
        let moment = self.moment();
        let observer = &mut self.observer;
        let stats = self.scheduler.remove_flow(flow, |packet| {
            observer.discarded(moment, &packet.payload.info);
        })?;
        self.observer.flow_removed(moment, flow);
        let life = &mut self.lives[flow.number() as usize];
        *life = life.wrapping_add(1);
        self.unsettled = true;
        Ok(stats)
    }

    /// A packet arrives; the result says whether and why not it was accepted, as the
    /// observer was told. O(1), and what the algorithm costs.
    pub fn arrive(&mut self, at: Picos, flow: FlowId, len: Length) -> Result<(), Rejection> {
        self.advance(at);
        let moment = self.moment();
        let stamp = Stamp {
            info: PacketInfo {
                number: self.accepted,
                flow,
                len,
                arrival: self.clock,
                orphan: false,
            },
            life: self.lives.get(flow.number() as usize).map_or(0, |&n| n),
        };
        if let Err(rejected) = self.scheduler.enqueue(flow, len, stamp) {
            self.observer.dropped(moment, flow, len, rejected.reason);
            return Err(rejected.reason);
        }
        self.accepted += 1;
        self.observer.arrived(moment, &stamp.info);
        self.unsettled = true;
        Ok(())
    }

    /// When the next packet ends, or the scheduler is to be asked again. `None` if nothing
    /// will happen unless the caller makes it.
    pub fn next_event(&self) -> Option<Picos> {
        if self.unsettled {
            return Some(self.clock);
        }
        let ends = self.link.next_completion();
        ends.into_iter().chain(self.wake).min()
    }

    /// Lets everything happen that is due before `to`, and sets the clock to it. What is
    /// due at `to` itself is left, so that arrivals at `to` come first.
    pub fn advance(&mut self, to: Picos) {
        while self.next_event().is_some_and(|next| next < to) {
            self.step();
        }
        self.clock = self.clock.max(to);
    }

    /// Lets one thing happen: what is due at [`next_event`](Self::next_event). `None` if
    /// nothing is due. O(1), and what the algorithm costs.
    pub fn step(&mut self) -> Option<Step> {
        self.clock = self.next_event()?;
        self.wake = self.wake.filter(|&wake| wake > self.clock);
        if self.link.next_completion() == Some(self.clock) {
            self.unsettled = true;
            return self.complete().map(Step::Completed);
        }
        let dequeued = self.dequeue();
        self.unsettled = dequeued.is_some();
        Some(dequeued.map_or(Step::Settled, Step::Dequeued))
    }

    /// Lets everything happen that is still due, and tells the observer that the run is
    /// over. The time of the last event.
    pub fn finish(&mut self) -> Picos {
        while self.step().is_some() {}
        let moment = self.moment();
        self.observer.ended(moment);
        self.clock
    }

    fn moment(&self) -> Moment {
        Moment {
            time: self.clock,
            work: self.link.work(self.clock),
        }
    }

    fn complete(&mut self) -> Option<Completion> {
        let sent = self.link.complete()?;
        let completion = Completion {
            packet: self.info(&sent.payload),
            start: Moment {
                time: sent.start,
                work: sent.start_work,
            },
            end: Moment {
                time: sent.end,
                work: sent.end_work,
            },
        };
        self.observer.completed(&completion);
        self.tell_started();
        Some(completion)
    }

    /// Moves one packet to the transmit queue, if there is one and it has room.
    fn dequeue(&mut self) -> Option<PacketInfo> {
        if self.link.is_full() {
            return None;
        }
        let now = self.clock.to_nanos();
        if let TransmitQueue::Bytes(_) = self.link.capacity()
            && let Dequeue::Packet(head) = self.scheduler.peek(now)
            && !self.link.has_room(head.len)
        {
            return None;
        }
        match self.scheduler.dequeue(now) {
            Dequeue::Packet(packet) => {
                let info = self.info(&packet.payload);
                let moment = self.moment();
                self.observer.dequeued(moment, &info);
                if self.link.push(self.clock, packet.len, packet.payload) == Ok(true) {
                    self.tell_started();
                }
                Some(info)
            }
            Dequeue::NotBefore(time) => {
                let soonest = Picos::from(now) + Picos::from_nanos(1);
                self.wake = Some(Picos::from(time).max(soonest));
                None
            }
            Dequeue::Empty => None,
        }
    }

    fn tell_started(&mut self) {
        if let Some((_, stamp)) = self.link.in_service() {
            let moment = Moment {
                time: self.clock,
                work: self.link.completed(),
            };
            let info = self.info(stamp);
            self.observer.started(moment, &info);
        }
    }

    fn info(&self, stamp: &Stamp) -> PacketInfo {
        let life = self.lives[stamp.info.flow.number() as usize];
        PacketInfo {
            orphan: life != stamp.life,
            ..stamp.info
        }
    }
}
