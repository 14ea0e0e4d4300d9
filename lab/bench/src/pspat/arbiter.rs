//! PSPAT: clients with mailboxes, one arbiter on a core of its own.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context, Result, anyhow};
use fairlane_core::{FlowId, Nanos, PacketScheduler, TotalStats, with_algorithm};
use fairlane_runtime::{
    Arbiter, ArbiterConfig, ArbiterStats, ClientId, ClientStats, ClientsDispatch, Clock,
    Dispatcher, Dispatchers, Idling, Link, Queue, Refusal, Registrar, Release, Shaper, Spans,
    Steps, Straight, drive,
};

use super::WARM_UP;
use super::case::{Case, Transmit, Way};
use super::outcome::{Counts, Outcome, Percentiles, Span};
use super::output::{Device, Of, Outputs};
use super::senders::{Clearing, Cores, Dispatching, Pushing, Sender, pin, start};
use super::victim::{Pushes, Watch, Watched};

/// Slots of a TX mailbox.
pub(super) const TX_SLOTS: usize = 1024;

pub(super) fn measure(case: &Case, stop: &AtomicBool) -> Result<Outcome> {
    let outputs = Outputs::new(case)?;
    let clock = Clock::start();
    let measurement = Measurement { case, clock, stop };
    let watch = match case.victim {
        Some(_) => Some(Watch::new(FlowId::new(0), clock)?),
        None => None,
    };
    match case.way {
        Way::Clients => {
            let inner = ClientsDispatch::new();
            measurement.clearing(Watched::new(inner, watch), &outputs)
        }
        Way::Straight => {
            let inner: Exit = Box::new(Straight::to(outputs.device()?));
            measurement.pushing(Watched::new(inner, watch), Vec::new())
        }
        Way::Dispatchers => {
            let devices = (0..case.dispatchers).map(|_| outputs.device());
            let (inner, dispatchers) =
                Dispatchers::new(devices.collect::<Result<Vec<_>>>()?, TX_SLOTS)?;
            let inner: Exit = Box::new(inner);
            measurement.pushing(Watched::new(inner, watch), dispatchers)
        }
    }
}

/// An output other than the clients': one type for both, as each copy of the arbiter takes time to
/// compile.
type Exit = Box<dyn Release<Of> + Send>;

/// An arbiter of any algorithm. A step has code of its own for each algorithm, and is one
/// indirect call: all around it is compiled once.
trait Deciding<P, R>: Steps + Send {
    fn registrar(&self) -> Registrar<P>;
    fn release(&self) -> &R;
    fn release_mut(&mut self) -> &mut R;
    fn client_stats(&self) -> Box<dyn Iterator<Item = (ClientId, ClientStats)> + '_>;
    fn total_stats(&self) -> TotalStats;
    fn stats(&self) -> ArbiterStats;
    fn reset_stats(&mut self);
}

impl<Q: Queue + Send, R: Release<Q::Payload> + Send> Deciding<Q::Payload, R> for Arbiter<Q, R> {
    fn registrar(&self) -> Registrar<Q::Payload> {
        self.registrar()
    }

    fn release(&self) -> &R {
        Shaper::release(self)
    }

    fn release_mut(&mut self) -> &mut R {
        Shaper::release_mut(self)
    }

    fn client_stats(&self) -> Box<dyn Iterator<Item = (ClientId, ClientStats)> + '_> {
        Box::new(self.client_stats())
    }

    fn total_stats(&self) -> TotalStats {
        Shaper::total_stats(self)
    }

    fn stats(&self) -> ArbiterStats {
        self.stats()
    }

    fn reset_stats(&mut self) {
        self.reset_stats();
    }
}

struct Measurement<'a> {
    case: &'a Case,
    clock: Clock,
    stop: &'a AtomicBool,
}

/// Pushes a packet of the victim's, and does what its client may do before.
type Push = Box<dyn FnMut() -> Result<(), Refusal> + Send>;

