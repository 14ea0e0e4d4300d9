//! The flows of a replay and their entitlements.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use fairlane_core::scheduler::MAX_ENTITIES;
use fairlane_core::units::{MAX_LENGTH, MAX_WEIGHT};
use fairlane_core::{Length, Weight};

use crate::replay::csv::Rows;

/// The entitlement of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its share of the link relative to the others.
    pub weight: Weight,
    /// Longest packet it may bring, without overhead.
    pub max_len: Length,
}

/// The flows of arrivals that declare none, by number: each of weight 1 and up to its longest packet.
#[derive(Clone, Debug, Default)]
pub struct ObservedFlows(Vec<u32>);

impl ObservedFlows {
    /// Adds a packet of `len` bytes, without overhead, of the flow with this number. O(1) amortised.
    pub fn add(&mut self, flow: u32, len: u32) {
        let flow = flow as usize;
        if self.0.len() <= flow {
            self.0.resize(flow + 1, 0);
        }
        self.0[flow] = self.0[flow].max(len);
    }

    /// Returns the flows. One that sends nothing may send packets of any length.
    pub fn flows(&self) -> Vec<Flow> {
        let flow = |&longest: &u32| Flow {
            weight: Weight::ONE,
            max_len: Length::new(longest).unwrap_or(Length::MAX),
        };
        self.0.iter().map(flow).collect()
    }
}

/// A weight in a file: its digits, and the number of decimal places among them.
#[derive(Clone, Copy)]
struct Decimal {
    digits: u64,
    places: u32,
}

/// Most decimal places of a weight.
const MOST_PLACES: u32 = 6;

impl Decimal {
    /// Returns the weight in this column: a whole number, or one with decimal places.
    fn of<R: BufRead, const N: usize>(rows: &Rows<R, N>, column: usize) -> Result<Decimal> {
        let text = rows.word(column);
        let Some((whole, fraction)) = text.split_once('.') else {
            let digits = rows.number(column)?;
            return Ok(Decimal { digits, places: 0 });
        };
        let fraction = fraction.trim_end_matches('0');
        let joined = [whole, fraction].concat();
        let is_number = !joined.is_empty() && joined.bytes().all(|byte| byte.is_ascii_digit());
        let most = u64::from(MAX_WEIGHT) * 10u64.pow(fraction.len().min(6) as u32);
        let digits = joined
            .parse()
            .ok()
            .filter(|digits| (1..=most).contains(digits));
        match digits.filter(|_| is_number && fraction.len() <= MOST_PLACES as usize) {
            Some(digits) => Ok(Decimal {
                digits,
                places: fraction.len() as u32,
            }),
            None => bail!(
                "{}: weight '{text}' is not a number from 0.000001 to {MAX_WEIGHT} with \
                 {MOST_PLACES} decimal places at most",
                rows.place()
            ),
        }
    }
}

/// Returns whole weights in these proportions: unchanged if they are whole, or else the smallest.
fn whole(weights: &[Decimal]) -> Vec<u64> {
    let places = weights
        .iter()
        .map(|weight| weight.places)
        .max()
        .unwrap_or(0);
    let scaled = |weight: &Decimal| weight.digits * 10u64.pow(places - weight.places);
    let common = match places {
        0 => 1,
        _ => weights
            .iter()
            .map(scaled)
            .fold(0, greatest_common_divisor)
            .max(1),
    };
    weights
        .iter()
        .map(|weight| scaled(weight) / common)
        .collect()
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Reads `flow,weight,max_len`, and returns flow n at place n. Weights with decimal places become the
/// smallest whole ones in the same proportions.
///
/// # Errors
///
/// The file cannot be read or has no such rows, or a whole weight would be too large.
pub fn read(path: &Path) -> Result<Vec<Flow>> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("opening {name}"))?;
    let columns = ["flow", "weight", "max_len"];
    let rows = Rows::new(BufReader::new(file), name.clone(), columns)?;
    let mut rows = (rows.within(0, 0..=MAX_ENTITIES as u64 - 1))
        .within(1, 1..=MAX_WEIGHT.into())
        .within(2, 1..=MAX_LENGTH.into());
    let mut read = Vec::new();
    while rows.next_row()? {
        let (flow, max_len) = (rows.number(0)?, rows.number(2)?);
        let weight = Decimal::of(&rows, 1)?;
        let place = rows.place();
        ensure!(
            read.len() < MAX_ENTITIES,
            "{place}: there are {MAX_ENTITIES} flows at most"
        );
        let max_len = u32::try_from(max_len).ok().and_then(Length::new);
        let max_len = max_len.expect("the column has its range");
        read.push((flow, rows.line(), weight, max_len));
    }
    ensure!(
        !read.is_empty(),
        "{name}: there is no flow below the header"
    );
    let count = read.len();
    let mut flows: Vec<Option<(u64, Flow)>> = vec![None; count];
    let weights: Vec<Decimal> = read.iter().map(|&(_, _, weight, _)| weight).collect();
    for ((number, line, _, max_len), scaled) in read.into_iter().zip(whole(&weights)) {
        let weight = u32::try_from(scaled).ok().and_then(Weight::new);
        let weight = weight.with_context(|| {
            format!(
                "{name}:{line}: weights with decimal places become whole ones in the same proportions, \
                 of which this is {scaled} (at most {MAX_WEIGHT})"
            )
        })?;
        let flow = Flow { weight, max_len };
        let place = usize::try_from(number).ok().and_then(|n| flows.get_mut(n));
        match place {
            None => bail!(
                "{name}:{line}: flow {number} leaves a gap, {count} flows are numbered 0 to {}",
                count - 1
            ),
            Some(Some((first, _))) => {
                bail!("{name}:{line}: flow {number} is on line {first} already, a flow has one row")
            }
            Some(place) => *place = Some((line, flow)),
        }
    }
    Ok(flows.into_iter().flatten().map(|(_, flow)| flow).collect())
}

/// Checks a packet's length against its flow; `place` is only called for an error.
pub(super) fn check_length(
    len: u64,
    flow: u64,
    declared: &Flow,
    overhead: u32,
    place: impl Fn() -> String,
) -> Result<u32> {
    let max = u64::from(declared.max_len.get());
    if len == 0 || len > max {
        bail!(
            "{}: len {len} of flow {flow} is not from 1 to its max_len {max}",
            place()
        );
    }
    if len + u64::from(overhead) > u64::from(MAX_LENGTH) {
        bail!(
            "{}: len {len} and the overhead of {overhead} make more than {MAX_LENGTH} bytes",
            place()
        );
    }
    Ok(len as u32)
}
