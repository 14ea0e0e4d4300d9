//! The control thread: signals, the file read again, counts and reports. The forwarding thread
//! waits for nothing that is done here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use fairlane_core::Nanos;
use fairlane_mailbox::{Consumer, Producer};
use fairlane_runtime::Clock;
use fairlane_runtime::attach::Attach;
use fairlane_runtime::bridge::Side;

use super::super::ending::Ending;
use super::super::log::Log;
use super::super::screen::Screen;
use super::order::{Adding, Counting, Order, Taking};
use super::plan::{Next, Plan};
use super::reload::{Former, Prepared};
use super::report::{InterfaceReport, LinkReport, OpenReport, Report, Times};

/// What the control thread waits for.
pub enum Event<B> {
    /// A signal asks for the end.
    Stop,
    /// A signal asks for the file to be read again.
    Reload,
    /// The file was read.
    Prepared(Box<Result<Prepared>>),
    /// The forwarding thread has ended; the bridge, as it left it.
    Ended(Box<(B, std::io::Result<()>)>),
}

/// Longest time until an answer of the forwarding thread is looked at.
const LOOK: Duration = Duration::from_millis(1);
/// The same while nothing was asked.
const IDLE: Duration = Duration::from_millis(200);

/// What the forwarding thread was asked last.
enum Asked {
    Nothing,
    Counts,
    /// To add the classes that come with this link.
    Classes(Box<Next>),
    /// To go on as this plan.
    Plan(Box<Plan>),
}

/// What the control thread is made with.
pub struct Links {
    pub former: Former,
    /// Of the devices on the left and on the right: name, and what it is reached by.
    pub devices: [(Arc<str>, String); 2],
    pub plans: Vec<Plan>,
    pub orders: Producer<Order>,
    pub answers: Consumer<Order>,
}

/// What all threads of the run share.
pub struct Around {
    pub clock: Clock,
    pub start: Nanos,
    /// How often the state is told.
    pub interval: Nanos,
    pub ending: Arc<Ending>,
    pub log: Log,
    pub attach: Option<Attach>,
    /// The longest time between two rounds that the forwarding thread had for an order.
    pub longest_step: Arc<AtomicU64>,
}

/// The control thread's own.
pub struct Control {
    links: Links,
    around: Around,
    asked: Asked,
    /// A file is being read; it was to be read again meanwhile.
    reading: bool,
    again: bool,
    /// The site that is being taken over, and its links that are not yet.
    site: Option<fairlane_config::Site>,
    waiting: VecDeque<Next>,
    reloads: u32,
    /// When the state was last told.
    told: Nanos,
    report: Arc<Report>,
}

impl Control {
    pub fn new(links: Links, around: Around) -> Control {
        Control {
            told: around.start,
            links,
            around,
            asked: Asked::Nothing,
            reading: false,
            again: false,
            site: None,
            waiting: VecDeque::new(),
            reloads: 0,
            report: Arc::default(),
        }
    }

    /// What all threads share, without all else.
    pub fn close(self) -> Around {
        self.around
    }

