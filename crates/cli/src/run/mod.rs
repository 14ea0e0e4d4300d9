//! `fairlane run`: real datagrams through the arbiter, out at their fair shares; or the frames of
//! a site, in its classes (`site`).

mod attach;
mod ending;
mod flow;
mod log;
mod meter;
mod relay;
mod report;
mod screen;
mod sender;
mod sink;
mod site;
mod vitals;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow};
use fairlane_core::sched::automatic_members;
use fairlane_core::{FlowConfig, Length, Limits, Nanos, Rate, SchedulerLimits, Weight};
use fairlane_io::{MAX_DATAGRAM, UdpBackend};
use fairlane_runtime::{
    Arbiter, ArbiterConfig, ClientId, Clock, Dispatcher, Dispatchers, Idling, Link, Registrar,
    Release, Straight, drive, drive_dispatcher, pin_to_core,
};

use crate::algorithm::{self, Algorithm};
use crate::any::AnyScheduler;
use crate::arguments::{MOST_SENDERS, Weights, seconds};
use crate::interrupt;
use attach::{Allow, Quotas};
use ending::Ending;
use flow::{Flow, Flows, OVERHEAD, Parcel};
use meter::Metered;
use relay::Relay;
use report::{Promise, Report, fluid_allocation};
use screen::{Screen, Shows};
use sender::Outlet;
use sink::{Sink, Sinks, Socket};
use vitals::Vitals;

const HELP: &str = "\
Built-in senders, one for each weight, offer more than the whole link as UDP
datagrams. They pass through mailboxes, the arbiter and its scheduling algorithm,
leave through a real socket at the pace of the link, and are counted where they
arrive. The lighter a sender, the more it offers: compare --alg qfq, where shares
follow the weights, with --alg fifo, where they follow the offered load.

Send datagrams of your own to the address that is printed: each source becomes one
more flow, of weight 1. Processes may attach with --attach and --allow: each gets a
mailbox in shared memory, and a flow whose weight the rule says.

With CONFIG nothing of that is made: frames of other machines pass between two
interfaces, or of this machine through a tap device, in the classes that the file
says. SIGHUP reads the file again.

Examples:
  fairlane run site.toml                      until Ctrl-C
  fairlane run                                until Ctrl-C
  fairlane run --seconds 5 --json             five seconds, one JSON object at the end
  fairlane run --rate 250mbit --weights 1,1,10 --packet 500 --alg drr
  fairlane run --weights none --attach /run/fairlane.sock --allow uid=1000:4 --allow any:1";

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

/// Options of `fairlane run`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// A site's configuration: shapes what passes between the interfaces that it names
    #[arg(
        value_name = "CONFIG",
        conflicts_with_all = [
            "rate", "alg", "weights", "packet", "dispatchers", "dedicated", "attach", "allow",
            "attach_per_user", "attach_memory", "listen",
        ],
    )]
    config: Option<PathBuf>,
    /// Rate of the link: a number with bit, kbit, mbit, gbit or tbit
    #[arg(long, default_value = "100mbit")]
    rate: Rate,
    /// Scheduling algorithm
    #[arg(long, value_parser = algorithm::parser(), default_value = "qfq")]
    alg: Algorithm,
    /// Weights of the built-in senders, 1 to 1000000 each, 64 of them at most, or none
    #[arg(long, value_name = "W,W,...", default_value = "1,2,4,8")]
    weights: Weights,
    /// Payload of the senders' datagrams in bytes, 1 to 65507
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 1200,
        value_parser = clap::value_parser!(u32).range(1..=MAX_DATAGRAM as i64)
    )]
    packet: u32,
    /// Dispatcher threads between the arbiter and their sockets; with 0 it sends itself
    #[arg(long, value_name = "T", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=16))]
    dispatchers: u32,
    /// Keeps the arbiter on this core, counted from 0, where it never sleeps
    #[arg(long, value_name = "CORE")]
    dedicated: Option<usize>,
    /// Lets other processes attach at this Unix socket, with mailboxes in shared memory
    #[arg(long, value_name = "PATH", requires = "allow")]
    attach: Option<PathBuf>,
    /// Who may attach (uid=N, gid=N or any) and the weight of each one's flow; may be given
    /// several times, and the first that matches counts
    #[arg(long, value_name = "WHO:WEIGHT", requires = "attach")]
    allow: Vec<Allow>,
    #[command(flatten)]
    quotas: Quotas,
    /// Time to run, in seconds; until Ctrl-C without it
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Address to relay other people's datagrams from [default: 127.0.0.1:7171, or a
    /// free port if that is in use]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// With CONFIG: end with an error when an interface is deleted, and do not wait for it
    #[arg(long, requires = "config")]
    exit_on_loss: bool,
    /// With CONFIG: under overload, drop nothing before its class is known to Fairlane
    #[arg(long, requires = "config")]
    no_early_drop: bool,
    /// Print one JSON object at the end, and nothing else
    #[arg(long)]
    json: bool,
    /// Show the state so often, in seconds [default: 1; on a terminal 0.5]
    #[arg(long, value_name = "S", value_parser = seconds)]
    every: Option<f64>,
    /// Show no state while it runs, but what it was at the end
    #[arg(long, conflicts_with = "every")]
    quiet: bool,
}

