//! `fairlane run CONFIG`: the frames that pass between two interfaces, in the classes of a site's
//! configuration.

mod classifier;
mod control;
mod device;
mod early;
mod forward;
mod frame;
mod lasting;
mod meter;
mod order;
mod plan;
mod reload;
mod report;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::{Context, Result, anyhow};
use fairlane_classify::{Origin, Owner};
use fairlane_config::{Interfaces, Near, Role, Site};
use fairlane_core::{FlowConfig, Length, Nanos, Weight};
use fairlane_mailbox::mailbox;
use fairlane_runtime::Clock;
use fairlane_runtime::attach::{Attach, AttachConfig, Attached, Class, Mapping, Who};
use fairlane_runtime::bridge::{Bridge, Came, Lane, Side};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::ending::Ending;
use super::log::{Log, Voice};
use super::screen::Screen;
use super::{Options, ends};
use crate::interrupt;
use crate::machine::read_site;
use control::{Around, Control, Event, Links};
use device::{AnyDevice, Needs, OnLoss, Ports};
use early::Port;
use forward::Forwarding;
use frame::{Frame, Parcel};
use order::{Counting, Order};
use plan::{Plan, Shaped};
use reload::Former;

/// Longest frame of an attached process in bytes, where the link's is longer: what its mailbox
/// has slots for.
const LONGEST_ATTACHED: u32 = 9_018;

/// What the two devices are to the configuration.
#[derive(Clone, Copy, Debug)]
struct Ends {
    /// Of the device on the left; the other is outside.
    near: Role,
}

impl Ends {
    fn of(interfaces: &Interfaces) -> Ends {
        Ends {
            near: match interfaces.near {
                Near::Inside(_) | Near::Nothing => Role::Inside,
                Near::Tap(_) => Role::Tap,
            },
        }
    }

    fn role(self, side: Side) -> Role {
        match side {
            Side::Left => self.near,
            Side::Right => Role::Outside,
        }
    }
}

/// Makes of a received frame what the classes hold.
fn make(ends: Ends) -> impl FnMut(Frame, Side, Came) -> Parcel {
    move |frame, side, came| Parcel {
        frame,
        origin: Origin {
            ingress: ends.role(side).ingress(),
            owner: None,
        },
        came: came.at,
        losing: came.losing,
    }
}

