//! The two ends on two threads of the machine at hand.
#![cfg(not(loom))]

use std::thread;

use fairlane_mailbox::{Full, Producer, mailbox};

const VALUES: u64 = if cfg!(miri) { 500 } else { 1_000_000 };

fn push_all<T>(producer: &mut Producer<T>, values: impl Iterator<Item = T>) {
    for mut value in values {
        while let Err(Full(back)) = producer.push(value) {
            value = back;
            thread::yield_now();
        }
    }
}

#[test]
fn a_million_values_cross_in_order() {
    for slots in [8, 1024] {
        let (mut producer, mut consumer) = mailbox::<u64>(slots).unwrap();
        let pushing = thread::spawn(move || push_all(&mut producer, 0..VALUES));
        let (mut expected, mut sum) = (0, 0);
        while expected < VALUES {
            match consumer.pop() {
                Some(value) => {
                    assert_eq!(value, expected);
                    expected += 1;
                    sum += value;
                }
                None => thread::yield_now(),
            }
        }
        assert_eq!(sum, VALUES * (VALUES - 1) / 2);
        pushing.join().unwrap();
        assert_eq!(consumer.pop(), None);
    }
}

#[test]
fn a_million_values_cross_in_batches() {
    for slots in [8, 1024] {
        let (mut producer, mut consumer) = mailbox::<[u64; 2]>(slots).unwrap();
        let pushing = thread::spawn(move || {
            let mut values = (0..VALUES).map(|value| [value, !value]).peekable();
            while values.peek().is_some() {
                if producer.push_batch(&mut values) == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while expected < VALUES {
            let popped = consumer.pop_batch(32, |value| {
                assert_eq!(value, [expected, !expected]);
                expected += 1;
            });
            if popped == 0 {
                thread::yield_now();
            }
        }
        pushing.join().unwrap();
        assert!(consumer.is_empty());
    }
}

#[test]
fn large_values_cross_untorn() {
    let (mut producer, mut consumer) = mailbox::<[u64; 13]>(4).unwrap();
    let count = VALUES / 10;
    let pushing = thread::spawn(move || push_all(&mut producer, (0..count).map(|i| [i; 13])));
    let mut expected = 0;
    while expected < count {
        match consumer.pop() {
            Some(value) => {
                assert_eq!(value, [expected; 13]);
                expected += 1;
            }
            None => thread::yield_now(),
        }
    }
    pushing.join().unwrap();
}

#[test]
fn nothing_is_missed_when_the_producer_leaves() {
    let (mut producer, mut consumer) = mailbox::<Box<u64>>(16).unwrap();
    let count = VALUES / 10;
    let pushing = thread::spawn(move || push_all(&mut producer, (0..count).map(Box::new)));
    let mut popped = 0;
    loop {
        let abandoned = consumer.is_abandoned();
        match consumer.pop() {
            Some(value) => {
                assert_eq!(*value, popped);
                popped += 1;
            }
            None if abandoned => break,
            None => thread::yield_now(),
        }
    }
    assert_eq!(popped, count);
    pushing.join().unwrap();
}

#[test]
fn a_producer_learns_that_the_consumer_has_left() {
    let (mut producer, mut consumer) = mailbox::<u64>(16).unwrap();
    let popping = thread::spawn(move || {
        for expected in 0..100 {
            loop {
                match consumer.pop() {
                    Some(value) => break assert_eq!(value, expected),
                    None => thread::yield_now(),
                }
            }
        }
    });
    let mut value = 0;
    while !producer.is_abandoned() {
        match producer.push(value) {
            Ok(()) => value += 1,
            Err(Full(_)) => thread::yield_now(),
        }
    }
    popping.join().unwrap();
    assert!(value >= 100);
}
