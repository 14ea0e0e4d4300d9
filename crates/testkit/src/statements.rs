//! Random sequences of calls from an owner of entities, and the contract's requirements on each. No packet scheduler
//! mediates, since an error that it tolerates may break another owner.

use std::collections::VecDeque;

use fairlane_core::Charge;
use fairlane_core::scheduler::{EntityId, MaybeEntity, Removal, Scheduler};
use proptest::prelude::*;

use crate::broken::{Sentence, demand};
use crate::numbers::{charge, share};

/// A call, or several. An entity is selected by number, modulo the number of existing entities.
#[derive(Clone, Debug)]
pub(crate) enum Statement {
    Add {
        weight: u32,
        longest: u32,
    },
    Remove(usize),
    Change {
        entity: usize,
        weight: u32,
        longest: u32,
    },
    /// Packets arrive, each of a percentage of the maximum length.
    Packets {
        entity: usize,
        percent: u32,
        packets: u8,
    },
    /// An entity loses its whole backlog.
    Lose(usize),
    /// A backlogged entity is reported as backlogged again.
    Again(usize),
    /// The selected entity is served this many times.
    Serve(u8),
    /// The selected entity is held while packets arrive for others.
    Hold {
        packets: u8,
        newcomers: usize,
    },
}

/// A sequence of statements, and the style of the owner's calls.
#[derive(Clone, Debug)]
pub(crate) struct Speech {
    /// The entities are aggregates: they report budgets and are held.
    aggregates: bool,
    /// Service within an allowance is reported in one call.
    at_once: bool,
    statements: Vec<Statement>,
}

pub(crate) fn speeches(may_be_held: bool) -> impl Strategy<Value = Speech> {
    let entity = 0usize..16;
    let weight = || prop_oneof![1..=16u32, Just(1000), Just(1_000_000)];
    let longest = || prop_oneof![Just(1500u32), Just(64), 1..=65_535u32];
    let statement = prop_oneof![
        3 => (weight(), longest()).prop_map(|(weight, longest)| Statement::Add { weight, longest }),
        1 => entity.clone().prop_map(Statement::Remove),
        1 => (entity.clone(), weight(), longest()).prop_map(|(entity, weight, longest)| {
            Statement::Change { entity, weight, longest }
        }),
        8 => (entity.clone(), prop_oneof![Just(100), 1..=100u32], 1..6u8).prop_map(
            |(entity, percent, packets)| Statement::Packets { entity, percent, packets },
        ),
        1 => entity.clone().prop_map(Statement::Lose),
        1 => entity.clone().prop_map(Statement::Again),
        6 => (1..12u8).prop_map(Statement::Serve),
        3 => (0..4u8, entity).prop_map(|(packets, newcomers)| Statement::Hold {
            packets,
            newcomers,
        }),
    ];
    let statements = prop::collection::vec(statement, 1..100);
    (any::<bool>(), any::<bool>(), statements).prop_map(move |(aggregates, at_once, statements)| {
        Speech {
            aggregates: aggregates && may_be_held,
            at_once,
            statements,
        }
    })
}

/// The owner's state of an entity.
struct Known {
    weight: u32,
    longest: u32,
    queue: VecDeque<u32>,
    /// Maximum charge at its next service, if it is an aggregate.
    budget: u32,
    active: bool,
    leaving: bool,
}

/// An owner of entities, with the algorithm that orders them.
struct Owner<A: Scheduler> {
    algorithm: A,
    states: Vec<A::Entity>,
    known: Vec<Option<Known>>,
    free: Vec<usize>,
    aggregates: bool,
    at_once: bool,
    /// False to leave out holds.
    holds: bool,
    /// Bytes that the selected entity may send without a report, and those that it has sent so far.
    allowance: u32,
    untold: u32,
}

fn id(index: usize) -> EntityId {
    EntityId::new(index).unwrap_or_else(|| panic!("entity {index}"))
}

impl<A: Scheduler> Owner<A> {
    fn new(mut algorithm: A, speech: &Speech) -> Self {
        if speech.aggregates {
            algorithm.expect_holds();
        }
        Owner {
            algorithm,
            states: Vec::new(),
            known: Vec::new(),
            free: Vec::new(),
            aggregates: speech.aggregates,
            at_once: speech.at_once,
            holds: true,
            allowance: 0,
            untold: 0,
        }
    }