/// Runs the site that the file at `path` describes.
///
/// Three threads and more: this one opens everything, and becomes the control thread; one forwards
/// and does nothing else; one prints, one logs, one waits for signals, and each reading of the
/// file has its own. What is printed or read may block: the end does not wait for it.
pub fn run(path: &Path, options: &Options) -> Result<()> {
    // A HUP from here on has the file read again. Until the file is read, the other signals end the
    // program as they end any.
    let signals = Signals::new([SIGHUP]).context("setting up signals")?;
    let site = read_site(path)?;
    let log = Log::open().context("starting a thread")?;
    log.warn(&site.warnings);
    let interfaces = site.interfaces.clone().with_context(|| {
        format!(
            "{}: no interfaces to run between: name outside, and inside or tap, in [interfaces]",
            path.display()
        )
    })?;
    let (to_control, events) = channel();
    listen(signals, to_control.clone()).context("setting up Ctrl-C")?;
    let ends_of = Ends::of(&interfaces);
    let needs = needs(&site);
    let on_loss = match options.exit_on_loss {
        true => OnLoss::Fail,
        false => OnLoss::Wait,
    };
    let ports = ports(&interfaces, options, &log.voice());
    let devices = device::open(&interfaces, needs, on_loss, &log.voice(), &ports)?;
    let named = (devices.each_ref()).map(|device| (Arc::from(&*device.name), device.backend()));
    let clock = Clock::start();
    let start = clock.now();
    let mut plans = Vec::new();
    let mut registrar = None;
    let mut lane = |side, device: AnyDevice| {
        let role = ends_of.role(side);
        let Some(link) = site.links.iter().find(|link| link.to == role) else {
            return Lane::Open(device);
        };
        let attach = site.attach.as_ref().filter(|_| role == Role::Outside);
        let processes = attach.map_or(0, |attach| attach.processes);
        let (plan, arbiter) = {
            let port = ports[side.other() as usize].clone();
            Plan::start(link, side, device, processes, port, start)
        };
        if attach.is_some() {
            registrar = Some((arbiter.registrar(), link.longest));
        }
        plans.push(plan);
        // How long a frame may be, its class knows.
        let frames = FlowConfig::new(Weight::ONE, Length::MAX);
        Lane::Shaped(Box::new(arbiter), frames)
    };
    let [left, right] = devices;
    let left = lane(Side::Left, left);
    let right = lane(Side::Right, right);
    let bridge: SiteBridge<_> = Bridge::new(left, right, make(ends_of))?;
    // The plans have those that they need, with a voice in the log that ends with them.
    drop(ports);
    let attach = match (&site.attach, registrar) {
        (None, _) => None,
        (Some(attach), Some((registrar, longest))) => {
            Some(let_attach(attach, registrar, longest, clock)?)
        }
        (Some(attach), None) => {
            return Err(anyhow!(
                "{}: processes that attach at {} send by the interface outside, and no link has \
                 to = \"outside\"",
                path.display(),
                attach.socket.display()
            ));
        }
    };
    let shows = options.shows();
    let interval = shows.interval();
    let introduction = introduction(path, &site, &named, &plans, options);
    let screen = Screen::open(introduction, shows).context("starting a thread")?;
    let ending = Arc::new(Ending::default());
    let (to_forwarding, orders) = mailbox(2)?;
    let (answers, from_forwarding) = mailbox(2)?;
    let longest_step = Arc::new(AtomicU64::new(0));
    let forwarding = Forwarding {
        clock,
        end: options
            .seconds
            .map_or(Nanos::MAX, |seconds| start + Nanos((seconds * 1e9) as u64)),
        ending: Arc::clone(&ending),
        orders,
        answers,
        longest_step: Arc::clone(&longest_step),
    };
    let to_tell = to_control.clone();
    thread::Builder::new()
        .name("forward".to_owned())
        .spawn(move || {
            let mut bridge = bridge;
            let outcome = forwarding.run(&mut bridge);
            let _ = to_tell.send(Event::Ended(Box::new((bridge, outcome))));
        })
        .context("starting a thread")?;
    let links = Links {
        former: Former {
            path: path.to_owned(),
            site,
            needs,
            links: Vec::new(),
        },
        devices: named,
        plans,
        orders: to_forwarding,
        answers: from_forwarding,
    };
    let around = Around {
        clock,
        start,
        interval,
        ending: Arc::clone(&ending),
        log,
        attach,
        longest_step,
    };
    let mut control = Control::new(links, around);
    let ended = control.run(&screen, &events, &to_control);
    // From now on a signal shortens the wait for who reads.
    let impatient = Arc::clone(&ending);
    thread::spawn(move || {
        for event in events {
            if let Event::Stop = event {
                impatient.ask();
            }
        }
    });
    let (bridge, outcome) = ended.unzip();
    let mut bridge = bridge;
    let report = control.last(|counting| count_all(counting, bridge.as_mut()?, clock.now()));
    // Nobody attaches any more, then the interfaces are let go of.
    let Around { log, attach, .. } = control.close();
    drop(attach);
    drop(bridge);
    let concluded = screen.conclude(report, |report| report.conclusion(), &ending);
    log.close(&ending);
    // What was until then was worth knowing all the same.
    let outcome = outcome.unwrap_or(Ok(()));
    let outcome = outcome.map_err(Into::into).and(concluded);
    if outcome.is_err() {
        ending.leave(2);
    }
    outcome
}

/// The last counts, when nobody forwards any more.
fn count_all<M>(counting: Counting, bridge: &mut SiteBridge<M>, now: Nanos) -> Option<Counting>
where
    M: FnMut(Frame, Side, Came) -> Parcel,
{
    let mut order = Order::Count(Box::new(counting));
    while !order.step(bridge, now) {}
    match order {
        Order::Count(counting) => Some(*counting),
        Order::Add(_) | Order::Take(_) => None,
    }
}

