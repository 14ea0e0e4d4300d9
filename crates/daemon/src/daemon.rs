//! A site from its configuration to its end.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use fairlane_classify::{Origin, Owner};
use fairlane_config::{Interfaces, Link, Near, Role, Site};
use fairlane_core::{FlowConfig, Length, Nanos, Weight};
use fairlane_io::Listener;
use fairlane_mailbox::mailbox;
use fairlane_runtime::attach::{Attach, AttachConfig, Attached, Class, Mapping, Who};
use fairlane_runtime::bridge::{Bridge, Lane, Side};
use fairlane_runtime::{Clock, Registrar};

use crate::bypass::{self, NetworkWatch};
use crate::control::Outcome;
use crate::control::state::{Control, State};
use crate::error::{Error, Result, unfit};
use crate::hand_over::give::HandoverExtra;
use crate::hand_over::take::{Parts, Running, Takeover};
use crate::handle::{Ended, Event, Handle};
use crate::notice::{Notice, Notify, logged};
use crate::offer::{self, Offer};
use crate::order::Order;
use crate::report::{Interface, Report};
use fairlane_dataplane::bridge::{Maker, Shaped, SiteBridge};
use fairlane_dataplane::counts::worker_options;
use fairlane_dataplane::device::AnyDevice;
use fairlane_dataplane::device::lasting::OnLoss;
use fairlane_dataplane::device::open::{self, Ports};
use fairlane_dataplane::device::xdp::Needs;
use fairlane_dataplane::early::Port;
use fairlane_dataplane::error::Context;
use fairlane_dataplane::event;
use fairlane_dataplane::forward::Forwarding;
use fairlane_dataplane::frame::Received;
use fairlane_dataplane::interfaces::near_role;
use fairlane_dataplane::note::SharedFilters;
use fairlane_dataplane::passing::{Findings, Watch, watches};
use fairlane_dataplane::pipeline::Pipeline;
use fairlane_dataplane::plan::Plan;
use fairlane_dataplane::unshaped::{drop_arrived, start_receiving};

/// How a site is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Duration of the run; without one it runs until stopped.
    pub time: Option<Duration>,
    /// Interval between reports.
    pub interval: Duration,
    /// Behavior when an interface is deleted.
    pub on_loss: OnLoss,
    /// Whether the kernel may drop frames under overload before they are received, of classes that
    /// take more than their share.
    pub early_drop: bool,
    /// Maximum time for sending the backlog once it is stopped.
    pub drain: Duration,
    /// Whether it receives nothing until [`Daemon::start_receiving`]: for a process that takes over from one that forwards and
    /// restarts it. No third process can [take over](Daemon::take_over) from it.
    pub start_paused: bool,
}

impl Default for Options {
    /// Runs until stopped and reports once per second; waits for lost interfaces, and sends the backlog for up to half
    /// a second at the end.
    fn default() -> Options {
        Options {
            time: None,
            interval: Duration::from_secs(1),
            on_loss: OnLoss::Wait,
            early_drop: true,
            drain: Duration::from_millis(500),
            start_paused: false,
        }
    }
}

/// A site whose interfaces are open. It forwards while it [runs](Daemon::run), and releases them after the run or when
/// it is dropped.
pub struct Daemon {
    control: Control,
    events: Receiver<Event>,
    forwarding: Forwarding<Order>,
    /// Takes over from a process that forwards until then.
    taking: Option<Takeover>,
    bridge: SiteBridge,
    time: Option<Duration>,
    /// Where it can be asked to hand over.
    listener: Option<Listener>,
    beside: BesideIt,
}

/// Reports state that others hand over in addition to the site.
type BesideIt = Box<dyn Fn() -> io::Result<HandoverExtra> + Send>;

