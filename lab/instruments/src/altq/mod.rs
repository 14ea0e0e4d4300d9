//! Instruments for the experiments of the ALTQ paper (Cho, 1998), Section 4: real TCP and round trips
//! through the daemon, as a bump in the wire between network namespaces; the classifier by itself; CBQ
//! with a coarse timer. Each prints one JSON object, with units in its keys.

mod classify;
mod round_trip;
mod tcp;
mod timer;

use anyhow::Result;
use fairlane_cli::{interrupt, output};
use fairlane_netlab::{LabError, Namespace, iperf_is_installed};
use serde::Serialize;

/// An instrument.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Say what this machine, or this user, lacks for network namespaces and for TCP flows
    Check,
    /// Run TCP flows through a site, and report the arrivals of each over time
    Tcp(tcp::Options),
    /// Measure UDP requests and replies through a site, one at a time
    RoundTrip(round_trip::Options),
    /// Time the classification of a packet by a site's filters, without a network
    Classify(classify::Options),
    /// Compute what CBQ with a coarse timer gives a class, on a clock of its own
    Timer(timer::Options),
}

/// Measures, and prints the results.
pub(crate) fn run(command: &Command) -> Result<()> {
    let stop = interrupt::asked()?;
    match command {
        Command::Check => output::json(&Lacks::here()?),
        Command::Tcp(options) => output::json(&tcp::measure(options, &stop)?),
        Command::RoundTrip(options) => output::json(&round_trip::measure(options, &stop)?),
        Command::Classify(options) => output::json(&classify::measure(options, &stop)?),
        Command::Timer(options) => output::json(&timer::measure(options)?),
    }
}

/// Facilities that are missing here, as a message each; `None` if present.
#[derive(Debug, Serialize)]
struct Lacks {
    /// For any bed.
    namespaces: Option<String>,
    /// For TCP flows, in addition.
    tcp: Option<String>,
}

impl Lacks {
    fn here() -> Result<Lacks, LabError> {
        Ok(Lacks {
            namespaces: lack(Namespace::new())?,
            tcp: lack(iperf_is_installed())?,
        })
    }
}

fn lack<T>(made: Result<T, LabError>) -> Result<Option<String>, LabError> {
    match made {
        Ok(_) => Ok(None),
        Err(error) if error.is_not_to_be_had() => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}
