//! Changes of a running site: a change is written into the configuration, checked as any file is, and applied whole or
//! not at all. Its effects on the guarantees of classes are computed beforehand.

use std::sync::Arc;

use fairlane_config::class_report::{ClassTerms, Promise, differing};
use fairlane_config::{Broken, Grant, Link, List, NotGranted, Shared, Site, SiteError};
use fairlane_daemon::{Error, Handle, Source};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::document::{Document, EditError};
use crate::draft::Drafts;
use crate::edit::Edits;

/// Maximum number of attempts at a change if other changes keep coming first.
pub(crate) const ATTEMPTS: u32 = 16;

/// The result of a change.
#[derive(Clone, Debug, Serialize)]
pub struct Changed {
    /// Whether the change was applied; false for a dry run.
    pub applied: bool,
    /// The classes that are changed, added or removed: all of them in the order of the file, or
    /// [those that lose most](Changed::shorten).
    pub effects: Vec<Effect>,
    /// Number of all effects.
    pub effects_total: usize,
    /// Number of effects that reduce a guarantee: a lower rate, a longer delay, or none any more.
    pub effects_worse: usize,
    /// Warnings about the changed configuration.
    pub warnings: Vec<String>,
    /// The grants that the change ends, or would end, because it was allowed to break them.
    #[serde(rename = "ended_grants")]
    pub ended: Vec<EndedGrant>,
}

/// A grant that a change breaks.
#[derive(Clone, Debug, Serialize)]
pub struct EndedGrant {
    /// Its link.
    pub link: String,
    /// Its class: `grant-` and its number.
    pub class: String,
    /// The part of its guarantee that it would lose.
    pub reason: String,
}

impl From<&Broken> for EndedGrant {
    fn from(broken: &Broken) -> EndedGrant {
        EndedGrant {
            link: broken.grant.link.clone(),
            class: broken.grant.name.clone(),
            reason: broken.reason.clone(),
        }
    }
}

/// The effect of a change on a class: in JSON `link`, `class`, and `before` and `after` as [`Promise`]s.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Its link.
    pub link: Arc<str>,
    /// Its guarantee before; `None` for an added class.
    pub before: Option<Shared<ClassTerms>>,
    /// Its guarantee after; `None` for a removed class.
    pub after: Option<Shared<ClassTerms>>,
}

/// A rejected change. The site is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It cannot be written into the configuration.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The site cannot apply it.
    #[error(transparent)]
    Site(#[from] Error),
    /// It is based on another configuration than the running one.
    #[error("{0}")]
    Precondition(String),
    /// It was not granted.
    #[error(transparent)]
    NotGranted(#[from] NotGranted),
    /// The number of grants is at its limit.
    #[error("{0}")]
    TooMany(String),
}

/// Returns the grants that a rejected change would break.
pub(crate) fn broken_by(refused: &Refused) -> &[Broken] {
    match refused {
        Refused::Site(Error::Site(SiteError::Grants { broken, .. })) => broken,
        _ => &[],
    }
}

/// Makes a change, or with `dry` only computes its effects. `edit` is called again after another change came first.
///
/// # Errors
///
/// The change names something that does not exist, or the changed configuration is invalid or needs a restart.
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

/// Makes some changes together, or with `dry` only computes their effects, with `grants` instead of the running ones.
/// Reads only the changed tables again where the text allows it ([`Draft`](fairlane_config::Draft)), else the whole
/// text.
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
                made = draft;
                Source::Site(Box::new(site))
            }
            None => all_edited(&before, grants.unwrap_or(&before.grants), edits)
                .map_err(|refused| of_edits(edits, refused))?,
        };
        let changed = replace(handle, beside(source, grants), base(dry, &before), &before)
            .map_err(|refused| of_edits(edits, refused))?;
        if let Some(draft) = made.filter(|_| !dry) {
            drafts.keep(draft);
        }
        Ok(changed)
    })
}

/// Names the edit that an error is about, instead of a place in a text that is no file.
fn of_edits(edits: &Edits, refused: Refused) -> Refused {
    match refused {
        Refused::Site(Error::Site(SiteError::Invalid(found))) => {
            let sentences = found.iter().map(|one| edits.blamed(&one.sentence));
            Error::Unfit(sentences.collect::<Vec<_>>().join("; ")).into()
        }
        other => other,
    }
}

/// Makes a change, and repeats it if another one came first.
fn retried(make: impl Fn() -> Result<Changed, Refused>) -> Result<Changed, Refused> {
    let mut attempt = 1;
    loop {
        match make() {
            Err(Refused::Site(Error::Outdated)) if attempt < ATTEMPTS => attempt += 1,
            done => return done,
        }
    }
}

/// Returns the configuration that a change is based on; none for a dry run.
fn base(dry: bool, before: &Arc<Site>) -> Option<Arc<Site>> {
    (!dry).then(|| Arc::clone(before))
}

