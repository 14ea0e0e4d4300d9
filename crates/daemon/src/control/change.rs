//! Changes of the running configuration, as the control thread makes them: read, compared and applied link by link.

use std::sync::Arc;
use std::thread;

use fairlane_config::class_report::{self, ClassTerms};
use fairlane_config::{List, Site};
use fairlane_core::Nanos;
use fairlane_dataplane::error::Context;
use fairlane_dataplane::plan::{Next, Plan, Running};
use fairlane_dataplane::work::{Adding, Draining, Taking};

use super::state::{Asker, Control, LastReload, PendingRequest};
use crate::error::{Error, Result};
use crate::handle::{Event, Request};
use crate::notice::Notice;
use crate::order::Order;
use crate::reload::{Former, Prepared};

/// Maximum time for which a configuration waits until classes that it removes have drained.
const DRAIN: Nanos = Nanos::from_millis(250);

/// Classes that a notice names at most.
const NAMED: usize = 3;

/// Returns the number of classes that differ between two configurations, and the names of the first ones. O(classes).
fn changed_classes(before: &Site, after: &Site) -> (usize, Vec<String>) {
    let (mut count, mut names) = (0, Vec::new());
    for link in &after.links {
        let former = before.links.iter().find(|former| former.to == link.to);
        let was = former.map_or_else(List::default, |former| ClassTerms::of(former));
        let is = ClassTerms::of(link);
        for (old, new) in class_report::differing(&was, &is) {
            let class = new.map(|at| &is[at]).or(old.map(|at| &was[at]));
            count += 1;
            if names.len() < NAMED {
                names.extend(class.map(|class| format!("{}/{}", link.name, class.name)));
            }
        }
    }
    (count, names)
}

impl Control {
    /// Queues a configuration. Of those without a waiting caller, only the last one counts.
    pub(super) fn queue(&mut self, request: Request) {
        match self.state.requests.back_mut() {
            Some(last) if last.answer.is_none() && request.answer.is_none() => *last = request,
            _ => self.state.requests.push_back(request),
        }
        self.read_next();
    }

    /// Reads a configuration on a separate thread, for which there is no time limit.
    pub(super) fn read_next(&mut self) {
        if self.state.request.is_some() {
            return;
        }
        let Some(request) = self.state.requests.pop_front() else {
            return;
        };
        let Request {
            source,
            base,
            dry,
            attach,
            answer,
        } = request;
        let mut asker = Asker {
            path: source.path(),
            discards: source.discards(),
            dry,
            attach: None,
            answer,
        };
        if let Err(error) = self.is_fixed() {
            return self.refuse(asker, error);
        }
        let site = self.handle.site();
        if base.is_some_and(|base| !Arc::ptr_eq(&base, &site)) {
            return self.refuse(asker, Error::Outdated);
        }
        match attach.map(|attach| self.place_for(attach)).transpose() {
            Ok(attach) => asker.attach = attach,
            Err(error) => return self.refuse(asker, error),
        }
        let former = Former {
            interfaces: self.interfaces_with(&asker.attach),
            site,
            needs: self.needs,
            links: self.plans.iter().map(Plan::running).collect(),
        };
        let to_self = self.handle.events.clone();
        let reader = thread::Builder::new().name("read".to_owned());
        let started = reader.spawn(move || {
            let prepared = Box::new(former.prepare(source, dry));
            // If the receiver is gone, the run has ended.
            let _ = to_self.send(Event::Prepared(prepared));
        });
        match started.doing("starting a thread") {
            Ok(_) => self.state.request = Some(asker),
            Err(error) => self.refuse(asker, error.into()),
        }
    }

    pub(super) fn prepared(&mut self, prepared: Result<Prepared>) {
        let Some(asker) = self.state.request.take() else {
            return;
        };
        let prepared = prepared.and_then(|prepared| self.keep_unsaved(&asker, prepared));
        match prepared {
            Ok(Prepared { site, .. }) if asker.dry => {
                if let Some(answer) = asker.answer {
                    let _ = answer.send(Ok(site));
                }
            }
            Ok(Prepared { site, links }) => {
                if asker.answer.is_none() {
                    for warning in &site.warnings {
                        self.notify(Notice::Warning(warning.to_string()));
                    }
                }
                let prepared = Prepared { site, links };
                match &asker.attach {
                    Some((side, name)) => self.open_for(prepared, *side, name.clone()),
                    None => self.apply_links(prepared),
                }
                self.state.request = Some(asker);
                self.finish_change();
            }
            Err(error) => self.refuse(asker, error),
        }
    }

    /// Refuses a configuration from the file that would discard changes unasked.
    pub(super) fn keep_unsaved(&self, asker: &Asker, prepared: Prepared) -> Result<Prepared> {
        match &asker.path {
            Some(file) if !asker.discards => match self.discarded_by(&prepared.site) {
                0 => Ok(prepared),
                changes => Err(Error::Unsaved {
                    file: file.clone(),
                    changes,
                }),
            },
            _ => Ok(prepared),
        }
    }

