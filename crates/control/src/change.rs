//! A change of a running site: written into its configuration, checked as any file is, and taken
//! over whole or not at all. What it does to what classes are promised is told beforehand.

use std::collections::HashMap;
use std::sync::Arc;

use fairlane_config::class_report::ClassTerms;
use fairlane_config::{Broken, Grant, Link, NotGranted, Site, SiteError};
use fairlane_site::{Error, Handle, Source};
use serde::Serialize;

use crate::document::{Document, EditError};
use crate::draft::Drafts;
use crate::edit::Edits;

/// Times that a change is made anew where another one came first.
pub(crate) const ATTEMPTS: u32 = 16;

/// What a change does.
#[derive(Clone, Debug, Serialize)]
pub struct Changed {
    /// Whether it was made, or only looked at.
    pub applied: bool,
    /// The classes whose terms are others then, or that come or go: all of them in the order of the file, or
    /// [those that lose most](Changed::shorten).
    pub effects: Vec<Effect>,
    /// How many they are in all.
    pub effects_total: usize,
    /// How many of all are promised less than before: a lower rate, a longer delay, or nothing any more.
    pub effects_worse: usize,
    /// What is allowed and hardly meant in the configuration as it is then.
    pub warnings: Vec<String>,
    /// The grants that it ends, or would, since it may break them.
    #[serde(rename = "ended_grants")]
    pub ended: Vec<Ended>,
}

/// A grant that a change breaks.
#[derive(Clone, Debug, Serialize)]
pub struct Ended {
    /// Its link.
    pub link: String,
    /// Its class: `grant-` and its number.
    pub class: String,
    /// What it would have less than it was promised.
    pub reason: String,
}

impl From<&Broken> for Ended {
    fn from(broken: &Broken) -> Ended {
        Ended {
            link: broken.grant.link.clone(),
            class: broken.grant.name.clone(),
            reason: broken.reason.clone(),
        }
    }
}

/// What becomes of a class.
#[derive(Clone, Debug, Serialize)]
pub struct Effect {
    /// Its link.
    pub link: String,
    /// Its name.
    pub class: Arc<str>,
    /// What it was promised; null where it comes.
    pub before: Option<Promise>,
    /// What it is promised then; null where it goes.
    pub after: Option<Promise>,
}

/// What a class is promised; null where it is not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Promise {
    /// The class above it.
    pub parent: Option<Arc<str>>,
    /// Its weight beside its siblings.
    pub weight: u32,
    /// The rate that it never exceeds.
    pub ceil_bps: Option<u64>,
    /// The rate that it has at least.
    pub guaranteed_bps: Option<u64>,
    /// Worst-case delay of a packet that arrives at an empty queue.
    pub bound_us: Option<f64>,
    /// Packets that are kept for it.
    pub room_packets: Option<u32>,
}

