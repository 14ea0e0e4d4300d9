//! Other processes' packets: a flow for each process that attaches.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Error, Result};
use clap::Args;
use fairlane_config::Size;
use fairlane_core::{FlowConfig, Length, Weight};
use fairlane_runtime::attach::{Attach, AttachConfig, Attached, Class, Mapping, Who};
use fairlane_runtime::{ClientId, Clock};

use super::Opener;
use super::flow::{Flow, Parcel};
use crate::arguments::weight;

/// Longest packet of an attached process in bytes: what its mailbox has slots for.
const LONGEST: Length = match Length::new(9_000) {
    Some(length) => length,
    None => unreachable!(),
};

/// Most processes of one rule at a time.
pub const MOST_PROCESSES: usize = 64;

/// The address of a flow for which no socket could be had: nobody listens there.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

/// One `--allow`: who may attach, and what weight each one's flow has.
#[derive(Clone, Debug)]
pub struct Allow {
    who: Who,
    weight: Weight,
}

impl FromStr for Allow {
    type Err = Error;

    fn from_str(text: &str) -> Result<Allow> {
        let (who, of) = text
            .rsplit_once(':')
            .with_context(|| format!("'{text}' is not WHO:WEIGHT, as in uid=1000:4"))?;
        Ok(Allow {
            who: who.parse()?,
            weight: weight(of)?,
        })
    }
}

/// What all processes together, and those of a user, may take.
#[derive(Args, Clone, Debug)]
pub struct Quotas {
    /// Most attached processes of one user at a time [default: a quarter of 64 for each --allow;
    /// all of them if each names one user]
    #[arg(long, value_name = "N", requires = "attach", value_parser = clap::value_parser!(u32).range(1..))]
    attach_per_user: Option<u32>,
    /// Most memory of all attached processes' mailboxes, as in 64mb [default: what 64 for each
    /// --allow take, 2.2mb each]
    #[arg(long, value_name = "SIZE", requires = "attach")]
    attach_memory: Option<Size>,
}

/// Lets processes attach at `path` as the rules say; the first that matches counts.
pub fn listen(
    path: &Path,
    rules: &[Allow],
    quotas: &Quotas,
    opener: &Opener,
    clock: Clock,
) -> Result<Attach> {
    let mut mapping = Mapping::new();
    for (number, rule) in rules.iter().enumerate() {
        // Two rules may be about the same: the first counts.
        let twice = rules[..number].iter().any(|other| other.who == rule.who);
        let name = match twice {
            true => format!("{}/{}", rule.who, number + 1),
            false => rule.who.to_string(),
        };
        mapping = mapping
            .class(Class {
                name: name.clone(),
                flow: FlowConfig::new(rule.weight, LONGEST),
                most_clients: MOST_PROCESSES,
            })?
            .rule(rule.who, &name)?;
    }
    let places = Places {
        opener: opener.clone(),
        classes: mapping.clone(),
        known: Arc::default(),
    };
    let mut flow: Option<(u32, Arc<Flow>)> = None;
    let make = move |payload: Vec<u8>, process: &Attached| {
        let (number, flow) = flow.get_or_insert_with(|| places.take(process));
        flow.offered.add(payload.len());
        Box::new(Parcel {
            flow: *number,
            // From here on its delay is measured: a process has its own clock.
            pushed_at: clock.now(),
            peer: flow.sink,
            payload,
        })
    };
    let registrar = opener.registrar.clone();
    let most_clients = MOST_PROCESSES * rules.len();
    // Where each rule is about one user, none of them takes another's place.
    let apart = rules.iter().all(|rule| matches!(rule.who, Who::Uid(_)));
    let share = if apart { 1 } else { 4 };
    let config = AttachConfig {
        most_clients,
        most_of_a_user: match quotas.attach_per_user {
            Some(most) => most as usize,
            None => most_clients / share,
        },
        most_memory: quotas.attach_memory.map_or(u64::MAX, |size| size.0),
        ..AttachConfig::new(mapping)
    };
    Ok(Attach::listen(path, config, registrar, make)?)
}

/// By the name of the rule and the client's number: the flow and its own.
type Known = HashMap<(String, ClientId), (u32, Arc<Flow>)>;

/// The flows of processes, that left too: who comes next with the same number and by the same
/// rule has the flow again, so that there are no more of them than places.
#[derive(Clone)]
struct Places {
    opener: Opener,
    classes: Mapping,
    known: Arc<Mutex<Known>>,
}

impl Places {
    fn take(&self, process: &Attached) -> (u32, Arc<Flow>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let of_rule = known.keys().filter(|(class, _)| *class == process.class);
        let name = format!("{} #{}", process.class, of_rule.count() + 1);
        let place = known.entry((process.class.clone(), process.id));
        let (number, flow) = place.or_insert_with(|| {
            let class = self.classes.class_of(process.peer);
            let config = class.map_or(FlowConfig::new(Weight::ONE, LONGEST), |class| class.flow);
            self.opener.adopt(name, config, process.id, NOWHERE)
        });
        self.opener.flows.hand_over(flow, process.id);
        (*number, Arc::clone(flow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_who_and_a_weight() {
        let rule: Allow = "uid=1000:4".parse().unwrap();
        assert_eq!((rule.who, rule.weight.get()), (Who::Uid(1000), 4));
        for (text, names) in [
            ("uid=1000", "WHO:WEIGHT"),
            ("user:1", "\"user\""),
            ("any:0", "'0'"),
        ] {
            let error = text.parse::<Allow>().unwrap_err().to_string();
            assert!(error.contains(names), "{error}");
        }
    }
}
