//! A device that is full, broken or particular: the arbiter waits and loses nothing.

use std::collections::VecDeque;
use std::io;

use fairlane_core::Nanos;
use fairlane_core::sched::{Fifo, Qfq};
use fairlane_io::{Backend, MemoryBackend, memory};
use fairlane_runtime::Next;

use crate::rig::{Packet, Rig, config, fast, holding, ms, numbered, weight};

#[test]
fn a_full_device_holds_up_the_release() {
    let mut rig = Rig::with_device(Fifo::new(), fast(), 5);
    let mut sender = rig.join(weight(1));
    sender.push_all(64, 1000);
    let step = rig.step_after(ms(1));
    assert_eq!((step.released, step.transmitted), (64, 5));
    assert_eq!(step.next, Next::WhenBackendTakesMore);
    assert_eq!(rig.arbiter.waiting_for_backend(), 59);

    // Mailboxes are drained all the same.
    sender.push_all(10, 1000);
    for drained in [10, 0] {
        let step = rig.step_after(ms(1));
        assert_eq!(
            (step.drained, step.released, step.transmitted),
            (drained, 0, 0)
        );
        assert_eq!(step.next, Next::WhenBackendTakesMore);
    }
    let mut arrivals = Vec::new();
    for round in 0..15 {
        arrivals.extend(rig.arrivals());
        let step = rig.step_after(ms(1));
        // 5 + 59 in twelve rounds, and then the later pushes.
        assert_eq!(step.released, if round == 11 { 10 } else { 0 });
    }
    assert_eq!(arrivals, numbered(0, 0..74));
    assert_eq!(rig.arbiter.waiting_for_backend(), 0);
}

#[test]
fn while_the_device_is_full_no_packet_is_committed_to_an_order() {
    let mut rig = Rig::with_device(Qfq::new(), config(), 1);
    let mut light = rig.join(weight(1));
    let mut heavy = rig.join(weight(1000));
    light.push_all(20, 1000);
    rig.step_at(ms(0));
    assert_eq!(rig.step_at(ms(1)).released, 1);
    for time in 2..10 {
        assert_eq!(rig.step_at(ms(time)).released, 0);
    }
    // One in the device, one in the batch: later arrivals can overtake the rest.
    heavy.push_all(3, 1000);
    let mut arrivals = Vec::new();
    for time in 10..16 {
        arrivals.extend(rig.arrivals());
        rig.step_at(ms(time));
    }
    assert_eq!(arrivals[..5], [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]);
}

#[test]
fn a_device_that_was_full_for_long_earns_no_more_than_the_catch_up() {
    let mut rig = Rig::with_device(Fifo::new(), config(), 1);
    let mut sender = rig.join(weight(1));
    sender.push_all(200, 1000);
    rig.step_at(ms(0));
    assert_eq!(rig.step_at(ms(1)).released, 1);
    for time in 2..=500 {
        assert_eq!(rig.step_at(ms(time)).released, 0);
    }
    rig.arrived();
    let step = rig.step_at(ms(500));
    assert_eq!((step.released, step.transmitted), (21, 1));
}

#[test]
fn a_device_that_never_takes_anything_loses_nothing() {
    let mut rig = Rig::with_device(Qfq::new(), fast(), 0);
    let mut sender = rig.join(holding(10, weight(1)));
    sender.push_all(8, 1000);
    for _ in 0..5 {
        assert_eq!(rig.step_after(ms(1)).transmitted, 0);
    }
    assert_eq!(rig.population.count(), 8);
    assert_eq!(rig.arbiter.waiting_for_backend(), 8);
}