/// Why a change was not made. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It cannot be written down.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The site cannot go on as it says.
    #[error(transparent)]
    Site(#[from] Error),
    /// It was made from something else than what runs.
    #[error("{0}")]
    Precondition(String),
    /// It was not granted.
    #[error(transparent)]
    NotGranted(#[from] NotGranted),
    /// There are as many grants as there may be.
    #[error("{0}")]
    TooMany(String),
}

/// The grants that a change was refused for.
pub(crate) fn broken_by(refused: &Refused) -> &[Broken] {
    match refused {
        Refused::Site(Error::Site(SiteError::Grants { broken, .. })) => broken,
        _ => &[],
    }
}

/// Makes a change, or with `dry` only looks what it would do. `edit` may be called again, where
/// another change came first.
///
/// # Errors
///
/// What the change names is not there, the configuration would not be valid, or cannot take over
/// without a restart.
pub fn change(
    handle: &Handle,
    dry: bool,
    edit: impl Fn(&mut Document) -> Result<(), EditError>,
) -> Result<Changed, Refused> {
    retried(|| {
        let before = handle.site();
        let source = edited(&before, &edit)?;
        replace(handle, source, base(dry, &before), &before)
    })
}

/// Makes some changes together, or with `dry` only looks what they would do, with these grants in place
/// of those that run. What they touch is read again, where the text is such that this can be done
/// ([`Draft`](fairlane_config::Draft)), else the whole text.
pub(crate) fn change_beside(
    handle: &Handle,
    drafts: &Drafts,
    dry: bool,
    grants: Option<&[Arc<Grant>]>,
    edits: &Edits,
) -> Result<Changed, Refused> {
    retried(|| {
        let before = handle.site();
        let mut made = None;
        let drafted = match grants {
            None => drafts.changed(&before, edits.all()),
            Some(_) => None,
        };
        let source = match drafted {
            Some((draft, site)) => {
                made = Some(draft);
                Source::Site(Box::new(site))
            }
            None => all_edited(&before, grants.unwrap_or(&before.grants), edits)?,
        };
        let changed = replace(handle, beside(source, grants), base(dry, &before), &before)?;
        if let Some(draft) = made.filter(|_| !dry) {
            drafts.keep(draft);
        }
        Ok(changed)
    })
}

/// Makes a change anew, where another one came first.
fn retried(make: impl Fn() -> Result<Changed, Refused>) -> Result<Changed, Refused> {
    let mut attempt = 1;
    loop {
        match make() {
            Err(Refused::Site(Error::Outdated)) if attempt < ATTEMPTS => attempt += 1,
            done => return done,
        }
    }
}

/// What a change was made from, if it is to be made.
fn base(dry: bool, before: &Arc<Site>) -> Option<Arc<Site>> {
    (!dry).then(|| Arc::clone(before))
}

/// The whole text with a change.
fn edited(
    before: &Site,
    edit: impl Fn(&mut Document) -> Result<(), EditError>,
) -> Result<Source, EditError> {
    let mut document = Document::new(&before.text)?;
    edit(&mut document)?;
    Ok(Source::Text(document.to_string()))
}

/// The whole text with some changes. Where filters come it is read here, to go on with these grants: each of
/// them is to match something. Those that were there before may have become such that never do.
fn all_edited(before: &Site, grants: &[Arc<Grant>], edits: &Edits) -> Result<Source, Refused> {
    let mut document = Document::new(&before.text)?;
    let brought = edits.make(&mut document)?;
    let source = Source::Text(document.to_string());
    if brought.is_empty() {
        return Ok(source);
    }
    let site = source.site(grants)?;
    // Where one never matches there is a warning.
    let unmatched = match site.warnings.is_empty() {
        true => Vec::new(),
        false => site.unmatched(),
    };
    for one in unmatched {
        if let Some(number) = brought.by(&one.link, one.place) {
            let named = edits.named(number, EditError::Value(one.to_string()));
            return Err(Error::Unfit(named.to_string()).into());
        }
    }
    Ok(Source::Site(Box::new(site)))
}

/// A configuration with these grants, or with those that run.
pub(crate) fn beside(source: Source, grants: Option<&[Arc<Grant>]>) -> Source {
    match grants {
        Some(grants) => Source::Granting(Box::new(source), grants.to_vec()),
        None => source,
    }
}

/// Has another configuration take over; without `base` only looks what it would do.
pub(crate) fn replace(
    handle: &Handle,
    source: Source,
    base: Option<Arc<Site>>,
    before: &Site,
) -> Result<Changed, Refused> {
    let applied = base.is_some();
    let after = match base {
        Some(base) => handle.change(source, Some(base))?,
        None => handle.consider(source)?,
    };
    Ok(changed(applied, before, &after))
}

/// What became of one configuration with another one.
pub(crate) fn changed(applied: bool, before: &Site, after: &Site) -> Changed {
    let effects = effects(before, after);
    Changed {
        applied,
        effects_total: effects.len(),
        effects_worse: effects.iter().filter(|it| it.loss() > 0.0).count(),
        effects,
        warnings: after.warnings.iter().map(ToString::to_string).collect(),
        ended: Vec::new(),
    }
}

impl Changed {
    /// Keeps so many effects, those that lose most first; the counts stay. O(effects log effects).
    pub fn shorten(&mut self, most: usize) {
        // Whoever loses as much stays in the order of the file.
        self.effects
            .sort_by(|one, other| other.loss().total_cmp(&one.loss()));
        self.effects.truncate(most);
    }
}

impl Effect {
    /// The part of its promise that it loses, 0 to 1: of its rate, or by how much of it the delay is longer
    /// than it was, whichever is more. 0 where it loses nothing.
    fn loss(&self) -> f64 {
        let Some(before) = &self.before else {
            return 0.0;
        };
        let rate = |promise: &Promise| promise.guaranteed_bps.unwrap_or(0) as f64;
        // No bound is as bad as an endless one.
        let delay = |promise: &Promise| promise.bound_us.unwrap_or(f64::INFINITY);
        let (rate_after, delay_after) = match &self.after {
            Some(after) => (rate(after), delay(after)),
            None => (0.0, f64::INFINITY),
        };
        let lost = |more: f64, less: f64| match more > less {
            true if more.is_infinite() => 1.0,
            true => 1.0 - less / more,
            false => 0.0,
        };
        lost(rate(before), rate_after).max(lost(delay_after, delay(before)))
    }
}

impl Promise {
    fn of(terms: &ClassTerms) -> Promise {
        Promise {
            parent: terms.parent.clone(),
            weight: terms.weight,
            ceil_bps: terms.ceil_bps,
            guaranteed_bps: terms.guaranteed_bps,
            bound_us: terms.bound_us,
            room_packets: terms.room_packets,
        }
    }
}

/// The classes that are promised something else then, by link, in the order of the file; those that
/// go last. O(classes).
pub(crate) fn effects(before: &Site, after: &Site) -> Vec<Effect> {
    let links = after.links.iter().flat_map(|link| {
        let former = before.links.iter().find(|former| former.to == link.to);
        effects_on(former.map(|former| &**former), link)
    });
    links.collect()
}

fn effects_on(before: Option<&Link>, after: &Link) -> Vec<Effect> {
    let was = before.map_or_else(Arc::default, ClassTerms::of);
    let is = ClassTerms::after(after, &was);
    let mut pairs = was.iter().zip(&*is);
    // Where nobody comes or goes, nobody is to be looked for.
    let in_place = was.len() == is.len() && pairs.all(|(was, is)| was.name == is.name);
    let mut former: HashMap<&str, &Arc<ClassTerms>> = HashMap::new();
    if !in_place {
        former.extend(was.iter().map(|terms| (&*terms.name, terms)));
    }
    let effect = |was: Option<&Arc<ClassTerms>>, is: Option<&Arc<ClassTerms>>| Effect {
        link: after.name.clone(),
        class: is
            .or(was)
            .map_or_else(Arc::default, |terms| Arc::clone(&terms.name)),
        before: was.map(|terms| Promise::of(terms)),
        after: is.map(|terms| Promise::of(terms)),
    };
    let mut effects = Vec::new();
    for (at, terms) in is.iter().enumerate() {
        let was = match in_place {
            true => Some(&was[at]),
            false => former.remove(&*terms.name),
        };
        if was.is_some_and(|was| Arc::ptr_eq(was, terms)) {
            continue;
        }
        let effect = effect(was, Some(terms));
        if effect.before != effect.after {
            effects.push(effect);
        }
    }
    let gone = was.iter().filter(|terms| former.contains_key(&*terms.name));
    effects.extend(gone.map(|terms| effect(Some(terms), None)));
    effects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(classes: &str) -> Site {
        let text = format!("[[link]]\nname = \"up\"\nrate = \"20mbit\"\n{classes}");
        Site::parse(&text, "site").unwrap()
    }

    #[test]
    fn a_shortened_answer_has_who_loses_most_and_how_many_there_are() {
        let promise = |rate, bound_us| Promise {
            parent: None,
            weight: 1,
            ceil_bps: None,
            guaranteed_bps: rate,
            bound_us,
            room_packets: None,
        };
        let two = || Some(promise(Some(2_000), Some(10.0)));
        let effect = |class: &str, before, after| Effect {
            link: "up".to_owned(),
            class: class.into(),
            before,
            after,
        };
        let all = || {
            vec![
                effect("comes", None, two()),
                effect("more", two(), Some(promise(Some(3_000), Some(9.0)))),
                effect("later", two(), Some(promise(Some(2_000), Some(12.5)))),
                effect("slower", two(), Some(promise(Some(1_000), Some(11.0)))),
                effect("goes", two(), None),
                effect("unbounded", two(), Some(promise(Some(2_000), None))),
                effect(
                    "never",
                    Some(promise(None, None)),
                    Some(promise(None, None)),
                ),
            ]
        };
        let shortened = |most| {
            let effects = all();
            let mut changed = Changed {
                applied: false,
                effects_total: effects.len(),
                effects_worse: 4,
                effects,
                warnings: Vec::new(),
                ended: Vec::new(),
            };
            changed.shorten(most);
            assert_eq!(changed.effects_total, 7);
            let names = changed.effects.iter().map(|it| it.class.to_string());
            names.collect::<Vec<_>>()
        };
        assert_eq!(shortened(4), ["goes", "unbounded", "slower", "later"]);
        assert_eq!(shortened(9)[4..], ["comes", "more", "never"]);
        assert!(shortened(0).is_empty());
        let less = all().iter().filter(|it| it.loss() > 0.0).count();
        assert_eq!(less, 4);
    }

    #[test]
    fn the_effect_on_every_promise_is_told() {
        let before = site(
            "[[link.class]]\nname = \"voice\"\nrate = \"2mbit\"\n[[link.class]]\nname = \"web\"\n\
             default = true\n[[link.class]]\nname = \"old\"\n",
        );
        let after = site(
            "[[link.class]]\nname = \"voice\"\nrate = \"2mbit\"\n[[link.class]]\nname = \"web\"\n\
             default = true\nweight = 2\n[[link.class]]\nname = \"new\"\n",
        );
        assert!(effects(&before, &before.clone()).is_empty());
        let effects = effects(&before, &after);
        let named = |name: &str| {
            effects
                .iter()
                .find(|effect| &*effect.class == name)
                .unwrap()
        };
        let web = named("web");
        let rates = [&web.before, &web.after].map(|it| it.as_ref().unwrap().guaranteed_bps);
        assert_eq!(rates, [Some(9_000_000), Some(12_000_000)]);
        assert!(named("new").before.is_none() && named("new").after.is_some());
        assert!(named("old").before.is_some() && named("old").after.is_none());
    }
}