    fn pick(&self, number: usize) -> Option<usize> {
        let there = |known: &Option<Known>| known.as_ref().is_some_and(|known| !known.leaving);
        let all = self.known.iter().enumerate();
        let all: Vec<usize> = all.filter(|(_, k)| there(k)).map(|(at, _)| at).collect();
        all.get(number.checked_rem(all.len())?).copied()
    }

    fn known(&mut self, at: usize) -> Result<&mut Known, String> {
        let known = self.known.get_mut(at).and_then(Option::as_mut);
        known.ok_or_else(|| format!("entity {at} is selected, which does not exist"))
    }

    fn is_active(&self, at: usize) -> bool {
        self.algorithm.is_active(&self.states, id(at))
    }

    fn selected(&self) -> Result<Option<usize>, String> {
        let selected = self.algorithm.select(&self.states);
        let again = self.algorithm.select(&self.states);
        demand!(
            selected == again,
            "the next entity is {selected:?}, and {again:?} when asked again"
        );
        demand!(
            selected == MaybeEntity::NONE || selected.index() < self.states.len(),
            "entity {} is selected, which was never added",
            selected.index()
        );
        Ok(selected.get().map(EntityId::index))
    }

    /// Reports the service within the allowance, which ends.
    fn tell(&mut self) {
        let untold = std::mem::take(&mut self.untold);
        self.allowance = 0;
        let selected = self.algorithm.select(&self.states).get();
        if let (Some(id), Some(work)) = (selected, Charge::new(untold)) {
            self.algorithm.used(&mut self.states, id, work);
        }
    }

    fn say(&mut self, statement: &Statement) -> Sentence {
        if !matches!(statement, Statement::Serve(_)) {
            self.tell();
        }
        match *statement {
            Statement::Add { weight, longest } => {
                self.add(weight, longest);
                Ok(())
            }
            Statement::Serve(turns) => {
                for _ in 0..turns {
                    if !self.turn(None)? {
                        break;
                    }
                    self.check()?;
                }
                Ok(())
            }
            Statement::Hold { packets, newcomers } => {
                self.turn(Some((packets, newcomers))).map(|_| ())
            }
            Statement::Remove(number) => self.of(number, Self::remove),
            Statement::Lose(number) => self.of(number, Self::lose),
            Statement::Again(number) => self.of(number, Self::again),
            Statement::Change {
                entity,
                weight,
                longest,
            } => self.of(entity, |owner, at| owner.change(at, weight, longest)),
            Statement::Packets {
                entity,
                percent,
                packets,
            } => self.of(entity, |owner, at| {
                (0..packets).try_for_each(|_| owner.packet(at, percent))
            }),
        }
    }

    fn of(&mut self, number: usize, speak: impl FnOnce(&mut Self, usize) -> Sentence) -> Sentence {
        match self.pick(number) {
            Some(at) => speak(self, at),
            None => Ok(()),
        }
    }

