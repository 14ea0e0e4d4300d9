//! Other processes' packets: a flow for each process that attaches.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use fairlane_core::{FlowConfig, Length, Weight};
use fairlane_runtime::attach::{Attach, AttachConfig, Attached, Class, Mapping, Who};
use fairlane_runtime::{ClientId, Clock};

use crate::Opener;
use crate::flow::{Flow, Outgoing};

/// Longest packet of an attached process in bytes: what its mailbox has slots for.
const LONGEST: Length = match Length::new(9_000) {
    Some(length) => length,
    None => unreachable!(),
};

/// Most processes of one rule at a time.
const MOST_PROCESSES: usize = 64;

/// The address of a flow without a socket: it has no listener.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

/// The processes that may attach, and the weight of each one's flow.
#[derive(Clone, Copy, Debug)]
pub struct Allow {
    /// The processes.
    pub who: Who,
    /// The weight of each one's flow.
    pub weight: Weight,
}

/// The socket for processes, and their resources.
#[derive(Clone, Debug)]
pub struct Attachments {
    /// The Unix socket.
    pub path: PathBuf,
    /// Rules of access; the first match applies.
    pub rules: Vec<Allow>,
    /// Most processes of one user at a time. A quarter of all without; all of them if each rule
    /// names one user.
    pub most_of_a_user: Option<usize>,
    /// Most memory of all mailboxes, in bytes. Without, the need of all processes.
    pub most_memory: Option<u64>,
}

impl Attachments {
    /// Most processes of all rules at a time.
    pub(crate) fn most_processes(&self) -> usize {
        MOST_PROCESSES * self.rules.len()
    }

    /// Lets processes attach.
    pub(crate) fn listen(&self, opener: &Opener, clock: Clock) -> Result<Attach> {
        let rules = &self.rules;
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
            Box::new(Outgoing {
                flow: *number,
                // From here on its delay is measured: a process has its own clock.
                pushed_at: clock.now(),
                peer: flow.sink,
                payload,
            })
        };
        let registrar = opener.registrar.clone();
        let most_clients = self.most_processes();
        // Where each rule is about one user, none of them takes another's place.
        let apart = rules.iter().all(|rule| matches!(rule.who, Who::Uid(_)));
        let share = if apart { 1 } else { 4 };
        let config = AttachConfig {
            most_clients,
            most_of_a_user: self.most_of_a_user.unwrap_or(most_clients / share),
            most_memory: self.most_memory.unwrap_or(u64::MAX),
            ..AttachConfig::new(mapping)
        };
        Ok(Attach::listen(&self.path, config, registrar, make)?)
    }
}

/// By the name of the rule and the client's number: the flow and its own.
type Known = HashMap<(String, ClientId), (u32, Arc<Flow>)>;

/// The flows of processes, including those that left: a later process with the same number and rule
/// reuses the flow, so that there are no more flows than places.
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
