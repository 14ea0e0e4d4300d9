//! The demonstration: real datagrams on the loopback interface through the arbiter, out at their
//! fair shares.

mod attach;
mod flow;
mod meter;
mod relay;
mod report;
mod sender;
mod sink;
mod vitals;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow};
use fairlane_core::sched::{Algorithm, automatic_members};
use fairlane_core::{AnyScheduler, FlowConfig, Length, Limits, Nanos, SchedulerLimits, Weight};
use fairlane_io::UdpBackend;
use fairlane_runtime::{
    Arbiter, ArbiterConfig, ClientId, Clock, Dispatcher, Dispatchers, Idling, Link, Registrar,
    Release, Straight, drive, pin_to_core,
};

use super::ending::Ending;
use super::screen::Screen;
use super::{Options, ends};
use crate::arguments::MOST_SENDERS;
use crate::interrupt;
pub use attach::{Allow, Quotas};
use flow::{Flow, Flows, OVERHEAD, Parcel};
use meter::Metered;
use relay::Relay;
use report::{Promise, Report, fluid_allocation};
use sender::Outlet;
use sink::{Sink, Sinks, Socket};
use vitals::Vitals;

/// Packets a flow may queue inside the arbiter.
const QUEUE: u32 = 128;

/// Most packets that the arbiter releases in one step.
const RELEASES: u32 = 64;

/// Where datagrams are relayed from unless the command line says otherwise.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7171);

/// How often the arbiter's counts are made visible.
const PUBLISH: Nanos = Nanos::from_millis(100);

/// Slots of a dispatcher's mailbox: what waits there can no longer be overtaken.
const TX_SLOTS: usize = 64;

/// The arbiter's way out: one type for all, as each copy of the arbiter takes its time to
/// compile.
type Exit = Box<dyn Release<Box<Parcel>> + Send>;

/// Opens flows: a client with its arbiter, a socket with the sink.
#[derive(Clone)]
pub struct Opener {
    registrar: Registrar<Box<Parcel>>,
    flows: Flows,
    sinks: Sinks,
}

impl Opener {
    fn open(&self, name: String, config: FlowConfig) -> Result<Outlet> {
        let socket = Socket::open()?;
        let client = self.registrar.register(config)?;
        let sink = socket.address()?;
        let (number, flow) = self.flows.add(Flow::new(name, config, client.id(), sink));
        self.sinks.add(socket, Arc::clone(&flow));
        Ok(Outlet {
            number,
            flow,
            client,
        })
    }
}

impl Opener {
    /// A flow for a client that is registered already; its packets go to `nowhere` if there
    /// is no socket for them.
    fn adopt(
        &self,
        name: String,
        config: FlowConfig,
        client: ClientId,
        nowhere: SocketAddr,
    ) -> (u32, Arc<Flow>) {
        let opened = Socket::open().and_then(|socket| Ok((socket.address()?, socket)));
        match opened {
            Ok((sink, socket)) => {
                let (number, flow) = self.flows.add(Flow::new(name, config, client, sink));
                self.sinks.add(socket, Arc::clone(&flow));
                (number, flow)
            }
            Err(_) => self.flows.add(Flow::new(name, config, client, nowhere)),
        }
    }
}

fn listen(options: &Options) -> Result<UdpBackend<fairlane_io::Datagram>> {
    let bind = |address| {
        UdpBackend::bind(address).with_context(|| format!("listening for datagrams on {address}"))
    };
    match options.listen {
        Some(address) => bind(address),
        None => bind(LISTEN).or_else(|_| bind(SocketAddr::new(LISTEN.ip(), 0))),
    }
}

