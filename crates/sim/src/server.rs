//! The simulated link: a queue that drains through a transmit queue, in simulated time.

use crate::link::{Link, TransmitQueue};
use crate::observer::{Completion, Moment, Now, Observer};
use crate::queue::{Flows, Label, Next, PacketInfo, Queue, Waiting};
use crate::time::Picos;
use fairlane_core::scheduler::Scheduler;
use fairlane_core::{
    ChangeError, FlowConfig, FlowId, FlowStats, Length, PacketScheduler, Rate, Rejection,
    SchedulerLimits,
};

/// The result of one [`Server::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a, L, B> {
    /// A packet left the link, with its body.
    Completed(Completion<L>, B),
    /// A packet moved from the queue to the transmit queue; its body.
    Dequeued(PacketInfo<L>, &'a B),
    /// Nothing more can happen at this instant.
    Settled,
}

/// A packet that left the queue, and its body.
type Held<L, B> = (PacketInfo<L>, B);

/// A [`Queue`], the same as in production, in front of a simulated link: of flows
/// ([`Server::new`]), or of classes ([`Server::over`]). Each packet has a body `B`, which the
/// caller gets back when it left, or was discarded.
///
/// The caller triggers events in order of time; the server first completes earlier ones, reports to
/// its [`Observer`], and keeps the link busy while a packet is eligible. At one instant the
/// caller's calls come first, in order, then the end of a packet, then the server dequeues as much
/// as the transmit queue takes. If the queue returns *not before*, it is asked again at that time,
/// or at an earlier event. A time before the clock counts as the clock.
///
/// Memory is proportional to the flows and the packets queued at a time.
#[derive(Debug)]
pub struct Server<Q, O, L = FlowId, B = ()> {
    queue: Q,
    link: Link<Held<L, B>>,
    /// A dequeued packet that does not fit a transmit queue of bytes, from a queue that cannot
    /// report the next length in advance.
    aside: Option<Held<L, B>>,
    observer: O,
    clock: Picos,
    /// Something happened at the clock, and the queue, of which the link would take a packet, was
    /// not asked since.
    unsettled: bool,
    /// The time at which the queue wants to be asked again.
    wake: Option<Picos>,
    accepted: u64,
    discarded: Vec<Held<L, B>>,
}

impl<A: Scheduler, O: Observer, B> Server<PacketScheduler<A, Waiting<FlowId, B>>, O, FlowId, B> {
    /// Returns a packet scheduler without flows in front of an idle link, at time 0.
    pub fn new(
        algorithm: A,
        limits: SchedulerLimits,
        rate: Rate,
        transmit_queue: TransmitQueue,
        observer: O,
    ) -> Self {
        let queue = PacketScheduler::new(algorithm, limits);
        Server::over(queue, rate, transmit_queue, observer)
    }
}

impl<Q: Flows<Waiting<FlowId, B>>, O: Observer, B> Server<Q, O, FlowId, B> {
    /// Adds a flow, idle. O(1) amortised.
    pub fn add_flow(&mut self, at: Picos, config: FlowConfig) -> Result<FlowId, ChangeError> {
        self.advance(at);
        let flow = self.queue.add_flow(config)?;
        let now = Now::new(self.clock, self.link.progress());
        self.observer.flow_added(now, flow, &config);
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
        self.queue.change_flow(flow, config)?;
        let now = Now::new(self.clock, self.link.progress());
        self.observer.flow_changed(now, flow, &config);
        self.unsettle();
        Ok(())
    }

    /// Removes a flow and discards its packets in the scheduler; those that have left the scheduler
    /// are still sent. O(packets discarded, and in the transmit queue).
    pub fn remove_flow(&mut self, at: Picos, flow: FlowId) -> Result<FlowStats, ChangeError> {
        self.advance(at);
        let now = Now::new(self.clock, self.link.progress());
        let observer = &mut self.observer;
        let stats = self.queue.remove_flow(flow, |len, packet| {
            let (info, _) = packet.open(len);
            observer.discarded(now, &info);
        })?;
        self.observer.flow_removed(now, flow);
        let held = self.link.payloads_mut();
        for (info, _) in held.filter(|(info, _)| info.flow == flow) {
            info.orphan = true;
        }
        self.unsettle();
        Ok(stats)
    }
}

