//! `fairlane check`: the contents and the guarantees of a file, before anything is attached.

pub(crate) mod report;

use std::io::ErrorKind::PermissionDenied;
use std::path::PathBuf;

use anyhow::{Context, Result};
use fairlane_config::Site;
use fairlane_config::link_report::SiteReport;
use fairlane_config::schema;
use fairlane_control::{check_tokens, classify};
use fairlane_daemon::{bypasses, fits_here, pipeline_terms};
use fairlane_terminal::classified;

use crate::machine::read_site;
use crate::output;

const HELP: &str = "\
No interface is opened. The MTUs of interfaces on this machine are looked up; for others
1500 is assumed, and the output says so. Where one of its interfaces is here, so are
the reasons for which `run` would refuse it: a device that carries no Ethernet frames,
queues, cores, a missing token file. A warning says where this machine
bridges or routes between the interfaces, past Fairlane: `run` refuses that too. An error is one sentence with its line and
column, and the exit status is 2; warnings go to standard error and change nothing.

Where the file names interfaces, a line says what a running daemon adds to every delay, as
far as it can be said beforehand (docs/operating.md, \"What the daemon adds to a delay\"):

  receive workers   number of receive threads, the most frames they buffer, and within how
                    many forwarding rounds a buffered frame is picked up (if the file says
                    \"auto\": for this machine)
  transmit queue    the most bytes handed to the interface and not sent, and the time that the
                    link takes for them

The table has, for each class of each link:

  guaranteed  the least rate that it has while it has something to send, through all
              levels of the tree; for a class of flows, that of all flows and of each
  ceiling     the rate that it never exceeds
  burst       how much it may send at once without a loss to a full queue, in packets of any
              length; of a class of flows, even if one flow sends all of it
  arrival burst, delay
              the worst-case delay of a packet, whatever the others send, as long as the class
              keeps to its guaranteed rate and this burst (arrival-burst, one longest packet
              by default); in a class of flows, as long as its flow does. The pipeline, and
              how late the program wakes up, come on top
  room        packets for which queue space is reserved
  bounds      the algorithms from which the delay follows, from the root down; or why
              there is none

Examples:
  fairlane check examples/home-gateway.toml
  fairlane check --json site.toml | jq '.links[0].classes[].guaranteed_bps'
  fairlane check site.toml --packet 'IP 192.0.2.1.5060 > 198.51.100.2.5060: UDP, length 172'
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
    /// Say only which class and filter a packet falls into: a line of `tcpdump -n`, or keys, as in
    /// "source=192.0.2.1 destination-port=5060 protocol=udp"
    #[arg(long, conflicts_with = "schema")]
    packet: Option<String>,
    /// Print the parts of each delay too, and the delay of a packet that arrives at an empty queue of a class that
    /// was served ahead of its guaranteed rate
    #[arg(long, conflicts_with_all = ["schema", "packet", "json"])]
    explain: bool,
    /// Print JSON instead of the tables
    #[arg(long)]
    json: bool,
}

/// Checks a site against this machine's interfaces. If none of them exists here, the file is for another machine.
fn check_here(site: &Site) -> Result<()> {
    let missing = fits_here(site)?;
    match site.control.as_ref().map_or(Ok(()), check_tokens) {
        // The user that runs the site may have more permissions than this one.
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
    if let Some(packet) = &options.packet {
        let classes = classify(&site, packet).context("--packet")?;
        return match options.json {
            true => output::json(&classes),
            false => output::line(classified::text(&serde_json::to_value(classes)?)),
        };
    }
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
        if options.explain {
            output::line(report::parts_of(&link))?;
        }
    }
    Ok(())
}
