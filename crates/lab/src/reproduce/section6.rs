//! What the measurements of the PSPAT paper's Section 6 have in common: each is a case of
//! `fairlane bench pspat`.

use anyhow::{Context, Result};
use clap::ValueEnum;
use fairlane_core::{Length, Nanos, Rate, Weight};
use serde::de::{Deserialize, Deserializer, Error};

use super::lab::Lab;
use fairlane_bench::pspat::{self, Case, Mode, Outcome, Transmit, Way};
use fairlane_cli::algorithm::Algorithm;

/// A value as the command line has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<V>(pub V);

impl<'de, V: ValueEnum> Deserialize<'de> for Named<V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        V::from_str(&name, false)
            .map(Named)
            .map_err(D::Error::custom)
    }
}

/// An algorithm as the command line has it.
pub(super) fn algorithm<'de, D: Deserializer<'de>>(from: D) -> Result<Algorithm, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// The name of `value` on the command line.
pub(super) fn name(value: impl ValueEnum) -> String {
    let possible = value.to_possible_value();
    possible.map_or_else(String::new, |possible| possible.get_name().to_owned())
}

/// What to call who decides.
pub(super) fn decider(mode: Mode) -> &'static str {
    match mode {
        Mode::Pspat => "PSPAT",
        Mode::Lock => "lock",
        Mode::None => "no scheduler",
    }
}

/// Greedy clients of weight 1 with packets of `packet` bytes, a thread each, on a link that
/// never is the bottleneck. With an arbiter, they transmit themselves what it has cleared.
pub(super) fn greedy(
    lab: &Lab,
    alg: Algorithm,
    mode: Mode,
    clients: u32,
    packet: u32,
) -> Result<Case> {
    Ok(Case {
        clients: clients.max(1),
        active: clients,
        max_clients: clients + 2,
        threads: clients,
        alg,
        mode,
        transmit: Transmit::Noop,
        way: Way::Clients,
        dispatchers: 0,
        rate: Rate::MAX,
        weights: vec![weight(1)?],
        packet: length(packet)?,
        mailbox: 1024,
        queue: pspat::queue_for(clients),
        read_interval: Nanos(1000),
        victim: None,
        sleep: false,
        seconds: lab.measurement.as_secs_f64(),
    })
}

/// Measures `case`, unless the experiment is to stop.
pub(super) fn measure(lab: &Lab, case: &Case) -> Result<Outcome> {
    let outcome = pspat::measure(case, lab.stop());
    lab.check()?;
    outcome
}

pub(super) fn weight(weight: u32) -> Result<Weight> {
    Weight::new(weight).with_context(|| format!("weight {weight}"))
}

pub(super) fn length(bytes: u32) -> Result<Length> {
    Length::new(bytes).with_context(|| format!("a packet of {bytes} bytes"))
}