impl Measurement<'_> {
    fn config(&self) -> ArbiterConfig {
        let case = self.case;
        ArbiterConfig {
            limits: case.limits(),
            max_clients: case.max_clients as usize,
            mailbox_slots: case.mailbox,
            hold_back: true,
            read_interval: case.read_interval,
            scan_limit: case.scan_limit as usize,
            ..ArbiterConfig::new(Link::new(case.rate))
        }
    }

    /// Returns an arbiter of the case's algorithm.
    fn arbiter<P, R>(&self, release: R) -> Box<dyn Deciding<P, R>>
    where
        P: Send + 'static,
        R: Release<P> + Send + 'static,
    {
        let (config, now) = (self.config(), self.clock.now());
        with_algorithm!(self.case.alg, new => {
            let queue = PacketScheduler::new(new(), config.limits);
            Box::new(Arbiter::over(queue, config, release, now))
        })
    }

    /// The clients transmit.
    fn clearing(&self, release: Watched<ClientsDispatch>, outputs: &Outputs) -> Result<Outcome> {
        let case = self.case;
        let arbiter = self.arbiter(release);
        let registrar = arbiter.registrar();
        let (window, len) = (case.window(), case.packet);
        let mut victim: Option<Push> = None;
        if let Some(settings) = case.victim {
            let flow = case.flow_of(settings.weight);
            let mut client = registrar.register_dispatching::<()>(flow, window)?;
            victim = Some(Box::new(move || {
                while client.next_cleared().is_some() {}
                let pushed = client.push(len, ());
                pushed.map(|_| ()).map_err(|refused| refused.reason)
            }));
        }
        let mut senders: Vec<Box<dyn Sender>> = Vec::new();
        for number in 0..case.active {
            let flow = case.flow(number);
            senders.push(match case.transmit {
                Transmit::Noop => Box::new(Clearing {
                    client: registrar.register_dispatching(flow, window)?,
                    len,
                }),
                Transmit::Udp | Transmit::Xdp => Box::new(Dispatching {
                    client: registrar.register_dispatching(flow, window)?,
                    number,
                    len,
                    device: outputs.device()?,
                }),
            });
        }
        let silent = (case.active..case.clients)
            .map(|number| registrar.register_dispatching::<()>(case.flow(number), window))
            .collect::<Result<Vec<_>, _>>()?;
        let outcome = self.run(arbiter, senders, victim, Vec::new());
        drop(silent);
        outcome
    }

    /// The arbiter or its dispatchers transmit.
    fn pushing(
        &self,
        release: Watched<Exit>,
        dispatchers: Vec<Dispatcher<Device>>,
    ) -> Result<Outcome> {
        let case = self.case;
        let arbiter = self.arbiter(release);
        let registrar = arbiter.registrar();
        let len = case.packet;
        let mut victim: Option<Push> = None;
        if let Some(settings) = case.victim {
            let mut client = registrar.register(case.flow_of(settings.weight))?;
            victim = Some(Box::new(move || {
                let pushed = client.push(len, Of(0));
                pushed.map(|_| ()).map_err(|refused| refused.reason)
            }));
        }
        let mut senders: Vec<Box<dyn Sender>> = Vec::new();
        for number in 0..case.active {
            senders.push(Box::new(Pushing {
                client: registrar.register(case.flow(number))?,
                number,
                len,
            }));
        }
        let silent = (case.active..case.clients)
            .map(|number| registrar.register(case.flow(number)))
            .collect::<Result<Vec<_>, _>>()?;
        let outcome = self.run(arbiter, senders, victim, dispatchers);
        drop(silent);
        outcome
    }

    fn run<P: Send, R: Release<P> + Send>(
        &self,
        arbiter: Box<dyn Deciding<P, Watched<R>>>,
        senders: Vec<Box<dyn Sender>>,
        victim: Option<Push>,
        dispatchers: Vec<Dispatcher<Device>>,
    ) -> Result<Outcome> {
        let Measurement { case, clock, .. } = *self;
        let cores = Cores::new();
        let (started, done) = (AtomicU32::new(0), AtomicBool::new(false));
        let pushes = arbiter.release().watch().map(|watch| watch.pushes.clone());
        let window = Window::new(self, usize::from(victim.is_some()));
        thread::scope(|scope| -> Result<Outcome> {
            let (started, done, cores) = (&started, &done, &cores);
            let deciding = scope.spawn(move || {
                pin(cores.arbiter());
                let figures = window.figures(arbiter, started, done);
                done.store(true, Ordering::Release);
                figures
            });
            let beside = |number| cores.beside_arbiter(number);
            let mut threads = start(scope, senders, case.threads, beside, started, done)?;
            if let (Some(settings), Some(mut push), Some(pushes)) = (case.victim, victim, pushes) {
                threads.push(scope.spawn(move || {
                    pin(cores.beside_arbiter(0));
                    settings.pace(clock, done, || push_timed(&pushes, clock, &mut push))
                }));
            }
            let pass = |(number, mut dispatcher): (usize, Dispatcher<Device>)| {
                scope.spawn(move || -> Result<Spans> {
                    pin(cores.beside_arbiter(number));
                    let going_on = |_: &mut _, _, _: &_| !done.load(Ordering::Relaxed);
                    drive(&mut dispatcher, &clock, Idling::default(), going_on)?;
                    Ok(dispatcher.passes())
                })
            };
            let passing: Vec<_> = dispatchers.into_iter().enumerate().map(pass).collect();

            let decided = joined(deciding, "the arbiter")?;
            let sent: Vec<Result<()>> = (threads.into_iter())
                .map(|thread| joined(thread, "a client"))
                .collect::<Result<_>>()?;
            let mut passes = Vec::new();
            for thread in passing {
                passes.extend(Span::of(joined(thread, "a dispatcher")??));
            }
            sent.into_iter().collect::<Result<()>>()?;
            let (outcome, stats) = decided?;
            let longest = passes.into_iter().max_by_key(|span| span.max);
            let mut outcome = outcome.with_delays(case, Span::of(stats.looks), longest);
            outcome.wakeups = stats.woken;
            Ok(outcome)
        })
    }
}

