//! All checks of one algorithm.

use std::fmt::{self, Debug};
use std::rc::Rc;

use fairlane_core::Scheduler;
use fairlane_core::sched::Algorithm;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::adversary::Adversary;
use crate::broken::{Broken, Sentence};
use crate::operations::operations;
use crate::{fairness, model, scale, statements};

/// How an algorithm shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// By weight, as most do.
    ByWeight,
    /// Evenly among flows of equal weights and lengths, and otherwise where they differ (strict
    /// priority).
    AmongEquals,
    /// Not at all: by the offered load, or by chance (FIFO, SFQ).
    Not,
}

/// What multiplying all weights by one number changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Nothing, whatever the number.
    Exact,
    /// Nothing, where weights, their sum and the number are powers of two: inverse weights are
    /// rounded.
    PowersOfTwo,
    /// The order, within what is guaranteed (random numbers, a fluid server).
    Free,
}

/// The checks of one algorithm: what it claims, and how long it is tried.
///
/// Made by [`of`](Self::of) with the claims that most algorithms make; an algorithm that makes
/// others says so. [`check`](Self::check) tries them.
pub struct Conformance<A> {
    make: Rc<dyn Fn() -> A>,
    shares: Shares,
    scale: Scale,
    may_be_held: bool,
    guarantees: Option<Algorithm>,
    seed: u64,
    cases: u32,
}

/// What it claims.
impl<A> Debug for Conformance<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conformance")
            .field("shares", &self.shares)
            .field("scale", &self.scale)
            .field("may_be_held", &self.may_be_held)
            .field("guarantees", &self.guarantees)
            .finish_non_exhaustive()
    }
}

impl<A: Scheduler + 'static> Conformance<A> {
    /// Of an algorithm that is made so, without entities: it shares by weight, keeps its order where
    /// weights are scaled by powers of two, and can be put on hold; no bound is known.
    pub fn of(make: impl Fn() -> A + 'static) -> Self {
        Conformance {
            make: Rc::new(make),
            shares: Shares::ByWeight,
            scale: Scale::PowersOfTwo,
            may_be_held: true,
            guarantees: None,
            seed: 1,
            cases: 24,
        }
    }

    /// It shares so.
    #[must_use]
    pub fn shares(self, shares: Shares) -> Self {
        Conformance { shares, ..self }
    }

    /// Its order depends so on the scale of weights.
    #[must_use]
    pub fn scale(self, scale: Scale) -> Self {
        Conformance { scale, ..self }
    }

    /// Its entities are never aggregates, and never on hold: SCHED+ itself.
    #[must_use]
    pub fn never_held(self) -> Self {
        Conformance {
            may_be_held: false,
            ..self
        }
    }

    /// It has the guarantees of the algorithm of this name. B-WFI and T-WFI are measured against that, also under
    /// an [`Adversary`] of 500 packets for each case.
    #[must_use]
    pub fn guarantees(self, algorithm: Algorithm) -> Self {
        Conformance {
            guarantees: Some(algorithm),
            ..self
        }
    }

    /// Other random numbers: the same seed makes the same cases.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Conformance { seed, ..self }
    }

    /// So many cases of statements, operations and scale, an eighth of that of long runs. 24
    /// unless said: a second or less in a debug build.
    #[must_use]
    pub fn cases(self, cases: u32) -> Self {
        Conformance { cases, ..self }
    }

    /// Makes all checks, those of the contract first.
    ///
    /// # Errors
    ///
    /// The first check that fails: what is wrong in a sentence, the seed, and the smallest case
    /// found.
    pub fn check(&self) -> Result<(), Broken> {
        let make = &*self.make;
        let long = (self.cases / 8).max(1);
        self.run(
            "statements",
            self.cases,
            statements::speeches(self.may_be_held),
            |speech| statements::keeps_the_contract(make, speech),
        )?;
        self.run("model", self.cases, operations(), |operations| {
            model::drive(make(), operations)
        })?;
        if self.shares != Shares::Not {
            let flows = || fairness::flows(self.shares == Shares::ByWeight);
            self.run("shares", long, flows(), |flows| {
                fairness::shares(make(), flows)
            })?;
            self.run("newcomers", long, flows(), |flows| {
                fairness::newcomers(make(), flows)
            })?;
            self.run("idle flows", long, flows(), |flows| {
                fairness::comes_back(make(), flows)
            })?;
        }
        let same_order = |case: &scale::Case| scale::same_order(make, case);
        match self.scale {
            Scale::Exact => self.run("scale", self.cases, scale::any_case(), same_order)?,
            Scale::PowersOfTwo => self.run("scale", self.cases, scale::power_case(), same_order)?,
            Scale::Free => {}
        }
        if let Some(algorithm) = self.guarantees {
            self.run("bound", long, fairness::flows(true), |flows| {
                fairness::bounds(make(), flows, algorithm)
            })?;
        }
        if let Some(algorithm) = self.guarantees.filter(|algorithm| algorithm.is_bounded()) {
            let make = Rc::clone(&self.make);
            let adversary = Adversary::of(move || make(), algorithm);
            let packets = 500 * u64::from(self.cases);
            adversary.seed(self.seed).packets(packets).check()?;
        }
        Ok(())
    }

    /// Makes all checks.
    ///
    /// # Panics
    ///
    /// With the first that fails, as [`check`](Self::check) tells it.
    pub fn assert(&self) {
        if let Err(broken) = self.check() {
            panic!("{broken}");
        }
    }

    /// A check of cases of a kind; what fails is made as small as can be.
    fn run<C: Debug>(
        &self,
        check: &'static str,
        cases: u32,
        of: impl Strategy<Value = C>,
        holds: impl Fn(&C) -> Sentence,
    ) -> Result<(), Broken> {
        let config = Config {
            cases,
            max_shrink_iters: 4_000,
            failure_persistence: None,
            ..Config::default()
        };
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let mut runner = TestRunner::new_with_rng(config, random);
        let outcome = runner.run(&of, |case| holds(&case).map_err(TestCaseError::fail));
        outcome.map_err(|error| {
            let (what, smallest) = match error {
                TestError::Fail(reason, case) => (reason.to_string(), format!("{case:#?}")),
                TestError::Abort(reason) => (reason.to_string(), String::new()),
            };
            Broken {
                algorithm: A::NAME,
                check,
                what,
                seed: self.seed,
                smallest,
            }
        })
    }
}

/// Makes all checks of an algorithm that claims what most do.
///
/// # Panics
///
/// With the first check that fails, as [`Conformance::check`] tells it.
pub fn conforms<A: Scheduler + Default + 'static>() {
    Conformance::of(A::default).assert();
}
