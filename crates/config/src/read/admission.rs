//! Admission of grants: the least rate that keeps the terms, or the best alternative.

use std::collections::HashSet;
use std::sync::Arc;

use fairlane_classify::Classifier;
use fairlane_core::{Nanos, Rate};

use super::again::Reading;
use super::grants::{Trial, Written, class, fits, kept, rules};
use super::surroundings::Surroundings;
use crate::file;
use crate::grant::{Grant, Offer, Terms, rounded};
use crate::grants::NotGranted;
use crate::guarantee::Guarantee;
use crate::list::List;
use crate::services::Hold;
use crate::site::{Link, MtuOf, Role, Site};

/// The class that stands for all siblings that may be added later: no file is likely to have one of this name.
const LATER: &str = "\u{10ffff}later";

/// Admits a grant; see [`Grant::admit`]. The readings of the file's links may be passed in.
pub(crate) fn admit(
    file: &mut file::File,
    alone: &Site,
    former: &[Reading],
    mtu: MtuOf<'_>,
    others: &[Arc<Grant>],
    grant: Grant,
) -> Result<Grant, NotGranted> {
    let around = Surroundings::of(alone, mtu);
    let place = alone.links.iter().position(|link| link.name == grant.link);
    let Some(place) = place else {
        let names: Vec<_> = alone.links.iter().map(|link| &*link.name).collect();
        return Err(NotGranted::NoLink(format!(
            "link '{}' does not exist: there is {}",
            grant.link,
            names.join(", ")
        )));
    };
    let link = &alone.links[place];
    let grant = Grant {
        reserved: grant.terms.rate,
        ..grant
    };
    let others: Vec<_> = (others.iter())
        .filter(|other| other.link == grant.link)
        .filter_map(|other| Written::of(other).ok())
        .collect();
    let own = Written::of(&Arc::new(grant.clone())).map_err(NotGranted::Unfit)?;
    fits(link, &own, &around).map_err(NotGranted::Unfit)?;
    reached(link.to, &others, &own, &around).map_err(NotGranted::Unfit)?;
    let mut search = Search {
        trial: Trial::of(&mut file.link[place], former.get(place), link.to, &around),
        most: link.rate.bps() / STEP,
        left: 0,
        others,
        grant,
        promised: Vec::new(),
        last: None,
    };
    search.look().map_err(|reason| NotGranted::Full {
        reason,
        best: Vec::new(),
    })?;
    search.run()
}

/// Checks that each of its filters has packets that no other grant's filters match before.
fn reached(
    to: Role,
    others: &[Written],
    own: &Written,
    around: &Surroundings,
) -> Result<(), String> {
    let mut all = Vec::new();
    let mut owners = Vec::new();
    for one in others.iter().chain([own]) {
        let rules = rules(to, one, around)?;
        owners.extend(std::iter::repeat_n(&*one.grant.name, rules.len()));
        all.extend(rules);
    }
    for unreachable in Classifier::new(all).unreachable() {
        if owners[unreachable.rule] != own.grant.name {
            continue;
        }
        let by: HashSet<&str> = unreachable.by.iter().map(|&by| owners[by]).collect();
        let mut by: Vec<_> = by.into_iter().collect();
        by.sort_unstable();
        return Err(match by[..] {
            [] => "the filter never matches: no packet is all that it asks for".to_owned(),
            [one] if one == own.grant.name => {
                "a filter never matches: those before it take all its packets".to_owned()
            }
            _ => format!(
                "the filter never matches: {} takes all its packets, and was granted before",
                by.join(" with ")
            ),
        });
    }
    Ok(())
}

/// The search is in whole kilobits, so that it ends soon.
const STEP: u64 = 1_000;

/// The fraction of a delay that is kept as a margin when it is granted: weights are integers, and among thousands of
/// siblings a share may later be some hundredths less than it was.
const SPARE: u64 = 32;

/// How often an offer is reduced until it is granted, by twice as much each time.
const OFFERS: u32 = 12;

/// Number of guesses at a sufficient rate before a search around the last guess.
const GUESSES: u32 = 3;