/// Returns the result of a thread that has ended.
fn joined<T>(thread: ScopedJoinHandle<'_, T>, who: &str) -> Result<T> {
    thread.join().map_err(|_| anyhow!("{who} panicked"))
}

/// The time in which packets are counted, as the arbiter's thread goes through it.
struct Window<'a> {
    case: &'a Case,
    clock: Clock,
    stop: &'a AtomicBool,
    /// Clients registered before those that are counted.
    skip: usize,
    /// When it begins, once all clients send.
    begins: Option<Nanos>,
    /// The counts at its start.
    before: Option<(Counts, u64)>,
}

impl<'a> Window<'a> {
    fn new(measurement: &Measurement<'a>, skip: usize) -> Window<'a> {
        let Measurement { case, clock, stop } = *measurement;
        Window {
            case,
            clock,
            stop,
            skip,
            begins: None,
            before: None,
        }
    }

    /// Drives the arbiter to the end of the window. The remaining backlog is dropped with it.
    fn figures<P, R: Release<P>>(
        mut self,
        mut arbiter: Box<dyn Deciding<P, Watched<R>>>,
        started: &AtomicU32,
        done: &AtomicBool,
    ) -> Result<(Outcome, ArbiterStats)> {
        let idling = match self.case.sleep {
            true => Idling::default(),
            false => Idling::dedicated(),
        };
        let mut figures = None;
        let clock = self.clock;
        drive(&mut *arbiter, &clock, idling, |arbiter, now, _| {
            figures = self.look(arbiter, now, started);
            figures.is_none() && !done.load(Ordering::Relaxed)
        })?;
        figures.context("a client stopped early")
    }

    /// Returns the counts at the end of the window.
    fn look<P, R: Release<P>>(
        &mut self,
        arbiter: &mut dyn Deciding<P, Watched<R>>,
        now: Nanos,
        started: &AtomicU32,
    ) -> Option<(Outcome, ArbiterStats)> {
        let Some((before, sent)) = &self.before else {
            if self.begins.is_none() && started.load(Ordering::Acquire) == self.case.threads {
                self.begins = Some(now + WARM_UP);
            }
            if self.begins.is_some_and(|begins| now >= begins) {
                if let Some(watch) = arbiter.release_mut().watch_mut() {
                    watch.forget();
                }
                arbiter.reset_stats();
                self.before = Some(counted(arbiter, self.case, self.skip, now));
            }
            return None;
        };
        if now < before.over + self.case.span() && !self.stop.load(Ordering::Relaxed) {
            return None;
        }
        let (after, all) = counted(arbiter, self.case, self.skip, now);
        let mut outcome = Outcome::new(self.case, &after.since(before), all - sent);
        if let Some(watch) = arbiter.release().watch() {
            outcome.victim_ns = Percentiles::of(watch.delays());
            outcome.victim_packets = watch.delays().len();
        }
        Some((outcome, arbiter.stats()))
    }
}

/// Returns the packets of each sending client so far, and all released ones.
fn counted<P, R>(
    arbiter: &dyn Deciding<P, R>,
    case: &Case,
    skip: usize,
    now: Nanos,
) -> (Counts, u64) {
    let clients = arbiter.client_stats().skip(skip).take(case.active as usize);
    let counts = Counts {
        packets: clients.map(|(_, stats)| stats.flow.sent.packets).collect(),
        over: now,
    };
    (counts, arbiter.total_stats().sent.packets)
}

fn push_timed(pushes: &Pushes, clock: Clock, push: &mut Push) -> Result<()> {
    pushes.started(clock.now());
    match push() {
        Ok(()) => Ok(()),
        Err(Refusal::MailboxFull) => {
            pushes.refused();
            Ok(())
        }
        Err(refusal) => Err(refusal.into()),
    }
}
