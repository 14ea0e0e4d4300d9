//! The algorithms on the command line: those of the core, and those that the program was given.

use std::num::NonZeroU32;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use fairlane_config::algorithms::{self, LEAST_QUANTUM};
use fairlane_core::Length;
pub use fairlane_core::sched::Algorithm;

/// Returns the parser of `--alg`.
pub fn parser() -> impl TypedValueParser<Value = Algorithm> {
    PossibleValuesParser::new(algorithms::all().into_iter().map(possible))
        .map(|name| algorithms::named(&name).expect("one of the names above"))
}

/// Returns an algorithm as a command-line value.
fn possible(algorithm: Algorithm) -> PossibleValue {
    PossibleValue::new(algorithm.name()).help(algorithm.about())
}

/// Parses `--aggregate`.
pub fn members(text: &str) -> Result<NonZeroU32, String> {
    text.parse()
        .map_err(|_| "a number of flows from 1 to 4294967295".to_owned())
}

/// Parses `--quantum`.
pub fn quantum(text: &str) -> Result<Length, String> {
    let bytes = text.parse().ok().filter(|&bytes| bytes >= LEAST_QUANTUM);
    bytes.and_then(Length::new).ok_or_else(|| {
        format!(
            "a number of bytes from {LEAST_QUANTUM} to {}",
            Length::MAX.get()
        )
    })
}

/// Sets the quantum of DRR, if one is given.
///
/// # Errors
///
/// None of the algorithms is DRR.
pub fn with_quantum(
    mut algorithms: Vec<Algorithm>,
    quantum: Option<Length>,
) -> Result<Vec<Algorithm>, &'static str> {
    let Some(quantum) = quantum else {
        return Ok(algorithms);
    };
    let mut given = false;
    for algorithm in &mut algorithms {
        if let Some(with_quantum) = algorithm.with_quantum(quantum) {
            (*algorithm, given) = (with_quantum, true);
        }
    }
    match given {
        true => Ok(algorithms),
        false => Err("--quantum: only drr has a quantum (use --alg drr)"),
    }
}
