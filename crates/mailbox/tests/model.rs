//! Random sequences of operations against `VecDeque`.
#![cfg(not(loom))]

use std::{collections::VecDeque, fmt::Debug};

use fairlane_mailbox::{Full, mailbox, slots_per_line};
use proptest::{collection::vec, prelude::*};

#[derive(Clone, Copy, Debug)]
enum Op {
    Push,
    Pop,
}

/// Bursts rather than single operations, so that the mailbox becomes full and
/// empty many times.
fn operations() -> impl Strategy<Value = Vec<(Op, usize)>> {
    vec(
        (prop_oneof![Just(Op::Push), Just(Op::Pop)], 1..100_usize),
        0..40,
    )
}

fn run<T>(
    bursts: &[(Op, usize)],
    lines: usize,
    new: impl Fn(usize) -> T,
) -> Result<(), TestCaseError>
where
    T: Send + Clone + PartialEq + Debug,
{
    let line = slots_per_line::<T>();
    let slots = lines * line;
    let (mut producer, mut consumer) = mailbox::<T>(slots).unwrap();
    let (guaranteed, most) = (producer.capacity(), slots - line);
    prop_assert_eq!(guaranteed, slots - 2 * line + 1);

    let mut model = VecDeque::new();
    let mut number = 0;
    for &(op, count) in bursts {
        for _ in 0..count {
            match op {
                Op::Push => {
                    let value = new(number);
                    number += 1;
                    match producer.push(value.clone()) {
                        Ok(()) => {
                            model.push_back(value);
                            prop_assert!(model.len() <= most);
                        }
                        Err(Full(back)) => {
                            prop_assert_eq!(back, value);
                            prop_assert!(model.len() >= guaranteed);
                        }
                    }
                }
                Op::Pop => prop_assert_eq!(consumer.pop(), model.pop_front()),
            }
        }
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
        lines in (1..6_u32).prop_map(|exponent| 1_usize << exponent),
    ) {
        run(&bursts, lines, |_| ())?;
        run(&bursts, lines, |number| number as u8)?;
        run(&bursts, lines, |number| number as u64)?;
        run(&bursts, lines, |number| [number as u64, !0])?;
        run(&bursts, lines, |number| number.to_string())?;
        run(&bursts, lines, |number| [number as u8; 100])?;
    }
}