impl Options {
    fn shows(&self) -> Shows {
        Shows {
            json: self.json,
            quiet: self.quiet,
            every: self.every,
        }
    }
}

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

/// Runs the link and prints what became of it.
pub fn run(options: &Options) -> Result<()> {
    if let Some(config) = &options.config {
        return site::run(config, options);
    }
    run_loopback(options)
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

fn run_loopback(options: &Options) -> Result<()> {
    let clock = Clock::start();
    let flows = Flows::default();
    let (sinks, sink) = Sink::new();
    let socket = UdpBackend::bind(SocketAddr::new(LISTEN.ip(), 0)).context("opening a socket")?;
    let relay_socket = listen(options)?;
    let relay_address = relay_socket.local_addr()?;
    let link = Link {
        overhead: OVERHEAD,
        ..Link::new(options.rate)
    };
    let longest = link.longest().context("the link carries no packet")?;
    let processes = attach::MOST_PROCESSES * options.allow.len();
    let max_clients = MOST_SENDERS + relay::MOST_SOURCES + processes;
    let mut config = ArbiterConfig {
        max_clients,
        release_limit: RELEASES as usize,
        ..ArbiterConfig::new(link)
    };
    config.limits = match options.alg {
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
    let mut sockets = vec![Metered::new(socket, clock, flows.clone())];
    for _ in 1..options.dispatchers {
        let socket =
            UdpBackend::bind(SocketAddr::new(LISTEN.ip(), 0)).context("opening a socket")?;
        sockets.push(Metered::new(socket, clock, flows.clone()));
    }
    let (exit, dispatchers): (Exit, _) = match (options.dispatchers, sockets.pop()) {
        (0, Some(socket)) => (Box::new(Straight::to(socket)), Vec::new()),
        (_, last) => {
            sockets.extend(last);
            let (exit, dispatchers) = Dispatchers::new(sockets, TX_SLOTS)?;
            (Box::new(exit), dispatchers)
        }
    };
    let start = clock.now();
    let vitals = Vitals::default();
    // As many packets as one step releases may be on their way to the link.
    let alg = options.alg.with_members(automatic_members(RELEASES));
    let queue = AnyScheduler::new(alg, config.limits);
    let mut arbiter = Arbiter::over(queue, config, exit, start);
    let opener = Opener {
        registrar: arbiter.registrar(),
        flows: flows.clone(),
        sinks,
    };
    let mut outlets = Vec::new();
    let max_length = Length::new(options.packet).context("a packet has a length")?;
    for (number, &weight) in options.weights.0.iter().enumerate() {
        let config = FlowConfig::new(weight, max_length);
        outlets.push(opener.open(format!("sender-{}", number + 1), config)?);
    }
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
        let mut senders = Vec::new();
        let count = outlets.len();
        for (number, outlet) in outlets.into_iter().enumerate() {
            let offer = options.rate.bps() as f64 * offer_of(number, count);
            let payload = options.packet as usize;
            senders.push(scope.spawn(move || {
                let sent = sender::run(outlet, payload, offer, clock, done);
                or_stop(sent, stop)
            }));
        }
        let passing: Vec<_> = dispatchers
            .into_iter()
            .enumerate()
            .map(|(number, dispatcher)| {
                let vitals = vitals.clone();
                scope.spawn(move || or_stop(dispatch(number, dispatcher, clock, &vitals), stop))
            })
            .collect();
        let (show_flows, show_screen, show_vitals) = (&flows, &screen, &vitals);
        let promise = Promise {
            alg,
            rate: options.rate,
            dispatched: u64::from(options.dispatchers) * TX_SLOTS as u64,
        };
        let take = move |now| Report::take(&promise, now, show_flows, show_vitals);
        let showing = scope.spawn(move || {
            show_screen.follow(clock, start, sent, take);
            // Who left, left the demonstration; what could not be printed is said at the end.
            stop.begin();
            Ok(())
        });

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
        let outcome = drive(&mut arbiter, &clock, idling, |arbiter, now, _| {
            stopped_at = now;
            let go_on = now < end && !stop.has_begun();
            if now >= publish_at || !go_on {
                publish_at = now + PUBLISH;
                ledger.publish(arbiter, &flows);
                vitals.arbiter(arbiter.stats());
            }
            go_on
        });
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
        let ran = stopped_at.since(start);
        let report = Report::take(&promise, ran, &flows, &vitals);
        let ignored = ignored?;
        screen.conclude(report, move |report| report.conclusion(ignored), stop)
    })
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

/// When it will be over.
fn ends(options: &Options) -> String {
    match options.seconds {
        Some(seconds) => format!("Ends after {seconds} s, or with Ctrl-C."),
        None => "Ctrl-C ends.".to_owned(),
    }
}

/// A dispatcher's thread: until the arbiter is gone.
fn dispatch(
    number: usize,
    mut dispatcher: Dispatcher<Metered>,
    clock: Clock,
    vitals: &Vitals,
) -> Result<()> {
    let mut publish_at = clock.now() + PUBLISH;
    drive_dispatcher(
        &mut dispatcher,
        &clock,
        Idling::default(),
        |dispatcher, now| {
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
        .unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))
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