    fn add(&mut self, weight: u32, longest: u32) {
        let known = Known {
            weight,
            longest,
            queue: VecDeque::new(),
            budget: 0,
            active: false,
            leaving: false,
        };
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.known.len() >= 24 => return,
            None => {
                self.states.push(A::Entity::default());
                self.known.push(None);
                self.known.len() - 1
            }
        };
        self.known[at] = Some(known);
        let share = share(weight, longest);
        self.algorithm.add(&mut self.states, id(at), share);
    }

    fn change(&mut self, at: usize, weight: u32, longest: u32) -> Sentence {
        let known = self.known(at)?;
        if known.queue.iter().any(|&queued| queued > longest) {
            return Ok(());
        }
        (known.weight, known.longest) = (weight, longest);
        let share = share(weight, longest);
        self.algorithm.change(&mut self.states, id(at), share);
        Ok(())
    }

    /// Returns the charge to announce for the next service of an entity; `None` without backlog. An aggregate's budget
    /// is set to it.
    fn head(&mut self, at: usize) -> Result<Option<Charge>, String> {
        let aggregates = self.aggregates;
        let known = self.known(at)?;
        let Some(&first) = known.queue.front() else {
            return Ok(None);
        };
        known.budget = known.longest;
        Ok(Some(charge(if aggregates { known.budget } else { first })))
    }

    fn packet(&mut self, at: usize, percent: u32) -> Sentence {
        let aggregates = self.aggregates;
        let known = self.known(at)?;
        let bytes = (known.longest * percent / 100).max(1);
        known.queue.push_back(bytes);
        let first = known.queue.len() == 1;
        known.active = true;
        // An aggregate that stays active after losing its backlog keeps its budget.
        let budget = if aggregates { known.longest } else { bytes };
        if first && let Some(head) = self.head(at)? {
            self.algorithm.backlogged(&mut self.states, id(at), head);
        }
        if first || !aggregates {
            self.algorithm
                .arrived(&mut self.states, id(at), charge(budget));
        }
        demand!(
            self.is_active(at),
            "entity {at} was reported backlogged and is not active: its wake is lost"
        );
        Ok(())
    }

    fn again(&mut self, at: usize) -> Sentence {
        let Some(head) = self.head(at)? else {
            return Ok(());
        };
        self.algorithm.backlogged(&mut self.states, id(at), head);
        Ok(())
    }

    fn lose(&mut self, at: usize) -> Sentence {
        let aggregates = self.aggregates;
        let known = self.known(at)?;
        let lost = known.queue.len() as u32;
        known.queue.clear();
        if lost > 0 {
            let lost = if aggregates { 1 } else { lost };
            self.algorithm.discarded(&mut self.states, id(at), lost);
        }
        self.emptied(at)
    }

    /// An entity that lost its backlog stays active, except under an algorithm that follows packets.
    fn emptied(&mut self, at: usize) -> Sentence {
        let is_active = self.is_active(at);
        let known = self.known(at)?;
        if A::FOLLOWS_PACKETS {
            known.active = is_active;
        }
        let cut = known.active && !is_active;
        demand!(
            !cut,
            "entity {at} lost its packets and is cut out of the order: it keeps its place until its turn"
        );
        Ok(())
    }

    fn remove(&mut self, at: usize) -> Sentence {
        self.lose(at)?;
        let was_active = self.known(at)?.active;
        match self.algorithm.remove(&mut self.states, id(at)) {
            Removal::Done => {
                demand!(
                    !was_active || A::FOLLOWS_PACKETS,
                    "entity {at} is removed too early: it is active, and keeps its place until its turn"
                );
                self.forget(at);
                Ok(())
            }
            Removal::WhenSelected => {
                demand!(
                    was_active,
                    "entity {at} is not active, and its removal waits for a turn that never comes"
                );
                self.known(at)?.leaving = true;
                self.emptied(at)
            }
        }
    }

    fn forget(&mut self, at: usize) {
        self.known[at] = None;
        self.free.push(at);
    }

    /// Returns the selected entity, which must be backlogged; there must be one if any entity is.
    fn chosen(&self) -> Result<Option<usize>, String> {
        let waits = |known: &Option<Known>| known.as_ref().is_some_and(|known| known.active);
        let selected = self.selected()?;
        match (selected, self.known.iter().position(waits)) {
            (None, Some(at)) => Err(format!(
                "no entity is selected while entity {at} is backlogged: its wake is lost"
            )),
            (Some(at), _) if !waits(&self.known[at]) => {
                Err(format!("entity {at} is selected, and is not backlogged"))
            }
            _ => Ok(selected),
        }
    }

    /// Serves the selected entity and returns false if there is none. With `hold`, an aggregate is held while it
    /// serves up to that number of further packets, and packets arrive for others, starting with that entity.
    fn turn(&mut self, hold: Option<(u8, usize)>) -> Result<bool, String> {
        let Some(at) = self.chosen()? else {
            return Ok(false);
        };
        let known = self.known(at)?;
        let Some(first) = known.queue.pop_front() else {
            self.tell();
            self.algorithm.idle(&mut self.states, id(at));
            self.rest(at)?;
            return Ok(true);
        };
        match hold {
            Some((packets, newcomers)) if self.aggregates && self.holds => {
                self.hold(at, first, packets, newcomers)?;
            }
            Some((_, newcomer)) => {
                self.send(at, first)?;
                self.tell();
                self.of(newcomer, |owner, at| owner.packet(at, 100))?;
            }
            None => self.send(at, first)?,
        }
        Ok(true)
    }

    /// Checks that an entity without backlog is not active any more.
    fn rest(&mut self, at: usize) -> Sentence {
        demand!(
            !self.is_active(at),
            "entity {at} has nothing to send, and stays active"
        );
        let known = self.known(at)?;
        known.active = false;
        if known.leaving {
            self.forget(at);
        }
        Ok(())
    }

    /// Serves one packet of the selected entity.
    fn send(&mut self, at: usize, bytes: u32) -> Sentence {
        let next = self.head(at)?;
        let within = next.is_some() && self.untold + bytes <= self.allowance;
        if within && self.at_once {
            self.untold += bytes;
            return Ok(());
        }
        let left = self.allowance.saturating_sub(bytes);
        let bytes = bytes + std::mem::take(&mut self.untold);
        let (states, work) = (&mut self.states, charge_of(bytes));
        if !(self.at_once && self.algorithm.advance(states, id(at), work, next)) {
            self.algorithm.served(work);
            self.algorithm.reschedule(states, id(at), work, next);
        }
        self.charged(at, next)?;
        let selected = self.selected()?;
        if within {
            demand!(
                selected == Some(at),
                "entity {at} sent less than its allowance, and {selected:?} is selected"
            );
            self.allowance = left;
            return Ok(());
        }
        self.allowance = 0;
        if let Some(at) = selected {
            let longest = charge(self.known(at)?.longest);
            self.allowance = self.algorithm.allowance(&self.states, id(at), longest);
        }
        Ok(())
    }

    fn charged(&mut self, at: usize, next: Option<Charge>) -> Sentence {
        match next {
            None => self.rest(at),
            Some(next) => {
                if self.aggregates {
                    self.algorithm.arrived(&mut self.states, id(at), next);
                }
                Ok(())
            }
        }
    }

    /// Serves one packet of the selected entity, holds the entity, and serves more within its budget. Selection is not
    /// queried until it is rescheduled.
    fn hold(&mut self, at: usize, first: u32, packets: u8, newcomers: usize) -> Sentence {
        self.tell();
        let budget = self.known(at)?.budget;
        let mut spent = first;
        self.algorithm.served(charge(first));
        self.algorithm.hold(&mut self.states, id(at));
        for more in 0..=packets {
            if let Some(other) = self.pick(newcomers + usize::from(more))
                && other != at
            {
                self.packet(other, 100)?;
            }
            let queue = &mut self.known(at)?.queue;
            match queue.front() {
                Some(&next) if more < packets && spent + next <= budget => {
                    queue.pop_front();
                    spent += next;
                    self.algorithm.served(charge(next));
                }
                _ => break,
            }
        }
        let next = self.head(at)?;
        (self.algorithm).reschedule(&mut self.states, id(at), charge_of(spent), next);
        self.charged(at, next)
    }

    fn check(&self) -> Sentence {
        let checked = self.algorithm.invariants(&self.states);
        checked.map_err(|violation| format!("an invariant is violated: {violation}"))?;
        self.chosen()?;
        for (at, known) in self.known.iter().enumerate() {
            let Some(known) = known else { continue };
            let is_active = self.is_active(at);
            demand!(
                is_active || known.queue.is_empty(),
                "entity {at} has packets and is not active: its wake is lost"
            );
            demand!(
                is_active || !known.active,
                "entity {at} is cut out of the order: it keeps its place until its turn"
            );
            demand!(
                !is_active || known.active,
                "entity {at} is active, and was not reported backlogged"
            );
            let weight = self.algorithm.weight(&self.states, id(at)).get();
            demand!(
                known.leaving || weight == known.weight,
                "the weight of entity {at} reads {weight}, and was last given as {}",
                known.weight
            );
        }
        Ok(())
    }
}

