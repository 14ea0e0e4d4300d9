//! Without a scheduler: every client transmits as it likes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

use anyhow::{Result, anyhow};
use fairlane_runtime::Clock;

use super::case::Case;
use super::outcome::{Counts, Outcome};
use super::output::{Device, Of, Outputs};
use super::senders::{Cores, Sender, start};
use super::{wait_until, warm_up};

/// Packets a round.
const BATCH: usize = 64;

struct Free {
    number: u32,
    device: Device,
    batch: VecDeque<Of>,
    sent: Arc<Sent>,
}

/// Alone on its line.
#[derive(Default)]
#[repr(align(64))]
struct Sent(AtomicU64);

impl Sender for Free {
    fn round(&mut self) -> Result<bool> {
        self.batch.resize(BATCH, Of(self.number));
        let sent = self.device.transmit(&mut self.batch)? as u64;
        let before = self.sent.0.load(Ordering::Relaxed);
        self.sent.0.store(before + sent, Ordering::Relaxed);
        Ok(sent > 0)
    }
}

pub(super) fn measure(case: &Case, stop: &AtomicBool) -> Result<Outcome> {
    let outputs = Outputs::new(case)?;
    let sent: Vec<Arc<Sent>> = (0..case.active).map(|_| Arc::default()).collect();
    let mut senders: Vec<Box<dyn Sender>> = Vec::new();
    for (number, sent) in (0..).zip(&sent) {
        senders.push(Box::new(Free {
            number,
            device: outputs.device()?,
            batch: VecDeque::new(),
            sent: Arc::clone(sent),
        }));
    }
    let clock = Clock::start();
    let cores = Cores::new();
    let (started, done) = (AtomicU32::new(0), AtomicBool::new(false));
    let counts = || Counts {
        packets: sent
            .iter()
            .map(|sent| sent.0.load(Ordering::Relaxed))
            .collect(),
        over: clock.now(),
    };
    let counts = thread::scope(|scope| -> Result<Counts> {
        let threads = start(
            scope,
            senders,
            case.threads,
            |n| cores.any(n),
            &started,
            &done,
        )?;
        warm_up(&started, case.threads, &clock, stop);
        let before = counts();
        wait_until(before.over + case.span(), &clock, stop);
        let counts = counts().since(&before);
        done.store(true, Ordering::Release);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a client panicked"))??;
        }
        Ok(counts)
    })?;
    let all = counts.packets.iter().sum();
    Ok(Outcome::new(case, &counts, all))
}