    /// Until the forwarding thread has ended: what it left. Nothing where it does not end in time.
    pub fn run<B: Send + 'static>(
        &mut self,
        screen: &Screen,
        events: &Receiver<Event<B>>,
        to_self: &Sender<Event<B>>,
    ) -> Option<(B, std::io::Result<()>)> {
        loop {
            let event = match self.around.ending.has_begun() {
                true => self.around.ending.wait(events).map(Ok)?,
                false => events.recv_timeout(self.patience()),
            };
            match event {
                Ok(Event::Stop) => self.around.ending.ask(),
                Ok(Event::Reload) => self.read_again(to_self),
                Ok(Event::Prepared(prepared)) => self.prepared(*prepared),
                Ok(Event::Ended(ended)) => {
                    self.answered(Some(screen));
                    return Some(*ended);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
            self.answered(Some(screen));
            self.ask();
            if !self.reading && self.again && self.site.is_none() {
                self.again = false;
                self.read_again(to_self);
            }
        }
    }

    /// How long an event may be waited for.
    fn patience(&self) -> Duration {
        match self.asked {
            Asked::Nothing => {
                let due = (self.told + self.around.interval).since(self.around.clock.now());
                Duration::from(due).clamp(LOOK, IDLE)
            }
            _ => LOOK,
        }
    }

    /// Reads the file on a thread of its own, which may take as long as it likes.
    fn read_again<B: Send + 'static>(&mut self, to_self: &Sender<Event<B>>) {
        if self.reading || self.site.is_some() {
            self.again = true;
            return;
        }
        self.links.former.links = self.links.plans.iter().map(Plan::running).collect();
        let (former, to_self) = (self.links.former.clone(), to_self.clone());
        let reader = thread::Builder::new().name("read".to_owned());
        let started = reader.spawn(move || {
            let prepared = Box::new(former.prepare());
            // Where nobody waits for it any more, the run has ended.
            let _ = to_self.send(Event::Prepared(prepared));
        });
        match started {
            Ok(_) => self.reading = true,
            Err(error) => self.refused(&error.into()),
        }
    }

    fn refused(&self, error: &anyhow::Error) {
        let log = &self.around.log;
        log.say(format_args!("all goes on as it was: {error:#}"));
    }

    fn prepared(&mut self, prepared: Result<Prepared>) {
        self.reading = false;
        match prepared {
            Ok(Prepared { site, links }) => {
                self.around.log.warn(&site.warnings);
                self.site = Some(site);
                self.waiting = links.into();
                self.taken_over();
            }
            Err(error) => self.refused(&error),
        }
    }

    /// Says so, if all links of the new site have taken over.
    fn taken_over(&mut self) {
        // Where the forwarding thread has nothing to do, nothing is asked of it.
        while self.waiting.front().is_some_and(Next::is_same) {
            if let Some(next) = self.waiting.pop_front()
                && let Some(plan) = self.plan_mut(next.side)
            {
                plan.describe(next);
            }
        }
        if self.waiting.is_empty()
            && matches!(self.asked, Asked::Nothing | Asked::Counts)
            && let Some(site) = self.site.take()
        {
            self.links.former.site = site;
            self.reloads += 1;
            let path = self.links.former.path.display();
            (self.around.log).say(format_args!("{path} was read again and taken over"));
        }
    }

    fn plan_mut(&mut self, side: Side) -> Option<&mut Plan> {
        self.links.plans.iter_mut().find(|plan| plan.side == side)
    }

    /// Asks the forwarding thread for what is next, if it has done the last.
    fn ask(&mut self) {
        if !matches!(self.asked, Asked::Nothing) {
            return;
        }
        if let Some(next) = self.waiting.pop_front() {
            return self.take_over(next);
        }
        let now = self.around.clock.now();
        if now >= self.told + self.around.interval {
            self.asked = Asked::Counts;
            self.order(Order::Count(Box::new(self.counting())));
        }
    }

    fn order(&mut self, order: Order) {
        // One at a time has room. After the forwarding thread it does not matter.
        let _ = self.links.orders.push(order);
    }

    fn counting(&self) -> Counting {
        Counting::of(Side::BOTH.map(|side| {
            let plan = self.links.plans.iter().find(|plan| plan.side == side);
            plan.map_or_else(Vec::new, |plan| plan.ids.clone())
        }))
    }

    fn take_over(&mut self, next: Next) {
        let Some(plan) = self.plan_mut(next.side) else {
            return;
        };
        match plan.adding(&next) {
            Some(adding) => {
                self.asked = Asked::Classes(Box::new(next));
                self.order(Order::Add(Box::new(adding)));
            }
            None => {
                let (taking, after) = plan.taking(next, None);
                self.asked = Asked::Plan(Box::new(after));
                self.order(Order::Take(Box::new(taking)));
            }
        }
    }

    /// Sees to what the forwarding thread has done.
    fn answered(&mut self, screen: Option<&Screen>) {
        while let Some(answer) = self.links.answers.pop() {
            match (answer, std::mem::replace(&mut self.asked, Asked::Nothing)) {
                (Order::Count(counting), _) => self.tell(&counting, screen),
                (Order::Add(adding), Asked::Classes(next)) => self.added(*adding, *next),
                (Order::Take(taking), Asked::Plan(plan)) => self.taken(&taking, *plan),
                // Nothing else is asked.
                (Order::Add(_) | Order::Take(_), _) => {}
            }
        }
    }

    fn added(&mut self, adding: Adding, next: Next) {
        let Adding { ids, refused, .. } = adding;
        let (next, ids) = match refused {
            None => (next, Some(ids)),
            // What was added goes with the former queues.
            Some(_) => (next.made_anew(), None),
        };
        if let Some(plan) = self.plan_mut(next.side) {
            let (taking, after) = plan.taking(next, ids);
            self.asked = Asked::Plan(Box::new(after));
            self.order(Order::Take(Box::new(taking)));
        }
    }

    fn taken(&mut self, taking: &Taking, mut after: Plan) {
        let side = after.side;
        let Some(plan) = self.plan_mut(side) else {
            return;
        };
        after.inherit(plan, taking);
        let again = taking.refused.is_some().then(|| after.running());
        *plan = after;
        if let Some(running) = again {
            // A class is not what the file says: all of them are made as it says.
            let link = (*running.link).clone();
            self.waiting.push_front(running.becomes(link).made_anew());
        }
        self.taken_over();
    }

    /// Makes a report of the counts, and shows it.
    fn tell(&mut self, counting: &Counting, screen: Option<&Screen>) {
        let now = self.around.clock.now();
        let seconds = |span: Nanos| span.0 as f64 / 1e9;
        let times = Times {
            seconds: seconds(now.since(self.around.start)),
            recent: seconds(now.since(self.told)),
        };
        self.told = now;
        // One line a report, however many were refused.
        let refusals = self.around.attach.as_ref().and_then(Attach::take_refusals);
        if let Some(refusals) = refusals {
            self.around.log.say(refusals);
        }
        let before = Side::BOTH.map(|side| {
            let before = self.report.interfaces.get(side as usize);
            before.map_or((0, 0), |interface| (interface.lost, interface.early))
        });
        let mut report = Report {
            seconds: times.seconds,
            recent_seconds: times.recent,
            attached: (self.around.attach.as_ref()).map_or(0, |attach| attach.attached().len()),
            reloads: self.reloads,
            longest_step_us: self.around.longest_step.load(Ordering::Relaxed) as f64 / 1e3,
            ..Report::default()
        };
        for side in Side::BOTH {
            let (name, backend) = &self.links.devices[side as usize];
            let count = &counting.devices[side as usize];
            let (name, backend) = (Arc::clone(name), backend.clone());
            let (lost, _) = before[side as usize];
            (report.interfaces).push(InterfaceReport::new(name, backend, count, lost));
        }
        for side in Side::BOTH {
            let name = Arc::clone(&self.links.devices[side as usize].0);
            let count = &counting.devices[side as usize];
            let lost = report.interfaces[side.other() as usize].recently_lost;
            match self.plan_mut(side) {
                Some(plan) => {
                    let classes = &counting.links[side as usize];
                    let link = LinkReport::new(plan, classes, count, name, times, lost);
                    let (_, early_before) = before[side.other() as usize];
                    let early = link.early();
                    report.links.push(link);
                    let interface = &mut report.interfaces[side.other() as usize];
                    interface.early = early;
                    interface.recently_early = early.saturating_sub(early_before);
                }
                None => report.open.push(OpenReport {
                    to: name,
                    frames: count.lane.received.frames,
                    bytes: count.lane.received.bytes,
                }),
            }
        }
        let report = Arc::new(report);
        let earlier = std::mem::replace(&mut self.report, Arc::clone(&report));
        if let Some(screen) = screen {
            screen.show(&report, &earlier);
        }
    }

    /// The state when it is over, by the counts of the bridge that was left; as it was told last
    /// where there is none.
    pub fn last(&mut self, count: impl FnOnce(Counting) -> Option<Counting>) -> Arc<Report> {
        if let Some(counting) = count(self.counting()) {
            self.tell(&counting, None);
        }
        Arc::clone(&self.report)
    }
}
