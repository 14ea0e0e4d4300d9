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

/// How an algorithm divides the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// By weight, as most algorithms do.
    ByWeight,
    /// Evenly among flows of equal weights and lengths; otherwise if they differ (strict priority).
    AmongEquals,
    /// Without fairness: by the offered load, or at random (FIFO, SFQ).
    Not,
}

/// The effect of multiplying all weights by one factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// None, for any factor.
    Exact,
    /// None if the weights, their sum and the factor are powers of two: inverse weights are rounded.
    PowersOfTwo,
    /// Another order within the guarantees (random numbers, a fluid server).
    Free,
}

/// The checks of one algorithm: its claims, and the length of the run.
///
/// [`of`](Self::of) starts with the claims that most algorithms make; the other methods change them.
/// [`check`](Self::check) verifies them.
pub struct Conformance<A> {
    make: Rc<dyn Fn() -> A>,
    shares: Shares,
    scale: Scale,
    may_be_held: bool,
    guarantees: Option<Algorithm>,
    seed: u64,
    cases: u32,
}

/// Shows the claims.
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
    /// Returns the checks of an algorithm that `make` creates without entities. It claims to share by weight, to keep
    /// its order if weights are scaled by powers of two, and to support holds; it claims no bound.
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

    /// Sets how it divides the link.
    #[must_use]
    pub fn shares(self, shares: Shares) -> Self {
        Conformance { shares, ..self }
    }

    /// Sets how its order depends on the scale of weights.
    #[must_use]
    pub fn scale(self, scale: Scale) -> Self {
        Conformance { scale, ..self }
    }

    /// Excludes aggregates and holds: for SCHED+ itself.
    #[must_use]
    pub fn never_held(self) -> Self {
        Conformance {
            may_be_held: false,
            ..self
        }
    }

    /// Claims the guarantees of the algorithm of this name. B-WFI and T-WFI are measured against them, also under an
    /// [`Adversary`] of 500 packets for each case.
    #[must_use]
    pub fn guarantees(self, algorithm: Algorithm) -> Self {
        Conformance {
            guarantees: Some(algorithm),
            ..self
        }
    }

    /// Sets the seed of the random numbers: the same seed makes the same cases.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Conformance { seed, ..self }
    }

    /// Sets the number of cases of statements, operations and scale; long runs have an eighth of it. The default is 24,
    /// which takes a second or less in a debug build.
    #[must_use]
    pub fn cases(self, cases: u32) -> Self {
        Conformance { cases, ..self }
    }

    /// Runs all checks, those of the contract first.
    ///
    /// # Errors
    ///
    /// The first check that fails: a sentence, the seed, and the smallest case found.
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

    /// Runs all checks.
    ///
    /// # Panics
    ///
    /// If a check fails, with the error of [`check`](Self::check).
    pub fn assert(&self) {
        if let Err(broken) = self.check() {
            panic!("{broken}");
        }
    }

    /// Runs a check on cases of one kind; a case that fails is reduced as far as possible.
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

/// Runs all checks of an algorithm that makes the usual claims.
///
/// # Panics
///
/// If a check fails, with the error of [`Conformance::check`].
pub fn conforms<A: Scheduler + Default + 'static>() {
    Conformance::of(A::default).assert();
}
