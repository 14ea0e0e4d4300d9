//! Queues other than a packet scheduler, and packets that the arbiter's own thread has.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fairlane_core::sched::{Fifo, Qfq};
use fairlane_core::scheduler::Violation;
use fairlane_core::{
    ChangeError, Count, Dequeue, FlowConfig, FlowId, FlowStats, Length, Nanos, Packet as Out,
    PacketScheduler, Rejected, Rejection, TotalStats, Weight,
};
use fairlane_io::{Backend, MemoryBackend, memory};
use fairlane_runtime::{
    Arbiter, ArbiterConfig, Cleared, ClientsDispatch, Link, Next, Queue, Straight,
};

use crate::rig::{Packet, Population, Rig, config, fast, length, link, ms, names, on, us, weight};

/// A packet scheduler that discards every `nth` packet when its turn comes, and lets none leave
/// before it `opens`.
struct Fickle<P> {
    inner: PacketScheduler<Qfq, P>,
    opens: Nanos,
    nth: u64,
    turns: u64,
    discarded: Count,
}

impl<P> Fickle<P> {
    fn new(nth: u64) -> Self {
        Fickle {
            inner: PacketScheduler::new(Qfq::new(), Default::default()),
            opens: Nanos::ZERO,
            nth,
            turns: 0,
            discarded: Count::default(),
        }
    }

    fn opening(opens: Nanos) -> Self {
        Fickle {
            opens,
            ..Fickle::new(u64::MAX)
        }
    }
}

impl<P: Send> Queue for Fickle<P> {
    type Payload = P;
    const DISCARDS: bool = true;

    fn add_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError> {
        self.inner.add_flow(config)
    }
    fn change_flow(&mut self, flow: FlowId, config: FlowConfig) -> Result<(), ChangeError> {
        self.inner.change_flow(flow, config)
    }
    fn remove_flow(&mut self, flow: FlowId) -> Result<(), ChangeError> {
        Queue::remove_flow(&mut self.inner, flow)
    }
    fn enqueue(
        &mut self,
        flow: FlowId,
        len: Length,
        payload: P,
        _: Nanos,
        _: impl FnMut(Out<P>),
    ) -> Result<(), Rejected<P>> {
        self.inner.enqueue(flow, len, payload)
    }
    fn dequeue(&mut self, now: Nanos, mut discard: impl FnMut(Out<P>)) -> Dequeue<P> {
        if now < self.opens && !self.inner.is_empty() {
            return Dequeue::NotBefore(self.opens);
        }
        while let Some(packet) = self.inner.dequeue() {
            self.turns += 1;
            if !self.turns.is_multiple_of(self.nth) {
                return Dequeue::Packet(packet);
            }
            self.discarded.packets += 1;
            self.discarded.bytes += u64::from(packet.len.get());
            discard(packet);
        }
        Dequeue::Empty
    }
    fn room(&self, flow: FlowId) -> u32 {
        self.inner.room(flow)
    }
    fn flow_stats(&self, flow: FlowId) -> Option<FlowStats> {
        self.inner.flow_stats(flow)
    }
    fn total_stats(&self) -> TotalStats {
        TotalStats {
            discarded: self.discarded,
            ..self.inner.total_stats()
        }
    }
    fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }
    fn invariants(&self) -> Result<(), Violation> {
        self.inner.invariants()
    }
}

#[test]
fn a_client_is_told_of_packets_that_the_queue_discards_in_the_end() {
    let (near, mut far) = memory::pair::<Packet, Packet>(usize::MAX);
    let mut arbiter = Arbiter::over(Fickle::new(3), fast(), Straight::to(near), Nanos::ZERO);
    let registrar = arbiter.registrar();
    let population = Population::default();
    let [mut one, mut other] = [0, 1].map(|_| registrar.register(weight(1)).unwrap());
    for number in 0..9 {
        one.push(length(100), population.packet(0, number, 100))
            .unwrap();
    }
    arbiter.step(ms(1)).unwrap();
    let mut arrived = Vec::new();
    far.receive(&mut arrived, usize::MAX).unwrap();
    let expected = [0, 1, 3, 4, 6, 7].map(|number| (0, number));
    assert_eq!(names(&arrived), expected);
    arrived.clear();
    assert_eq!(population.count(), 0, "discarded packets are dropped");
    assert_eq!(arbiter.total_stats().discarded.packets, 3);
    let told = one.push(length(100), population.packet(0, 9, 100)).unwrap();
    assert_eq!(told.dropped_before, 3);
    let told = other
        .push(length(100), population.packet(1, 0, 100))
        .unwrap();
    assert_eq!(told.dropped_before, 0, "nobody else's packets");
}

#[test]
fn who_gets_the_number_of_one_that_left_is_not_told_of_drops_in_its_flow() {
    let (near, _far) = memory::pair::<Packet, Packet>(usize::MAX);
    let mut arbiter = Arbiter::over(Fickle::new(1), fast(), Straight::to(near), Nanos::ZERO);
    let registrar = arbiter.registrar();
    let population = Population::default();
    let packet = |number| population.packet(0, number, 100);
    let mut first = registrar.register(weight(1)).unwrap();
    first.push(length(100), packet(0)).unwrap();
    drop(first);
    arbiter.step(ms(1)).unwrap();
    arbiter.step(ms(2)).unwrap();
    assert_eq!((arbiter.clients(), population.count()), (0, 0));
    // Its flow becomes the arbiter's own, its number another client's.
    let own = arbiter.open_flow(weight(1)).unwrap();
    let mut second = registrar.register(weight(1)).unwrap();
    arbiter.step(ms(3)).unwrap();
    arbiter.admit(own, length(100), packet(1), ms(3)).unwrap();
    arbiter.step(ms(4)).unwrap();
    assert_eq!(arbiter.total_stats().discarded.packets, 2);
    let told = second.push(length(100), packet(2)).unwrap();
    assert_eq!(told.dropped_before, 0);
}

