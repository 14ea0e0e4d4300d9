//! Tasks for a running site other than configuration changes: turn shaping of an interface's egress on or off, drop a
//! backlog, detach an interface, and attach another.
//!
//! Each interface is opened and closed by its keeper thread (`device/lasting.rs`), which exchanges open devices with
//! the forwarding thread.

use std::collections::HashSet;
use std::sync::Arc;

use fairlane_config::{Interfaces, Near, Role, suggestion};
use fairlane_core::Count;
use fairlane_core::tree::ClassId;
use fairlane_runtime::bridge::Side;

use super::state::{Control, PendingRequest};
use crate::error::{Error, Result};
use crate::handle::{Asking, Attaching, Event, Task, Waiting};
use crate::notice::Notice;
use crate::order::Order;
use crate::reload::Prepared;
use crate::report::Interface;
use fairlane_dataplane::device::{Opened, ToKeep, ToKeeper};
use fairlane_dataplane::error as data_plane;
use fairlane_dataplane::interfaces::near_role;
use fairlane_dataplane::plan::Plan;
use fairlane_dataplane::work::Flushing;

impl Control {
    /// Asks the forwarding thread for the next task that can be done.
    pub(crate) fn begin_task(&mut self) {
        while let Some(Asking { task, waiting }) = self.state.tasks.pop_front() {
            match self.is_fixed().and_then(|()| self.order_for(&task)) {
                Ok(order) => {
                    self.state.pending = PendingRequest::Task(waiting);
                    return self.order(order);
                }
                // A caller that has stopped waiting needs no answer.
                Err(error) => drop(waiting.send(Err(error))),
            }
        }
    }

    /// Answers the waiting caller when its task is done.
    pub(crate) fn task_done(&mut self, order: Order, waiting: Waiting) {
        self.state.changed = true;
        let dropped = match order {
            Order::Flush(flushing) => flushing.gone,
            Order::Exchange(side, former) => return self.released(side, *former, waiting),
            _ => Count::default(),
        };
        // A caller that has stopped waiting needs no answer.
        let _ = waiting.send(Ok(dropped));
    }

    /// Handles the forwarding thread's release of an interface.
    fn released(&mut self, side: Side, former: Option<Opened>, waiting: Waiting) {
        let at = side as usize;
        self.detached[at] = true;
        self.notify(Notice::Detached(self.devices[at].name.to_string()));
        if let Some(keeper) = &self.keepers[at] {
            // Without that thread the run is over, and the caller gets that error.
            let released = move || {
                // A caller that has stopped waiting needs no answer.
                let _ = waiting.send(Ok(Count::default()));
            };
            let _ = keeper.send(ToKeep::Release(former, Box::new(released)));
        }
    }

    /// Returns the side where an interface may be attached, and its name.
    pub(crate) fn place_for(&self, attaching: Attaching) -> Result<(Side, String)> {
        let Attaching { place, interface } = attaching;
        let side = self.side_of(&place)?;
        self.keeper(side)?;
        match self.detached[side as usize] {
            true => Ok((side, interface)),
            false => Err(Error::Conflict(format!(
                "{} is attached as {}: detach it first",
                self.name(side),
                self.role(side)
            ))),
        }
    }

    /// Returns the interfaces of the site after attaching this one.
    pub(crate) fn interfaces_with(&self, attached: &Option<(Side, String)>) -> Option<Interfaces> {
        let mut interfaces = self.handle.site().interfaces.clone()?;
        match (attached, &mut interfaces.near) {
            (Some((Side::Right, name)), _) => interfaces.outside.clone_from(name),
            (Some((Side::Left, name)), Near::Inside(near)) => near.clone_from(name),
            _ => {}
        }
        Some(interfaces)
    }

    /// Starts to open the interface that a configuration is applied with.
    pub(crate) fn open_for(&mut self, prepared: Prepared, side: Side, name: String) {
        self.state.prepared = Some(prepared);
        let events = self.handle.events.clone();
        let opened = move |opened: std::result::Result<Opened, data_plane::Error>| {
            let opened = opened.map(Box::new).map_err(Error::from);
            // If the receiver is gone, the run has ended.
            let _ = events.send(Event::Opened(opened));
        };
        if let Some(keeper) = &self.keepers[side as usize] {
            let _ = keeper.send(ToKeep::Open(name, Box::new(opened)));
        }
    }

    /// Handles the result of opening an interface.
    pub(crate) fn opened(&mut self, opened: Result<Box<Opened>>) {
        match (opened, &self.state.request) {
            (Ok(opened), Some(asker)) => {
                let side = asker.attach.as_ref().map(|(side, _)| *side);
                self.state.opened = side.map(|side| (side, opened));
            }
            (Err(error), Some(_)) => {
                self.state.prepared = None;
                if let Some(asker) = self.state.request.take() {
                    self.refuse(asker, error);
                }
            }
            // No request waits for this interface.
            (_, None) => {}
        }
    }

