//! The demonstration: real datagrams on the loopback interface pass through mailboxes, the arbiter
//! and its scheduling algorithm, and leave through real sockets at the pace of a link.
//!
//! Built-in senders each offer more than the whole link; datagrams of other programs are relayed,
//! with a flow for each source; other processes may attach. [`Demo::open`] makes it all,
//! [`Demo::run`] runs it until it is over, and a [`Handle`] reports its state meanwhile.
#![forbid(unsafe_code)]

mod attach;
mod flow;
mod fluid;
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
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context, Result, anyhow};
use fairlane_core::sched::{Algorithm, automatic_members};
use fairlane_core::{
    AnyScheduler, FlowConfig, Length, Limits, Nanos, Rate, SchedulerLimits, Weight,
};
use fairlane_io::{Datagram, UdpBackend};
use fairlane_runtime::{
    Arbiter, ArbiterConfig, ClientId, Clock, Dispatcher, Dispatchers, Idling, Link, Registrar,
    Release, Straight, attach::Attach, drive, pin_to_core,
};

pub use attach::{Allow, Attachments};
use flow::{Flow, Flows, OVERHEAD, Outgoing};
use fluid::Ledger;
use meter::Metered;
pub use relay::MOST_SOURCES;
use relay::Relay;
use report::Promise;
pub use report::{FlowReport, LinkReport, Report};
use sender::Outlet;
use sink::{Sink, Sinks, Socket};
pub use vitals::ArbiterReport;
use vitals::Vitals;

/// Most built-in senders.
pub const MOST_SENDERS: usize = 64;

/// Packets a flow may queue inside the arbiter.
const QUEUE: u32 = 128;

/// Most packets that the arbiter releases in one step.
const RELEASES: u32 = 64;

/// Where datagrams are relayed from unless the command line says otherwise.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7171);

/// How often the arbiter's counts are made visible.
const PUBLISH: Nanos = Nanos::from_millis(100);

/// Slots of a dispatcher's mailbox: packets there can no longer be overtaken.
const TX_SLOTS: usize = 64;

/// The arbiter's output: one type for all, as each copy of the arbiter takes time to compile.
type Exit = Box<dyn Release<Box<Outgoing>> + Send>;

/// Opens flows: a client with its arbiter, a socket with the sink.
#[derive(Clone)]
pub struct Opener {
    registrar: Registrar<Box<Outgoing>>,
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

/// The parameters of a demonstration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rate of the link.
    pub rate: Rate,
    /// The scheduling algorithm.
    pub algorithm: Algorithm,
    /// Weights of the built-in senders, at most [`MOST_SENDERS`].
    pub weights: Vec<Weight>,
    /// Payload of their datagrams.
    pub packet: Length,
    /// Threads between the arbiter and their sockets; with 0 it sends itself.
    pub dispatchers: u32,
    /// The core on which the arbiter stays, and never sleeps: one that it [may](may_run_on).
    pub dedicated: Option<usize>,
    /// The processes that may attach, and their socket.
    pub attach: Option<Attachments>,
    /// The address of the relay, instead of port 7171 or any free one.
    pub listen: Option<SocketAddr>,
    /// How long it takes; until it is stopped without.
    pub seconds: Option<f64>,
}

fn listen(address: Option<SocketAddr>) -> Result<UdpBackend<Datagram>> {
    let bind = |address| {
        UdpBackend::bind(address).with_context(|| format!("listening for datagrams on {address}"))
    };
    match address {
        Some(address) => bind(address),
        None => bind(LISTEN).or_else(|_| bind(SocketAddr::new(LISTEN.ip(), 0))),
    }
}

/// A demonstration that is ready to begin: its sockets are open, its flows are there.
pub struct Demo {
    options: Options,
    arbiter: Arbiter<AnyScheduler<Box<Outgoing>>, Exit>,
    dispatchers: Vec<Dispatcher<Metered>>,
    outlets: Vec<(Outlet, f64)>,
    relay: Relay,
    relay_address: SocketAddr,
    sink: Sink,
    attached: Option<Attach>,
    handle: Handle,
}