type Device = MemoryBackend<Packet>;

/// Returns an arbiter of 1000 bytes a millisecond whose queue opens after 10 ms, with `packets`
/// packets of 1000 bytes in a mailbox, and the far end of its device.
fn closed(packets: u32) -> (Arbiter<Fickle<Packet>, Straight<Device>>, Device) {
    let (near, far) = memory::pair(usize::MAX);
    let queue = Fickle::opening(ms(10));
    let mut arbiter = Arbiter::over(queue, config(), Straight::to(near), Nanos::ZERO);
    let population = Population::default();
    let mut client = arbiter.registrar().register(weight(1)).unwrap();
    assert_eq!(arbiter.step(Nanos::ZERO).unwrap().next, Next::WhenPushed);
    for number in 0..packets {
        let packet = population.packet(0, number, 1000);
        client.push(length(1000), packet).unwrap();
    }
    (arbiter, far)
}

#[test]
fn a_queue_that_waits_is_asked_again_when_it_said() {
    let (mut arbiter, _far) = closed(3);
    for time in [0, 3, 9] {
        let step = arbiter.step(ms(time)).unwrap();
        assert_eq!((step.released, step.next), (0, Next::At(ms(10))));
    }
    let step = arbiter.step(ms(10)).unwrap();
    assert_eq!(step.released, 2, "made up for, since the last step");
    assert_eq!(step.next, Next::At(ms(11)));
}

#[test]
fn the_link_does_not_make_up_for_time_that_the_queue_waited() {
    let (mut arbiter, _far) = closed(30);
    for time in 0..=9 {
        assert_eq!(arbiter.step(ms(time)).unwrap().released, 0);
    }
    arbiter.step(us(9_999)).unwrap();
    assert_eq!(arbiter.step(ms(10)).unwrap().released, 1);
}

#[test]
fn clients_that_keep_their_packets_want_a_queue_that_discards_none() {
    let over = |queue: Fickle<Cleared>| {
        Arbiter::over(queue, fast(), ClientsDispatch::new(), Nanos::ZERO);
    };
    let refused = catch_unwind(AssertUnwindSafe(|| over(Fickle::new(2))));
    let panic = refused.unwrap_err();
    let sentence = panic.downcast_ref::<&str>().unwrap();
    assert!(sentence.contains("discards none"), "{sentence}");
}

#[test]
fn packets_of_the_arbiters_own_thread_share_the_link_with_those_of_clients() {
    let mut rig = Rig::new(Qfq::new(), config());
    let mut sender = rig.join(weight(1));
    let own = rig
        .arbiter
        .open_flow(FlowConfig::new(Weight::new(3).unwrap(), length(1000)));
    let own = own.unwrap();
    let population = rig.population.clone();
    for number in 0..100 {
        let packet = population.packet(7, number, 1000);
        rig.arbiter
            .admit(own, length(1000), packet, rig.now)
            .unwrap();
        sender.push(1000).unwrap();
    }
    rig.step();
    rig.step_at(ms(20));
    rig.step_at(ms(40));
    let arrived = rig.arrivals();
    let of_own = arrived.iter().filter(|&&(from, _)| from == 7).count();
    assert!((29..=32).contains(&of_own), "{of_own} of {}", arrived.len());
    assert!(arrived.len() >= 40, "{}", arrived.len());
    let stats = rig.arbiter.flow_stats(own).unwrap();
    assert_eq!(stats.sent.packets, of_own as u64);
    assert_eq!(stats.queued.packets, 100 - of_own as u64);
}

#[test]
fn a_packet_that_is_not_admitted_comes_back() {
    let link = Link {
        overhead: 24,
        ..link(1_000_000_000)
    };
    let mut rig = Rig::new(Fifo::new(), on(link));
    let own = rig.arbiter.open_flow(weight(1)).unwrap();
    let mut admit = |len: u32| {
        let packet = rig.population.packet(0, len, len);
        let admitted = rig.arbiter.admit(own, length(len), packet, Nanos::ZERO);
        admitted.map_err(|rejected| (rejected.payload.number, rejected.reason))
    };
    assert_eq!(admit(1500), Ok(()), "the overhead does not count");
    let max = length(1524);
    assert_eq!(admit(1501), Err((1501, Rejection::TooLong { max })));
    let max = length(65_511);
    assert_eq!(admit(65_512), Err((65_512, Rejection::TooLong { max })));
    // A packet too long for the link does not reach the queue.
    assert_eq!(rig.arbiter.total_stats().dropped.packets, 1);
    assert_eq!(rig.arbiter.step(us(1)).unwrap().next, Next::WhenPushed);
    assert_eq!(rig.arbiter.total_stats().sent.bytes, 1524);
}

#[test]
fn flows_of_its_own_leave_room_for_all_clients() {
    let config = ArbiterConfig {
        max_clients: fairlane_core::scheduler::MAX_ENTITIES - 1,
        ..fast()
    };
    let (near, _far) = memory::pair::<Packet, Packet>(1);
    let mut arbiter = Arbiter::new(Fifo::new(), config, near, Nanos::ZERO);
    assert!(arbiter.open_flow(weight(1)).is_ok());
    assert_eq!(arbiter.open_flow(weight(1)), Err(ChangeError::TooManyFlows));
}
