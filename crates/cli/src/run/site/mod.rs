//! `fairlane run CONFIG`: the frames that pass between two interfaces, in the classes of a site's
//! configuration.

mod device;
mod frame;
mod reload;
mod report;
mod shaper;
mod sorting;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use fairlane_classify::{Origin, Owner};
use fairlane_config::{Interfaces, Near, Role, Site};
use fairlane_core::{FlowConfig, Length, Nanos, Weight};
use fairlane_runtime::attach::{Attach, AttachConfig, Attached, Class, Mapping, Who};
use fairlane_runtime::bridge::{Bridge, Came, Lane, Side, drive_bridge};
use fairlane_runtime::{Clock, Idling};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::screen::Screen;
use super::{Options, ends, joined, or_stop};
use crate::machine::read_site;
use crate::output;
use device::{AnyDevice, Needs};
use frame::{Frame, Parcel};
use report::{InterfaceReport, OpenReport, Report};
use shaper::{Shaped, Shaper};

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
pub fn run(path: &Path, options: &Options) -> Result<()> {
    let site = read_site(path)?;
    output::warn(&site.warnings);
    let interfaces = site.interfaces.clone().with_context(|| {
        format!(
            "{}: no interfaces to run between: name outside, and inside or tap, in [interfaces]",
            path.display()
        )
    })?;
    let signals = Signals::listen().context("setting up Ctrl-C")?;
    let ends_of = Ends::of(&interfaces);
    let needs = needs(&site);
    let devices = device::open(&interfaces, needs)?;
    let names = devices.each_ref().map(|device| Arc::from(&*device.name));
    let clock = Clock::start();
    let start = clock.now();
    let mut shapers = Vec::new();
    let mut registrar = None;
    let mut lane = |side, device: AnyDevice| {
        let role = ends_of.role(side);
        let Some(link) = site.links.iter().find(|link| link.to == role) else {
            return Lane::Open(device);
        };
        let attach = site.attach.as_ref().filter(|_| role == Role::Outside);
        let processes = attach.map_or(0, |attach| attach.processes);
        let (shaper, arbiter) = Shaper::new(link, side, device, processes, start);
        if attach.is_some() {
            registrar = Some((arbiter.registrar(), link.longest));
        }
        shapers.push(shaper);
        // How long a frame may be, its class knows.
        let frames = FlowConfig::new(Weight::ONE, Length::MAX);
        Lane::Shaped(Box::new(arbiter), frames)
    };
    let [left, right] = devices;
    let left = lane(Side::Left, left);
    let right = lane(Side::Right, right);
    let mut bridge: SiteBridge<_> = Bridge::new(left, right, make(ends_of))?;
    let attach = match (&site.attach, registrar) {
        (None, _) => None,
        (Some(attach), Some((registrar, longest))) => {
            Some(listen(attach, registrar, longest, clock)?)
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
    let mut state = State {
        site,
        needs,
        names,
        shapers,
        reloads: 0,
    };

    let screen = Screen::new(introduction(path, &state, options), options.json);
    screen.introduce()?;
    let board = Board::default();
    let done = AtomicBool::new(false);
    let failed = AtomicBool::new(false);
    let end = options
        .seconds
        .map_or(Nanos::MAX, |seconds| start + Nanos((seconds * 1e9) as u64));
    thread::scope(|scope| -> Result<()> {
        let (show_board, show_screen, done, failed) = (&board, &screen, &done, &failed);
        let showing = scope.spawn(move || {
            let take = |_| show_board.take();
            or_stop(show_screen.follow(clock, start, done, take), failed)
        });
        let outcome = drive_bridge(&mut bridge, &clock, Idling::default(), |bridge, now, _| {
            let stop = signals.stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
            let go_on = now < end && !stop;
            if signals.reload.swap(false, Ordering::Relaxed) {
                state.reload(path, bridge, now);
            }
            if board.wanted.load(Ordering::Acquire) || !go_on {
                board.post(state.report(bridge, attach.as_ref(), now.since(start)));
            }
            go_on
        });
        if outcome.is_err() {
            // What was until then is worth knowing all the same.
            board.post(state.report(&mut bridge, attach.as_ref(), clock.now().since(start)));
        }
        done.store(true, Ordering::Release);
        let shown = joined(showing);
        // Nobody attaches any more, then the interfaces are let go of.
        drop(attach);
        drop(bridge);
        outcome?;
        shown
    })?;
    let report = board.last();
    screen.conclude(&report, || report.conclusion())
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
fn listen(
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

fn introduction(path: &Path, state: &State, options: &Options) -> String {
    let [near, outside] = &state.names;
    let between = match &**near {
        "" => format!("by {outside}"),
        near => format!("between {near} and {outside}"),
    };
    let links = state.shapers.iter().map(|shaper| {
        let link = &shaper.link;
        format!(
            "{} ({}, {} classes)",
            link.name,
            link.rate,
            link.classes.len()
        )
    });
    let attach = match &state.site.attach {
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

/// What the system tells the program.
struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Signals {
    fn listen() -> std::io::Result<Signals> {
        let signals = Signals {
            stop: Arc::default(),
            reload: Arc::default(),
        };
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&signals.stop))?;
        }
        flag::register(SIGHUP, Arc::clone(&signals.reload))?;
        Ok(signals)
    }
}

/// Where the bridge's thread leaves the state for the one that shows it, when asked.
#[derive(Default)]
struct Board {
    wanted: AtomicBool,
    report: Mutex<Option<Report>>,
}

impl Board {
    fn post(&self, report: Report) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        self.wanted.store(false, Ordering::Release);
    }

    /// The state as it is now, if the bridge's thread comes round soon; or as it was last.
    fn take(&self) -> Report {
        const PATIENCE: u32 = 100;
        self.wanted.store(true, Ordering::Release);
        for _ in 0..PATIENCE {
            if !self.wanted.load(Ordering::Acquire) {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        self.last()
    }

    /// The state as it was left.
    fn last(&self) -> Report {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.clone().unwrap_or_default()
    }
}

/// What the bridge's thread knows of the site.
struct State {
    site: Site,
    /// What the devices were opened for.
    needs: Needs,
    /// Of the devices on the left and on the right.
    names: [Arc<str>; 2],
    shapers: Vec<Shaper>,
    reloads: u32,
}

impl State {
    fn report<M>(
        &self,
        bridge: &mut SiteBridge<M>,
        attach: Option<&Attach>,
        elapsed: Nanos,
    ) -> Report
    where
        M: FnMut(Frame, Side, Came) -> Parcel,
    {
        let seconds = elapsed.0 as f64 / 1e9;
        let name = |side: Side| Arc::clone(&self.names[side as usize]);
        let mut report = Report {
            seconds,
            attached: attach.map_or(0, |attach| attach.attached().len()),
            reloads: self.reloads,
            ..Report::default()
        };
        for side in Side::BOTH {
            let refused = fairlane_io::Backend::refused(bridge.device(side));
            let device = bridge.device_mut(side);
            // A device that is gone has nothing more to tell.
            let losses = device.losses().unwrap_or_default();
            report.interfaces.push(InterfaceReport {
                name: name(side),
                backend: device.backend(),
                lost: losses.lost,
                uncut: losses.uncut,
                refused,
            });
            let stats = bridge.stats(side);
            match (bridge.lane(side), self.shaper(side)) {
                (Lane::Shaped(arbiter, _), Some(shaper)) => {
                    let link = shaper.report(arbiter.queue(), stats, name(side), seconds);
                    report.links.push(link);
                }
                _ => report.open.push(OpenReport {
                    to: name(side),
                    frames: stats.received.frames,
                    bytes: stats.received.bytes,
                }),
            }
        }
        report
    }

    fn shaper(&self, side: Side) -> Option<&Shaper> {
        self.shapers.iter().find(|shaper| shaper.side == side)
    }
}
