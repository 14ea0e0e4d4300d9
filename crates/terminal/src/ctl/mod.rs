//! `fairlane ctl`: queries and changes a running site.

mod edits;
mod flows;
mod grants;
mod operate;
mod show;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail};
use clap::{Args, Subcommand};
use fairlane_control::view::Place;
use fairlane_control::{Client, Document, Method, encoded, view};
use serde_json::Value as Json;

use crate::connection::{Connection, of_class, of_link};
use crate::effects::{self, Effects};
use crate::plain::{plain, told};
use crate::{classified, output, table};

const HELP: &str = "\
The site file has the address of the running site in [control]. The default here is
/run/fairlane.sock, so these lines in the site file are enough:

  [control]
  socket = \"/run/fairlane.sock\"

CLASS is a class, or LINK/CLASS if two links have a class of that name. KEY=VALUE are keys
of the site file; KEY= without a value removes a key.

Each change prints its effect on the guarantees of every class; with --dry-run nothing is
applied. A change is checked like a file and applied between two packets, so no queued
packet is lost or reordered. `ctl save` writes the running configuration to the site file.

Examples:
  fairlane ctl show
  fairlane ctl explain voice
  fairlane ctl classify 'IP 192.0.2.1.5060 > 198.51.100.2.5060: UDP, length 172'
  fairlane ctl filter list
  fairlane ctl flows everybody --top 5
  fairlane ctl set voice rate=3mbit ceil=6mbit --dry-run
  fairlane ctl add up/backup weight=1 ceil=2mbit
  fairlane ctl filter add up class=backup destination-port=873
  fairlane ctl grant up rate=2mbit delay=20ms destination-port=5060 --for 10min
  fairlane ctl batch changes.txt --dry-run
  fairlane ctl disable wan0
  fairlane ctl flush backup
  fairlane ctl detach wan0
  fairlane ctl attach wan1 --as outside
  fairlane ctl save";

/// Options of `fairlane ctl`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    connection: Connection,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// Options of every change.
#[derive(Clone, Debug, Args)]
struct Change {
    /// Print the effect of the change without applying it
    #[arg(long)]
    dry_run: bool,
    /// Revoke the grants that the change would break, instead of refusing the change
    #[arg(long)]
    break_grants: bool,
    /// List up to N effects, the greatest losses first [default: 20; with --json all]
    #[arg(long, value_name = "N")]
    effects: Option<usize>,
}

/// Default number of effects listed for people.
const LISTED: usize = 20;
/// The parameter value that lists all of them, sent for programs.
const ALL: &str = "all";

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Show the classes: rates, shares, delays and their bounds, drops
    Show {
        /// Only this class
        class: Option<String>,
        /// Print in the format of `tc -s -j class show`
        #[arg(long)]
        tc: bool,
    },
    /// Explain why packets of a class are queued, delayed or dropped, and what would help
    Explain {
        /// The class
        class: String,
    },
    /// Print the class and filter that a packet matches
    Classify(crate::classified::Packet),
    /// Show the top talkers: addresses, subnets or connections, by the flow key of their class
    Flows {
        /// Only flows of this class
        class: Option<String>,
        /// Maximum number of flows
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        top: u16,
    },
    #[command(flatten)]
    Edit(edits::Command),
    /// Apply several changes together, all or none: one per line, as after fairlane ctl
    Batch {
        /// The file; - for standard input. Empty lines and text after # are ignored
        file: PathBuf,
        #[command(flatten)]
        change: Change,
    },
    #[command(flatten)]
    Grants(grants::Command),
    /// Stop shaping the egress of an interface: frames pass unshaped
    Disable(operate::Interface),
    /// Resume shaping of the egress of an interface
    Enable(operate::Interface),
    /// Detach an interface: its egress is dropped until an interface is attached
    Detach(operate::Interface),
    /// Attach an interface to replace a detached one
    Attach(operate::Attach),
    /// Drop the backlog of a class and the classes below it, or of a link
    Flush(operate::Flush),
    /// Replace the running configuration with another site file, without a restart
    Apply {
        /// The file; - for standard input
        file: PathBuf,
        #[command(flatten)]
        change: Change,
    },
    /// Reload the site file, as SIGHUP does; refused if unsaved changes would be lost
    Reload {
        /// Discard unsaved changes
        #[arg(long)]
        discard: bool,
        #[command(flatten)]
        change: Change,
    },
    /// Print the running configuration
    Config,
    /// Write the running configuration to the site file, keeping comments
    Save {
        /// Overwrite the file even if it was changed since it was read
        #[arg(long)]
        force: bool,
    },
    /// Print the metrics, as Prometheus scrapes them
    Metrics,
    /// Print each state as it is reported, one JSON object a line, until Ctrl-C
    Watch,
}