/// The guarantees that a class would have.
struct Had {
    /// With the present siblings.
    now: Guarantee,
    /// With any siblings that may be added later.
    ever: Guarantee,
}

impl Had {
    fn keeps(&self, terms: &Terms) -> Result<(), String> {
        terms.exactly_kept_by(&self.now)?;
        let delay = terms.delay.map(|delay| Nanos(delay.0 - delay.0 / SPARE));
        Terms { delay, ..*terms }.in_time(&self.ever)
    }
}

/// The result of trying a rate.
#[derive(Clone, Copy)]
enum Enough {
    /// The rate does not keep the terms; the delay that it would give, in nanoseconds, if any.
    Short(Option<f64>),
    /// The rate keeps the terms.
    Kept,
    /// The rate exceeds the capacity.
    Over,
}

/// The search for a rate to reserve.
struct Search<'a> {
    trial: Trial<'a>,
    /// The parent's rate, in steps.
    most: u64,
    /// The rate that its siblings leave, in steps: a first guess of the best offer.
    left: u64,
    others: Vec<Written>,
    grant: Grant,
    /// The guaranteed part of each class's rate without the grant, by class number; `None` for a class without a rate.
    promised: Vec<Option<u64>>,
    /// The last rate tried and its result.
    last: Option<(u64, Enough)>,
}

