//! Operations decoded from bytes and applied to an algorithm and to the model of the property tests. The first byte
//! chooses the algorithm, the next ones its initial state.
//!
//! `FUZZ_ONLY=qfq,qfq_plus` in the environment leaves the other algorithms out.

#![no_main]

#[path = "../../crates/core/tests/it/support/algorithms.rs"]
mod algorithms;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::LazyLock;

use fairlane_core::VirtualTime;
use fairlane_core::sched::*;
use fairlane_testkit::model::{Config, Operation, before_the_wrap, drive};
use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::{Corpus, fuzz_target};

type Drive = fn(VirtualTime, NonZeroU32, &[Operation]);

macro_rules! table {
    ($($algorithm:ident: $make:expr;)*) => {
        &[$((stringify!($algorithm), |start, members, operations| {
            let make: fn(VirtualTime, NonZeroU32) -> _ = $make;
            let outcome = drive(make(start, members), operations);
            outcome.unwrap_or_else(|what| panic!("{what}"));
        })),*]
    };
}

const ALGORITHMS: &[(&str, Drive)] = algorithms::algorithms!(table);

/// Whether each algorithm is to be driven.
static CHOSEN: LazyLock<Vec<bool>> = LazyLock::new(|| {
    let only = std::env::var("FUZZ_ONLY").ok();
    let names: Vec<&str> = only.iter().flat_map(|list| list.split(',')).collect();
    for name in &names {
        let known = ALGORITHMS.iter().any(|(algorithm, _)| algorithm == name);
        assert!(known, "FUZZ_ONLY: there is no algorithm {name:?}");
    }
    let chosen = |(name, _): &(&str, Drive)| names.is_empty() || names.contains(name);
    ALGORITHMS.iter().map(chosen).collect()
});

struct Input {
    algorithm: usize,
    start: VirtualTime,
    /// M, for the algorithms that have aggregates.
    members: NonZeroU32,
    operations: Vec<Operation>,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input")
            .field("algorithm", &ALGORITHMS[self.algorithm].0)
            .field("start", &self.start)
            .field("members", &self.members)
            .field("operations", &self.operations)
            .finish()
    }
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        // No remainder is taken, so that an input keeps its algorithm when the list grows.
        let algorithm = usize::from(u8::arbitrary(bytes)?);
        if algorithm >= ALGORITHMS.len() {
            return Err(arbitrary::Error::IncorrectFormat);
        }
        let start = start(bytes)?;
        let members = NonZeroU32::MIN.saturating_add(u32::from(u8::arbitrary(bytes)? % 16));
        let mut operations = Vec::new();
        while !bytes.is_empty() {
            operations.push(operation(bytes)?);
        }
        Ok(Input {
            algorithm,
            start,
            members,
            operations,
        })
    }
}

/// Zero, shortly before virtual time wraps, or anywhere.
fn start(bytes: &mut Unstructured) -> arbitrary::Result<VirtualTime> {
    Ok(match u8::arbitrary(bytes)? {
        0..64 => VirtualTime::new(0),
        // A shift of 63 and more is half the circle away.
        shift @ 64..192 => before_the_wrap(u32::from(shift % 63), u16::arbitrary(bytes)?),
        _ => VirtualTime::new(u64::arbitrary(bytes)?),
    })
}

fn operation(bytes: &mut Unstructured) -> arbitrary::Result<Operation> {
    // As often as the property test has them.
    Ok(match u8::arbitrary(bytes)? % 25 {
        0..2 => Operation::Add(config(bytes)?),
        2 => Operation::Remove(flow(bytes)?),
        3..5 => Operation::Change(flow(bytes)?, config(bytes)?),
        5 => Operation::Flush(flow(bytes)?),
        6..14 => Operation::Enqueue {
            flow: flow(bytes)?,
            len: length(bytes)?,
            packets: 1 + u8::arbitrary(bytes)? % 8,
        },
        14..16 => Operation::EnqueueAll {
            len: length(bytes)?,
        },
        16..22 => Operation::Dequeue(1 + u16::from(u8::arbitrary(bytes)? % 64)),
        22 => Operation::Peek,
        23 => Operation::Stray(u8::arbitrary(bytes)?.into()),
        _ => Operation::ChangeAll(weight(bytes)?),
    })
}

fn flow(bytes: &mut Unstructured) -> arbitrary::Result<usize> {
    Ok(u8::arbitrary(bytes)?.into())
}

fn config(bytes: &mut Unstructured) -> arbitrary::Result<Config> {
    Ok(Config {
        weight: weight(bytes)?,
        max_length: length(bytes)?,
        limits: match u8::arbitrary(bytes)? {
            0..224 => None,
            packets => Some((
                u32::from(packets % 8),
                u32::from(u16::arbitrary(bytes)?) * 4,
            )),
        },
    })
}

/// 1 to 10^6: often an edge, or small.
fn weight(bytes: &mut Unstructured) -> arbitrary::Result<u32> {
    const EDGES: [u32; 8] = [1, 2, 3, 1000, 65_536, 524_288, 999_999, 1_000_000];
    Ok(match u8::arbitrary(bytes)? {
        edge @ 0..96 => EDGES[usize::from(edge % 8)],
        small @ 96..192 => u32::from(small - 95),
        _ => {
            1 + u32::from_le_bytes([
                u8::arbitrary(bytes)?,
                u8::arbitrary(bytes)?,
                u8::arbitrary(bytes)?,
                0,
            ]) % 1_000_000
        }
    })
}

/// 1 to 65,535: often an edge.
fn length(bytes: &mut Unstructured) -> arbitrary::Result<u32> {
    const EDGES: [u32; 8] = [1, 2, 64, 1500, 9000, 32_768, 65_534, 65_535];
    Ok(match u8::arbitrary(bytes)? {
        edge @ 0..128 => EDGES[usize::from(edge % 8)],
        _ => u32::from(u16::arbitrary(bytes)?).max(1),
    })
}

fuzz_target!(|input: Input| -> Corpus {
    if !CHOSEN[input.algorithm] {
        return Corpus::Reject;
    }
    let (_, drive) = ALGORITHMS[input.algorithm];
    drive(input.start, input.members, &input.operations);
    Corpus::Keep
});
