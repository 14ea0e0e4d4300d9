//! The kernels' method: clients run the algorithm themselves, behind one spinlock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow};
use fairlane_core::{FlowId, Length, PacketScheduler, Scheduler, with_algorithm};
use fairlane_runtime::{Clock, Link, Pacer};
use spin::mutex::TicketMutex;

use super::case::Case;
use super::outcome::{Counts, Outcome, Percentiles};
use super::output::{Device, Of, Outputs};
use super::senders::{Cores, Sender, pin, start};
use super::victim::{Pushes, Watch};
use super::{wait_until, warm_up};

/// Most packets that one client takes out for all, as kernels have it.
const QUOTA: usize = 64;

/// Packets that a client sends before others on its core have their turn.
const ROUND: usize = 256;

/// The data under the lock.
struct Shared<A: Scheduler> {
    /// The payload is the client's number.
    scheduler: PacketScheduler<A, Of>,
    pacer: Pacer,
    watch: Option<Watch>,
}

/// A fair lock, as in kernels: waiters get it in order of arrival.
struct Locked<A: Scheduler>(TicketMutex<Shared<A>>);

/// The same of any algorithm: a round has code of its own for each, and is one indirect call.
trait Behind: Send + Sync {
    /// Sends a round of a client's packets; returns how many the scheduler took.
    fn round(&self, client: &mut Contender) -> Result<usize>;

    /// Enqueues a packet, and dequeues as much as the link may carry by now, of any client. Returns
    /// whether the packet was accepted.
    fn send(
        &self,
        clock: &Clock,
        flow: FlowId,
        len: Length,
        packet: Of,
        out: &mut VecDeque<Of>,
    ) -> bool;

    /// Packets sent of each of these flows, and of all.
    fn sent(&self, flows: &[FlowId]) -> (Vec<u64>, u64);

    /// The watch on the victim's delays.
    fn watch(&self, use_it: &mut dyn FnMut(&mut Watch));
}

impl<A: Scheduler + Send> Behind for Locked<A> {
    fn round(&self, client: &mut Contender) -> Result<usize> {
        let mut taken = 0;
        for _ in 0..ROUND {
            let packet = Of(client.number);
            if !self.send(
                &client.clock,
                client.flow,
                client.len,
                packet,
                &mut client.out,
            ) {
                break;
            }
            taken += 1;
            if client.core.wanted.load(Ordering::Relaxed) {
                break;
            }
            // Outside the lock, as each transmit queue of a device has its own.
            if !client.out.is_empty() {
                client.device.transmit(&mut client.out)?;
            }
        }
        if !client.out.is_empty() {
            client.device.transmit(&mut client.out)?;
        }
        Ok(taken)
    }

    fn send(
        &self,
        clock: &Clock,
        flow: FlowId,
        len: Length,
        packet: Of,
        out: &mut VecDeque<Of>,
    ) -> bool {
        let mut shared = self.0.lock();
        let shared = &mut *shared;
        let taken = shared.scheduler.enqueue(flow, len, packet).is_ok();
        let now = clock.now();
        shared.pacer.forget_before(now);
        for _ in 0..QUOTA {
            if !shared.pacer.may_release(now) {
                break;
            }
            let Some(packet) = shared.scheduler.dequeue() else {
                shared.pacer.idled(now);
                break;
            };
            shared.pacer.charge(packet.len);
            if let Some(watch) = &mut shared.watch
                && watch.flow == packet.owner
            {
                watch.released();
            }
            out.push_back(packet.payload);
        }
        taken
    }

    fn sent(&self, flows: &[FlowId]) -> (Vec<u64>, u64) {
        let shared = self.0.lock();
        let sent = |flow: &FlowId| {
            let stats = shared.scheduler.flow_stats(*flow);
            stats.map_or(0, |stats| stats.sent.packets)
        };
        let packets = flows.iter().map(sent).collect();
        (packets, shared.scheduler.total_stats().sent.packets)
    }

    fn watch(&self, use_it: &mut dyn FnMut(&mut Watch)) {
        if let Some(watch) = &mut self.0.lock().watch {
            use_it(watch);
        }
    }
}

/// A link behind a lock, with the flows of the case's clients.
struct Set {
    shared: Arc<dyn Behind>,
    flows: Vec<FlowId>,
    pushes: Option<Pushes>,
}

