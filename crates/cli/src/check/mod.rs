//! `fairlane check`: what a file says, and what it guarantees, before anything is attached.

pub(crate) mod report;

use std::io::ErrorKind::PermissionDenied;
use std::path::PathBuf;

use anyhow::{Context, Result};
use fairlane_config::Site;
use fairlane_config::link_report::SiteReport;
use fairlane_config::schema;
use fairlane_control::check_tokens;
use fairlane_site::{bypasses, fits_here, pipeline_terms};

use crate::machine::read_site;
use crate::output;

const HELP: &str = "\
No interface is opened. The MTUs of interfaces on this machine are looked up; for others
1500 is assumed, and the output says so. Where one of its interfaces is here, so are
the reasons for which `run` would refuse it: a device that carries no Ethernet frames,
queues, cores, a file of a token that is missing. A warning says where this machine
bridges or routes between the interfaces, past Fairlane: `run` refuses that too. An error is one sentence with its line and
column, and the exit status is 2; warnings go to standard error and change nothing.

Where the file names interfaces, a line says what a running daemon adds to every delay, as
far as it can be said beforehand (docs/operating.md, \"What the daemon adds to a delay\"):

  receive workers   the threads that receive, the frames that they hold at most, and in how
                    many rounds of the thread that forwards it has taken one in; where
                    the file leaves their number to the machine, as on this one
  transmit queue    what was sent and has not left at most, and what the link takes for it

The table has, for each class of each link:

  guaranteed  the least rate that it has while it has something to send, through all
              levels of the tree; for a class of flows, that of all flows and of each
  ceiling     the rate that it never exceeds
  burst       how much it may send at once without a loss to a full queue, in packets of any
              length; of a class of flows, even if one flow sends all of it
  delay       the worst-case delay of a packet that arrives at an empty queue, whatever
              the others send; the pipeline, and how late the program wakes up, come on top
  room        packets for which queue space is reserved
  bounds      the algorithms from which the delay follows, from the root down; or why
              there is none

Examples:
  fairlane check examples/home-gateway.toml
  fairlane check --json site.toml | jq '.links[0].classes[].guaranteed_bps'
  fairlane check --schema > site.schema.json";

/// Options of `fairlane check`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// The site file
    #[arg(value_name = "CONFIG", required_unless_present = "schema")]
    config: Option<PathBuf>,
    /// Print the JSON Schema of such files instead, with what each key means
    #[arg(long, conflicts_with_all = ["config", "json"])]
    schema: bool,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
}

/// Checks a site as far as this machine matters. Without any of its interfaces the file is for another machine.
fn check_here(site: &Site) -> Result<()> {
    let missing = fits_here(site)?;
    match site.control.as_ref().map_or(Ok(()), check_tokens) {
        // The user of the run may read what this one may not.
        Err(error) if missing.is_some() && error.reason.kind() != PermissionDenied => {
            return Err(error.into());
        }
        Err(error) => output::warn([error]),
        Ok(()) => {}
    }
    output::warn(
        missing.into_iter().flatten().map(|name| {
            format!("interface {name:?} is not on this machine: `run` fails until it is")
        }),
    );
    output::warn(site.interfaces.iter().flat_map(bypasses));
    Ok(())
}

/// Checks a file.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Some(config) = &options.config else {
        return output::line(schema().trim_end());
    };
    let site = read_site(config)?;
    output::warn(&site.warnings);
    check_here(&site).with_context(|| config.display().to_string())?;
    let report = SiteReport::new(&site, |link| pipeline_terms(&site, link));
    if options.json {
        return output::json(&report);
    }
    for link in report.links {
        output::line(report::headline(&link))?;
        if let Some(terms) = &link.pipeline {
            output::line(report::pipeline(terms))?;
        }
        output::line(report::table_of(&link))?;
    }
    Ok(())
}
