//! `fairlane check`: what a file says, and what it guarantees, before anything is attached.

pub mod report;

use std::path::PathBuf;

use anyhow::{Context, Result};
use fairlane_config::schema;

use crate::machine::read_site;
use crate::output;
use report::Report;

const HELP: &str = "\
Nothing is opened or attached; where the interfaces are on this machine, their MTUs are
looked up, else 1500 is assumed, and what was assumed is said. An error is one sentence with its line and column, and
the exit status is 2; warnings go to standard error and change nothing.

The table has, for each class of each link:

  guaranteed  the rate that it has at least while it has something to send, through all
              levels of the tree; for a class of flows, of all of them and of each
  ceiling     the rate that it never exceeds
  delay       within which a packet has left that finds its class (or flow) empty, whatever
              the others send; a transmit queue in front of the link, and how late the
              program wakes up, come on top
  bounds      the algorithms whose bounds these are, from the root down; or why there are
              none

Examples:
  fairlane check examples/home-gateway.toml
  fairlane check --json site.toml | jq '.links[0].classes[].guaranteed_bps'
  fairlane check --schema > site.schema.json";

/// Options of `fairlane check`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// The file of the site
    #[arg(value_name = "CONFIG", required_unless_present = "schema")]
    config: Option<PathBuf>,
    /// Print the JSON Schema of such files instead, with what each key means
    #[arg(long, conflicts_with_all = ["config", "json"])]
    schema: bool,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
}

/// Checks a file.
pub fn run(options: &Options) -> Result<()> {
    let Some(config) = &options.config else {
        return output::line(schema().trim_end());
    };
    let site = read_site(config)?;
    output::warn(&site.warnings);
    let report = Report::new(&site);
    if options.json {
        return output::line(serde_json::to_string(&report).context("as JSON")?);
    }
    for link in report.links {
        output::line(link.headline())?;
        output::line(link.table())?;
    }
    Ok(())
}
