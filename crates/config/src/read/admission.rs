//! Room for a grant: the least rate that keeps its terms, or the best that could be had.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fairlane_classify::Classifier;
use fairlane_core::{Nanos, Rate};

use super::Surroundings;
use super::grants::{Trial, Written, class, fits, kept, rules};
use crate::file;
use crate::grants::{Grant, NotGranted, Offer, Terms, rounded};
use crate::guarantee::{Guarantee, Hold};
use crate::site::{Link, MtuOf, Role, Site};

/// The class that stands for all that may come later: no file is likely to have one of this name.
const LATER: &str = "\u{0}later";

/// See [`Grant::admit`].
pub(crate) fn admit(
    file: &mut file::File,
    alone: &Site,
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
        trial: Trial::of(
            Arc::make_mut(&mut file.link[place]).value_mut(),
            link.to,
            &around,
        ),
        most: link.rate.bps() / STEP,
        others,
        grant,
        promised: HashMap::new(),
    };
    search.promised = search
        .promised_without()
        .map_err(|reason| NotGranted::Full {
            reason,
            best: Vec::new(),
        })?;
    search.run()
}

/// Whether each of its filters has packets that no other grant's filters take before.
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

/// Rates are looked for in whole kilobits, so a search ends soon.
const STEP: u64 = 1_000;

/// The part of a delay that is spared when it is granted: weights are whole numbers, and among
/// thousands of siblings a share may later be some hundredths less than it was.
const SPARE: u64 = 32;

/// What a class would have.
struct Had {
    /// Beside those that there are.
    now: Guarantee,
    /// Whoever comes later.
    ever: Guarantee,
}

impl Had {
    fn keeps(&self, terms: &Terms) -> Result<(), String> {
        terms.exactly_kept_by(&self.now)?;
        let delay = terms.delay.map(|delay| Nanos(delay.0 - delay.0 / SPARE));
        Terms { delay, ..*terms }.in_time(&self.ever)
    }
}

/// The search for a rate to reserve.
struct Search<'a> {
    trial: Trial<'a>,
    /// What the link has, in steps.
    most: u64,
    others: Vec<Written>,
    grant: Grant,
    /// What each class of the file with a rate is guaranteed of it without the grant, by name.
    promised: HashMap<Arc<str>, u64>,
}