/// Runs the demonstration and prints what became of it.
pub fn run(options: &Options) -> Result<()> {
    let clock = Clock::start();
    let flows = Flows::default();
    let (sinks, sink) = Sink::new();
    let link = Link {
        overhead: OVERHEAD,
        ..Link::new(options.rate)
    };
    let longest = link.longest().context("the link carries no packet")?;
    let (exit, dispatchers) = ways_out(options, clock, &flows)?;
    let relay_socket = listen(options)?;
    let relay_address = relay_socket.local_addr()?;
    let start = clock.now();
    let vitals = Vitals::default();
    // As many packets as one step releases may be on their way to the link.
    let alg = options.alg.with_members(automatic_members(RELEASES));
    let config = arbiter_config(options, link);
    let queue = AnyScheduler::new(alg, config.limits);
    let mut arbiter = Arbiter::over(queue, config, exit, start);
    let opener = Opener {
        registrar: arbiter.registrar(),
        flows: flows.clone(),
        sinks,
    };
    let outlets = open_senders(options, &opener)?;
    let attached = match &options.attach {
        Some(path) => Some(attach::listen(
            path,
            &options.allow,
            &options.quotas,
            &opener,
            clock,
        )?),
        None => None,
    };
    if let Some(core) = options.dedicated {
        may_run_on(core)?;
    }
    let stop = Arc::new(Ending::default());
    let on_signal = Arc::clone(&stop);
    interrupt::answer(move || on_signal.ask()).context("setting up Ctrl-C")?;

    let screen = Screen::open(
        introduction(options, options.alg.name(), relay_address),
        options.shows(),
    )?;
    let promise = Promise {
        alg,
        rate: options.rate,
        dispatched: u64::from(options.dispatchers) * TX_SLOTS as u64,
    };
    // Senders go on until the arbiter has stopped, so that the shares are those of a link that
    // was busy to the end; the sink and the screen until the last dispatcher has sent.
    let (done, sent) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| -> Result<()> {
        let (done, sent, stop) = (&done, &sent, &*stop);
        let receiver = scope.spawn(move || or_stop(sink.run(sent), stop));
        let relay = Relay {
            socket: relay_socket,
            opener,
            clock,
            longest,
        };
        let relaying = scope.spawn(move || or_stop(relay.run(done), stop));
        let senders: Vec<_> = outlets
            .into_iter()
            .map(|(outlet, offer)| {
                let payload = options.packet as usize;
                scope.spawn(move || or_stop(sender::run(outlet, payload, offer, clock, done), stop))
            })
            .collect();
        let passing: Vec<_> = dispatchers
            .into_iter()
            .enumerate()
            .map(|(number, dispatcher)| {
                let vitals = vitals.clone();
                scope.spawn(move || or_stop(dispatch(number, dispatcher, clock, &vitals), stop))
            })
            .collect();
        let (show_flows, show_screen, show_vitals) = (&flows, &screen, &vitals);
        let take = move |now| Report::take(&promise, now, show_flows, show_vitals);
        let showing = scope.spawn(move || {
            show_screen.follow(clock, start, sent, take);
            // Who left, left the demonstration; what could not be printed is said at the end.
            stop.begin();
            Ok(())
        });
        let (outcome, stopped_at) =
            decide(&mut arbiter, clock, options, stop, &flows, &vitals, start);
        // Who pushes ends before the arbiter does, which to them is an error: senders, relay and
        // processes. The dispatchers end with the arbiter.
        done.store(true, Ordering::Release);
        let mut results = vec![outcome.context("sending through the link's socket")];
        results.extend(senders.into_iter().map(joined));
        let ignored = joined(relaying);
        drop(attached);
        drop(arbiter);
        for dispatcher in passing {
            results.push(joined(dispatcher).context("sending through a dispatcher's socket"));
        }
        sent.store(true, Ordering::Release);
        results.push(joined(receiver));
        results.push(joined(showing));
        results.into_iter().collect::<Result<Vec<()>>>()?;
        let report = Report::take(&promise, stopped_at.since(start), &flows, &vitals);
        let ignored = ignored?;
        screen.conclude(report, move |report| report.conclusion(ignored), stop)
    })
}

