//! The algorithms on the command line: those of the core, and those that the program was given.

use std::num::NonZeroU32;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use fairlane_config::algorithms;
pub use fairlane_core::sched::Algorithm;

/// Reads `--alg`.
pub fn parser() -> impl TypedValueParser<Value = Algorithm> {
    PossibleValuesParser::new(algorithms::all().into_iter().map(possible))
        .map(|name| algorithms::named(&name).expect("one of the names above"))
}

/// An algorithm as the command line has it.
fn possible(algorithm: Algorithm) -> PossibleValue {
    PossibleValue::new(algorithm.name()).help(algorithm.about())
}

/// Reads `--aggregate`.
pub fn members(text: &str) -> Result<NonZeroU32, String> {
    text.parse()
        .map_err(|_| "a number of flows from 1 to 4294967295".to_owned())
}
