//! The effects of a change on the guarantees of classes, as text.

use serde_json::Value as Json;

use crate::figures;
use crate::plain::told;

/// The columns of an effect.
pub(crate) const HEADER: [&str; 5] = ["class", "guaranteed", "worst delay", "ceiling", "weight"];

/// The effect of a change on a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// The cells in the order of [`HEADER`]; a changed value shows before and after.
    pub cells: [String; 5],
    /// Its guarantee is reduced: a lower rate, a longer delay, or none any more.
    pub worse: bool,
}

/// The effects in the answer to a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effects {
    /// The listed effects, in the answer's order.
    pub listed: Vec<Effect>,
    /// Number of all effects, and of those that reduce a guarantee.
    pub total: usize,
    pub worse: usize,
}

impl Effects {
    /// Reads the effects of an answer.
    pub(crate) fn of(changed: &Json) -> Effects {
        let effects = changed["effects"].as_array();
        let listed: Vec<Effect> = effects.into_iter().flatten().map(one).collect();
        // An answer without a count lists all.
        let count = |key: &str, listed: usize| changed[key].as_u64().map_or(listed, |n| n as usize);
        Effects {
            total: count("effects_total", listed.len()),
            worse: count(
                "effects_worse",
                listed.iter().filter(|effect| effect.worse).count(),
            ),
            listed,
        }
    }

    /// Returns a sentence about the effects that are not listed, if any.
    pub(crate) fn more(&self) -> Option<String> {
        let more = self.total.checked_sub(self.listed.len())?;
        (more > 0).then(|| {
            let Effects { total, worse, .. } = self;
            format!("and {more} more; {worse} of {total} are guaranteed less")
        })
    }
}

fn one(effect: &Json) -> Effect {
    let both = |tell: &dyn Fn(&Json) -> String| {
        let [before, after] = ["before", "after"].map(|key| match &effect[key] {
            Json::Null => "-".to_owned(),
            promise => tell(promise),
        });
        match before == after {
            true => after,
            false => format!("{before} -> {after}"),
        }
    };
    let rate = |key: &'static str| {
        move |promise: &Json| {
            promise[key]
                .as_u64()
                .map_or("none".to_owned(), figures::rate)
        }
    };
    Effect {
        cells: [
            format!("{}/{}", told(&effect["link"]), told(&effect["class"])),
            both(&rate("guaranteed_bps")),
            both(&|promise| {
                let bound = promise["bound_us"].as_f64();
                bound.map_or("none".to_owned(), figures::micros)
            }),
            both(&rate("ceil_bps")),
            both(&|promise| {
                let weight = promise["weight"].as_u64();
                weight.map_or("-".to_owned(), |weight| weight.to_string())
            }),
        ],
        worse: is_worse(&effect["before"], &effect["after"]),
    }
}

fn is_worse(before: &Json, after: &Json) -> bool {
    let guaranteed = |promise: &Json| promise["guaranteed_bps"].as_f64().unwrap_or(0.0);
    // No bound is treated as an infinite one.
    let bound = |promise: &Json| promise["bound_us"].as_f64().unwrap_or(f64::INFINITY);
    !before.is_null() && (guaranteed(after) < guaranteed(before) || bound(after) > bound(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_promised_less_is_known_from_what_is_promised_more() {
        let promise = |rate: u64, bound: Option<f64>| json!({"guaranteed_bps": rate, "bound_us": bound, "weight": 1});
        let none = Json::Null;
        for (before, after, worse) in [
            (promise(2, Some(5.0)), promise(3, Some(4.0)), false),
            (promise(2, Some(5.0)), promise(1, Some(4.0)), true),
            (promise(2, Some(5.0)), promise(2, Some(6.0)), true),
            (promise(2, Some(5.0)), promise(2, None), true),
            (promise(2, None), promise(2, Some(6.0)), false),
            (promise(2, None), none.clone(), true),
            (none.clone(), promise(2, None), false),
        ] {
            let changed = json!({"effects": [{"link": "up", "class": "a", "before": before, "after": after}]});
            let effects = Effects::of(&changed);
            assert_eq!(effects.listed[0].worse, worse, "{changed}");
            assert_eq!((effects.total, effects.worse), (1, usize::from(worse)));
            assert_eq!(effects.more(), None);
        }
        assert!(Effects::of(&json!({"effects": "none"})).listed.is_empty());
    }

    #[test]
    fn what_is_not_listed_is_counted() {
        let effects = Effects::of(&json!({
            "effects": [{"link": "up", "class": "a"}], "effects_total": 10_000, "effects_worse": 9_999,
        }));
        let more = "and 9999 more; 9999 of 10000 are guaranteed less";
        assert_eq!(effects.more().as_deref(), Some(more));
    }
}
