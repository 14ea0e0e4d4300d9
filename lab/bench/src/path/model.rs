//! From the costs of the stages to packets a second on several cores.

use serde::Serialize;

use super::Stage;

/// The numbers of cores of which a prediction is made.
pub const CORES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Nanoseconds a packet in each stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    pub rx: f64,
    pub classify: f64,
    /// Into the arbiter's mailbox, and out of it.
    pub mailbox_push: f64,
    pub mailbox_pop: f64,
    pub arbiter: f64,
    /// Into a ring of bare frames, and out of it: to a TX worker, and back to where it was received.
    pub return_push: f64,
    pub return_pop: f64,
    pub tx: f64,
    /// RX, classifier, arbiter and TX again, on one core whose caches they share.
    pub together: [f64; 4],
}

/// The part that is always busy, so that the others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    OneThread,
    RxWorkers,
    Arbiter,
    TxWorkers,
}

/// The throughput of a number of cores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    pub cores: u32,
    /// None where one thread does everything.
    pub rx_workers: u32,
    /// None where the arbiter transmits itself.
    pub tx_workers: u32,
    pub packets_per_sec: f64,
    pub limited_by: Limit,
}

/// Returns the packets a second of `threads` threads that take `ns` each.
fn rate(threads: u32, ns: f64) -> f64 {
    f64::from(threads) * 1e9 / ns
}

impl Costs {
    /// Returns the stage that takes longest.
    pub fn bottleneck(&self) -> Stage {
        let stages = [
            (self.rx, Stage::Rx),
            (self.classify, Stage::Classify),
            (self.mailbox_push + self.mailbox_pop, Stage::Mailbox),
            (self.arbiter, Stage::Arbiter),
            (self.return_push + self.return_pop, Stage::ReturnRing),
            (self.tx, Stage::Tx),
        ];
        let longest = stages
            .into_iter()
            .max_by(|one, other| one.0.total_cmp(&other.0));
        longest.map_or(Stage::Rx, |(_, stage)| stage)
    }

    /// Of one thread that does everything: nothing is handed over.
    fn one_thread(&self) -> f64 {
        self.together.iter().sum()
    }

    fn rx_worker(&self) -> f64 {
        self.return_pop + self.rx + self.classify + self.mailbox_push
    }

    /// It transmits itself where there are no TX workers.
    fn arbiter_of(&self, tx_workers: u32) -> f64 {
        let behind = match tx_workers {
            0 => self.tx + self.return_push,
            _ => self.return_push,
        };
        self.mailbox_pop + self.arbiter + behind
    }

    fn tx_worker(&self) -> f64 {
        self.return_pop + self.tx + self.return_push
    }

    /// Returns the best throughput of `cores` cores, at least one: of all ways to divide them, less the arbiter's,
    /// between RX workers (at least one) and TX workers; among equals, the one that leaves the workers most time
    /// to spare. O(`cores`).
    pub fn predict(&self, cores: u32) -> Prediction {
        let divided = (0..cores.saturating_sub(1)).map(|tx_workers| {
            let rx_workers = cores - 1 - tx_workers;
            self.divided(cores, rx_workers, tx_workers)
        });
        let best = divided.max_by(|(one, spare), (other, others)| {
            let faster = one.packets_per_sec.total_cmp(&other.packets_per_sec);
            faster.then(spare.total_cmp(others))
        });
        best.map_or(
            Prediction {
                cores: 1,
                rx_workers: 0,
                tx_workers: 0,
                packets_per_sec: rate(1, self.one_thread()),
                limited_by: Limit::OneThread,
            },
            |(best, _)| best,
        )
    }

    /// Returns the prediction for these workers, and the throughput of the workers alone.
    fn divided(&self, cores: u32, rx_workers: u32, tx_workers: u32) -> (Prediction, f64) {
        let rx = rate(rx_workers, self.rx_worker());
        let arbiter = rate(1, self.arbiter_of(tx_workers));
        let tx = match tx_workers {
            0 => f64::INFINITY,
            _ => rate(tx_workers, self.tx_worker()),
        };
        let workers = match rx <= tx {
            true => (rx, Limit::RxWorkers),
            false => (tx, Limit::TxWorkers),
        };
        let (packets_per_sec, limited_by) = match arbiter <= workers.0 {
            true => (arbiter, Limit::Arbiter),
            false => workers,
        };
        let prediction = Prediction {
            cores,
            rx_workers,
            tx_workers,
            packets_per_sec,
            limited_by,
        };
        (prediction, workers.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        rx: 20.0,
        classify: 60.0,
        mailbox_push: 5.0,
        mailbox_pop: 5.0,
        arbiter: 100.0,
        return_push: 2.0,
        return_pop: 3.0,
        tx: 10.0,
        together: [20.0, 75.0, 125.0, 10.0],
    };

    #[track_caller]
    fn predicts(costs: Costs, cores: u32, workers: (u32, u32), ns: f64, limited_by: Limit) {
        let predicted = costs.predict(cores);
        assert_eq!((predicted.rx_workers, predicted.tx_workers), workers);
        assert_eq!((predicted.cores, predicted.limited_by), (cores, limited_by));
        let ratio = predicted.packets_per_sec * ns / 1e9;
        assert!((ratio - 1.0).abs() < 1e-9, "{predicted:?}");
    }

    #[test]
    fn one_thread_takes_all_stages_and_hands_nothing_over() {
        predicts(COSTS, 1, (0, 0), 230.0, Limit::OneThread);
    }

    #[test]
    fn of_two_the_arbiters_transmits() {
        // Out of the mailbox, decided, transmitted, returned; the other takes 88.
        predicts(COSTS, 2, (1, 0), 117.0, Limit::Arbiter);
        let slow = Costs {
            classify: 160.0,
            ..COSTS
        };
        predicts(slow, 2, (1, 0), 188.0, Limit::RxWorkers);
    }

    #[test]
    fn the_arbiter_leaves_transmitting_to_others_where_that_is_faster() {
        predicts(COSTS, 4, (2, 1), 107.0, Limit::Arbiter);
        let cheap = Costs {
            tx: 1.0,
            return_push: 0.0,
            ..COSTS
        };
        predicts(cheap, 3, (1, 1), 105.0, Limit::Arbiter);
        // A third thread is of more use before the arbiter than behind it.
        let far = Costs {
            tx: 0.0,
            arbiter: 20.0,
            ..COSTS
        };
        predicts(far, 3, (2, 0), 44.0, Limit::RxWorkers);
    }

    #[test]
    fn workers_are_divided_by_what_they_cost() {
        // 88 of one kind to 15 of the other.
        predicts(COSTS, 64, (53, 10), 107.0, Limit::Arbiter);
        let cheap = Costs {
            arbiter: 1.0,
            tx: 205.0,
            ..COSTS
        };
        // Two of 88 compared with five of 210.
        predicts(cheap, 8, (2, 5), 44.0, Limit::RxWorkers);
        predicts(cheap, 4, (1, 2), 105.0, Limit::TxWorkers);
    }

    #[test]
    fn the_bottleneck_takes_longest_with_both_ends_of_its_mailbox() {
        assert_eq!(COSTS.bottleneck(), Stage::Arbiter);
        let far = Costs {
            mailbox_push: 51.0,
            mailbox_pop: 50.0,
            ..COSTS
        };
        assert_eq!(far.bottleneck(), Stage::Mailbox);
    }

    #[test]
    fn more_cores_are_never_slower() {
        let rates = CORES.map(|cores| COSTS.predict(cores).packets_per_sec);
        assert!(rates.is_sorted(), "{rates:?}");
    }
}
