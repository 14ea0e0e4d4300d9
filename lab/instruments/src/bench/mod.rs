//! `fairlane-instruments bench`: the arbiter and the data path.

mod path;
mod pspat;

use anyhow::Result;

/// A benchmark with its options.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Measure the arbiter's throughput and fairness, and the lock that it replaces
    Pspat(pspat::Options),
    /// Measure each stage of the data path, and predict the throughput of more cores
    Path(path::Options),
}

/// Measures and prints the outcome.
pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Pspat(options) => pspat::run(options),
        Command::Path(options) => path::run(options),
    }
}