/// An arbiter with room for everybody's queue.
fn arbiter_config(options: &Options, link: Link) -> ArbiterConfig {
    let processes = attach::MOST_PROCESSES * options.allow.len();
    let max_clients = MOST_SENDERS + relay::MOST_SOURCES + processes;
    let limits = match options.alg {
        // One queue for all: who offers more, has more of it.
        Algorithm::Fifo => SchedulerLimits {
            packets: QUEUE * options.weights.0.len().max(1) as u32,
            ..SchedulerLimits::default()
        },
        // Room for all queues at once: nobody finds the link full of what others sent.
        _ => SchedulerLimits {
            packets: QUEUE * max_clients as u32,
            bytes: u64::MAX,
            per_flow: Limits {
                packets: QUEUE,
                ..Limits::NONE
            },
        },
    };
    ArbiterConfig {
        max_clients,
        release_limit: RELEASES as usize,
        limits,
        ..ArbiterConfig::new(link)
    }
}

/// The arbiter's way out, and the dispatchers on it.
fn ways_out(
    options: &Options,
    clock: Clock,
    flows: &Flows,
) -> Result<(Exit, Vec<Dispatcher<Metered>>)> {
    let open = || {
        let socket = UdpBackend::bind(SocketAddr::new(LISTEN.ip(), 0));
        let socket = socket.context("opening a socket")?;
        Ok(Metered::new(socket, clock, flows.clone()))
    };
    if options.dispatchers == 0 {
        return Ok((Box::new(Straight::to(open()?)), Vec::new()));
    }
    let sockets = (0..options.dispatchers).map(|_| open());
    let sockets = sockets.collect::<Result<Vec<_>>>()?;
    let (exit, dispatchers) = Dispatchers::new(sockets, TX_SLOTS)?;
    Ok((Box::new(exit), dispatchers))
}

/// The built-in senders' flows, and what each offers, in bits a second.
fn open_senders(options: &Options, opener: &Opener) -> Result<Vec<(Outlet, f64)>> {
    let max_length = Length::new(options.packet).context("a packet has a length")?;
    let count = options.weights.0.len();
    let open = |(number, &weight)| {
        let config = FlowConfig::new(weight, max_length);
        let outlet = opener.open(format!("sender-{}", number + 1), config)?;
        Ok((outlet, options.rate.bps() as f64 * offer_of(number, count)))
    };
    options.weights.0.iter().enumerate().map(open).collect()
}

/// Drives the arbiter from `start` until it is over: what came of it, and when that was.
fn decide(
    arbiter: &mut Arbiter<AnyScheduler<Box<Parcel>>, Exit>,
    clock: Clock,
    options: &Options,
    stop: &Ending,
    flows: &Flows,
    vitals: &Vitals,
    start: Nanos,
) -> (io::Result<()>, Nanos) {
    let end = options
        .seconds
        .map(|s| start + Nanos((s * 1e9) as u64))
        .unwrap_or(Nanos::MAX);
    let mut ledger = Ledger::default();
    // All have begun by then: who comes a moment later wants its share too.
    let mut publish_at = start + PUBLISH;
    let mut stopped_at = start;
    let idling = match options.dedicated {
        Some(core) => {
            // It could just now; on another core it is only less alone.
            let _ = pin_to_core(core);
            Idling::dedicated()
        }
        None => Idling::default(),
    };
    let outcome = drive(arbiter, &clock, idling, |arbiter, now, _| {
        stopped_at = now;
        let go_on = now < end && !stop.has_begun();
        if now >= publish_at || !go_on {
            publish_at = now + PUBLISH;
            ledger.publish(arbiter, flows);
            vitals.arbiter(arbiter.stats());
        }
        go_on
    });
    (outcome, stopped_at)
}