#[test]
fn what_the_device_refuses_holds_up_nobody_and_is_counted_by_it() {
    let (near, far) = memory::pair(usize::MAX);
    let mut rig = Rig::between(Fifo::new(), fast(), near.with_mtu(1000), far);
    let mut sender = rig.join(weight(1));
    for len in [1000, 1001, 1000, 1001, 999] {
        sender.push(len).unwrap();
    }
    let step = rig.step_after(ms(1));
    assert_eq!((step.released, step.transmitted), (5, 3));
    assert_eq!(rig.arbiter.backend().refused(), 2);
    assert_eq!(rig.arrivals(), [(0, 0), (0, 2), (0, 4)]);
    assert_eq!(rig.stats(&sender).flow.sent.packets, 5);
}

/// A device that fails on demand.
struct Failing {
    device: MemoryBackend<Packet>,
    fails: bool,
}

impl Backend for Failing {
    type Tx = Packet;
    type Rx = Packet;

    fn transmit(&mut self, batch: &mut VecDeque<Packet>) -> io::Result<usize> {
        match self.fails {
            true => Err(io::Error::other("cable cut")),
            false => self.device.transmit(batch),
        }
    }
    fn receive(&mut self, into: &mut Vec<Packet>, max: usize) -> io::Result<usize> {
        self.device.receive(into, max)
    }
    fn in_flight(&self) -> io::Result<u64> {
        self.device.in_flight()
    }
    fn refused(&self) -> u64 {
        self.device.refused()
    }
}

fn failing(packets: usize) -> Rig<Qfq, Failing> {
    let (device, far) = memory::pair(packets);
    let near = Failing {
        device,
        fails: false,
    };
    Rig::between(Qfq::new(), fast(), near, far)
}

impl Rig<Qfq, Failing> {
    fn fails(&mut self, now: Nanos) {
        self.arbiter.backend_mut().fails = true;
        let error = self.arbiter.step(now).unwrap_err();
        assert_eq!(error.to_string(), "cable cut");
        self.arbiter.invariants().unwrap();
        self.arbiter.backend_mut().fails = false;
    }
}

#[test]
fn an_error_of_the_device_is_returned_and_its_packets_wait_for_the_next_step() {
    let mut rig = failing(usize::MAX);
    let mut sender = rig.join(weight(1));
    sender.push_all(5, 100);
    rig.fails(ms(1));
    rig.fails(ms(2));
    assert_eq!(rig.population.count(), 5);
    // Drained in spite of the error, and not lost by it.
    sender.push_all(2, 100);
    rig.fails(ms(3));
    assert_eq!(rig.stats(&sender).flow.accepted.packets, 7);
    let step = rig.step_at(ms(4));
    assert_eq!((step.drained, step.transmitted), (0, 7));
    assert_eq!(rig.arrivals(), numbered(0, 0..7));
}

#[test]
fn an_error_behind_a_full_device_keeps_the_batch_in_order() {
    let mut rig = failing(2);
    let mut sender = rig.join(weight(1));
    sender.push_all(6, 100);
    assert_eq!(rig.step_at(ms(1)).transmitted, 2);
    rig.fails(ms(2));
    assert_eq!(rig.arbiter.waiting_for_backend(), 4);
    let mut arrivals = Vec::new();
    for time in 3..7 {
        arrivals.extend(rig.arrivals());
        rig.step_at(ms(time));
    }
    assert_eq!(arrivals, numbered(0, 0..6));
}

#[test]
fn a_step_without_packets_does_not_ask_the_device() {
    let mut rig = failing(1);
    rig.arbiter.backend_mut().fails = true;
    assert_eq!(rig.step().next, Next::WhenPushed);
}

#[test]
fn a_far_end_that_is_gone_is_an_error_and_not_a_loss() {
    let mut rig = Rig::new(Fifo::new(), fast());
    let mut sender = rig.join(weight(1));
    sender.push_all(3, 100);
    let (_, far) = memory::pair(1);
    drop(std::mem::replace(&mut rig.far, far));
    let error = rig.arbiter.step(ms(1)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(rig.arbiter.waiting_for_backend(), 3);
    assert_eq!(rig.population.count(), 3);
}
