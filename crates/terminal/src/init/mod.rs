//! `fairlane init`: a first site file for the interfaces of this machine.

mod ends;
mod interfaces;
mod text;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use fairlane_config::{INTERFACE_NAME, Site, is_interface_name};
use fairlane_control::{create, save};
use fairlane_core::Rate;
use fairlane_daemon::{addresses, gateways};

use crate::{figures, output};
use ends::{Near, SiteInterfaces};
use interfaces::Machine;
use text::First;

const HELP: &str = "\
`init` chooses the interfaces outside and inside by the default route of this machine, and
prints the choice with the reason. If it is wrong, name the interfaces. `init` opens no
interface and changes none. The file shapes both directions in four classes and explains
each line. An existing file is only replaced with --force.

Set --rate-up and --rate-down to 90 to 95% of the line's rate, from a speed test on an idle
line or from the modem. Slightly below the line's rate, packets queue here, where
classes decide which packet is next; at the line's rate they queue in the modem. You can set
both later, in the file or while the site runs (fairlane ctl link up rate=18mbit).

Examples:
  fairlane init --rate-up 38mbit --rate-down 235mbit
  fairlane init --outside wan0 --inside lan0 /etc/fairlane/home.toml
  fairlane init --tap -                  for the traffic of this machine, to standard output";

/// Options of `fairlane init`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// The file to write; - for standard output
    #[arg(value_name = "FILE", default_value = "fairlane.toml")]
    file: PathBuf,
    /// The interface towards the Internet [default: the one of the default route]
    #[arg(long, value_name = "NAME", value_parser = interface_name)]
    outside: Option<String>,
    /// The interface towards the machines that share the line [default: another one]
    #[arg(long, value_name = "NAME", value_parser = interface_name)]
    inside: Option<String>,
    /// Shape the traffic of this machine itself, through a tap device, instead of traffic between
    /// two interfaces
    #[arg(long, conflicts_with = "inside")]
    tap: bool,
    /// Rate towards the Internet [default: 20mbit, to be set]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate_up: Option<Rate>,
    /// Rate from there [default: 100mbit, to be set]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate_down: Option<Rate>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

/// Default rates, to be replaced by the user.
const EXAMPLES: [Rate; 2] = [example(20_000_000), example(100_000_000)];
/// The least rate of a line: below it a link has no class for link-layer control, and a long packet takes 0.12 seconds.
const LEAST: u64 = 100_000;

const fn example(bps: u64) -> Rate {
    Rate::from_bps(bps).expect("within their range")
}

fn interface_name(text: &str) -> Result<String> {
    ensure!(is_interface_name(text), "{INTERFACE_NAME}");
    Ok(text.to_owned())
}

fn rate(text: &str) -> Result<Rate> {
    let rate: Rate = text.parse()?;
    ensure!(
        rate.bps() >= LEAST,
        "the rate of a line is at least 100kbit"
    );
    Ok(rate)
}

/// Writes the file and prints the next steps.
pub fn run(options: &Options) -> Result<()> {
    let to_stdout = options.file.as_os_str() == "-";
    let machine = Machine::look();
    let (ends, mut found) = SiteInterfaces::choose(options, &machine)?;
    found.extend(ends.bypasses(options)?);
    let given = [options.rate_up, options.rate_down];
    let [up, down] = [0, 1].map(|side| given[side].unwrap_or(EXAMPLES[side]));
    let known = known(&ends);
    let first = First {
        ends,
        known,
        up,
        down,
    };
    let text = first.text();
    Site::parse(&text, "the file to be written")?;
    if to_stdout {
        output::line(text.trim_end())?;
    } else {
        write(&options.file, &text, options.force)?;
    }
    let say = |words: String| match words.strip_prefix("warning: ") {
        Some(warning) => {
            output::warn([warning]);
            Ok(())
        }
        None if to_stdout => {
            output::stderr(words);
            Ok(())
        }
        None => output::line(words),
    };
    let beyond = beyond(&first, &machine);
    for words in found
        .into_iter()
        .chain(beyond)
        .chain([written(options, &first)])
    {
        say(words)?;
    }
    for words in of_rates(given, [up, down]) {
        say(words)?;
    }
    let file = match to_stdout {
        true => "FILE".into(),
        false => options.file.display().to_string(),
    };
    say(format!(
        "Next: fairlane check {file}, and, as root, fairlane run {file}"
    ))
}

/// Returns the addresses and gateways that move to a tap device, one per line.
fn known(ends: &SiteInterfaces) -> Vec<String> {
    if ends.near != Near::Tap {
        return Vec::new();
    }
    let addresses = addresses(&ends.outside).unwrap_or_default().into_iter();
    let addresses = addresses.map(|(address, length)| format!("address {address}/{length}"));
    let gateways = gateways(&ends.outside).unwrap_or_default().into_iter();
    addresses
        .chain(gateways.map(|gateway| format!("gateway {gateway}")))
        .collect()
}

