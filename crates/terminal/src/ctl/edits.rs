//! Changes of links, classes and filters, alone and together.

use anyhow::{Context, Error, Result, bail};
use clap::{Parser, Subcommand};
use fairlane_control::view::{self, Place};
use fairlane_control::{Method, encoded, value_of};
use serde_json::{Map, Value as Json, json};

use super::Change;
use crate::command_line::one_sentence;

#[derive(Clone, Debug, Subcommand)]
pub(super) enum Command {
    /// Change keys of a class
    Set {
        /// The class
        class: String,
        /// Keys of the site file and their values
        #[arg(value_name = "KEY=VALUE", required = true)]
        keys: Vec<String>,
        #[command(flatten)]
        change: Change,
    },
    /// Add a class
    Add {
        /// The class, as LINK/CLASS
        class: String,
        /// Keys of the site file and their values
        #[arg(value_name = "KEY=VALUE")]
        keys: Vec<String>,
        #[command(flatten)]
        change: Change,
    },
    /// Remove a class, and the filters that lead there
    Remove {
        /// The class
        class: String,
        #[command(flatten)]
        change: Change,
    },
    /// Change keys of a link
    Link {
        /// The link
        link: String,
        /// Keys of the site file and their values
        #[arg(value_name = "KEY=VALUE", required = true)]
        keys: Vec<String>,
        #[command(flatten)]
        change: Change,
    },
    /// List, add or remove filters
    #[command(subcommand)]
    Filter(Filter),
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum Filter {
    /// List the filters of all links, or of one, with their numbers
    List {
        /// The link
        link: Option<String>,
    },
    /// Add a filter to a link
    Add {
        /// The link
        link: String,
        /// Keys of the site file and their values: class, and conditions
        #[arg(value_name = "KEY=VALUE", required = true)]
        keys: Vec<String>,
        /// Its position among the link's filters, from 0 [default: the end]
        #[arg(long, value_name = "N")]
        at: Option<usize>,
        #[command(flatten)]
        change: Change,
    },
    /// Remove a filter
    Remove {
        /// The link
        link: String,
        /// Its position among the link's filters, from 0
        number: usize,
        #[command(flatten)]
        change: Change,
    },
}

/// A line of several.
#[derive(Parser)]
#[command(
    no_binary_name = true,
    disable_help_flag = true,
    disable_help_subcommand = true
)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

/// The request for a change.
pub(super) struct EditRequest {
    pub(super) method: Method,
    /// The segments of its path.
    path: Vec<String>,
    keys: Map<String, Json>,
    /// The position of a new filter.
    at: Option<usize>,
}

impl EditRequest {
    /// Returns its path and query.
    pub(super) fn url(&self) -> String {
        let parts = self.path.iter().map(|part| format!("/{}", encoded(part)));
        let at = self.at.map_or(String::new(), |at| format!("?at={at}"));
        parts.collect::<String>() + &at
    }

    pub(super) fn body(&self) -> String {
        Json::Object(self.keys.clone()).to_string()
    }

    /// Returns it as one of several changes.
    fn step(self) -> Json {
        let mut step =
            json!({ "method": self.method.as_str(), "path": self.path, "keys": self.keys });
        if let Some(at) = self.at {
            step["at"] = at.into();
        }
        step
    }
}

impl Command {
    /// Returns its options: a dry run, and whether it may break grants.
    pub(super) fn change(&self) -> &Change {
        const NONE: &Change = &Change {
            dry_run: false,
            break_grants: false,
            effects: None,
        };
        match self {
            Command::Filter(Filter::List { .. }) => NONE,
            Command::Set { change, .. }
            | Command::Add { change, .. }
            | Command::Remove { change, .. }
            | Command::Link { change, .. }
            | Command::Filter(Filter::Add { change, .. } | Filter::Remove { change, .. }) => change,
        }
    }

    /// Returns the request for this edit; `place` resolves a class that may be given without its link.
    pub(super) fn asked(&self, place: impl FnOnce(&str) -> Result<Place>) -> Result<EditRequest> {
        let of = |link: &str, more: &[&str]| {
            let parts = ["v1", "links", link].into_iter();
            parts
                .chain(more.iter().copied())
                .map(str::to_owned)
                .collect()
        };
        let (method, path, keys, at) = match self {
            Command::Set { class, keys, .. } => {
                let (link, class) = place(class)?;
                (
                    Method::PATCH,
                    of(&link, &["classes", &class]),
                    pairs(keys)?,
                    None,
                )
            }
            Command::Add { class, keys, .. } => {
                let Some((link, name)) = class.split_once('/') else {
                    bail!("'{class}': a new class is named with its link, as in up/{class}");
                };
                let mut keys = pairs(keys)?;
                keys.insert("name".to_owned(), name.into());
                (Method::POST, of(link, &["classes"]), keys, None)
            }
            Command::Remove { class, .. } => {
                let (link, class) = place(class)?;
                (
                    Method::DELETE,
                    of(&link, &["classes", &class]),
                    Map::new(),
                    None,
                )
            }
            Command::Link { link, keys, .. } => (Method::PATCH, of(link, &[]), pairs(keys)?, None),
            Command::Filter(Filter::List { .. }) => bail!("filter list: not a change"),
            Command::Filter(Filter::Add { link, keys, at, .. }) => {
                (Method::POST, of(link, &["filters"]), pairs(keys)?, *at)
            }
            Command::Filter(Filter::Remove { link, number, .. }) => {
                let path = of(link, &["filters", &number.to_string()]);
                (Method::DELETE, path, Map::new(), None)
            }
        };
        Ok(EditRequest {
            method,
            path,
            keys,
            at,
        })
    }
}

