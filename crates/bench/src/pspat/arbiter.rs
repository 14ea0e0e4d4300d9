//! PSPAT: clients with mailboxes, one arbiter on a core of its own.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow};
use fairlane_core::TotalStats;
use fairlane_core::{FlowId, Nanos, PacketScheduler};
use fairlane_runtime::{
    Arbiter, ArbiterConfig, ArbiterStats, Client, ClientId, ClientStats, ClientsDispatch, Clock,
    Dispatcher, Dispatchers, DispatchingClient, Idling, Link, Queue, Refusal, Refused, Registrar,
    Release, Shaper, Spans, Steps, Straight, drive,
};

use super::WARM_UP;
use super::case::{Case, Transmit, Way};
use super::outcome::{Counts, Outcome, Percentiles, Span};
use super::output::{Device, Of, Outputs};
use super::senders::{Clearing, Cores, Dispatching, Pushing, Sender, pin, start};
use super::victim::{Pushes, Watch, Watched};
use fairlane_core::with_algorithm;

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

/// A way out that is not the clients': one type for both, as each copy of the arbiter takes
/// its time to compile.
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

/// A victim's push; what it may do between two of them.
trait Victims: Send {
    fn push(&mut self) -> Result<(), Refusal>;
}

struct ClearingVictim {
    client: DispatchingClient<()>,
    len: fairlane_core::Length,
}

impl Victims for ClearingVictim {
    fn push(&mut self) -> Result<(), Refusal> {
        while self.client.next_cleared().is_some() {}
        let pushed = self.client.push(self.len, ());
        pushed.map(|_| ()).map_err(|Refused { reason, .. }| reason)
    }
}

struct PushingVictim {
    client: Client<Of>,
    len: fairlane_core::Length,
}

impl Victims for PushingVictim {
    fn push(&mut self) -> Result<(), Refusal> {
        let pushed = self.client.push(self.len, Of(0));
        pushed.map(|_| ()).map_err(|Refused { reason, .. }| reason)
    }
}

impl Measurement<'_> {
    fn config(&self) -> ArbiterConfig {
        let case = self.case;
        ArbiterConfig {
            limits: case.limits(),
            max_clients: case.max_clients as usize,
            mailbox_slots: case.mailbox,
            hold_back: true,
            read_interval: case.read_interval,
            ..ArbiterConfig::new(Link::new(case.rate))
        }
    }

    /// An arbiter of the case's algorithm.
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
        let victim: Option<Box<dyn Victims>> = match case.victim {
            Some(victim) => Some(Box::new(ClearingVictim {
                client: registrar.register_dispatching(case.flow_of(victim.weight), window)?,
                len,
            })),
            None => None,
        };
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
        let victim: Option<Box<dyn Victims>> = match case.victim {
            Some(victim) => Some(Box::new(PushingVictim {
                client: registrar.register(case.flow_of(victim.weight))?,
                len,
            })),
            None => None,
        };
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
        mut arbiter: Box<dyn Deciding<P, Watched<R>>>,
        senders: Vec<Box<dyn Sender>>,
        victim: Option<Box<dyn Victims>>,
        dispatchers: Vec<Dispatcher<Device>>,
    ) -> Result<Outcome> {
        let Measurement { case, clock, stop } = *self;
        let cores = Cores::new();
        let (started, done) = (AtomicU32::new(0), AtomicBool::new(false));
        let pushes = arbiter.release().watch().map(|watch| watch.pushes.clone());
        let skip = usize::from(victim.is_some());
        thread::scope(|scope| -> Result<Outcome> {
            let (started, done, cores) = (&started, &done, &cores);
            let deciding = scope.spawn(move || -> Result<(Outcome, Option<ArbiterStats>)> {
                pin(cores.arbiter());
                let idling = match case.sleep {
                    true => Idling::default(),
                    false => Idling::dedicated(),
                };
                let mut begun = Nanos::MAX;
                let mut before = None;
                let mut outcome = None;
                let mut stats = None;
                let driven = drive(&mut *arbiter, &clock, idling, |arbiter, now, _| {
                    if before.is_none() {
                        if begun == Nanos::MAX && started.load(Ordering::Acquire) == case.threads {
                            begun = now + WARM_UP;
                        }
                        if now >= begun {
                            if let Some(watch) = arbiter.release_mut().watch_mut() {
                                watch.begin();
                            }
                            arbiter.reset_stats();
                            before = Some(counted(arbiter, case, skip, now));
                        }
                    } else if let Some((before, sent)) = &before
                        && (now >= before.over + case.span() || stop.load(Ordering::Relaxed))
                    {
                        let (after, all) = counted(arbiter, case, skip, now);
                        let mut figures = Outcome::new(case, &after.since(before), all - sent);
                        stats = Some(arbiter.stats());
                        if let Some(watch) = arbiter.release().watch() {
                            figures.victim_ns = Percentiles::of(watch.delays());
                            figures.victim_packets = watch.delays().len();
                        }
                        outcome = Some(figures);
                    }
                    outcome.is_none() && !done.load(Ordering::Relaxed)
                });
                done.store(true, Ordering::Release);
                driven?;
                // What is still queued is dropped with the arbiter.
                let outcome = outcome.context("a client stopped early")?;
                Ok((outcome, stats))
            });
            let mut threads = start(
                scope,
                senders,
                case.threads,
                |number| cores.beside_arbiter(number),
                started,
                done,
            )?;
            if let (Some(settings), Some(mut victim), Some(pushes)) = (case.victim, victim, pushes)
            {
                threads.push(scope.spawn(move || {
                    pin(cores.beside_arbiter(0));
                    settings.pace(clock, done, || push_timed(&pushes, clock, &mut *victim))
                }));
            }
            let passing: Vec<_> = dispatchers
                .into_iter()
                .enumerate()
                .map(|(number, mut dispatcher)| {
                    scope.spawn(move || -> Result<Spans> {
                        pin(cores.beside_arbiter(number));
                        drive(&mut dispatcher, &clock, Idling::default(), |_, _, _| {
                            !done.load(Ordering::Relaxed)
                        })?;
                        Ok(dispatcher.passes())
                    })
                })
                .collect();
            let mut results = Vec::new();
            let outcome = deciding
                .join()
                .map_err(|_| anyhow!("the arbiter panicked"))?;
            for thread in threads {
                results.push(thread.join().map_err(|_| anyhow!("a client panicked"))?);
            }
            let mut longest: Option<Span> = None;
            for thread in passing {
                let passes = thread
                    .join()
                    .map_err(|_| anyhow!("a dispatcher panicked"))??;
                if let Some(span) = Span::of(passes) {
                    longest = Some(
                        longest
                            .filter(|known| known.max >= span.max)
                            .unwrap_or(span),
                    );
                }
            }
            results.into_iter().collect::<Result<Vec<()>>>()?;
            let (outcome, stats) = outcome?;
            let stats = stats.unwrap_or_default();
            let mut outcome = outcome.with_delays(case, Span::of(stats.looks), longest);
            outcome.wakeups = stats.woken;
            Ok(outcome)
        })
    }
}

/// What each sending client got so far, and all that was released.
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

fn push_timed(pushes: &Pushes, clock: Clock, victim: &mut dyn Victims) -> Result<()> {
    pushes.begin(clock.now());
    match victim.push() {
        Ok(()) => Ok(()),
        Err(Refusal::MailboxFull) => {
            pushes.refused();
            Ok(())
        }
        Err(refusal) => Err(refusal.into()),
    }
}
