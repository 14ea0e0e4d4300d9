//! Flow sets: how many flows of which weight and packet length.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use fairlane_core::scheduler::MAX_ENTITIES;
use fairlane_core::units::{MAX_LENGTH, MAX_WEIGHT};
use fairlane_core::{Length, Weight};

/// Length where a flow set gives none, in bytes.
const DEFAULT_LENGTH: u64 = 1000;

/// Flows that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSet {
    pub weight: Weight,
    pub length: Length,
    pub flows: usize,
}

/// `W:LEN:N,...` as the papers' test program takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSets {
    text: String,
    sets: Vec<FlowSet>,
}

impl FlowSets {
    /// These sets, whatever they were read from.
    pub fn of(sets: Vec<FlowSet>) -> FlowSets {
        let text = String::new();
        FlowSets { text, sets }
    }

    /// Returns all sets, in the order given.
    pub fn sets(&self) -> &[FlowSet] {
        &self.sets
    }

    /// The text they were read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Number of flows in all sets.
    pub fn flows(&self) -> usize {
        self.sets.iter().map(|set| set.flows).sum()
    }
}

impl fmt::Display for FlowSets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for FlowSets {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<FlowSets> {
        let mut sets = Vec::new();
        for part in text.split(',') {
            let fields: Vec<&str> = part.split(':').map(str::trim).collect();
            let [weight, length, flows] = fields[..] else {
                bail!("flow set '{part}' is not WEIGHT:LENGTH:FLOWS, as in 1:1000:512 or 8::64");
            };
            let weights = steps(weight, 1, MAX_WEIGHT.into())
                .with_context(|| format!("weight '{weight}' of flow set '{part}'"))?;
            let lengths = steps(length, DEFAULT_LENGTH, MAX_LENGTH.into())
                .with_context(|| format!("length '{length}' of flow set '{part}'"))?;
            let flows = count(flows)
                .with_context(|| format!("number of flows '{flows}' of flow set '{part}'"))?;
            for &weight in &weights {
                for &length in &lengths {
                    sets.push(FlowSet {
                        weight: Weight::new(weight as u32).context("weight out of range")?,
                        length: Length::new(length as u32).context("length out of range")?,
                        flows,
                    });
                }
            }
        }
        let sets = FlowSets {
            text: text.to_owned(),
            sets,
        };
        ensure!(
            sets.flows() <= MAX_ENTITIES,
            "{} flows are more than the {MAX_ENTITIES} there can be",
            sets.flows()
        );
        Ok(sets)
    }
}

/// `X`, `MIN-MAX` (two steps) or `MIN-MAX-STEPS`, evenly spaced.
fn steps(text: &str, default: u64, max: u64) -> Result<Vec<u64>> {
    if text.is_empty() {
        return Ok(vec![default]);
    }
    let numbers = text
        .split('-')
        .map(|n| scaled(n.trim()))
        .collect::<Option<Vec<_>>>()
        .with_context(|| format!("is not a number from 1 to {max}, nor MIN-MAX-STEPS"))?;
    let (low, high, steps) = match numbers[..] {
        [low] => (low, low, 1),
        [low, high] => (low, high, 2),
        [low, high, steps] => (low, high, steps),
        _ => bail!("has more parts than MIN-MAX-STEPS"),
    };
    ensure!(
        1 <= low && low <= high && high <= max,
        "lies outside 1 to {max}, or is not in rising order"
    );
    ensure!((1..=1000).contains(&steps), "takes 1 to 1000 steps");
    Ok((0..steps)
        .map(|step| low + (high - low) * step / (steps - 1).max(1))
        .collect())
}

fn count(text: &str) -> Result<usize> {
    let number = scaled(text).filter(|n| (1..=MAX_ENTITIES as u64).contains(n));
    number
        .map(|n| n as usize)
        .with_context(|| format!("is not between 1 and {MAX_ENTITIES} (suffixes k, m)"))
}

/// Returns a number with the suffixes k (1024) and m (1024 squared), as the papers' test program
/// has them.
fn scaled(text: &str) -> Option<u64> {
    let (digits, scale) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1 << 10),
        b'm' | b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

/// A backlog in packets, or in packets for each flow (suffix `n`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backlog {
    Packets(u64),
    PerFlow(u64),
}

impl Backlog {
    /// In packets, with this many flows.
    pub fn packets(self, flows: usize) -> u64 {
        match self {
            Backlog::Packets(packets) => packets,
            Backlog::PerFlow(packets) => packets.saturating_mul(flows as u64),
        }
    }
}

impl FromStr for Backlog {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Backlog> {
        let number = |text: &str| {
            scaled(text)
                .filter(|&n| n <= u32::MAX.into())
                .context("a backlog is a number of packets, or of packets a flow as in 30n")
        };
        match text.strip_suffix('n') {
            Some(per_flow) => Ok(Backlog::PerFlow(number(per_flow)?)),
            None => Ok(Backlog::Packets(number(text)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(text: &str) -> Vec<(u32, u32, usize)> {
        let parsed: FlowSets = text.parse().unwrap();
        parsed
            .sets()
            .iter()
            .map(|s| (s.weight.get(), s.length.get(), s.flows))
            .collect()
    }

    #[test]
    fn flow_sets_read_as_the_papers_write_them() {
        assert_eq!(sets("1::512,8::64"), [(1, 1000, 512), (8, 1000, 64)]);
        assert_eq!(sets("1:1500:32k"), [(1, 1500, 32 << 10)]);
        assert_eq!(
            sets("1-9-3:100-200:2"),
            [
                (1, 100, 2),
                (1, 200, 2),
                (5, 100, 2),
                (5, 200, 2),
                (9, 100, 2),
                (9, 200, 2)
            ]
        );
        assert_eq!(sets("128::16,1k::1"), [(128, 1000, 16), (1024, 1000, 1)]);
    }

    #[test]
    fn a_flow_set_that_does_not_parse_is_named() {
        for text in [
            "",
            "1",
            "1:1000",
            "0::1",
            "1000001::1",
            "1:65536:1",
            "1::0",
            "1::17m",
            "9-1::1",
        ] {
            let error = format!("{:#}", text.parse::<FlowSets>().unwrap_err());
            assert!(error.contains(&format!("'{text}'")), "{text}: {error}");
        }
        assert!("1::16m,1::1".parse::<FlowSets>().is_err());
        assert_eq!("1::16m".parse::<FlowSets>().unwrap().flows(), MAX_ENTITIES);
    }

    #[test]
    fn a_backlog_is_absolute_or_per_flow() {
        assert_eq!("30n".parse::<Backlog>().unwrap().packets(512), 30 * 512);
        assert_eq!("4k".parse::<Backlog>().unwrap().packets(512), 4096);
        for text in ["", "n", "-1", "3.5n", "4294967296"] {
            assert!(text.parse::<Backlog>().is_err(), "{text}");
        }
    }
}
