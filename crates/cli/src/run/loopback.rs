//! `fairlane run` without a file: the demonstration.

mod text;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow};
use fairlane_core::{Length, Weight};
use fairlane_demo::{Attachments, Demo, may_run_on};
use fairlane_service::Ending;
use fairlane_terminal::screen::Screen;

use super::{Options, ends};
use crate::{figures, interrupt};

/// Runs the demonstration and prints its report.
pub(super) fn run(options: &Options) -> Result<()> {
    let demo = Demo::open(demonstrated(options)?)?;
    if let Some(core) = options.dedicated {
        may_run_on(core).with_context(|| format!("--dedicated {core}"))?;
    }
    let handle = demo.handle();
    let ending = Arc::new(Ending::default());
    let (on_signal, stopped) = (Arc::clone(&ending), handle.clone());
    let answer = move || {
        on_signal.ask();
        stopped.stop();
    };
    interrupt::answer(answer).context("setting up Ctrl-C")?;
    let introduction = introduction(options, demo.relay_address());
    let screen = Screen::open(introduction, options.shows(), text::SHOWN)?;
    let over = AtomicBool::new(false);
    let (report, ignored) = thread::scope(|scope| {
        let showing = scope.spawn(|| {
            screen.follow(&over, || handle.report());
            // Closing the display ends the demonstration; output that failed is reported at the end.
            handle.stop();
        });
        let outcome = demo.run();
        over.store(true, Ordering::Release);
        let shown = showing.join();
        shown.map_err(|_| anyhow!("a thread of the run panicked"))?;
        outcome
    })?;
    screen.conclude(
        Arc::new(report),
        move |report| text::conclusion(report, ignored),
        &ending,
    )
}

fn demonstrated(options: &Options) -> Result<fairlane_demo::Options> {
    let quotas = &options.quotas;
    let attach = options.attach.as_ref().map(|path| Attachments {
        path: path.clone(),
        rules: options.allow.iter().map(|allow| allow.0).collect(),
        most_of_a_user: quotas.attach_per_user.map(|most| most as usize),
        most_memory: quotas.attach_memory.map(|size| size.0),
    });
    Ok(fairlane_demo::Options {
        rate: options.rate,
        algorithm: options.alg,
        weights: options.weights.0.clone(),
        packet: Length::new(options.packet).context("a packet has a length")?,
        dispatchers: options.dispatchers,
        dedicated: options.dedicated,
        attach,
        listen: options.listen,
        seconds: options.seconds,
    })
}

fn introduction(options: &Options, relay: SocketAddr) -> String {
    let weights: Vec<String> = options.weights.0.iter().map(Weight::to_string).collect();
    format!(
        "A loopback link of {rate}, scheduled by {alg}. Send UDP datagrams to {relay}.\n\
         {senders}\n\
         {end}",
        rate = figures::rate(options.rate.bps()),
        alg = options.alg,
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