/// Sends the request and prints the answer.
pub fn run(options: &Options) -> Result<()> {
    let site = Site::new(options)?;
    match &options.command {
        Command::Show { class, tc } => {
            let state = site.client.json(Method::GET, "/v1/state", "")?;
            let class = class.as_deref();
            let find = |class| view::find(&view::places(&state), class).map_err(Error::msg);
            let class = class.map(find).transpose()?;
            match (tc, options.json) {
                (true, _) => output::json(&view::as_tc(&state, class.as_ref())),
                (false, true) => output::json(&view::picked(&state, class.as_ref())),
                (false, false) => output::line(show::text(&state, class.as_ref())),
            }
        }
        Command::Explain { class } => site.explain(class),
        Command::Classify(packet) => site.classify(packet),
        Command::Flows { class, top } => site.flows(class.as_deref(), *top),
        Command::Edit(edits::Command::Filter(edits::Filter::List { link })) => {
            site.filters(link.as_deref())
        }
        Command::Edit(command) => {
            let asked = command.asked(|class| site.place(class))?;
            let (url, body) = (asked.url(), asked.body());
            site.ask_to_change(asked.method, &url, body, command.change())
        }
        Command::Batch { file, change } => {
            let body = edits::together(&read(file)?, &site.places()?)?;
            site.ask_to_change(Method::POST, "/v1/changes", body.to_string(), change)
        }
        Command::Grants(command) => grants::run(&site, command),
        Command::Disable(interface) => interface.shape(&site, false),
        Command::Enable(interface) => interface.shape(&site, true),
        Command::Detach(interface) => interface.detach(&site),
        Command::Attach(attach) => attach.run(&site),
        Command::Flush(flush) => flush.run(&site),
        Command::Apply { file, change } => {
            let text = read(file)?;
            let applied = site.ask_to_change(Method::PUT, "/v1/config", text, change);
            applied.map_err(|error| in_file(error, file))
        }
        Command::Reload { discard, change } => {
            let path = format!("/v1/reload?discard={discard}");
            site.ask_to_change(Method::POST, &path, String::new(), change)
        }
        Command::Config => site.print("/v1/config"),
        Command::Metrics => site.print("/metrics"),
        Command::Save { force } => {
            let path = if *force {
                "/v1/save?force=true"
            } else {
                "/v1/save"
            };
            let saved = site.client.json(Method::POST, path, "")?;
            match saved["saved"].as_str() {
                Some(file) if !options.json => output::line(format_args!("saved: {file}")),
                _ => output::json(&saved),
            }
        }
        Command::Watch => {
            let mut printed = Ok(());
            site.client.watch(|state| {
                printed = output::json(&state);
                printed.is_ok()
            })?;
            printed
        }
    }
}

struct Site {
    client: Client,
    json: bool,
}

impl Site {
    fn new(options: &Options) -> Result<Site> {
        let target = options.connection.target()?;
        Ok(Site {
            client: Client::new(target).context("starting to wait")?,
            json: options.json,
        })
    }

    /// Returns link and name of a class, which may be given without its link.
    fn place(&self, class: &str) -> Result<Place> {
        match view::find(&self.places()?, class) {
            Ok(found) => Ok(found),
            // The class may not be in the file.
            Err(_) => {
                let state = self.client.json(Method::GET, "/v1/state", "")?;
                view::find(&view::places(&state), class).map_err(Error::msg)
            }
        }
    }

    /// Returns the links and classes of the configuration.
    fn places(&self) -> Result<Vec<Place>> {
        // The running configuration is current; the published state lags behind it.
        let text = self.client.ask(Method::GET, "/v1/config", "")?;
        Ok(Document::new(&String::from_utf8_lossy(&text))?.places())
    }

    /// Returns the path of such a class.
    fn of_class(&self, class: &str) -> Result<String> {
        let (link, class) = self.place(class)?;
        Ok(of_class(&link, &class))
    }

    fn flows(&self, class: Option<&str>, top: u16) -> Result<()> {
        let mut path = format!("/v1/flows?top={top}");
        if let Some(class) = class {
            let (link, class) = self.place(class)?;
            path += &format!("&link={}&class={}", encoded(&link), encoded(&class));
        }
        let told = self.client.json(Method::GET, &path, "")?;
        match self.json {
            true => output::json(&told),
            false => output::line(flows::text(&told)),
        }
    }

    fn print(&self, path: &str) -> Result<()> {
        let text = self.client.ask(Method::GET, path, "")?;
        output::text(&text)
    }