impl Set {
    fn up<A: Scheduler + Send + 'static>(case: &Case, algorithm: A, clock: Clock) -> Result<Set> {
        let mut scheduler = PacketScheduler::new(algorithm, case.limits());
        let mut watch = None;
        if let Some(victim) = case.victim {
            let flow = scheduler.add_flow(case.flow_of(victim.weight))?;
            watch = Some(Watch::new(flow, clock)?);
        }
        let mut flows = Vec::new();
        for client in 0..case.clients {
            let added = scheduler.add_flow(case.flow(client));
            flows.push(added.context("adding a flow")?);
        }
        let pushes = watch.as_ref().map(|watch| watch.pushes.clone());
        let shared = Arc::new(Locked(TicketMutex::new(Shared {
            scheduler,
            pacer: Pacer::new(Link::new(case.rate), clock.now()),
            watch,
        })));
        Ok(Set {
            shared,
            flows,
            pushes,
        })
    }
}

/// The turns of one core's clients. In a kernel, a thread that waits for the lock or holds it keeps
/// its core: there is at most one of them a core, and a woken one comes next.
#[derive(Default)]
struct Turns {
    turn: Mutex<()>,
    /// A sender of a single packet waits: the current round ends with its packet.
    wanted: AtomicBool,
}

impl Turns {
    fn take(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_next(&self) -> MutexGuard<'_, ()> {
        self.wanted.store(true, Ordering::Relaxed);
        let turn = self.take();
        self.wanted.store(false, Ordering::Relaxed);
        turn
    }
}

struct Contender {
    shared: Arc<dyn Behind>,
    core: Arc<Turns>,
    clock: Clock,
    flow: FlowId,
    number: u32,
    len: Length,
    out: VecDeque<Of>,
    device: Device,
}

impl Sender for Contender {
    fn round(&mut self) -> Result<bool> {
        let turn = Arc::clone(&self.core);
        let turn = turn.take();
        let shared = Arc::clone(&self.shared);
        let taken = shared.round(self)?;
        drop(turn);
        thread::yield_now();
        Ok(taken > 0)
    }
}

pub(super) fn measure(case: &Case, stop: &AtomicBool) -> Result<Outcome> {
    let outputs = Outputs::new(case)?;
    let clock = Clock::start();
    let Set {
        shared,
        flows,
        pushes,
    } = with_algorithm!(case.alg, new => Set::up(case, new(), clock))?;
    let cores = Cores::new();
    let turns: Vec<Arc<Turns>> = (0..cores.count()).map(|_| Arc::default()).collect();
    let mut senders: Vec<Box<dyn Sender>> = Vec::new();
    for number in 0..case.active {
        let thread = (number % case.threads) as usize;
        senders.push(Box::new(Contender {
            shared: Arc::clone(&shared),
            core: Arc::clone(&turns[cores.any(thread).unwrap_or(0)]),
            clock,
            flow: flows[number as usize],
            number,
            len: case.packet,
            out: VecDeque::new(),
            device: outputs.device()?,
        }));
    }
    let (started, done) = (AtomicU32::new(0), AtomicBool::new(false));
    let counts = || {
        let (packets, all) = shared.sent(&flows[..case.active as usize]);
        let over = clock.now();
        (Counts { packets, over }, all)
    };
    let mut device = outputs.device()?;
    let (counts, all) = thread::scope(|scope| -> Result<(Counts, u64)> {
        let mut threads = start(
            scope,
            senders,
            case.threads,
            |n| cores.any(n),
            &started,
            &done,
        )?;
        if let (Some(victim), Some(pushes)) = (case.victim, &pushes) {
            let (shared, done) = (&*shared, &done);
            let flow = FlowId::new(0);
            let mut out = VecDeque::new();
            let core = cores.any(0);
            let turns = &turns[core.unwrap_or(0)];
            threads.push(scope.spawn(move || {
                pin(core);
                victim.pace(clock, done, || {
                    push_timed(pushes, clock, || {
                        let _turn = turns.take_next();
                        shared.send(&clock, flow, case.packet, Of(0), &mut out)
                    });
                    if !out.is_empty() {
                        device.transmit(&mut out)?;
                    }
                    Ok(())
                })
            }));
        }
        warm_up(&started, case.threads, &clock, stop);
        shared.watch(&mut |watch| watch.forget());
        let before = counts();
        wait_until(before.0.over + case.span(), &clock, stop);
        let after = counts();
        done.store(true, Ordering::Release);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a client panicked"))??;
        }
        Ok((after.0.since(&before.0), after.1 - before.1))
    })?;
    let mut outcome = Outcome::new(case, &counts, all);
    shared.watch(&mut |watch| {
        outcome.victim_ns = Percentiles::of(watch.delays());
        outcome.victim_packets = watch.delays().len();
    });
    Ok(outcome)
}

/// Times a push of the victim, from before it waits for anything.
fn push_timed(pushes: &Pushes, clock: Clock, push: impl FnOnce() -> bool) {
    pushes.started(clock.now());
    if !push() {
        pushes.refused();
    }
}