/// Returns the whole text with a change.
fn edited(
    before: &Site,
    edit: impl Fn(&mut Document) -> Result<(), EditError>,
) -> Result<Source, EditError> {
    let mut document = Document::new(&before.text)?;
    edit(&mut document)?;
    Ok(Source::Text(document.to_string()))
}

/// Returns the whole text with some changes. If they add filters, reads it here with these grants, and refuses an added
/// filter that can never match. A filter that was there before may become one.
fn all_edited(before: &Site, grants: &[Arc<Grant>], edits: &Edits) -> Result<Source, Refused> {
    let mut document = Document::new(&before.text)?;
    let brought = edits.make(&mut document)?;
    let source = Source::Text(document.to_string());
    if brought.is_empty() {
        return Ok(source);
    }
    let site = source.site(before, grants)?;
    // There is a warning if a filter never matches.
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

/// Returns a configuration with these grants, or with the running ones.
pub(crate) fn beside(source: Source, grants: Option<&[Arc<Grant>]>) -> Source {
    match grants {
        Some(grants) => Source::Granting(Box::new(source), grants.to_vec()),
        None => source,
    }
}

/// Applies a configuration; without `base` only computes its effects.
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

/// Returns the result of replacing one configuration by another.
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
    /// Keeps the `most` effects with the largest loss, in that order; the counts stay. O(effects + most log most).
    pub fn shorten(&mut self, most: usize) {
        let losses = self.effects.iter().map(Effect::loss);
        let mut worst: Vec<(f64, usize)> = losses.zip(0..).collect();
        // Effects with the same loss keep the order of the file.
        let order = |one: &(f64, usize), other: &(f64, usize)| {
            other.0.total_cmp(&one.0).then(one.1.cmp(&other.1))
        };
        if most < worst.len() {
            worst.select_nth_unstable_by(most, order);
            worst.truncate(most);
        }
        worst.sort_unstable_by(order);
        self.effects = (worst.iter())
            .map(|&(_, at)| self.effects[at].clone())
            .collect();
    }
}

impl Effect {
    /// Returns the name of the class.
    pub fn class(&self) -> &str {
        let either = self.after.as_ref().or(self.before.as_ref());
        either.map_or("", |terms| &*terms.name)
    }

    /// Returns its guarantees before and after the change.
    pub fn promises(&self) -> [Option<Promise<'_>>; 2] {
        [&self.before, &self.after].map(|terms| terms.as_deref().map(Promise::of))
    }

    /// Returns the part of its guarantee that it loses, from 0 to 1: the part of its rate, or the part by which the new
    /// delay exceeds the old one, whichever is more.
    fn loss(&self) -> f64 {
        let [Some(before), after] = self.promises() else {
            return 0.0;
        };
        let rate = |promise: &Promise| promise.guaranteed_bps.unwrap_or(0) as f64;
        // No bound is treated as an infinite one.
        let delay = |promise: &Promise| promise.bound.map_or(f64::INFINITY, |bound| bound.0 as f64);
        let (rate_after, delay_after) = match &after {
            Some(after) => (rate(after), delay(after)),
            None => (0.0, f64::INFINITY),
        };
        let lost = |more: f64, less: f64| match more > less {
            true if more.is_infinite() => 1.0,
            true => 1.0 - less / more,
            false => 0.0,
        };
        lost(rate(&before), rate_after).max(lost(delay_after, delay(&before)))
    }
}

impl Serialize for Effect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [before, after] = self.promises();
        let mut effect = serializer.serialize_struct("Effect", 4)?;
        effect.serialize_field("link", &*self.link)?;
        effect.serialize_field("class", self.class())?;
        effect.serialize_field("before", &before)?;
        effect.serialize_field("after", &after)?;
        effect.end()
    }
}

/// Returns the classes with another guarantee, by link, in the order of the file; removed classes come last.
/// O(classes).
pub(crate) fn effects(before: &Site, after: &Site) -> Vec<Effect> {
    let links = after.links.iter().flat_map(|link| {
        let former = before.links.iter().find(|former| former.to == link.to);
        effects_on(former.map(|former| &**former), link)
    });
    links.collect()
}

fn effects_on(before: Option<&Link>, after: &Link) -> Vec<Effect> {
    let was = before.map_or_else(List::default, ClassTerms::of);
    let is = ClassTerms::after(after, &was);
    let link: Arc<str> = Arc::from(after.name.as_str());
    let effect = |(before, after): (Option<usize>, Option<usize>)| Effect {
        link: Arc::clone(&link),
        before: before.map(|at| was.share(at)),
        after: after.map(|at| is.share(at)),
    };
    differing(&was, &is).into_iter().map(effect).collect()
}

#[cfg(test)]
mod tests {
    use fairlane_core::Nanos;
    use proptest::prelude::*;