    fn explain(&self, class: &str) -> Result<()> {
        let path = format!("{}/explain", self.of_class(class)?);
        let answer = self.client.json(Method::GET, &path, "")?;
        if self.json {
            return output::json(&answer);
        }
        let queued = answer["queued_packets"].as_u64().unwrap_or(0);
        output::line(format_args!(
            "{}/{}: {queued} packets queued",
            told(&answer["link"]),
            told(&answer["class"])
        ))?;
        for (key, before) in [("because", "  "), ("advice", "  -> ")] {
            for sentence in answer[key].as_array().into_iter().flatten() {
                output::line(format_args!("{before}{}", told(sentence)))?;
            }
        }
        Ok(())
    }

    fn classify(&self, packet: &classified::Packet) -> Result<()> {
        let path = format!("/v1/classify?packet={}", encoded(&packet.text()));
        let classes = self.client.json(Method::GET, &path, "")?;
        match self.json {
            true => output::json(&classes),
            false => output::line(classified::text(&classes)),
        }
    }

    /// Lists the filters of all links, or of one, with their numbers.
    fn filters(&self, link: Option<&str>) -> Result<()> {
        let text = self.client.ask(Method::GET, "/v1/config", "")?;
        let mut document = Document::new(&String::from_utf8_lossy(&text))?;
        let links = document.links();
        if let Some(link) = link.filter(|link| !links.iter().any(|other| other == link)) {
            bail!(
                "link '{link}' does not exist: there is {}",
                links.join(", ")
            );
        }
        let mut filters = document.filters();
        filters.retain(|filter| link.is_none_or(|link| filter.link == link));
        if self.json {
            return output::json(&filters);
        }
        let mut table = table::new(["link", "number", "class", "match"]);
        for column in [2, 3] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(comfy_table::CellAlignment::Left);
            }
        }
        for filter in &filters {
            let plain = |text: &str| plain(text).into_owned();
            table.add_row([
                plain(&filter.link),
                filter.number.to_string(),
                plain(&filter.class),
                plain(&filter.matches),
            ]);
        }
        match filters.is_empty() {
            true => output::line("no filters"),
            false => output::line(table),
        }
    }

    /// Makes a change and prints its effects.
    fn ask_to_change(
        &self,
        method: Method,
        path: &str,
        body: String,
        change: &Change,
    ) -> Result<()> {
        let mut path = path.to_owned();
        let listed = match (change.effects, self.json) {
            (Some(most), _) => most.to_string(),
            (None, true) => ALL.to_owned(),
            (None, false) => LISTED.to_string(),
        };
        let parameters = [
            change.dry_run.then(|| "dry-run=true".to_owned()),
            change.break_grants.then(|| "break-grants=true".to_owned()),
            Some(format!("effects={listed}")),
        ];
        for parameter in parameters.into_iter().flatten() {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str(&parameter);
        }
        let changed = self.client.json(method, &path, body)?;
        if self.json {
            return output::json(&changed);
        }
        for warning in changed["warnings"].as_array().into_iter().flatten() {
            output::aside(format_args!(
                "warning: {}",
                warning.as_str().unwrap_or_default()
            ));
        }
        for grant in changed["ended_grants"].as_array().into_iter().flatten() {
            let [class, link, reason] =
                ["class", "link", "reason"].map(|key| grant[key].as_str().unwrap_or_default());
            let ends = match change.dry_run {
                true => "would end",
                false => "has ended",
            };
            output::aside(format_args!("{class} of link {link} {ends}: {reason}"));
        }
        output::line(effects(&changed))
    }
}

fn read(file: &PathBuf) -> Result<String> {
    if file.as_os_str() == "-" {
        return std::io::read_to_string(std::io::stdin()).context("reading standard input");
    }
    fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

/// Prefixes errors in a file's text with the file's name.
fn in_file(error: Error, file: &Path) -> Error {
    let file = match file.as_os_str() == "-" {
        true => "standard input".into(),
        false => file.display().to_string(),
    };
    let sentence = error.to_string();
    match sentence.contains("configuration:") {
        true => Error::msg(sentence.replace("configuration:", &format!("{file}:"))),
        false => error,
    }
}

/// Formats the effects of a change, class by class.
fn effects(changed: &Json) -> String {
    let applied = changed["applied"].as_bool() == Some(true);
    let last = match applied {
        true => "applied",
        false => "dry run: nothing was applied",
    };
    let effects = Effects::of(changed);
    if effects.total == 0 {
        let none = match applied {
            true => "no guarantees changed",
            false => "no guarantees would change",
        };
        return format!("{last}; {none}");
    }
    let mut table = table::new(effects::HEADER);
    let more = effects.more();
    for effect in effects.listed {
        table.add_row(effect.cells);
    }
    match more {
        Some(more) => format!("{table}\n{more}\n{last}"),
        None => format!("{table}\n{last}"),
    }
}