    /// Asks the forwarding thread to use an interface that was opened.
    pub(crate) fn attach_on(&mut self, side: Side, opened: Opened) {
        let asker = self.state.request.as_ref();
        let name = asker.and_then(|asker| Some(&*asker.attach.as_ref()?.1));
        self.state.pending = PendingRequest::Attach(Interface {
            name: Arc::from(name.unwrap_or_default()),
            backend: opened.device.backend(),
        });
        self.order(Order::Exchange(side, Box::new(Some(opened))));
    }

    /// Handles the switch to the interface: applies its configuration.
    pub(crate) fn attached(&mut self, side: Side, interface: Interface) {
        self.notify(Notice::Attached(interface.name.to_string()));
        self.detached[side as usize] = false;
        self.devices[side as usize] = interface;
        self.state.changed = true;
        if let Some(prepared) = self.state.prepared.take() {
            self.apply_links(prepared);
            self.finish_change();
        }
    }

    fn order_for(&self, task: &Task) -> Result<Order> {
        match task {
            Task::Shape { interface, shaped } => {
                let side = self.side_of(interface)?;
                match self.plans.iter().any(|plan| plan.side == side) {
                    true => Ok(Order::Shape(side, *shaped)),
                    false => Err(Error::Conflict(format!(
                        "the egress of {} is not shaped: no link has to = \"{}\"",
                        self.devices[side as usize].name,
                        self.role(side)
                    ))),
                }
            }
            Task::Flush { link, class } => {
                let plan = self.plan_of(link)?;
                let ids = match class {
                    Some(class) => below(plan, class)?,
                    None => plan.ids.clone(),
                };
                Ok(Order::Flush(Box::new(Flushing::new(plan.side, ids))))
            }
            Task::Detach { interface } => {
                let side = self.side_of(interface)?;
                self.keeper(side)?;
                match self.detached[side as usize] {
                    false => Ok(Order::Exchange(side, Box::new(None))),
                    true => Err(Error::Conflict(format!(
                        "{} is detached already",
                        self.name(side)
                    ))),
                }
            }
        }
    }

    /// Returns the interface's role in the configuration.
    fn role(&self, side: Side) -> &'static str {
        let site = self.handle.site();
        let role = match (side, &site.interfaces) {
            (Side::Left, Some(interfaces)) => near_role(interfaces),
            _ => Role::Outside,
        };
        role.name()
    }

    /// Returns the side of an interface by its name or its role. A side with processes only has none.
    fn side_of(&self, interface: &str) -> Result<Side> {
        let named = || {
            Side::BOTH
                .into_iter()
                .filter(|&side| !self.name(side).is_empty())
        };
        let mut by_name = named().filter(|&side| &*self.name(side) == interface);
        let mut by_role = named().filter(|&side| self.role(side) == interface);
        by_name.next().or_else(|| by_role.next()).ok_or_else(|| {
            let there = named().map(|side| self.name(side).to_string());
            let there = there.collect::<Vec<_>>().join(" and ");
            Error::Missing(format!(
                "the site has no interface '{interface}': there is {there}"
            ))
        })
    }

    /// Returns the keeper of an interface.
    fn keeper(&self, side: Side) -> Result<&ToKeeper> {
        self.keepers[side as usize].as_ref().ok_or_else(|| {
            Error::Conflict(format!(
                "{} is made by the site, and stays as long as it runs",
                self.name(side)
            ))
        })
    }

    fn name(&self, side: Side) -> Arc<str> {
        Arc::clone(&self.devices[side as usize].name)
    }

    fn plan_of(&self, link: &str) -> Result<&Plan> {
        let plans = || self.plans.iter();
        plans().find(|plan| plan.link.name == link).ok_or_else(|| {
            let there = plans().map(|plan| &*plan.link.name);
            let there = there.collect::<Vec<_>>().join(", ");
            Error::Missing(format!("link '{link}' does not exist: there is {there}"))
        })
    }
}

/// Returns the numbers of a class and its descendants.
fn below(plan: &Plan, class: &str) -> Result<Vec<ClassId>> {
    let classes = &plan.link.classes;
    let Some(place) = classes.iter().position(|other| &*other.name == class) else {
        let near = suggestion(class, classes.iter().map(|class| &*class.name));
        return Err(Error::Missing(format!(
            "class '{class}' does not exist in link '{}'{near}",
            plan.link.name
        )));
    };
    // Parents come before their children.
    let mut places = HashSet::from([place]);
    let mut ids = vec![plan.ids[place]];
    for (at, class) in classes.iter().enumerate().skip(place + 1) {
        if class.parent.is_some_and(|parent| places.contains(&parent)) {
            places.insert(at);
            ids.push(plan.ids[at]);
        }
    }
    Ok(ids)
}
