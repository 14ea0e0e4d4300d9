//! Every interleaving, and every outcome that the memory model allows, of the ring in shared
//! memory, with two slots of one word.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p fairlane-mailbox --release --test loom_shared`
#![cfg(loom)]

use std::sync::Arc;

use fairlane_mailbox::shared::{Geometry, Popped, PushError, Receiver, Sender};
use loom::sync::atomic::AtomicU64;
use loom::thread;

#[derive(Clone)]
struct Memory(Arc<[AtomicU64]>);

impl AsRef<[AtomicU64]> for Memory {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

const SLOTS: usize = 2;

fn ring() -> (Sender<Memory>, Receiver<Memory>) {
    let geometry = Geometry::new(SLOTS, 16).unwrap();
    let memory = Memory((0..geometry.words()).map(|_| AtomicU64::new(0)).collect());
    (
        Sender::new(memory.clone(), geometry).unwrap(),
        Receiver::new(memory, geometry).unwrap(),
    )
}

/// Two words that belong together, so that a packet of which one word is old shows.
fn packet(number: u8) -> [u8; 16] {
    [number; 16]
}

fn push_waiting(sender: &mut Sender<Memory>, number: u8) {
    while sender.push(&packet(number)) == Err(PushError::Full) {
        thread::yield_now();
    }
}

fn pop_waiting(receiver: &mut Receiver<Memory>) -> Vec<u8> {
    let mut popped = Vec::new();
    loop {
        match receiver.pop(&mut popped) {
            Popped::Packet => return popped,
            Popped::Empty => thread::yield_now(),
            broken => panic!("{broken:?}"),
        }
    }
}

#[test]
fn packets_arrive_whole_and_in_order_around_the_ring() {
    loom::model(|| {
        let (mut sender, mut receiver) = ring();
        let count = SLOTS as u8 + 1;
        let pushing = thread::spawn(move || {
            for number in 0..count {
                push_waiting(&mut sender, number);
            }
        });
        for number in 0..count {
            assert_eq!(pop_waiting(&mut receiver), packet(number));
        }
        assert!(receiver.is_empty());
        pushing.join().unwrap();
    });
}

#[test]
fn a_packet_that_is_being_copied_out_is_not_overwritten() {
    loom::model(|| {
        let (mut sender, mut receiver) = ring();
        for number in 0..SLOTS as u8 {
            sender.push(&packet(number)).unwrap();
        }
        // As many attempts as it likes: it gets in as soon as the slot is free and no earlier.
        let pushing = thread::spawn(move || sender.push(&packet(9)).is_ok());
        for number in 0..SLOTS as u8 {
            assert_eq!(pop_waiting(&mut receiver), packet(number));
        }
        if pushing.join().unwrap() {
            assert_eq!(pop_waiting(&mut receiver), packet(9));
        }
        assert!(receiver.is_empty());
    });
}

#[test]
fn a_push_beside_a_receiver_that_goes_to_doze_is_seen_or_rung_for() {
    let outcomes = Arc::new(std::sync::Mutex::new([false; 4]));
    let seen = Arc::clone(&outcomes);
    loom::model(move || {
        let (mut sender, receiver) = ring();
        let pushing = thread::spawn(move || {
            sender.push(&packet(1)).unwrap();
            sender.must_ring()
        });
        receiver.doze(true);
        let sees = !receiver.is_empty();
        let rings = pushing.join().unwrap();
        assert!(sees || rings, "the packet would wait for ever");
        seen.lock().unwrap()[usize::from(sees) + 2 * usize::from(rings)] = true;
    });
    assert_eq!(*outcomes.lock().unwrap(), [false, true, true, true]);
}