/// Returns the charge of several packets.
fn charge_of(bytes: u32) -> Charge {
    Charge::new(bytes).unwrap_or_else(|| panic!("a charge of {bytes} bytes"))
}

/// Makes all calls, then serves until no entity is backlogged.
fn speak<A: Scheduler>(mut owner: Owner<A>, speech: &Speech) -> Sentence {
    for statement in &speech.statements {
        owner.say(statement)?;
        owner.check()?;
    }
    let waiting = owner.known.iter().flatten();
    let most = waiting.map(|known| known.queue.len() + 1).sum::<usize>();
    for _ in 0..most {
        if !owner.turn(None)? {
            return Ok(());
        }
        owner.check()?;
    }
    let left = owner.selected()?;
    demand!(
        left.is_none(),
        "{left:?} is selected when all have been served"
    );
    Ok(())
}

/// Checks that the contract holds. If it holds without holds, the error says so.
pub(crate) fn keeps_the_contract<A: Scheduler>(make: &dyn Fn() -> A, speech: &Speech) -> Sentence {
    let outcome = speak(Owner::new(make(), speech), speech);
    outcome.map_err(|what| {
        let mut without = Owner::new(make(), speech);
        without.holds = false;
        match speech.aggregates && speak(without, speech).is_ok() {
            true => format!("a hold is not kept while others become backlogged: {what}"),
            false => what,
        }
    })
}
