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
`check` opens no interface. It reads the MTUs of interfaces on this machine; for others it
assumes 1500, and says so. If one of the interfaces exists here, `check` also tests all
that `run` requires: a device that carries Ethernet frames, queues, cores, a token file. A
warning reports where this machine bridges or routes between the interfaces, past
Fairlane: `run` refuses that. An error is one sentence with line and column, and the exit
status is 2; warnings go to standard error and do not change the exit status.

If the file names interfaces, a line has the delay that a running daemon adds to every
class, as far as it is known in advance (docs/operating.md, \"What the daemon adds to a
delay\"):

  receive workers   number of receive threads, the most frames they buffer, and within how
                    many forwarding rounds a buffered frame is picked up (if the file says
                    \"auto\": for this machine)
  transmit queue    the most bytes queued in the interface, and the time that the link takes
                    to send them

The table has, for each class of each link:

  guaranteed  the guaranteed rate of a backlogged class, through all levels of the tree;
              for a class of flows, of all flows together and of each
  ceiling     the maximum rate
  burst       bytes that may arrive at once without a drop, in packets of any length; for a
              class of flows, even if one flow sends them all
  arrival burst, delay
              the worst-case delay of a packet, regardless of other traffic, while the class
              keeps to its guaranteed rate and this burst (arrival-burst, one longest packet
              by default); in a class of flows, while its flow does. The delay of the
              pipeline and of late wake-ups is extra
  room        packets for which buffer space is reserved
  bounds      the algorithms from which the delay follows, from the root down; or the
              reason for a missing bound

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
    /// Print the JSON Schema of site files instead, with a description of each key
    #[arg(long, conflicts_with_all = ["config", "json"])]
    schema: bool,
    /// Print only the class and filter of a packet: a line of `tcpdump -n`, or keys such as
    /// "source=192.0.2.1 destination-port=5060 protocol=udp"
    #[arg(long, conflicts_with = "schema")]
    packet: Option<String>,
    /// Also print the parts of each delay, and the delay of a packet that arrives at an empty queue of a class that
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