    use super::*;

    fn site(classes: &str) -> Site {
        let text = format!("[[link]]\nname = \"up\"\nrate = \"20mbit\"\n{classes}");
        Site::parse(&text, "site").unwrap()
    }

    /// Returns a constructor of class guarantees from name, rate and bound.
    fn teller() -> impl Fn(&str, Option<u64>, Option<f64>) -> Option<Shared<ClassTerms>> {
        let any = ClassTerms::of(&site("").links[0]);
        move |name, guaranteed_bps, bound_us: Option<f64>| {
            Some(Shared::from(ClassTerms {
                name: name.into(),
                guaranteed_bps,
                bound: bound_us.map(|us| Nanos((us * 1e3) as u64)),
                ..any[0].clone()
            }))
        }
    }

    fn of(effects: Vec<Effect>) -> Changed {
        Changed {
            applied: true,
            effects_total: effects.len(),
            effects_worse: effects.iter().filter(|it| it.loss() > 0.0).count(),
            effects,
            warnings: Vec::new(),
            ended: Vec::new(),
        }
    }

    #[test]
    fn shortened_answer_has_the_greatest_losses_and_the_count() {
        let terms = teller();
        let effect = |before, after| Effect {
            link: "up".into(),
            before,
            after,
        };
        let two = |name: &str| terms(name, Some(2_000), Some(10.0));
        let becomes = |name: &str, rate, bound| effect(two(name), terms(name, rate, bound));
        let all = of(vec![
            effect(None, two("comes")),
            becomes("more", Some(3_000), Some(9.0)),
            becomes("later", Some(2_000), Some(12.5)),
            becomes("slower", Some(1_000), Some(11.0)),
            effect(two("goes"), None),
            becomes("unbounded", Some(2_000), None),
            effect(terms("never", None, None), terms("never", None, None)),
        ]);
        assert_eq!((all.effects_total, all.effects_worse), (7, 4));
        let shortened = |most| {
            let mut changed = all.clone();
            changed.shorten(most);
            assert_eq!((changed.effects_total, changed.effects_worse), (7, 4));
            let names = changed.effects.iter().map(|it| it.class().to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(shortened(4), ["goes", "unbounded", "slower", "later"]);
        assert_eq!(shortened(9)[4..], ["comes", "more", "never"]);
        assert!(shortened(0).is_empty());
    }

    /// Generates the guarantees of a class before or after a change, from few values.
    fn promised() -> impl Strategy<Value = Option<(Option<u64>, Option<u8>)>> {
        let rate = prop::option::of(0..4u64);
        prop::option::weighted(0.9, (rate, prop::option::of(1..5u8)))
    }

    proptest! {
        #[test]
        fn greatest_losses_equal_the_full_answer(
            figures in prop::collection::vec((promised(), promised()), 0..40),
            most in 0..45usize,
        ) {
            let terms = teller();
            let told = |at: usize, promise: Option<(Option<u64>, Option<u8>)>| {
                let (rate, bound) = promise?;
                terms(&format!("c{at}"), rate, bound.map(f64::from))
            };
            let effects = figures.into_iter().enumerate().map(|(at, (was, is))| Effect {
                link: "up".into(),
                before: told(at, was),
                after: told(at, is),
            });
            let all = of(effects.collect());
            // The expected result, from the whole list.
            let mut by_hand = all.effects.clone();
            by_hand.sort_by(|one, other| other.loss().total_cmp(&one.loss()));
            by_hand.truncate(most);
            let mut short = all.clone();
            short.shorten(most);
            let json = |it: &[Effect]| serde_json::to_string(it).unwrap();
            prop_assert_eq!(json(&short.effects), json(&by_hand));
            let less = |effect: &Effect| match effect.promises() {
                [None, _] => false,
                [Some(_), None] => effect.loss() > 0.0,
                [Some(was), Some(is)] => {
                    let bound = |it: Promise| it.bound.map_or(u64::MAX, |bound| bound.0);
                    is.guaranteed_bps.unwrap_or(0) < was.guaranteed_bps.unwrap_or(0)
                        || bound(is) > bound(was)
                }
            };
            let worse = all.effects.iter().filter(|effect| less(effect)).count();
            prop_assert_eq!((short.effects_total, short.effects_worse), (all.effects.len(), worse));
        }
    }

    #[test]
    fn change_reports_its_effect_on_every_guarantee() {
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
                .find(|effect| effect.class() == name)
                .unwrap()
        };
        let web = named("web");
        let rates = [&web.before, &web.after].map(|it| it.as_ref().unwrap().guaranteed_bps);
        assert_eq!(rates, [Some(9_000_000), Some(12_000_000)]);
        assert!(named("new").before.is_none() && named("new").after.is_some());
        assert!(named("old").before.is_some() && named("old").after.is_none());
    }
}