/// Parses changes, one per line as after `fairlane ctl`, into the body of one request. `places` are the existing
/// classes.
pub(super) fn together(lines: &str, places: &[Place]) -> Result<Json> {
    let mut places = places.to_vec();
    let mut steps = Vec::new();
    for (number, line) in (1..).zip(lines.lines()) {
        let step = step(line, &mut places).with_context(|| format!("line {number}"))?;
        steps.extend(step.map(EditRequest::step));
    }
    Ok(steps.into())
}

/// Parses a line; `None` if it is empty.
fn step(line: &str, places: &mut Vec<Place>) -> Result<Option<EditRequest>> {
    let Some(words) = shlex::split(line) else {
        bail!("a quotation mark has no other");
    };
    if words.is_empty() {
        return Ok(None);
    }
    let parsed = Line::try_parse_from(&words).map_err(|error| Error::msg(one_sentence(&error)));
    let Line { command } = parsed?;
    let Change {
        dry_run,
        break_grants,
        effects,
    } = command.change();
    if *dry_run || *break_grants || effects.is_some() {
        bail!("options that all changes share are those of ctl batch");
    }
    let find = |places: &[Place], class: &str| view::find(places, class).map_err(Error::msg);
    let asked = command.asked(|class| find(places, class))?;
    match &command {
        Command::Add { class, .. } => {
            let place = class.split_once('/');
            let place = place.map(|(link, name)| (link.to_owned(), name.to_owned()));
            places.extend(place.filter(|place| !places.contains(place)));
        }
        Command::Remove { class, .. } => {
            let gone = find(places, class)?;
            places.retain(|place| *place != gone);
        }
        _ => {}
    }
    Ok(Some(asked))
}

/// Parses keys and values as in the file; a value that is not TOML is a string.
fn pairs(written: &[String]) -> Result<Map<String, Json>> {
    let pairs = written.iter().map(|written| {
        let (key, value) = pair(written)?;
        Ok((key.to_owned(), value_of(value)))
    });
    pairs.collect()
}

/// Splits `KEY=VALUE`.
pub(super) fn pair(written: &str) -> Result<(&str, &str)> {
    match written.split_once('=') {
        Some(pair) => Ok(pair),
        None => bail!("'{written}': a key and a value are needed, as in rate=2mbit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Vec<Place> {
        vec![("up".to_owned(), "voice".to_owned())]
    }

    #[test]
    fn a_line_each_is_a_change_each_in_their_order() {
        let lines = "# tonight\n\nadd up/backup weight=1 # slow\nset backup 'ceil=2mbit'\n\
                     filter add up class=backup destination-port=873 --at 0\nremove voice\n\
                     link up rate=18mbit";
        let steps = together(lines, &places()).unwrap();
        assert_eq!(
            steps,
            json!([
                {"method": "POST", "path": ["v1", "links", "up", "classes"],
                 "keys": {"name": "backup", "weight": 1}},
                {"method": "PATCH", "path": ["v1", "links", "up", "classes", "backup"],
                 "keys": {"ceil": "2mbit"}},
                {"method": "POST", "path": ["v1", "links", "up", "filters"],
                 "keys": {"class": "backup", "destination-port": 873}, "at": 0},
                {"method": "DELETE", "path": ["v1", "links", "up", "classes", "voice"], "keys": {}},
                {"method": "PATCH", "path": ["v1", "links", "up"], "keys": {"rate": "18mbit"}},
            ])
        );
    }

    #[test]
    fn a_class_may_be_replaced() {
        let lines = "remove voice\nadd up/voice weight=1\nset voice rate=2mbit";
        let steps = together(lines, &places()).unwrap();
        assert_eq!(
            steps[2]["path"],
            json!(["v1", "links", "up", "classes", "voice"])
        );
    }

    #[test]
    fn the_line_that_is_none_is_named() {
        for (lines, sentence) in [
            (
                "set voice weight=2\nsett voice weight=2",
                "line 2: unrecognized subcommand 'sett', did you mean 'set'?",
            ),
            ("set voise weight=2", "line 1: class 'voise' does not exist"),
            (
                "add backup",
                "line 1: 'backup': a new class is named with its link",
            ),
            (
                "set voice weight",
                "line 1: 'weight': a key and a value are needed",
            ),
            (
                "set voice 'weight=2",
                "line 1: a quotation mark has no other",
            ),
            (
                "set voice weight=2 --dry-run",
                "line 1: options that all changes share",
            ),
        ] {
            let error = format!("{:#}", together(lines, &places()).unwrap_err());
            assert!(error.starts_with(sentence), "{error}");
        }
    }
}