/// Access to a demonstration from other threads.
#[derive(Clone)]
pub struct Handle {
    clock: Clock,
    start: Nanos,
    promise: Promise,
    flows: Flows,
    vitals: Vitals,
    stop: Arc<AtomicBool>,
}

impl Handle {
    /// How it fares, over the time since it was opened. O(flows).
    pub fn report(&self) -> Report {
        self.report_at(self.clock.now())
    }

    /// Ends it soon. Does not wait.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    fn report_at(&self, now: Nanos) -> Report {
        Report::take(
            &self.promise,
            now.since(self.start),
            &self.flows,
            &self.vitals,
        )
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Returns a thread that fails ends the run.
    fn or_stop<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|_| self.stop())
    }
}

impl Demo {
    /// Opens the sockets and the built-in senders' flows.
    ///
    /// # Errors
    ///
    /// A socket could not be opened, an address is taken, or the link carries no packet.
    pub fn open(options: Options) -> Result<Demo> {
        let clock = Clock::start();
        let flows = Flows::default();
        let (sinks, sink) = Sink::new();
        let link = Link {
            overhead: OVERHEAD,
            ..Link::new(options.rate)
        };
        let longest = link.longest().context("the link carries no packet")?;
        // First, as all others take any port that is free.
        let socket = listen(options.listen)?;
        let relay_address = socket.local_addr()?;
        let (exit, dispatchers) = ways_out(options.dispatchers, clock, &flows)?;
        let start = clock.now();
        // As many packets as one step releases may be on their way to the link.
        let algorithm = options.algorithm.with_members(automatic_members(RELEASES));
        let config = arbiter_config(&options, link);
        let queue = AnyScheduler::new(algorithm, config.limits);
        let arbiter = Arbiter::over(queue, config, exit, start);
        let opener = Opener {
            registrar: arbiter.registrar(),
            flows: flows.clone(),
            sinks,
        };
        let outlets = open_senders(&options, &opener)?;
        let attach = options.attach.as_ref();
        let attached = attach
            .map(|attach| attach.listen(&opener, clock))
            .transpose()?;
        let promise = Promise {
            alg: algorithm,
            rate: options.rate,
            dispatched: u64::from(options.dispatchers) * TX_SLOTS as u64,
        };
        let relay = Relay {
            socket,
            opener,
            clock,
            longest,
        };
        let handle = Handle {
            clock,
            start,
            promise,
            flows,
            vitals: Vitals::default(),
            stop: Arc::default(),
        };
        Ok(Demo {
            options,
            arbiter,
            dispatchers,
            outlets,
            relay,
            relay_address,
            sink,
            attached,
            handle,
        })
    }

    /// Returns the address of the relay.
    pub fn relay_address(&self) -> SocketAddr {
        self.relay_address
    }

    /// To see how it fares, and to end it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs it until its time is over, it is stopped, or an operation failed. Returns its report,
    /// and how many datagrams were not relayed: too long, or from more than [`MOST_SOURCES`]
    /// addresses.
    ///
    /// # Errors
    ///
    /// Sending or receiving failed; the error says where.
    pub fn run(self) -> Result<(Report, u64)> {
        let Demo {
            options,
            mut arbiter,
            dispatchers,
            outlets,
            relay,
            sink,
            attached,
            handle,
            ..
        } = self;
        let (clock, payload) = (handle.clock, options.packet.get() as usize);
        // Senders continue until the arbiter has stopped, so that the shares are those of a link
        // that was busy to the end; the sink until the last dispatcher has sent.
        let (done, sent) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let (done, sent, handle) = (&done, &sent, &handle);
            let receiver = scope.spawn(move || handle.or_stop(sink.run(sent)));
            let relaying = scope.spawn(move || handle.or_stop(relay.run(done)));
            let send = |(outlet, offer)| {
                scope
                    .spawn(move || handle.or_stop(sender::run(outlet, payload, offer, clock, done)))
            };
            let senders: Vec<_> = outlets.into_iter().map(send).collect();
            let pass = |(number, dispatcher)| {
                let vitals = &handle.vitals;
                scope.spawn(move || handle.or_stop(dispatch(number, dispatcher, clock, vitals)))
            };
            let passing: Vec<_> = dispatchers.into_iter().enumerate().map(pass).collect();
            let (outcome, stopped_at) = decide(&mut arbiter, &options, handle);
            // Pushing threads end before the arbiter, whose end is an error to them: senders, relay
            // and processes. The dispatchers end with the arbiter.
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
            results.into_iter().collect::<Result<Vec<()>>>()?;
            Ok((handle.report_at(stopped_at), ignored?))
        })
    }
}

