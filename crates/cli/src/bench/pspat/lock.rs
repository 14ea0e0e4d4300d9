//! What kernels do: clients run the algorithm themselves, behind one spinlock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow};
use fairlane_core::{Dequeue, FlowId, Length, PacketScheduler, Scheduler};
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

/// What the lock protects.
struct Shared<A: Scheduler> {
    /// The payload is the client's number.
    scheduler: PacketScheduler<A, Of>,
    pacer: Pacer,
    watch: Option<Watch>,
}

/// A fair lock, as those of kernels are: who waits gets it in the order of coming.
struct Locked<A: Scheduler>(TicketMutex<Shared<A>>);

impl<A: Scheduler> Locked<A> {
    /// Queues a packet, and takes out what the link may carry by now, whoever's it is.
    /// Whether the packet was taken.
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
            let Dequeue::Packet(packet) = shared.scheduler.dequeue(now) else {
                shared.pacer.idled(now);
                break;
            };
            shared.pacer.charge(packet.len);
            if let Some(watch) = &mut shared.watch
                && watch.flow == packet.flow
            {
                watch.released();
            }
            out.push_back(packet.payload);
        }
        taken
    }
}

/// The turns of one core's clients. In a kernel, who waits for the lock or has it keeps its core:
/// there is one of them a core at most, and who is woken comes next.
#[derive(Default)]
struct Turns {
    turn: Mutex<()>,
    /// Somebody who sends one packet waits: the round that goes on ends with its packet.
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

struct Contender<A: Scheduler> {
    shared: Arc<Locked<A>>,
    core: Arc<Turns>,
    clock: Clock,
    flow: FlowId,
    number: u32,
    len: Length,
    out: VecDeque<Of>,
    device: Device,
}

impl<A: Scheduler + Send + 'static> Sender for Contender<A> {
    fn round(&mut self) -> Result<bool> {
        let turn = Arc::clone(&self.core);
        let turn = turn.take();
        let taken = self.sends()?;
        drop(turn);
        thread::yield_now();
        Ok(taken > 0)
    }
}

impl<A: Scheduler> Contender<A> {
    /// Sends a round of packets; returns how many the scheduler took.
    fn sends(&mut self) -> Result<usize> {
        let mut taken = 0;
        for _ in 0..ROUND {
            if !self.shared.send(
                &self.clock,
                self.flow,
                self.len,
                Of(self.number),
                &mut self.out,
            ) {
                break;
            }
            taken += 1;
            if self.core.wanted.load(Ordering::Relaxed) {
                break;
            }
            // Outside the lock, as each transmit queue of a device has its own.
            if !self.out.is_empty() {
                self.device.transmit(&mut self.out)?;
            }
        }
        if !self.out.is_empty() {
            self.device.transmit(&mut self.out)?;
        }
        Ok(taken)
    }
}

pub fn measure<A: Scheduler + Send + 'static>(
    case: &Case,
    algorithm: A,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let outputs = Outputs::new(case)?;
    let clock = Clock::start();
    let mut scheduler = PacketScheduler::new(algorithm, case.limits());
    let mut watch = None;
    if let Some(victim) = case.victim {
        let flow = scheduler.add_flow(case.flow_of(victim.weight))?;
        watch = Some(Watch::new(flow, clock)?);
    }
    let flows: Vec<FlowId> = (0..case.clients)
        .map(|client| {
            scheduler
                .add_flow(case.flow(client))
                .context("adding a flow")
        })
        .collect::<Result<_>>()?;
    let pushes = watch.as_ref().map(|watch| watch.pushes.clone());
    let shared = Arc::new(Locked(TicketMutex::new(Shared {
        scheduler,
        pacer: Pacer::new(Link::new(case.rate), clock.now()),
        watch,
    })));
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
        let shared = shared.0.lock();
        let sent = |flow: &FlowId| {
            let stats = shared.scheduler.flow_stats(*flow);
            stats.map_or(0, |stats| stats.sent.packets)
        };
        let packets = flows.iter().take(case.active as usize).map(sent).collect();
        let all = shared.scheduler.total_stats().sent.packets;
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
            let (shared, done) = (&shared, &done);
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
        if let Some(watch) = &mut shared.0.lock().watch {
            watch.begin();
        }
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
    if let Some(watch) = &shared.0.lock().watch {
        outcome.victim_ns = Percentiles::of(watch.delays());
        outcome.victim_packets = watch.delays().len();
    }
    Ok(outcome)
}

/// A push of the victim's: timed from before it waits for anything.
fn push_timed(pushes: &Pushes, clock: Clock, push: impl FnOnce() -> bool) {
    pushes.begin(clock.now());
    if !push() {
        pushes.refused();
    }
}