/// Writes the file atomically.
fn write(path: &Path, text: &str, force: bool) -> Result<()> {
    let shown = path.display();
    let writing = || format!("writing {shown}");
    let is_there = fs::symlink_metadata(path).is_ok();
    if is_there && force {
        let what = fs::metadata(path).with_context(writing)?;
        ensure!(what.is_file(), "{shown} is no file to be replaced");
        return save(path, text).with_context(writing);
    }
    match create(path, text) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{shown} is there already: --force replaces it, and another name leaves it alone")
        }
        created => created.with_context(writing),
    }
}

fn written(options: &Options, first: &First) -> String {
    let file = match options.file.as_os_str() == "-" {
        true => "This file".into(),
        false => options.file.display().to_string(),
    };
    let outside = &first.ends.outside;
    match &first.ends.near {
        Near::Inside(inside) => {
            format!("{file} shapes what passes between {inside:?} and {outside:?}")
        }
        Near::Tap => format!(
            "{file} shapes what this machine sends and receives by {outside:?}, through the tap device \
             {}, which has the addresses meanwhile",
            text::TAP
        ),
    }
}

/// Returns a warning for each rate that exceeds the speed of an interface.
fn beyond(first: &First, machine: &Machine) -> Vec<String> {
    let inside = match &first.ends.near {
        Near::Inside(inside) => Some(inside),
        Near::Tap => None,
    };
    // Downstream traffic enters by `outside` and leaves by `inside`, so both limit it.
    let both = [
        (first.up, Some(&first.ends.outside)),
        (first.down, Some(&first.ends.outside)),
        (first.down, inside),
    ];
    let beyond = both.into_iter().filter_map(|(rate, name)| {
        let interface = machine.find(name?)?;
        let speed = interface.speed.filter(|speed| *speed < rate)?;
        Some(format!(
            "warning: {rate} is more than the {speed} of {:?} itself, where packets would wait then",
            interface.name
        ))
    });
    beyond.collect()
}

/// Explains the purpose of the rates and recommends values.
fn of_rates(given: [Option<Rate>; 2], [up, down]: [Rate; 2]) -> [String; 3] {
    let line = |rate: Rate| {
        let by = |percent: u64| figures::rate(rate.bps().saturating_mul(100) / percent);
        format!("a line of {} to {}", by(95), by(90))
    };
    let whose = match given {
        [Some(_), Some(_)] => "They are right if that is",
        [None, None] => "They are examples: set them to",
        [None, _] => "The one up is an example: set it to",
        [_, None] => "The one down is an example: set it to",
    };
    [
        format!(
            "Rates: {up} up, for {}; {down} down, for {}",
            line(up),
            line(down)
        ),
        format!(
            "{whose} 90 to 95% of the line's rate (from a speed test or the modem), so that packets queue \
             here and not in the modem"
        ),
        format!("While it runs: fairlane ctl link up rate={up}"),
    ]
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_that_is_there_is_replaced_by_force_alone_and_only_a_file_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let refused = |name: &str, force| {
            let error = write(&path(name), "new", force).unwrap_err();
            format!("{error:#}")
        };
        fs::write(path("old.toml"), "old").unwrap();
        symlink("old.toml", path("link.toml")).unwrap();
        symlink("nowhere", path("dangling.toml")).unwrap();
        for name in ["old.toml", "link.toml", "dangling.toml", "."] {
            assert!(refused(name, false).contains("--force"), "{name}");
        }
        assert!(refused(".", true).contains("no file"));
        assert!(refused("dangling.toml", true).contains("No such file"));
        assert!(refused("none/new.toml", false).contains("No such file"));
        assert_eq!(fs::read_to_string(path("old.toml")).unwrap(), "old");
        write(&path("link.toml"), "new", true).unwrap();
        assert_eq!(fs::read_to_string(path("old.toml")).unwrap(), "new");
        assert!(path("link.toml").is_symlink());
        write(&path("new.toml"), "new", true).unwrap();
        assert_eq!(fs::read_to_string(path("new.toml")).unwrap(), "new");
    }

    #[test]
    fn rates_that_are_none_and_names_that_none_has_are_refused() {
        for text in ["20", "fast", "0mbit", "99kbit", "2tbit", "-1mbit", ""] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!(rate("100kbit").unwrap().bps(), LEAST);
        for text in ["", "a b", "a/b", "..", "sixteen-bytes-xx"] {
            assert!(interface_name(text).is_err(), "{text}");
        }
        assert_eq!(
            interface_name("fifteen-bytes-x").unwrap(),
            "fifteen-bytes-x"
        );
    }

    #[test]
    fn a_rate_beyond_the_interface_is_warned_of() {
        let files = interfaces::tests::Files::new();
        files.port("wan0", &[("device/vendor", ""), ("speed", "100")]);
        files.port("lan0", &[("device/vendor", ""), ("speed", "10")]);
        let machine = files.machine();
        let (ends, _) = SiteInterfaces::choose(&Options::default(), &machine).unwrap();
        let [up, down] = ["200mbit", "20mbit"].map(|rate| rate.parse().unwrap());
        let warned = beyond(
            &First {
                ends,
                known: Vec::new(),
                up,
                down,
            },
            &machine,
        );
        assert_eq!(warned.len(), 2, "{warned:?}");
        assert!(warned[0].contains("200mbit is more than the 100mbit of \"wan0\""));
        assert!(warned[1].contains("20mbit is more than the 10mbit of \"lan0\""));
    }
}
