//! The control thread: requests through [`Handle`](crate::Handle), configuration changes, orders to the forwarding thread, counts and
//! reports. The forwarding thread never waits for the control thread.

mod handover;
pub(crate) mod state;
mod task;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use fairlane_config::class_report::{self, ClassTerms};
use fairlane_config::{List, Site};
use fairlane_core::Nanos;
use fairlane_runtime::attach::Attach;
use fairlane_runtime::bridge::Side;

use crate::error::{Error, Result};
use crate::hand_over::give::Stage;
use crate::handle::{Ended, Event, Request};
use crate::notice::Notice;
use crate::order::Order;
use crate::reload::{Former, Prepared};
use crate::report::{
    ForwardingReport, InterfaceReport, LinkReport, OpenReport, PipelineReport, Report,
};
use fairlane_dataplane::error::Context;
use fairlane_dataplane::passing::FINDINGS;
use fairlane_dataplane::plan::{Next, Plan, Running};
use fairlane_dataplane::work::{Adding, Counting, Draining, Taking};
use state::{Asker, Control, LastReload, PendingRequest};

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The state at the end.
    pub report: Arc<Report>,
    /// Why it ended before it was to end.
    pub result: Result<()>,
    /// Another process [took over](crate::Daemon::take_over), and forwards now.
    pub handed_over: bool,
}

impl Outcome {
    /// Creates the result of a run that has not begun.
    pub(crate) fn failed(error: Error) -> Outcome {
        Outcome {
            report: Arc::default(),
            result: Err(error),
            handed_over: false,
        }
    }
}

/// Longest time until an answer of the forwarding thread is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// The same at first: most orders are soon done.
const FIRST_LOOK: Duration = Duration::from_micros(50);

/// The same without a pending request.
const IDLE: Duration = Duration::from_millis(200);

/// Minimum interval between two reports, however much changes.
const CHANGED: Nanos = Nanos::from_millis(100);

/// The part of the time that reporting may take under frequent changes, which wait meanwhile.
const REPORT_SHARE: u64 = 10;

/// Maximum time for which a configuration waits until classes that it removes have drained.
const DRAIN: Nanos = Nanos::from_millis(250);

/// Least time between two times that memory is given back.
const TIDIED: Nanos = Nanos::from_millis(5_000);