impl Search<'_> {
    /// Finds capacity. An alternative offer is itself tried as a request and offered only if it is granted: whole
    /// weights move by steps, so a rate seen while the request was tried may not be available.
    fn run(&mut self) -> Result<Grant, NotGranted> {
        let mut refused = self.find();
        for tries in 0..OFFERS {
            let Err(NotGranted::Full { reason, best }) = refused else {
                return refused;
            };
            let Some(&offer) = best.first() else {
                return Err(NotGranted::Full { reason, best });
            };
            self.ask(offer);
            refused = match self.find() {
                Ok(_) => return Err(NotGranted::Full { reason, best }),
                Err(NotGranted::Full { best, .. }) => Err(NotGranted::Full {
                    reason,
                    best: best.iter().map(|next| next.below(offer, tries)).collect(),
                }),
                other => other,
            };
        }
        refused.map_err(|refused| match refused {
            NotGranted::Full { reason, .. } => NotGranted::Full {
                reason,
                best: Vec::new(),
            },
            other => other,
        })
    }

    /// Changes the requested terms.
    fn ask(&mut self, offer: Offer) {
        let Offer { rate, delay } = offer;
        let terms = Terms {
            rate,
            delay,
            ..self.grant.terms
        };
        self.grant = Grant {
            reserved: rate,
            terms,
            ..self.grant.clone()
        };
        self.last = None;
    }

    fn find(&mut self) -> Result<Grant, NotGranted> {
        let asked = self.grant.terms.rate.bps();
        let had = match self.at(self.grant.terms.rate) {
            Ok(had) => had,
            Err(reason) => return self.below(reason),
        };
        let Err(reason) = had.keeps(&self.grant.terms) else {
            return Ok(self.grant.clone());
        };
        if had.now.rate.is_err() {
            let best = Vec::new();
            return Err(NotGranted::Full { reason, best });
        }
        // A shorter delay takes more rate.
        let most = match self.longer(asked / STEP, &had) {
            Ok(steps) => {
                return Ok(Grant {
                    reserved: Rate::from_bps(steps * STEP).unwrap_or(self.grant.terms.rate),
                    ..self.grant.clone()
                });
            }
            Err(most) => most,
        };
        let top = Rate::from_bps(most * STEP).unwrap_or(self.grant.terms.rate);
        let had = self.at(top.max(self.grant.terms.rate));
        match had
            .ok()
            .and_then(|had| self.at_least(self.grant.terms.rate, &had))
        {
            Some(offer) => Err(NotGranted::Full {
                reason,
                best: vec![offer],
            }),
            None => self.below(reason),
        }
    }

    /// Refuses the request, with the highest rate that could be granted instead.
    fn below(&mut self, reason: String) -> Result<Grant, NotGranted> {
        let terms = self.grant.terms;
        let not = terms.rate.bps().div_ceil(STEP);
        // Rounding to whole weights may take some of the rest.
        let mut guess = self.left;
        for _ in 0..GUESSES {
            let had = Rate::from_bps(guess * STEP).map(|rate| self.at(rate));
            match had {
                Some(Ok(had)) => guess = guess.min(had.now.rate.unwrap_or(0) / STEP),
                _ => break,
            }
        }
        let is_kept = |steps: u64| {
            let Some(rate) = Rate::from_bps(steps * STEP) else {
                return false;
            };
            let delay = None;
            let terms = Terms {
                rate,
                delay,
                ..terms
            };
            let had = self.at(rate);
            had.is_ok_and(|had| terms.exactly_kept_by(&had.now).is_ok())
        };
        let most = boundary(0, not, guess, is_kept);
        let offer = Rate::from_bps(most * STEP).and_then(|rate| {
            let had = self.at(rate).ok()?;
            self.at_least(rate, &had)
        });
        let best = offer.into_iter().collect();
        Err(NotGranted::Full { reason, best })
    }

    /// Returns the offer for this rate, with the requested delay or the shortest.
    fn at_least(&self, rate: Rate, had: &Had) -> Option<Offer> {
        let terms = Terms {
            rate,
            ..self.grant.terms
        };
        if had.keeps(&terms).is_ok() {
            let delay = terms.delay;
            return Some(Offer { rate, delay });
        }
        terms.delay?;
        let delay = terms.delay_in(&had.ever).ok()?;
        let delay = Some(rounded(Nanos(delay.0 + delay.0 / (SPARE - 1) + 1)));
        let is_kept = had.keeps(&Terms { delay, ..terms }).is_ok();
        is_kept.then_some(Offer { rate, delay })
    }

    /// Returns the guarantees of a class with this rate, or the reason why none is possible.
    fn at(&mut self, rate: Rate) -> Result<Had, String> {
        let candidate = class(&self.grant, rate);
        let link = self.with([candidate.clone()])?;
        let guarantees = link.kept_guarantees();
        let others = self.others.iter().map(|other| &other.grant);
        kept(&link, guarantees, others)?;
        self.unharmed(&link, guarantees)?;
        let Some(at) = place_of(&link, &self.grant.name) else {
            return Err("there would be no class for it".to_owned());
        };
        let now = guarantees[at].clone();
        if self.grant.terms.delay.is_none() {
            let ever = now.clone();
            return Ok(Had { now, ever });
        }
        let parent = link.classes[at].parent;
        let mut siblings = link.classes.iter().filter(|class| class.parent == parent);
        if siblings.any(|class| class.share > 0) {
            let ever = link.guarantee_for(Hold::Whatever, at);
            return Ok(Had { now, ever });
        }
        // Siblings with rates alone share the remaining rate, until one is added that takes it.
        let later = file::Class::made(LATER, self.grant.parent.as_deref(), None);
        let filled = self.with([candidate, later]).unwrap_or(link);
        let at = place_of(&filled, &self.grant.name).unwrap_or(at);
        let ever = filled.guarantee_for(Hold::Whatever, at);
        Ok(Had { now, ever })
    }

    fn with<const N: usize>(&mut self, more: [file::Class; N]) -> Result<Link, String> {
        let others = self.others.iter().map(|other| other.class.clone());
        self.trial.with(others.chain(more))
    }

    /// Records how much of their rates the file's classes and those of other grants are guaranteed without the new
    /// grant, and the rate that these leave.
    fn look(&mut self) -> Result<(), String> {
        let link = self.with([])?;
        let guarantees = link.kept_guarantees();
        self.promised = vec![None; link.classes.len()];
        for (class, has) in link.classes.iter().zip(guarantees) {
            let rate = class.rate.map(Rate::bps).zip(has.rate.ok());
            self.promised[class.number] = rate.map(|(rate, has)| rate.min(has));
        }
        let above = self.grant.parent.as_deref();
        let parent = above.and_then(|above| place_of(&link, above));
        let has = match parent {
            Some(parent) => guarantees[parent].rate.unwrap_or(0),
            None => link.rate.bps(),
        };
        let beside = link.classes.iter().filter(|class| class.parent == parent);
        let taken: u64 = beside.filter_map(|class| class.rate).map(Rate::bps).sum();
        self.left = has.saturating_sub(taken) / STEP;
        Ok(())
    }

    /// Checks that each of them still has its guarantee, except for rounding to whole weights.
    fn unharmed(&self, link: &Link, guarantees: &List<Guarantee>) -> Result<(), String> {
        for (class, has) in link.classes.iter().zip(guarantees) {
            let Some(&Some(promised)) = self.promised.get(class.number) else {
                continue;
            };
            let gets = has.rate.unwrap_or(0);
            if gets < promised - promised / 1000 && *class.name != *self.grant.name {
                return Err(format!(
                    "class '{}' would be guaranteed {gets}bit of its {promised}bit",
                    class.name
                ));
            }
        }
        Ok(())
    }

    fn enough(&mut self, steps: u64) -> Enough {
        if let Some((last, enough)) = self.last
            && last == steps
        {
            return enough;
        }
        let had = Rate::from_bps(steps * STEP).map(|rate| self.at(rate));
        let enough = match had {
            Some(Ok(had)) => match had.keeps(&self.grant.terms) {
                Ok(()) => Enough::Kept,
                Err(_) => Enough::Short(self.delay(&had)),
            },
            _ => Enough::Over,
        };
        self.last = Some((steps, enough));
        enough
    }

    fn delay(&self, had: &Had) -> Option<f64> {
        let delay = self.grant.terms.delay_in(&had.ever);
        delay.ok().map(|delay| delay.0 as f64)
    }

    /// Returns the least number of steps that is enough, given a number that is too small and its result. If none is
    /// enough, returns the most that is possible as the error.
    fn longer(&mut self, short: u64, had: &Had) -> Result<u64, u64> {
        let mut from = (short, self.delay(had));
        let mut guess = self.guess(from, None);
        // A delay is a constant plus a part inversely proportional to the rate, so two samples predict the sufficient
        // rate.
        for _ in 0..GUESSES {
            if guess <= from.0 {
                break;
            }
            let Enough::Short(delay) = self.enough(guess) else {
                break;
            };
            let is = (guess, delay);
            guess = self.guess(is, Some(from));
            from = is;
        }
        let mut is_over = true;
        let first = boundary(self.most + 1, from.0, guess, |steps| {
            let enough = self.enough(steps);
            if !matches!(enough, Enough::Short(_)) {
                is_over = matches!(enough, Enough::Over);
                return true;
            }
            false
        });
        match is_over {
            true => Err(first - 1),
            false => Ok(first),
        }
    }

    /// Guesses the sufficient number of steps from the delay at one number, and at a smaller one; at most the remaining
    /// steps.
    fn guess(&self, is: (u64, Option<f64>), before: Option<(u64, Option<f64>)>) -> u64 {
        let point = |(steps, delay): (u64, Option<f64>)| Some((1.0 / steps.max(1) as f64, delay?));
        let (Some(wanted), Some((x, y))) = (self.grant.terms.delay, point(is)) else {
            return self.left;
        };
        let wanted = (wanted.0 - wanted.0 / SPARE) as f64;
        let (from_x, from_y) = before.and_then(point).unwrap_or_default();
        if before.is_some() && y == from_y {
            // Weights are integers: the next one is a little further on.
            return (is.0 + is.0 / 256 + 1).min(self.left);
        }
        let slope = (y - from_y) / (x - from_x);
        let found = (x + (wanted - y) / slope).recip();
        match found.is_finite() && found > 0.0 {
            true => (found.ceil() as u64).min(self.left),
            false => self.left,
        }
    }
}