impl Search<'_> {
    fn run(mut self) -> Result<Grant, NotGranted> {
        let asked = self.grant.terms.rate.bps();
        let had = match self.at(self.grant.terms.rate) {
            Ok(had) => had,
            Err(reason) => return self.below(reason),
        };
        let Err(reason) = had.keeps(&self.grant.terms) else {
            return Ok(self.grant);
        };
        if had.now.rate.is_err() {
            let best = Vec::new();
            return Err(NotGranted::Full { reason, best });
        }
        // A shorter delay takes more rate.
        let most = self.highest(asked / STEP, self.most + 1, |_, _| true);
        if let Some(steps) = self.lowest(asked / STEP, most) {
            return Ok(Grant {
                reserved: Rate::from_bps(steps * STEP).unwrap_or(self.grant.terms.rate),
                ..self.grant
            });
        }
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

    /// Refuses, with the highest rate that can be had in place of the one that was asked for.
    fn below(mut self, reason: String) -> Result<Grant, NotGranted> {
        let terms = self.grant.terms;
        let not = terms.rate.bps().div_ceil(STEP);
        let is_kept = |rate: Rate, had: &Had| {
            let delay = None;
            Terms {
                rate,
                delay,
                ..terms
            }
            .exactly_kept_by(&had.now)
            .is_ok()
        };
        let most = self.highest(0, not, is_kept);
        let offer = Rate::from_bps(most * STEP).and_then(|rate| {
            let had = self.at(rate).ok()?;
            self.at_least(rate, &had)
        });
        let best = offer.into_iter().collect();
        Err(NotGranted::Full { reason, best })
    }

    /// What could be promised of this: a rate, with the delay that was asked for or the shortest.
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

    /// What a class of this rate would have, or why there can be none.
    fn at(&mut self, rate: Rate) -> Result<Had, String> {
        let candidate = class(&self.grant, rate);
        let link = self.with([candidate.clone()])?;
        let guarantees = link.guarantees();
        let others = self.others.iter().map(|other| &other.grant);
        kept(&link, &guarantees, others)?;
        self.unharmed(&link, &guarantees)?;
        let Some(at) = place_of(&link, &self.grant.name) else {
            return Err("there would be no class for it".to_owned());
        };
        let now = guarantees[at].clone();
        let parent = link.classes[at].parent;
        let siblings = || link.classes.iter().filter(|class| class.parent == parent);
        if siblings().any(|class| class.share > 0) {
            let ever = link.guarantees_for(Hold::Whatever)[at].clone();
            return Ok(Had { now, ever });
        }
        // Siblings with rates alone share what those leave: until one comes that takes it.
        let later = file::Class::made(LATER, self.grant.parent.as_deref(), None);
        let filled = self.with([candidate, later]).unwrap_or(link);
        let at = place_of(&filled, &self.grant.name).unwrap_or(at);
        let ever = filled.guarantees_for(Hold::Whatever)[at].clone();
        Ok(Had { now, ever })
    }

    fn with<const N: usize>(&mut self, more: [file::Class; N]) -> Result<Link, String> {
        let others = self.others.iter().map(|other| other.class.clone());
        self.trial.with(others.chain(more))
    }

    /// What the file's classes with a rate are guaranteed of it as it is.
    fn promised_without(&mut self) -> Result<HashMap<Arc<str>, u64>, String> {
        let link = self.with([])?;
        let guarantees = link.guarantees();
        let with_rate = link.classes.iter().zip(&guarantees);
        let promised = with_rate.filter_map(|(class, has)| {
            let rate = class.rate?.bps().min(has.rate.ok()?);
            Some((class.name.clone(), rate))
        });
        Ok(promised.collect())
    }

    /// Whether each of them still is, but for what whole weights cost.
    fn unharmed(&self, link: &Link, guarantees: &[Guarantee]) -> Result<(), String> {
        for (class, has) in link.classes.iter().zip(guarantees) {
            let Some(&promised) = self.promised.get(&class.name) else {
                continue;
            };
            let gets = has.rate.unwrap_or(0);
            if gets < promised - promised / 1000 {
                return Err(format!(
                    "class '{}' would be guaranteed {gets}bit of its {promised}bit",
                    class.name
                ));
            }
        }
        Ok(())
    }

    /// The most steps that can be had and are accepted, between some that are, or none, and some that
    /// are not.
    fn highest(
        &mut self,
        mut fits: u64,
        mut not: u64,
        accepts: impl Fn(Rate, &Had) -> bool,
    ) -> u64 {
        while not - fits > 1 {
            let middle = fits + (not - fits) / 2;
            let rate = Rate::from_bps(middle * STEP);
            let had = rate.and_then(|rate| Some((rate, self.at(rate).ok()?)));
            let accepted = had.is_some_and(|(rate, had)| accepts(rate, &had));
            match accepted {
                true => fits = middle,
                false => not = middle,
            }
        }
        fits
    }

    /// The least steps that are enough, between some that are not and the most that can be had.
    fn lowest(&mut self, mut not: u64, most: u64) -> Option<u64> {
        let terms = self.grant.terms;
        let mut is_enough = |steps: u64| {
            let had = Rate::from_bps(steps * STEP).and_then(|rate| self.at(rate).ok());
            had.is_some_and(|had| had.keeps(&terms).is_ok())
        };
        if most <= not || !is_enough(most) {
            return None;
        }
        let mut fits = most;
        while fits - not > 1 {
            let middle = not + (fits - not) / 2;
            match is_enough(middle) {
                true => fits = middle,
                false => not = middle,
            }
        }
        Some(fits)
    }
}

fn place_of(link: &Link, name: &str) -> Option<usize> {
    link.classes.iter().rposition(|class| &*class.name == name)
}
