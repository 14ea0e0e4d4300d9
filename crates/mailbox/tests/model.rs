//! Random sequences of operations against `VecDeque`.
#![cfg(not(loom))]

use std::{collections::VecDeque, fmt::Debug};

use fairlane_mailbox::{Full, mailbox, slots_per_block};
use proptest::{collection::vec, prelude::*};

#[derive(Clone, Copy, Debug)]
enum Op {
    Push,
    Pop,
    PushBatch,
    PopBatch,
}

#[derive(Clone, Debug, PartialEq)]
#[repr(align(256))]
struct Wide(u8);

/// Bursts rather than single operations, so that the mailbox becomes full and
/// empty many times.
fn operations() -> impl Strategy<Value = Vec<(Op, usize)>> {
    vec(
        (
            prop_oneof![
                Just(Op::Push),
                Just(Op::Pop),
                Just(Op::PushBatch),
                Just(Op::PopBatch)
            ],
            1..150_usize,
        ),
        0..40,
    )
}

fn run<T>(
    bursts: &[(Op, usize)],
    slots: usize,
    new: impl Fn(usize) -> T,
) -> Result<(), TestCaseError>
where
    T: Send + Clone + PartialEq + Debug,
{
    let block = slots_per_block::<T>();
    let (mut producer, mut consumer) = mailbox::<T>(slots).unwrap();
    let guaranteed = producer.capacity();
    let most = guaranteed - 1 + block;
    prop_assert!((slots..slots + block).contains(&guaranteed));

    let mut model = VecDeque::new();
    let mut number = 0;
    for &(op, count) in bursts {
        match op {
            Op::Push => {
                for _ in 0..count {
                    let value = new(number);
                    number += 1;
                    match producer.push(value.clone()) {
                        Ok(()) => model.push_back(value),
                        Err(Full(back)) => {
                            prop_assert_eq!(back, value);
                            prop_assert!(model.len() >= guaranteed);
                        }
                    }
                }
            }
            Op::PushBatch => {
                let mut values = (number..number + count).map(&new);
                let pushed = producer.push_batch(&mut values);
                prop_assert_eq!(values.len(), count - pushed);
                prop_assert!(pushed == count || model.len() + pushed >= guaranteed);
                model.extend((number..number + pushed).map(&new));
                number += count;
            }
            Op::Pop => {
                for _ in 0..count {
                    prop_assert_eq!(consumer.pop(), model.pop_front());
                }
            }
            Op::PopBatch => {
                let mut values = Vec::new();
                let popped = consumer.pop_batch(count, |value| values.push(value));
                prop_assert_eq!(popped, count.min(model.len()));
                prop_assert!(values.into_iter().eq(model.drain(..popped)));
            }
        }
        prop_assert!(model.len() <= most);
        prop_assert_eq!(consumer.is_empty(), model.is_empty());
    }
    drop(producer);
    prop_assert!(std::iter::from_fn(|| consumer.pop()).eq(model));
    Ok(())
}

fn config() -> ProptestConfig {
    if cfg!(miri) {
        ProptestConfig {
            cases: 4,
            failure_persistence: None,
            ..ProptestConfig::default()
        }
    } else {
        ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_mailbox_is_a_queue_whose_capacity_is_the_documented_one(
        bursts in operations(),
        slots in (1..8_u32).prop_map(|exponent| 1_usize << exponent),
    ) {
        run(&bursts, slots, |_| ())?;
        run(&bursts, slots, |number| number as u8)?;
        run(&bursts, slots, |number| number as u64)?;
        run(&bursts, slots, |number| [number as u64, !0])?;
        run(&bursts, slots, |number| [number as u8; 3])?;
        run(&bursts, slots, |number| Wide(number as u8))?;
        run(&bursts, slots, |number| number.to_string())?;
        run(&bursts, slots, |number| [number as u8; 100])?;
    }
}