impl Daemon {
    /// Opens the interfaces of a site, and the socket where processes attach. `notify` is called for each event on the
    /// thread where it happens; it must not block.
    ///
    /// # Errors
    ///
    /// The configuration names no interfaces, or requires features that they lack; the kernel [passes
    /// packets](crate::bypasses) between them; an interface cannot be used; the system refuses memory, or the socket.
    /// Nothing is left open then.
    pub fn open(
        site: Site,
        options: &Options,
        notify: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Daemon> {
        let notify = logged(notify);
        for warning in &site.warnings {
            notify(Notice::Warning(warning.to_string()));
        }
        let Some(interfaces) = &site.interfaces else {
            return unfit(
                "no interfaces to run between: name outside, and inside or tap, in [interfaces]",
            );
        };
        bypass::refuse(interfaces)?;
        let ports = match options.early_drop {
            true => ports(interfaces, &notify),
            false => [None, None],
        };
        let clock = Clock::start();
        let worker_options = worker_options(&site, clock, options.start_paused)?;
        let needs = Needs::of(&site);
        let opened = open::open(
            interfaces,
            needs,
            (options.on_loss, options.start_paused),
            &of_devices(&notify),
            &ports,
            &worker_options,
        )?;
        let base = Base {
            opened,
            near: near_role(interfaces),
            ports,
            pipeline: Pipeline::new(&site, interfaces, &worker_options),
            filters: worker_options.map(|workers| Some(workers?.filters)),
            clock,
            listener: offer::listen(&interfaces.outside),
            taking: None,
        };
        Daemon::over(base, site, options, notify)
    }

    /// Takes over a site, with its interfaces, that another process [runs](Running::site). That process continues until
    /// this one is [run](Daemon::run), which then takes over between two frames: no frame is lost, duplicated or
    /// reordered within its flow, and the other process's backlog is sent here.
    ///
    /// # Errors
    ///
    /// As to [open](Daemon::open) one. The other process keeps shaping.
    pub fn take_over(
        running: Running,
        site: Site,
        options: &Options,
        notify: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Daemon> {
        let notify = logged(notify);
        let Some(interfaces) = &site.interfaces else {
            return Err(Error::Ended);
        };
        let ports = match options.early_drop {
            true => ports(interfaces, &notify),
            false => [None, None],
        };
        let Parts {
            names,
            devices,
            listener,
            clock,
            file: (file, unsaved),
            taking,
            took,
        } = running.parts()?;
        let worker_options = worker_options(&site, clock, true)?;
        let opened = open::adopt(
            names,
            devices,
            options.on_loss,
            &of_devices(&notify),
            &ports,
            &worker_options,
        )?;
        let base = Base {
            opened,
            near: near_role(interfaces),
            ports,
            pipeline: Pipeline::new(&site, interfaces, &worker_options),
            filters: worker_options.map(|workers| Some(workers?.filters)),
            clock,
            listener: Some(listener),
            taking: Some(taking),
        };
        let mut daemon = Daemon::over(base, site, options, notify)?;
        daemon.control.state.took = Some(took);
        daemon.handle().resume(Arc::from(file), unsaved);
        Ok(daemon)
    }

    fn over(base: Base, site: Site, options: &Options, notify: Notify) -> Result<Daemon> {
        let Base {
            opened,
            near,
            ports,
            pipeline,
            filters,
            clock,
            listener,
            taking,
        } = base;
        let devices = opened.each_ref().map(|(name, device)| Interface {
            name: Arc::from(&**name),
            backend: device.backend(),
        });
        let keepers = opened.each_ref().map(|(_, device)| device.keeper());
        let [(_, left), (_, right)] = opened;
        let mut lanes = Lanes {
            site: &site,
            ports,
            filters,
            now: clock.now(),
            plans: Vec::new(),
            registrar: None,
            watches: watches()?.map(Some),
        };
        let left = lanes.lane(Side::Left, near, left);
        let right = lanes.lane(Side::Right, Role::Outside, right);
        let Lanes {
            plans, registrar, ..
        } = lanes;
        let mut bridge = Bridge::new(left, right, Maker { near }).map_err(never)?;
        bridge.allow_rounds(pipeline.longest_round());
        let listen = |attach| let_attach(attach, registrar, clock);
        let attach = site.attach.as_ref().map(listen).transpose()?;
        let (orders, to_do) = mailbox(2).map_err(never)?;
        let (answers, done) = mailbox(2).map_err(never)?;
        let (to_control, events) = channel();
        let needs = Needs::of(&site);
        let handle = Handle::new(site, options.drain, to_control);
        let forwarding = Forwarding {
            clock,
            stop: Arc::clone(&handle.stop),
            rounds: Arc::clone(&handle.rounds),
            orders: to_do,
            answers,
            longest: Arc::default(),
            has_workers: handle.site().workers.is_some(),
            has_second: pipeline.has_arbiter_a_link(),
        };
        let control = Control {
            clock,
            interval: Nanos::from(options.interval),
            handle,
            network: NetworkWatch::open(&notify),
            notify,
            attach,
            longest: Arc::clone(&forwarding.longest),
            needs,
            devices,
            pipeline,
            keepers,
            detached: [false; 2],
            is_guarded: options.start_paused,
            plans,
            orders,
            answers: done,
            state: State::default(),
        };
        Ok(Daemon {
            control,
            events,
            forwarding,
            taking,
            bridge,
            time: options.time,
            listener,
            beside: Box::new(|| Ok(HandoverExtra::default())),
        })
    }

    /// Registers state to hand over in addition to the site. `beside` is called on a thread of its own, once nothing
    /// changes any more.
    pub fn hands_over(&mut self, beside: impl Fn() -> io::Result<HandoverExtra> + Send + 'static) {
        self.beside = Box::new(beside);
    }

    /// Returns the handle that stops or reconfigures it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.control.handle.clone()
    }

    /// Returns the interface on the near side, and the one outside.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface; 2] {
        &self.control.devices
    }

