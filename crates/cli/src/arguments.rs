//! Command-line values that several commands accept.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use fairlane_core::Weight;
use fairlane_core::units::MAX_WEIGHT;
use fairlane_demo::{Allow, MOST_SENDERS};

/// Weights, separated by commas.
#[derive(Clone, Debug)]
pub struct Weights(pub Vec<Weight>);

impl FromStr for Weights {
    type Err = Error;

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

/// One `--allow`.
#[derive(Clone, Copy, Debug)]
pub struct Allowed(pub Allow);

impl FromStr for Allowed {
    type Err = Error;

    fn from_str(text: &str) -> Result<Allowed> {
        let (who, of) = text
            .rsplit_once(':')
            .with_context(|| format!("'{text}': expected CLIENT:WEIGHT, such as uid=1000:4"))?;
        Ok(Allowed(Allow {
            who: who.parse()?,
            weight: weight(of)?,
        }))
    }
}

/// Reads one weight.
pub fn weight(text: &str) -> Result<Weight> {
    let weight = text.trim().parse();
    weight.map_err(|_| anyhow!("'{text}' is not a weight from 1 to {MAX_WEIGHT}"))
}

/// Reads a time to run.
pub fn seconds(text: &str) -> Result<f64> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e9 => Ok(seconds),
        _ => bail!("a time to run is a number of seconds above 0, up to 1e9"),
    }
}

/// Parses the time for which queued packets are still sent at the end.
pub fn drain(text: &str) -> Result<Duration> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=60.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => bail!("expected 0 to 60 seconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_clients_and_a_weight() {
        let Allowed(rule) = "uid=1000:4".parse().unwrap();
        assert_eq!((&*rule.who.to_string(), rule.weight.get()), ("uid=1000", 4));
        for (text, names) in [
            ("uid=1000", "CLIENT:WEIGHT"),
            ("user:1", "\"user\""),
            ("any:0", "'0'"),
        ] {
            let error = text.parse::<Allowed>().unwrap_err().to_string();
            assert!(error.contains(names), "{error}");
        }
    }

    #[test]
    fn what_is_queued_is_sent_for_a_minute_at_most() {
        assert_eq!(drain("0").unwrap(), Duration::ZERO);
        assert_eq!(drain("60").unwrap(), Duration::from_secs(60));
        for odd in ["-0.1", "60.1", "inf", "NaN", "1s", ""] {
            let error = drain(odd).unwrap_err().to_string();
            assert!(error.contains("0 to 60"), "{error}");
        }
    }

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