/// Returns an arbiter's configuration with space for all queues.
fn arbiter_config(options: &Options, link: Link) -> ArbiterConfig {
    let processes = options
        .attach
        .as_ref()
        .map_or(0, Attachments::most_processes);
    let max_clients = MOST_SENDERS + relay::MOST_SOURCES + processes;
    let limits = match options.algorithm {
        // One queue for all: a larger offered load gets a larger share.
        Algorithm::Fifo => SchedulerLimits {
            packets: QUEUE * options.weights.len().max(1) as u32,
            ..SchedulerLimits::default()
        },
        // Space for all queues at once: no flow finds the link full of other flows' packets.
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

/// Returns the arbiter's output, and its dispatchers.
fn ways_out(count: u32, clock: Clock, flows: &Flows) -> Result<(Exit, Vec<Dispatcher<Metered>>)> {
    let open = || {
        let socket = UdpBackend::bind(SocketAddr::new(LISTEN.ip(), 0));
        let socket = socket.context("opening a socket")?;
        Ok(Metered::new(socket, clock, flows.clone()))
    };
    if count == 0 {
        return Ok((Box::new(Straight::to(open()?)), Vec::new()));
    }
    let sockets = (0..count).map(|_| open());
    let sockets = sockets.collect::<Result<Vec<_>>>()?;
    let (exit, dispatchers) = Dispatchers::new(sockets, TX_SLOTS)?;
    Ok((Box::new(exit), dispatchers))
}

/// Opens the built-in senders' flows; returns each one's offered load, in bits a second.
fn open_senders(options: &Options, opener: &Opener) -> Result<Vec<(Outlet, f64)>> {
    let count = options.weights.len();
    let open = |(number, &weight)| {
        let config = FlowConfig::new(weight, options.packet);
        let outlet = opener.open(format!("sender-{}", number + 1), config)?;
        Ok((outlet, options.rate.bps() as f64 * offer_of(number, count)))
    };
    options.weights.iter().enumerate().map(open).collect()
}

/// Drives the arbiter until it is over; returns the result, and the time of the end.
fn decide(
    arbiter: &mut Arbiter<AnyScheduler<Box<Outgoing>>, Exit>,
    options: &Options,
    handle: &Handle,
) -> (io::Result<()>, Nanos) {
    let (clock, start) = (handle.clock, handle.start);
    let end = options
        .seconds
        .map_or(Nanos::MAX, |s| start + Nanos((s * 1e9) as u64));
    let mut ledger = Ledger::default();
    // All have started by then: a later start would need its share too.
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
        let go_on = now < end && !handle.is_stopped();
        if now >= publish_at || !go_on {
            publish_at = now + PUBLISH;
            ledger.publish(arbiter, &handle.flows);
            handle.vitals.arbiter(arbiter.stats());
        }
        go_on
    });
    (outcome, stopped_at)
}

/// Runs a dispatcher's thread until the arbiter is gone.
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

/// Checks on a thread whether this program may run on this core.
///
/// # Errors
///
/// It may not.
pub fn may_run_on(core: usize) -> Result<()> {
    let tried = thread::spawn(move || pin_to_core(core)).join();
    tried
        .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        .with_context(|| format!("there is no core {core} to run on"))
}

/// Returns a sender's offered load, as a multiple of the link: the first offers most.
fn offer_of(number: usize, count: usize) -> f64 {
    let from_last = (count - 1 - number) as f64 / (count.max(2) - 1) as f64;
    1.25 + 1.75 * from_last
}

fn joined<T>(handle: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    handle
        .join()
        .unwrap_or_else(|_| Err(anyhow!("a thread of the run panicked")))
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