/// Number of times that memory is given back after a configuration was read: the former configuration is freed later.
const TIDYINGS: u32 = 3;

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
    /// Starts the run. Returns the start time.
    pub(crate) fn start(&mut self) -> Nanos {
        self.state.littered = TIDYINGS;
        self.state.start = self.clock.now();
        self.state.told = self.state.start;
        self.state.last_reload = LastReload::succeeded();
        // The first caller gets an answer soon.
        self.state.changed = true;
        self.look_at_network();
        self.state.start
    }

    /// Looks at the kernel's network: returns its ways past the site; none while an interface is detached.
    fn look_at_network(&mut self) -> Vec<Arc<str>> {
        let interfaces = self.interfaces_with(&None);
        let Some(interfaces) = interfaces.filter(|_| self.detached == [false; 2]) else {
            return Vec::new();
        };
        let longest = Side::BOTH.map(|side| {
            let plan = self.plans.iter().find(|plan| plan.side == side)?;
            Some(plan.link.longest.get() - plan.link.overhead)
        });
        self.network.look(interfaces, longest, &self.notify)
    }

    /// Runs until the forwarding thread has ended, or has failed to end in time; then closes everything.
    pub(crate) fn run(
        mut self,
        events: &Receiver<Event>,
        mut report: impl FnMut(&Arc<Report>),
    ) -> Outcome {
        let mut ended = self.follow(events, &mut report);
        if let Some(ended) = &mut ended {
            for side in Side::BOTH {
                // From here on the devices report losses exactly, to the frame.
                ended.bridge.device_mut(side).quiesce(&mut Vec::new());
            }
            let mut counting = self.counting();
            while !counting.step(&mut ended.bridge) {}
            self.tell(counting);
        }
        let handed_over = matches!(self.state.stage, Stage::HandedOver);
        if let Some(ended) = ended.as_mut().filter(|_| handed_over) {
            for side in Side::BOTH {
                ended.bridge.device_mut(side).set_owned(false);
            }
        }
        // No process attaches from here on; then the interfaces are released.
        drop(self.attach);
        Outcome {
            report: self.state.report,
            handed_over,
            // Keep the results up to then.
            result: ended.map_or(Ok(()), |ended| ended.result.map_err(Error::from)),
        }
    }

    fn follow(
        &mut self,
        events: &Receiver<Event>,
        report: &mut impl FnMut(&Arc<Report>),
    ) -> Option<Box<Ended>> {
        loop {
            let event = events.recv_timeout(self.patience());
            let ended = match event {
                Ok(Event::Change(request)) => {
                    self.queue(request);
                    None
                }
                Ok(Event::Prepared(prepared)) => {
                    self.state.littered = TIDYINGS;
                    self.prepared(*prepared);
                    None
                }
                Ok(Event::Wrote) => {
                    self.state.changed = true;
                    None
                }
                Ok(Event::Flows(hear)) => {
                    self.state.flows.hear(hear, self.clock.now());
                    None
                }
                Ok(Event::Do(asking)) => {
                    self.state.tasks.push_back(asking);
                    None
                }
                Ok(Event::Opened(opened)) => {
                    self.opened(opened);
                    None
                }
                Ok(Event::ExportState(answer)) => {
                    self.give(answer);
                    None
                }
                Ok(Event::HandOver(handing, answer)) => {
                    self.hand_over(handing, answer);
                    None
                }
                Ok(Event::Keep(other)) => {
                    self.keep(other);
                    None
                }
                Ok(Event::Ended(ended)) => Some(ended),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return None,
            };
            self.answered(report);
            if let PendingRequest::Nothing = self.state.pending {
                // Independent of the report interval, since findings are queued in little space.
                self.count_findings();
            }
            if ended.is_some() {
                return ended;
            }
            match &self.handle.stop {
                stop if stop.is_overdue() => return None,
                stop if stop.is_asked() => continue,
                _ => self.ask(),
            }
            self.read_next();
        }
    }

    /// Returns the longest time to wait for an event.
    fn patience(&self) -> Duration {
        match self.state.pending {
            PendingRequest::Nothing => {
                let due = self.due().min(self.state.flows.due());
                match self.state.draining.is_some() {
                    true => LOOK,
                    false => Duration::from(due.since(self.clock.now())).clamp(LOOK, IDLE),
                }
            }
            _ => {
                let waited = self.clock.now().since(self.state.ordered);
                Duration::from(waited).clamp(FIRST_LOOK, LOOK)
            }
        }
    }

    /// Queues a configuration. Of those without a waiting caller, only the last one counts.
    fn queue(&mut self, request: Request) {
        match self.state.requests.back_mut() {
            Some(last) if last.answer.is_none() && request.answer.is_none() => *last = request,
            _ => self.state.requests.push_back(request),
        }
        self.read_next();
    }

    /// Reads a configuration on a separate thread, for which there is no time limit.
    fn read_next(&mut self) {
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

    fn prepared(&mut self, prepared: Result<Prepared>) {
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
    fn keep_unsaved(&self, asker: &Asker, prepared: Prepared) -> Result<Prepared> {
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
    fn discarded_by(&self, site: &Site) -> u64 {
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

    /// Sends the forwarding thread the next request, if the last one is done.
    fn ask(&mut self) {
        if !matches!(self.state.pending, PendingRequest::Nothing) {
            return;
        }
        if let Some((draining, next)) = self.state.draining.take() {
            if self.clock.now().since(self.state.ordered) >= Nanos::from(LOOK) {
                return self.poll_draining(draining, next);
            }
            self.state.draining = Some((draining, next));
        } else if let Some(next) = self.state.waiting.pop_front() {
            return self.begin_change(next);
        }
        if self.order_of_stage() {
            return;
        }
        if let Some((side, opened)) = self.state.opened.take() {
            return self.attach_on(side, *opened);
        }
        let now = self.clock.now();
        if now >= self.due() {
            self.state.pending = PendingRequest::Counts;
            return self.order(Order::Count(Box::new(self.counting())));
        }
        if now >= self.state.flows.due() {
            self.state.pending = PendingRequest::Flows;
            let walking = self.state.flows.walk(&self.plans, now);
            return self.order(Order::Walk(Box::new(walking)));
        }
        self.begin_task();
    }

    /// Returns when the next report is due: soon after a change.
    fn due(&self) -> Nanos {
        let interval = match self.state.changed {
            true => self.interval.min(CHANGED.max(self.state.report_interval)),
            false => self.interval,
        };
        self.state.told + interval
    }

    fn counting(&self) -> Counting {
        Counting::of(Side::BOTH.map(|side| {
            let plan = self.plans.iter().find(|plan| plan.side == side);
            plan.map_or_else(Vec::new, |plan| plan.ids.clone())
        }))
    }

    /// Applies a link once the classes that it removes have drained.
    fn begin_change(&mut self, next: Next) {
        let until = self.clock.now() + DRAIN;
        let plan = self.plan_mut(next.side);
        let draining = plan.and_then(|plan| plan.draining(&next, until));
        match draining {
            Some(draining) => self.poll_draining(Box::new(draining), Box::new(next)),
            None => self.order_change(next),
        }
    }

    fn poll_draining(&mut self, draining: Box<Draining>, next: Box<Next>) {
        self.state.pending = PendingRequest::Drained(next);
        self.order(Order::Drain(draining));
    }

    /// Handles a poll of draining classes: removes them, or polls again.
    fn drained(&mut self, draining: Box<Draining>, next: Box<Next>) {
        if draining.is_done() || self.clock.now() >= draining.until {
            self.order_change(*next);
        } else {
            self.state.draining = Some((draining, next));
        }
    }

    fn order_change(&mut self, next: Next) {
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

    /// Handles an order that the forwarding thread has completed.
    fn answered(&mut self, report: &mut impl FnMut(&Arc<Report>)) {
        while let Some(answer) = self.answers.pop() {
            match (
                answer,
                std::mem::replace(&mut self.state.pending, PendingRequest::Nothing),
            ) {
                (Order::Count(counting), _) => {
                    // It forwards.
                    if let Some(took) = self.state.took.take() {
                        self.notify(Notice::TookOver {
                            from: took.from,
                            stood: took.stood(),
                        });
                    }
                    let began = self.clock.now();
                    self.tell(*counting);
                    report(&self.state.report);
                    let took = self.clock.now().since(began);
                    self.state.report_interval = Nanos(took.0.saturating_mul(REPORT_SHARE));
                    self.tidy_up();
                }
                (Order::Walk(walking), _) => {
                    self.count_findings();
                    self.state.flows.walked(*walking, &self.plans);
                }
                (Order::Drain(draining), PendingRequest::Drained(next)) => {
                    self.drained(draining, next)
                }
                (Order::Add(adding), PendingRequest::Classes(next)) => self.added(*adding, *next),
                (Order::Take(taking), PendingRequest::Parameters(next)) => {
                    self.changed(taking.error.is_some(), *next);
                }
                (Order::Take(taking), PendingRequest::Plan(plan)) => self.taken(&taking, *plan),
                (Order::ExportState(give), PendingRequest::ExportState(answer)) => {
                    self.device_state_reported(*give, &answer)
                }
                (Order::HandOver(handing), PendingRequest::HandOver(answer)) => {
                    self.handed_over(*handing, &answer);
                }
                (order, PendingRequest::Task(waiting)) => self.task_done(order, waiting),
                (Order::Exchange(side, _), PendingRequest::Attach(interface)) => {
                    self.attached(side, interface);
                }
                // No other requests return here.
                _ => {}
            }
        }
    }

    fn added(&mut self, adding: Adding, next: Next) {
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
    fn changed(&mut self, refused: bool, next: Next) {
        let Some(plan) = self.plan_mut(next.side) else {
            return;
        };
        plan.describe(next);
        let again = refused.then(|| plan.running());
        self.rebuild(again);
        self.finish_change();
    }

    /// Rebuilds all classes from the file if one of them differs from it.
    fn rebuild(&mut self, running: Option<Running>) {
        if let Some(running) = running {
            let link = Arc::clone(&running.link);
            let next = running.becomes(link).rebuilt();
            self.state.waiting.push_front(next);
        }
    }

    fn taken(&mut self, taking: &Taking, mut after: Plan) {
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

    /// Gives free memory back: reading or comparing a configuration takes several times the memory that is kept of it.
    /// Limited in frequency, and only after something was read.
    fn tidy_up(&mut self) {
        let state = &mut self.state;
        if state.littered > 0 && state.told.since(state.tidied) >= TIDIED {
            state.littered -= 1;
            state.tidied = state.told;
            fairlane_io::give_back_unused();
        }
    }

    /// Counts the passive TCP observations of both directions.
    fn count_findings(&mut self) {
        let mut all = Vec::new();
        for findings in self
            .plans
            .iter_mut()
            .filter_map(|plan| plan.findings.as_mut())
        {
            all.extend(std::iter::from_fn(|| findings.pop()).take(FINDINGS));
        }
        for plan in &mut self.plans {
            plan.found(&all);
        }
        self.state.flows.found(&all);
    }

    /// Makes a report of the counts.
    fn tell(&mut self, mut counting: Counting) {
        self.count_findings();
        let now = self.clock.now();
        let times = [self.state.start, self.state.told].map(|then| now.since(then).0 as f64 / 1e9);
        self.state.told = now;
        self.state.changed = false;
        // One notice a report, however many were refused.
        let refusals = self.attach.as_ref().and_then(Attach::take_refusals);
        if let Some(refusals) = refusals {
            self.notify(Notice::NotAttached(refusals));
        }
        let forwarding_pauses = self.longest.tell();
        let mut report = Report {
            seconds: times[0],
            recent_seconds: times[1],
            attached: (self.attach.as_ref()).map_or(0, |attach| attach.attached().len()),
            reloads: self.state.reloads,
            bypasses: self.look_at_network(),
            configuration: self.state.last_reload.report(&self.handle),
            forwarding_pause_max_us: forwarding_pauses
                .iter()
                .map(|step| step.us)
                .fold(0.0, f64::max),
            forwarding_pauses,
            forwarding: ForwardingReport::of(counting.thread),
            interfaces: Side::BOTH
                .map(|side| {
                    let before = self.state.report.interfaces.get(side as usize);
                    let count = &counting.devices[side as usize];
                    InterfaceReport {
                        attached: !self.detached[side as usize],
                        ..InterfaceReport::new(&self.devices[side as usize], count, before)
                    }
                })
                .into(),
            ..Report::default()
        };
        for side in Side::BOTH {
            let to = Arc::clone(&self.devices[side as usize].name);
            let count = &counting.devices[side as usize];
            let pipeline = self.pipeline;
            let arrived = counting.devices[side.other() as usize].waits;
            let waits = [arrived, count.transmit_waits];
            let Some(plan) = self.plan_mut(side) else {
                report.open.push(OpenReport {
                    to,
                    frames: count.lane.received.frames,
                    bytes: count.lane.received.bytes,
                });
                continue;
            };
            let from = &mut report.interfaces[side.other() as usize];
            let lost = from.recent_lost;
            let terms = pipeline.terms(&plan.link);
            plan.allow(terms.rounds());
            let pipeline = PipelineReport::new(terms, counting.thread, waits, count.most_in_flight);
            let counted = std::mem::take(&mut counting.links[side as usize]);
            let link = LinkReport::new(plan, counted, count, to, times, lost, pipeline);
            let early = link.early_drops() + plan.early_of_gone;
            let opaque_counts = plan.opaque.counts;
            let told = &mut self.state.opaque_links;
            let opaque = link.opaque_protocol.as_ref();
            if let Some(protocol) = opaque.filter(|&it| told.get(&link.name) != Some(it)) {
                told.insert(Arc::clone(&link.name), Arc::clone(protocol));
                (self.notify)(Notice::Opaque {
                    link: Arc::clone(&link.name),
                    protocol: Arc::clone(protocol),
                    frames: opaque_counts.opaque,
                    offered: opaque_counts.offered,
                });
            }
            from.recent_early_drops = early.saturating_sub(from.early_drops);
            from.early_drops = early;
            report.links.push(link);
        }
        self.state.report = Arc::new(report);
    }
}