    /// Returns the links that it shapes, with the near side's first.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.control.plans.iter().map(|plan| &*plan.link)
    }

    /// Starts to receive, if it was [opened](Options::start_paused) without.
    ///
    /// # Errors
    ///
    /// An interface cannot be used.
    pub fn start_receiving(&mut self) -> Result<()> {
        Ok(start_receiving(&mut self.bridge)?)
    }

    /// Shares the count of rounds with another process, which [watches](crate::RoundWatch) it by this handle.
    ///
    /// # Errors
    ///
    /// The system is out of memory or files; the count is shared already.
    pub fn share_rounds(&self) -> Result<OwnedFd> {
        let handle = self.forwarding.rounds.share();
        Ok(handle.doing("sharing the count of rounds")?)
    }

    /// Drops the frames that have arrived so far, since another process has forwarded them; frames that only this
    /// process can have received are kept.
    ///
    /// # Errors
    ///
    /// An interface cannot be used.
    pub fn drop_arrived(&mut self) -> Result<()> {
        Ok(drop_arrived(&mut self.bridge)?)
    }

    /// Returns the site that it runs.
    #[must_use]
    pub fn site(&self) -> Arc<Site> {
        self.control.handle.site()
    }

    /// Forwards on a separate thread, until it is stopped, its time is over, or an interface fails. `report` is called
    /// at the report interval, on this thread. While it runs, frames pass, but other requests wait.
    pub fn run(self, report: impl FnMut(&Arc<Report>)) -> Outcome {
        let Daemon {
            mut control,
            events,
            forwarding,
            taking,
            mut bridge,
            time,
            listener,
            beside,
        } = self;
        let start = control.start();
        let offer = listener.map(|listener| {
            let (handle, clock) = (control.handle.clone(), control.clock);
            Offer::start(listener, handle, clock, beside)
        });
        let _offer = match offer.transpose() {
            Ok(offer) => offer,
            Err(error) => return Outcome::failed(error),
        };
        let end = time.map_or(Nanos::MAX, |time| start + Nanos::from(time));
        let to_control = control.handle.events.clone();
        let thread = thread::Builder::new().name("forward".to_owned());
        let started = thread.spawn(move || {
            let result = forwarding.run(&mut bridge, end, |bridge, clock| match taking {
                Some(taking) => taking.take(bridge, clock),
                None => Ok(()),
            });
            // If the receiver is gone, the run has ended.
            let _ = to_control.send(Event::Ended(Box::new(Ended { result, bridge })));
        });
        match started.doing("starting a thread") {
            Ok(_) => control.run(&events, report),
            Err(error) => Outcome::failed(error.into()),
        }
    }
}

/// The clock, interfaces and buffers that a site is built on.
struct Base {
    opened: [(String, AnyDevice); 2],
    /// Role of the near device.
    near: Role,
    ports: Ports,
    pipeline: Pipeline,
    /// Where workers at each find the filters.
    filters: AllFilters,
    clock: Clock,
    listener: Option<Listener>,
    taking: Option<Takeover>,
}

