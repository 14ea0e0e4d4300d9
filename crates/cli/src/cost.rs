//! The cost of a packet in the papers' test environment: the loop of each algorithm, including those of other crates.

use anyhow::Result;
use fairlane_bench::pairs::{Case, Contender, Measured};
use fairlane_core::sched::Algorithm;

/// An algorithm of another crate, and its measurement loop: monomorphic code, without indirect calls.
pub(crate) type Custom = (Algorithm, fn(&Case) -> Result<Measured>);

/// Measures one contender.
pub(crate) fn measured(case: &Case, contender: Contender, custom: &[Custom]) -> Result<Measured> {
    let own = |(own, _): &&Custom| contender == Contender::Algorithm(*own);
    match custom.iter().find(own) {
        Some((_, measure)) => measure(case),
        None => case.measure(contender),
    }
}
