//! The data path stage by stage, in memory: the cost of each by itself, and the throughput of several cores if
//! the stages were divided among them.
//!
//! The caller provides the site: its rules, its classifier, and a constructor of its queues.

mod frames;
mod model;
mod pair;
mod rounds;
mod stages;

use anyhow::{Result, ensure};
use fairlane_classify::{DigestKey, LinkClassifier, Rule};
use fairlane_core::{Discipline, Length, Rate};
use serde::Serialize;

pub use frames::Frame;
pub use model::{CORES, Costs, Limit, Prediction};
pub use rounds::{Amount, Figure};

use crate::instructions::{Counter, Of, why_not};
use frames::Memory;
use pair::{Pair, hand_over, one_core, together, two_cores};
use stages::{Arbiter, Back, Front, classes};

/// Lengths of frames that are measured, in bytes.
pub const LENGTHS: [u32; 3] = [64, 374, 1_500];

/// Of digests: the same in every run.
pub const KEY: DigestKey = DigestKey([0; 2]);

/// Measurements of each length.
const MEASUREMENTS: u32 = 9;

/// A link of a site, and how much to measure.
pub struct Case<'a> {
    /// Of the link, in any order.
    pub rules: &'a [Rule],
    /// The origin of frames for which no rule tests it.
    pub ingress: u16,
    pub classifier: LinkClassifier,
    /// Makes empty queues, with the numbers of classes that the classifier knows.
    pub queues: &'a dyn Fn() -> Discipline<Frame>,
    pub rate: Rate,
    /// Bytes that a packet takes on the link in addition to the frame.
    pub overhead: u32,
    /// The longest packet, overhead included.
    pub longest: Length,
    pub amount: Amount,
    /// Of two threads, where there are two.
    pub cores: Option<[usize; 2]>,
}

/// The measurements, and predictions from them.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Whether the two ends of a mailbox were on two cores.
    pub two_cores: bool,
    /// Why no figure has instructions, where none has.
    pub no_instructions: Option<String>,
    pub lengths: Vec<ByLength>,
}

/// Of frames of one length.
#[derive(Clone, Debug, Serialize)]
pub struct ByLength {
    pub bytes: u32,
    /// How many classes the frames go to.
    pub classes_reached: usize,
    /// How many wait in the queues at any time.
    pub waiting: u32,
    /// Fraction of the arbiter's arrivals that its queues rejected or discarded.
    pub lost: f64,
    pub stages: Stages,
    /// The stage that takes longest.
    pub bottleneck: Stage,
    pub predictions: Vec<Prediction>,
    /// Predictions compared with measurements on as many cores here.
    pub checks: Vec<Check>,
}

/// The costs of the stages.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stages {
    pub rx: Figure,
    pub classify: Figure,
    pub mailbox_push: Figure,
    pub mailbox_pop: Figure,
    pub arbiter: Figure,
    pub return_push: Figure,
    pub return_pop: Figure,
    pub tx: Figure,
    /// Those that one core does if it does all, in turns there: where they share its caches.
    pub together: Together,
}

/// The stages of a path without a hand-over.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Together {
    pub rx: Figure,
    pub classify: Figure,
    pub arbiter: Figure,
    pub tx: Figure,
}

/// A stage; both ends of a mailbox are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    Rx,
    Classify,
    Mailbox,
    Arbiter,
    ReturnRing,
    Tx,
}

/// A prediction, and its measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Check {
    pub cores: u32,
    pub predicted_packets_per_sec: f64,
    pub measured_packets_per_sec: f64,
    /// Measured over predicted.
    pub ratio: f64,
}

impl Stages {
    pub fn costs(&self) -> Costs {
        let together = &self.together;
        Costs {
            rx: self.rx.ns,
            classify: self.classify.ns,
            mailbox_push: self.mailbox_push.ns,
            mailbox_pop: self.mailbox_pop.ns,
            arbiter: self.arbiter.ns,
            return_push: self.return_push.ns,
            return_pop: self.return_pop.ns,
            tx: self.tx.ns,
            together: [
                together.rx,
                together.classify,
                together.arbiter,
                together.tx,
            ]
            .map(|it| it.ns),
        }
    }
}

impl Check {
    fn new(costs: &Costs, cores: u32, measured: Figure) -> Check {
        let predicted = costs.predict(cores).packets_per_sec;
        let measured = 1e9 / measured.ns;
        Check {
            cores,
            predicted_packets_per_sec: predicted,
            measured_packets_per_sec: measured,
            ratio: measured / predicted,
        }
    }
}

/// Measures with frames of each length that the link carries. The stages on one thread run where they are called.
///
/// # Errors
///
/// The link carries none of them.
pub fn measure(case: &Case<'_>) -> Result<Outcome> {
    let longest = case.longest.get().saturating_sub(case.overhead);
    let lengths = LENGTHS.into_iter().filter(|&bytes| bytes <= longest);
    let lengths: Vec<u32> = lengths.collect();
    ensure!(
        !lengths.is_empty(),
        "the link carries frames of up to {longest} bytes, and the shortest that is measured has {}",
        LENGTHS[0]
    );
    let amount = match case.amount {
        Amount::Seconds(seconds) => {
            Amount::Seconds(seconds / f64::from(MEASUREMENTS * lengths.len() as u32))
        }
        packets => packets,
    };
    let of_length = |bytes| of_length(case, bytes, amount);
    Ok(Outcome {
        two_cores: case.cores.is_some(),
        no_instructions: Counter::of_this_thread(Of::Program)
            .err()
            .map(|error| why_not(&error)),
        lengths: lengths.into_iter().map(of_length).collect::<Result<_>>()?,
    })
}

fn of_length(case: &Case<'_>, bytes: u32, amount: Amount) -> Result<ByLength> {
    let memory = Memory::new(case.rules, case.ingress, bytes);
    let mut front = Front::new(&memory, case.classifier.clone());
    let classified = front.all();
    let arbiter = Arbiter::new((case.queues)(), case.rate, case.overhead, &classified);
    let mut back = Back::new(arbiter);
    let pair = Pair::new(case.cores);

    let [mailbox_push, mailbox_pop] = hand_over(&classified, &pair, amount)?;
    let [return_push, return_pop] = hand_over(memory.frames(), &pair, amount)?;
    let [rx, classify, decided, tx] = together(&mut front, &mut back, amount);
    let stages = Stages {
        rx: front.rx(amount),
        classify: front.classify(amount),
        mailbox_push,
        mailbox_pop,
        arbiter: back.decisions(&classified, amount),
        return_push,
        return_pop,
        tx: back.tx(memory.frames(), amount),
        together: Together {
            rx,
            classify,
            arbiter: decided,
            tx,
        },
    };
    let costs = stages.costs();
    let one = one_core(&mut front, &mut back, amount);
    let mut checks = vec![Check::new(&costs, 1, one)];
    if pair.has_cores() {
        let two = two_cores(&mut front, &mut back, &pair, amount)?;
        checks.push(Check::new(&costs, 2, two));
    }
    Ok(ByLength {
        bytes,
        classes_reached: classes(&classified),
        waiting: back.arbiter.waiting,
        lost: back.arbiter.lost as f64 / back.arbiter.offered as f64,
        bottleneck: costs.bottleneck(),
        stages,
        predictions: CORES.map(|cores| costs.predict(cores)).to_vec(),
        checks,
    })
}