    /// Changes that are not in the file, and not in this site, which was read from it.
    pub(super) fn discarded_by(&self, site: &Site) -> u64 {
        match site.text == self.handle.site().text {
            true => 0,
            false => self.handle.unsaved_changes(),
        }
    }

    /// Applies the links of a site.
    pub(crate) fn apply_links(&mut self, prepared: Prepared) {
        self.state.next = Some(prepared.site);
        self.state.waiting = prepared.links.into();
    }

    /// Reports the change once all links of the new site are applied.
    pub(crate) fn finish_change(&mut self) {
        // Links that need nothing of the forwarding thread are skipped.
        while self.state.waiting.front().is_some_and(Next::is_same) {
            if let Some(next) = self.state.waiting.pop_front()
                && let Some(plan) = self.plan_mut(next.side)
            {
                plan.describe(next);
            }
        }
        if self.state.waiting.is_empty()
            && self.state.draining.is_none()
            && !matches!(
                self.state.pending,
                PendingRequest::Drained(_)
                    | PendingRequest::Classes(_)
                    | PendingRequest::Parameters(_)
                    | PendingRequest::Plan(_)
            )
            && let Some(site) = self.state.next.take()
            && let Some(asker) = self.state.request.take()
        {
            let former = self.handle.site();
            let mut discarded = 0;
            if asker.path.is_some() {
                discarded = self.discarded_by(&site);
                self.handle.wrote(Arc::clone(&site.text));
                self.state.last_reload = LastReload::succeeded();
            }
            self.handle.runs(Arc::clone(&site));
            self.state.reloads += 1;
            self.state.changed = true;
            match asker.answer {
                Some(answer) => drop(answer.send(Ok(site))),
                None => self.notify(Notice::Reloaded {
                    file: asker.path,
                    changed: changed_classes(&former, &site),
                    discarded,
                }),
            }
        }
    }

    /// Applies a link once the classes that it removes have drained.
    pub(super) fn begin_change(&mut self, next: Next) {
        let until = self.clock.now() + DRAIN;
        let plan = self.plan_mut(next.side);
        let draining = plan.and_then(|plan| plan.draining(&next, until));
        match draining {
            Some(draining) => self.poll_draining(Box::new(draining), Box::new(next)),
            None => self.order_change(next),
        }
    }

    pub(super) fn poll_draining(&mut self, draining: Box<Draining>, next: Box<Next>) {
        self.state.pending = PendingRequest::Drained(next);
        self.order(Order::Drain(draining));
    }

    /// Handles a poll of draining classes: removes them, or polls again.
    pub(super) fn drained(&mut self, draining: Box<Draining>, next: Box<Next>) {
        if draining.is_done() || self.clock.now() >= draining.until {
            self.order_change(*next);
        } else {
            self.state.draining = Some((draining, next));
        }
    }

    pub(super) fn order_change(&mut self, next: Next) {
        let Some(plan) = self.plan_mut(next.side) else {
            return;
        };
        if let Some(changing) = plan.changing(&next) {
            self.state.pending = PendingRequest::Parameters(Box::new(next));
            return self.order(Order::Take(Box::new(changing)));
        }
        match plan.adding(&next) {
            Some(adding) => {
                self.state.pending = PendingRequest::Classes(Box::new(next));
                self.order(Order::Add(Box::new(adding)));
            }
            None => {
                let (taking, after) = plan.taking(next, None);
                self.state.pending = PendingRequest::Plan(Box::new(after));
                self.order(Order::Take(Box::new(taking)));
            }
        }
    }

    pub(super) fn added(&mut self, adding: Adding, next: Next) {
        let Adding { ids, error, .. } = adding;
        let (next, ids) = match error {
            None => (next, Some(ids)),
            // The classes added so far are dropped with the former queues.
            Some(_) => (next.rebuilt(), None),
        };
        if let Some(plan) = self.plan_mut(next.side) {
            let (taking, after) = plan.taking(next, ids);
            self.state.pending = PendingRequest::Plan(Box::new(after));
            self.order(Order::Take(Box::new(taking)));
        }
    }

    /// Handles a completed change of parameters; with `refused`, one class rejected its change.
    pub(super) fn changed(&mut self, refused: bool, next: Next) {
        let Some(plan) = self.plan_mut(next.side) else {
            return;
        };
        plan.describe(next);
        let again = refused.then(|| plan.running());
        self.rebuild(again);
        self.finish_change();
    }

    /// Rebuilds all classes from the file if one of them differs from it.
    pub(super) fn rebuild(&mut self, running: Option<Running>) {
        if let Some(running) = running {
            let link = Arc::clone(&running.link);
            let next = running.becomes(link).rebuilt();
            self.state.waiting.push_front(next);
        }
    }

    pub(super) fn taken(&mut self, taking: &Taking, mut after: Plan) {
        let side = after.side;
        if taking.anew.is_some() {
            // Later findings refer to classes by their new numbers.
            self.count_findings();
            self.state.flows.renumbered(side);
        }
        let Some(plan) = self.plan_mut(side) else {
            return;
        };
        after.inherit(plan, taking);
        let again = taking.error.is_some().then(|| after.running());
        after.findings = plan.findings.take();
        *plan = after;
        self.rebuild(again);
        self.finish_change();
    }
}