/// Returns the first number from `not` towards `is` that passes the test, if all numbers beyond it do. Takes two or
/// three tests near a good guess, and a few more than bisection far from it.
fn boundary(mut is: u64, mut not: u64, guess: u64, mut test: impl FnMut(u64) -> bool) -> u64 {
    let (mut at, mut step) = (guess, 1);
    let mut tried = [false; 2];
    while is.abs_diff(not) > 1 {
        let (low, high) = (is.min(not) + 1, is.max(not) - 1);
        let found = test(at.clamp(low, high));
        match found {
            true => is = at.clamp(low, high),
            false => not = at.clamp(low, high),
        }
        tried[usize::from(found)] = true;
        let (from, to) = if found { (is, not) } else { (not, is) };
        at = match tried {
            // Halfway between both.
            [true, true] => is.min(not) + is.abs_diff(not) / 2,
            _ if from < to => from.saturating_add(step),
            _ => from.saturating_sub(step),
        };
        step = step.saturating_mul(4);
    }
    is
}

fn place_of(link: &Link, name: &str) -> Option<usize> {
    link.classes.iter().rposition(|class| &*class.name == name)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use crate::read::grants::READS;

    const UNKNOWN: MtuOf<'static> = &|_| None;

    fn mbit(rate: u64) -> Rate {
        Rate::from_bps(rate * 1_000_000).unwrap()
    }

    fn asked(rate: Rate, delay_ms: Option<u64>) -> Grant {
        Grant {
            link: "up".to_owned(),
            name: "grant-1".to_owned(),
            parent: None,
            filters: vec!["destination-port = 7000".to_owned()],
            reserved: rate,
            terms: Terms {
                rate,
                burst: Some(3_000),
                delay: delay_ms.map(Nanos::from_millis),
            },
        }
    }

    #[test]
    fn a_boundary_near_a_guess_takes_few_tries_and_far_from_it_few_more_than_halving() {
        for (is, not) in [(0, 10_000_000), (10_000_000, 0)] {
            for first in [1, 2, 777, 5_000_000, 9_999_998, 9_999_999] {
                for (guess, most) in [(first, 2), (first + 3, 8), (0, 38), (u64::MAX, 38)] {
                    let mut tries = 0;
                    let found = boundary(is, not, guess, |at| {
                        tries += 1;
                        if is < not { at <= first } else { at >= first }
                    });
                    assert_eq!(found, first, "from {guess}");
                    assert!(tries <= most, "{first} from {guess}: {tries}");
                }
            }
        }
    }

    /// Each check reads all classes of the link, so the number of checks is the cost of admission.
    #[test]
    fn a_grant_among_ten_thousand_classes_is_found_room_for_with_few_looks() {
        let mut text = "[[link]]\nname = 'up'\nrate = '10gbit'\n".to_owned();
        for class in 0..10_000 {
            let rate = 400 + class % 7;
            write!(
                text,
                "[[link.class]]\nname = 'c{class}'\nrate = '{rate}kbit'\n"
            )
            .unwrap();
        }
        let (site, tables) = Site::tables_of(&text, "site", UNKNOWN).unwrap();
        let admit = |grant: Grant| {
            let before = READS.get();
            let admitted = admit(&mut tables.0.clone(), &site, &[], UNKNOWN, &[], grant);
            (admitted, READS.get() - before)
        };
        let (plain, looks) = admit(asked(mbit(1), None));
        assert!(plain.is_ok() && looks <= 2, "{looks}");
        for delay in [20, 100] {
            let (soon, looks) = admit(asked(mbit(1), Some(delay)));
            assert!(looks <= 12, "{delay} ms: {looks}");
            let reserved = soon.unwrap().reserved;
            assert!(delay > 20 || reserved > mbit(1), "{reserved}");
        }
        // The same holds for refusals with the best alternative.
        for grant in [asked(mbit(9_500), None), asked(mbit(1), Some(0))] {
            let (refused, looks) = admit(grant);
            assert!(looks <= 50, "{looks}");
            assert!(
                matches!(refused, Err(NotGranted::Full { .. })),
                "{refused:?}"
            );
        }
    }
}