/// Signals become events.
fn listen<B: Send + 'static>(signals: Signals, to: Sender<Event<B>>) -> Result<()> {
    signals.add_signal(SIGINT)?;
    signals.add_signal(SIGTERM)?;
    interrupt::listen(signals, move |signal| {
        let event = match signal {
            SIGHUP => Event::Reload,
            _ => Event::Stop,
        };
        // Once nobody hears of it, it is over.
        let _ = to.send(event);
    })?;
    Ok(())
}

/// Early drop at both devices, by side, unless nobody wants it.
fn ports(interfaces: &Interfaces, options: &Options, voice: &Voice) -> Ports {
    if options.no_early_drop {
        return [None, None];
    }
    let near = match &interfaces.near {
        Near::Inside(name) | Near::Tap(name) => name,
        Near::Nothing => "",
    };
    let names = [near, &interfaces.outside];
    Side::BOTH.map(|side| {
        let role = Ends::of(interfaces).role(side);
        Some(Arc::new(Port::new(
            names[side as usize],
            role,
            voice.clone(),
        )))
    })
}

/// The bridge of a site.
type SiteBridge<M> = Bridge<Shaped, AnyDevice, M>;

/// What the memory of frames must have room for.
fn needs(site: &Site) -> Needs {
    let frames = site.links.iter().map(|link| u64::from(link.limits.packets));
    let longest = site
        .links
        .iter()
        .map(|link| link.longest.get() - link.overhead);
    Needs {
        frames: frames.sum(),
        longest: longest.max().unwrap_or(0),
    }
}

/// Lets processes attach: their frames go by the filters, as all do.
fn let_attach(
    attach: &fairlane_config::Attach,
    registrar: fairlane_runtime::Registrar<Parcel>,
    longest: Length,
    clock: Clock,
) -> Result<Attach> {
    let longest = longest.get() - registrar.link().overhead;
    let max_length = Length::new(longest.min(LONGEST_ATTACHED)).context("a link without frames")?;
    let class = Class {
        name: "attached".to_owned(),
        flow: FlowConfig::new(Weight::ONE, max_length),
        most_clients: attach.processes,
    };
    let mapping = Mapping::new().class(class)?.rule(Who::Any, "attached")?;
    let config = AttachConfig {
        most_clients: attach.processes,
        most_of_a_user: attach.processes_per_user,
        most_memory: attach.memory,
        ..AttachConfig::new(mapping)
    };
    let make = move |bytes: Vec<u8>, process: &Attached| Parcel {
        frame: Frame::Bytes(bytes),
        origin: Origin {
            ingress: Origin::ATTACHED,
            owner: Some(Owner {
                uid: process.peer.uid,
                gid: process.peer.gid,
                pid: process.peer.pid,
            }),
        },
        // From here on its delay is measured: a process has its own clock.
        came: clock.now(),
        losing: false,
    };
    Ok(Attach::listen(&attach.socket, config, registrar, make)?)
}

fn introduction(
    path: &Path,
    site: &Site,
    devices: &[(Arc<str>, String); 2],
    plans: &[Plan],
    options: &Options,
) -> String {
    let [(near, near_by), (outside, outside_by)] = devices;
    let between = match &**near {
        "" => format!("by {outside} ({outside_by})"),
        near if near_by == outside_by => format!("between {near} and {outside} ({near_by})"),
        near => format!("between {near} ({near_by}) and {outside} ({outside_by})"),
    };
    let links = plans.iter().map(|plan| {
        let link = &plan.link;
        format!(
            "{} ({}, {} classes)",
            link.name,
            link.rate,
            link.classes.len()
        )
    });
    let attach = match &site.attach {
        Some(attach) => format!(" Processes attach at {}.", attach.socket.display()),
        None => String::new(),
    };
    format!(
        "{}: frames {between}, in the links {}.{attach}\n{}",
        path.display(),
        links.collect::<Vec<_>>().join(", "),
        ends(options)
    )
}