/// Converts an error that cannot occur, so that its text is kept in any case.
fn never(error: impl ToString) -> Error {
    Error::Unfit(error.to_string())
}

/// Notifies of the events of devices.
fn of_devices(notify: &Notify) -> event::Notify {
    let notify = Arc::clone(notify);
    Arc::new(move |event| notify(event.into()))
}

/// Creates the early drop at both devices, by side.
fn ports(interfaces: &Interfaces, notify: &Notify) -> Ports {
    let near = match &interfaces.near {
        Near::Inside(name) | Near::Tap(name) => name,
        Near::Nothing => "",
    };
    let port = |name, role| Some(Arc::new(Port::new(name, role, of_devices(notify))));
    [
        port(near, near_role(interfaces)),
        port(&interfaces.outside, Role::Outside),
    ]
}

/// The filters for the workers at each device, if any.
type AllFilters = [Option<Arc<SharedFilters>>; 2];

/// Both directions of a site, as they are made.
struct Lanes<'a> {
    site: &'a Site,
    ports: Ports,
    filters: AllFilters,
    now: Nanos,
    plans: Vec<Plan>,
    /// Where processes attach, and the longest packet there.
    registrar: Option<(Registrar<Received>, Length)>,
    /// The TCP observer of each direction.
    watches: [Option<(Watch, Findings)>; 2],
}

impl Lanes<'_> {
    /// Returns the lane whose frames leave by a device.
    fn lane(&mut self, side: Side, role: Role, device: AnyDevice) -> Lane<Shaped, AnyDevice> {
        let Some(link) = self.site.links.iter().find(|link| link.to == role) else {
            return Lane::Open(device);
        };
        let attach = self.site.attach.as_ref().filter(|_| role == Role::Outside);
        let processes = attach.map_or(0, |attach| attach.processes);
        let port = self.ports[side.other() as usize].clone();
        let (mut plan, mut arbiter) = Plan::start(link, side, device, processes, port, self.now);
        if let Some((watch, findings)) = self.watches[side as usize].take() {
            arbiter.queue_mut().classifier_mut().watch = Some(Box::new(watch));
            plan.findings = Some(findings);
        }
        if let Some(shared) = &self.filters[side.other() as usize] {
            plan.publishes_to(shared, arbiter.queue_mut().classifier_mut());
        }
        if attach.is_some() {
            self.registrar = Some((arbiter.registrar(), link.longest));
        }
        self.plans.push(plan);
        // The class limits the frame length.
        let frames = FlowConfig::new(Weight::ONE, Length::MAX);
        Lane::Shaped(Box::new(arbiter), frames)
    }
}

/// Lets processes attach. Their frames pass the filters like all others.
fn let_attach(
    attach: &fairlane_config::Attach,
    registrar: Option<(Registrar<Received>, Length)>,
    clock: Clock,
) -> Result<Attach> {
    let Some((registrar, longest)) = registrar else {
        return unfit(format!(
            "processes that attach at {} send by the interface outside, and no link has \
             to = \"outside\"",
            attach.socket.display()
        ));
    };
    let longest = longest.get() - registrar.link().overhead;
    let Some(max_length) = Length::new(longest.min(fairlane_config::Attach::LONGEST)) else {
        return unfit("a link without frames");
    };
    let class = Class {
        name: "attached".to_owned(),
        flow: FlowConfig::new(Weight::ONE, max_length),
        most_clients: attach.processes,
    };
    let mapping = Mapping::new().class(class).map_err(never)?;
    let mapping = mapping.rule(Who::Any, "attached").map_err(never)?;
    let config = AttachConfig {
        most_clients: attach.processes,
        most_of_a_user: attach.processes_per_user,
        most_memory: attach.memory,
        slots: fairlane_config::Attach::SLOTS,
        ..AttachConfig::new(mapping)
    };
    let make = move |bytes: Vec<u8>, process: &Attached| Received {
        frame: bytes.into(),
        origin: Origin {
            ingress: Origin::ATTACHED,
            owner: Some(Owner {
                uid: process.peer.uid,
                gid: process.peer.gid,
                pid: process.peer.pid,
            }),
        },
        // The delay is measured from here on: a process has its own clock.
        came: clock.now(),
        losing: false,
        verdict: Cell::default(),
    };
    Ok(Attach::listen(&attach.socket, config, registrar, make)?)
}