fn introduction(options: &Options, alg: &str, relay: SocketAddr) -> String {
    let weights: Vec<String> = options.weights.0.iter().map(Weight::to_string).collect();
    format!(
        "A loopback link of {rate}, scheduled by {alg}. Send UDP datagrams to {relay}.\n\
         {senders}\n\
         {end}",
        rate = options.rate,
        senders = match weights.len() {
            0 => "There are no senders of its own; each of yours weighs 1.".to_owned(),
            _ => format!(
                "Senders of weight {} each offer more than all of it; yours weighs 1.",
                weights.join(", ")
            ),
        },
        end = ends(options),
    )
}

/// A dispatcher's thread: until the arbiter is gone.
fn dispatch(
    number: usize,
    mut dispatcher: Dispatcher<Metered>,
    clock: Clock,
    vitals: &Vitals,
) -> Result<()> {
    let mut publish_at = clock.now() + PUBLISH;
    drive(
        &mut dispatcher,
        &clock,
        Idling::default(),
        |dispatcher, now, _| {
            if now >= publish_at {
                publish_at = now + PUBLISH;
                vitals.dispatcher(number, dispatcher.passes());
            }
            true
        },
    )?;
    vitals.dispatcher(number, dispatcher.passes());
    Ok(())
}

/// Whether this program may run on such a core: a thread tries it.
fn may_run_on(core: usize) -> Result<()> {
    let tried = thread::spawn(move || pin_to_core(core)).join();
    tried
        .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        .with_context(|| format!("--dedicated {core}: there is no core {core} to run on"))
}

/// What a sender offers, as a multiple of the link: the first offers most.
fn offer_of(number: usize, count: usize) -> f64 {
    let from_last = (count - 1 - number) as f64 / (count.max(2) - 1) as f64;
    1.25 + 1.75 * from_last
}

/// What was last known of the flows, so that what an ideal fluid server would do is
/// followed from one short interval to the next.
#[derive(Default)]
struct Ledger(Vec<Entry>);

#[derive(Clone, Copy, Default)]
struct Entry {
    offered: u64,
    sent: u64,
    queued: u64,
}

impl Ledger {
    /// Makes the arbiter's own counts visible to other threads.
    fn publish(&mut self, arbiter: &Arbiter<AnyScheduler<Box<Parcel>>, Exit>, flows: &Flows) {
        let flows = flows.all();
        self.0.resize(flows.len(), Entry::default());
        let mut demands = Vec::with_capacity(flows.len());
        let mut capacity = 0;
        for (flow, entry) in flows.iter().zip(&mut self.0) {
            let (offered, sent) = (flow.offered.bytes(), flow.sent.bytes());
            let demand = entry.queued + offered - entry.offered;
            demands.push((flow.weight.get(), demand as f64));
            capacity += sent - entry.sent;
            (entry.offered, entry.sent) = (offered, sent);
        }
        for (flow, bytes) in flows
            .iter()
            .zip(fluid_allocation(capacity as f64, &demands))
        {
            flow.expected.add(bytes);
        }
        // Nothing waits of who has left.
        self.0.iter_mut().for_each(|entry| entry.queued = 0);
        for (id, stats) in arbiter.client_stats() {
            let number = flows.iter().position(|flow| flow.is_of(id));
            if let Some(number) = number {
                let dropped = stats.flow.dropped.packets;
                flows[number].dropped.store(dropped, Ordering::Relaxed);
                self.0[number].queued = stats.flow.queued.bytes;
            }
        }
    }
}

fn joined<T>(handle: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    handle
        .join()
        .unwrap_or_else(|_| Err(anyhow!("a thread of the run panicked")))
}

/// A thread that fails ends the run.
fn or_stop<T>(result: Result<T>, stop: &Ending) -> Result<T> {
    if result.is_err() {
        stop.begin();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sender_offers_more_than_the_link_and_the_lightest_most() {
        for count in 1..=MOST_SENDERS {
            let offers: Vec<f64> = (0..count).map(|n| offer_of(n, count)).collect();
            assert!(offers.iter().all(|&offer| offer > 1.2), "{offers:?}");
            assert!(
                offers.windows(2).all(|pair| pair[0] > pair[1]),
                "{offers:?}"
            );
        }
    }
}