impl<Q, O, L, B> Server<Q, O, L, B>
where
    L: Label,
    Q: Queue<L, Waiting<L, B>>,
    O: Observer<L>,
{
    /// Returns a queue in front of an idle link, at time 0.
    pub fn over(queue: Q, rate: Rate, transmit_queue: TransmitQueue, observer: O) -> Self {
        Server {
            queue,
            link: Link::new(rate, transmit_queue),
            aside: None,
            observer,
            clock: Picos::ZERO,
            unsettled: false,
            wake: None,
            accepted: 0,
            discarded: Vec::new(),
        }
    }

    /// Returns the time until which everything has happened.
    pub fn clock(&self) -> Picos {
        self.clock
    }

    /// Returns the rate of the link.
    pub fn rate(&self) -> Rate {
        self.link.rate()
    }

    /// Returns whether nothing is being transmitted. O(1).
    pub fn is_idle(&self) -> bool {
        self.link.is_idle()
    }

    /// Returns the queue, to look at.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// Returns the queue, mutably: it is asked again.
    #[doc(hidden)]
    pub fn queue_mut(&mut self) -> &mut Q {
        self.unsettle();
        &mut self.queue
    }

    /// Returns the observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Returns the observer, to query or reset it.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// Returns the observer, and drops the rest.
    pub fn into_observer(self) -> O {
        self.observer
    }

    /// Returns the packets discarded in the last [`arrive`](Self::arrive) or [`step`](Self::step),
    /// in order.
    pub fn take_discarded(&mut self) -> Vec<(PacketInfo<L>, B)> {
        std::mem::take(&mut self.discarded)
    }

    /// Enqueues a packet; returns whether it was accepted or the reason why not, as reported to the
    /// observer. O(1), plus the cost of the queue.
    #[inline]
    pub fn arrive(&mut self, at: Picos, to: L, len: Length, body: B) -> Result<(), Rejection> {
        self.advance(at);
        let nanos = self.clock.to_nanos();
        let packet = Waiting::new(self.accepted, to, self.clock, nanos, body);
        let info = packet.info(len);
        let now = Now::new(self.clock, self.link.progress());
        self.discarded.clear();
        let discard = discard(now, &mut self.observer, &mut self.discarded);
        self.queue.unsent(|| self.link.unsent(self.clock));
        let outcome = self.queue.enqueue(to, len, packet, nanos, discard);
        match outcome {
            Ok(()) => {
                self.accepted += 1;
                self.observer.arrived(now, &info);
            }
            Err(reason) => self.observer.dropped(now, to, len, reason),
        }
        self.unsettle();
        outcome
    }

    /// The end of the next packet, or the time to ask the queue again. `None` if nothing will
    /// happen unless the caller makes it.
    #[inline]
    pub fn next_event(&self) -> Option<Picos> {
        if self.unsettled {
            return Some(self.clock);
        }
        match (self.link.next_completion(), self.wake) {
            (Some(end), Some(wake)) => Some(end.min(wake)),
            (end, wake) => end.or(wake),
        }
    }

    /// Processes all events before `to`, and sets the clock to it. Events at `to` itself remain, so
    /// that arrivals at `to` come first.
    #[inline]
    pub fn advance(&mut self, to: Picos) {
        if to > self.clock {
            if self.next_event().is_some_and(|at| at < to) {
                self.go_on_before(to);
            }
            self.clock = to;
        }
    }

    /// Out of line: a caller that steps through single events has none left by then.
    #[inline(never)]
    fn go_on_before(&mut self, to: Picos) {
        while self.step_before(to).is_some() {}
    }

    /// Processes one event, due at [`next_event`](Self::next_event). `None` if nothing is due.
    /// O(1), plus the cost of the queue.
    pub fn step(&mut self) -> Option<Step<'_, L, B>> {
        let at = self.next_event()?;
        Some(self.step_at(at))
    }

    /// Processes one event before `to`; `None` if there is none.
    #[inline]
    #[doc(hidden)]
    pub fn step_before(&mut self, to: Picos) -> Option<Step<'_, L, B>> {
        let at = self.next_event().filter(|&at| at < to)?;
        Some(self.step_at(at))
    }

    #[inline]
    fn step_at(&mut self, at: Picos) -> Step<'_, L, B> {
        self.clock = at;
        if self.wake.is_some_and(|wake| wake <= at) {
            self.wake = None;
        }
        self.discarded.clear();
        if self.link.next_completion() == Some(at)
            && let Some((completion, body)) = self.complete()
        {
            self.unsettled = true;
            return Step::Completed(completion, body);
        }
        if let Some((info, body)) = self.aside.take() {
            self.put(info, body);
            self.unsettled = self.aside.is_none();
            return Step::Settled;
        }
        if !self.dequeue() {
            self.unsettled = false;
            return Step::Settled;
        }
        self.unsettle();
        match self.aside.as_ref().or(self.link.newest()) {
            Some((info, body)) => Step::Dequeued(*info, body),
            None => Step::Settled,
        }
    }

    /// After an event: asks the queue, if the link accepts a packet.
    #[inline]
    fn unsettle(&mut self) {
        self.unsettled = !self.link.is_full();
    }

    /// Lets the queue do deferrable work.
    pub fn expire_idle(&mut self) {
        self.queue.expire_idle(self.clock.to_nanos());
    }

    /// Processes all remaining events, and reports the end of the run to the observer. Returns the
    /// time of the last event.
    pub fn finish(&mut self) -> Picos {
        while self.step().is_some() {}
        let now = Now::new(self.clock, self.link.progress());
        self.observer.ended(now);
        self.clock
    }

    #[inline]
    fn complete(&mut self) -> Option<(Completion<L>, B)> {
        let sent = self.link.complete()?;
        let (packet, body) = sent.payload;
        let completion = Completion {
            packet,
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
        Some((completion, body))
    }

    /// Moves one packet to the transmit queue, if there is one and it has room; whether there was.
    #[inline]
    fn dequeue(&mut self) -> bool {
        if self.link.is_full() {
            return false;
        }
        let now = self.clock.to_nanos();
        if let TransmitQueue::Bytes(_) = self.link.capacity()
            && let Some(head) = self.queue.head()
            && !self.link.has_room(head)
        {
            return false;
        }
        let at = Now::new(self.clock, self.link.progress());
        let discard = discard(at, &mut self.observer, &mut self.discarded);
        let answer = self.queue.dequeue(now, discard);
        self.wake = match answer {
            // A time that has passed causes no wait: it would be now forever.
            Next::NotBefore(time) => {
                let soonest = Picos::from(now) + Picos::from_nanos(1);
                Some(Picos::from(time).max(soonest))
            }
            _ => None,
        };
        let Next::Packet(len, packet) = answer else {
            return false;
        };
        let (info, body) = packet.open(len);
        self.observer.dequeued(at, &info);
        self.put(info, body);
        true
    }

    /// Puts a packet on the link, or aside where that has no room for it.
    #[inline]
    fn put(&mut self, info: PacketInfo<L>, body: B) {
        match self.link.push(self.clock, info.len, (info, body)) {
            Ok(true) => self.tell_started(),
            Ok(false) => {}
            Err(packet) => self.aside = Some(packet),
        }
    }

    #[inline]
    fn tell_started(&mut self) {
        if let Some((_, (info, _))) = self.link.in_service() {
            let now = Now::new(self.clock, self.link.progress());
            self.observer.started(now, info);
        }
    }
}

/// Handles packets that a queue discards: reports them to the observer, and keeps them for the
/// caller.
fn discard<L: Label, B>(
    at: Now<'_>,
    observer: &mut impl Observer<L>,
    discarded: &mut Vec<Held<L, B>>,
) -> impl FnMut(Length, Waiting<L, B>) {
    move |len, packet| {
        let (info, body) = packet.open(len);
        observer.discarded(at, &info);
        discarded.push((info, body));
    }
}
