//! Values on the command line that several commands take.

use std::str::FromStr;

use anyhow::{Result, anyhow, bail};
use fairlane_core::Weight;
use fairlane_core::units::MAX_WEIGHT;

/// Most built-in senders.
pub const MOST_SENDERS: usize = 64;

/// Weights, separated by commas.
#[derive(Clone, Debug)]
pub struct Weights(pub Vec<Weight>);

impl FromStr for Weights {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Weights> {
        if text == "none" {
            return Ok(Weights(Vec::new()));
        }
        let weights = text.split(',').map(weight).collect::<Result<Vec<_>>>()?;
        if weights.len() > MOST_SENDERS {
            bail!("{} senders are more than {MOST_SENDERS}", weights.len());
        }
        Ok(Weights(weights))
    }
}

/// Reads one weight.
pub fn weight(text: &str) -> Result<Weight> {
    let number = text.trim().parse().ok();
    number
        .and_then(Weight::new)
        .ok_or_else(|| anyhow!("'{text}' is not a weight from 1 to {MAX_WEIGHT}"))
}

/// Reads a time to run.
pub fn seconds(text: &str) -> Result<f64> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e9 => Ok(seconds),
        _ => bail!("a time to run is a number of seconds above 0, up to 1e9"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_outside_their_range_are_named() {
        for (text, names) in [
            ("1,0", "'0'"),
            ("1000001", "'1000001'"),
            ("1,,2", "''"),
            ("x", "'x'"),
        ] {
            let error = text.parse::<Weights>().unwrap_err().to_string();
            assert!(error.contains(names), "{error}");
        }
        assert!(vec!["1"; 65].join(",").parse::<Weights>().is_err());
        assert_eq!("1, 1000000".parse::<Weights>().unwrap().0.len(), 2);
    }
}
