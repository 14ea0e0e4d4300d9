//! What a change does to what classes are promised, as people read it.

use fairlane_core::Nanos;
use serde_json::Value as Json;

use crate::figures;
use crate::plain::told;

/// What the cells of an effect are.
pub(crate) const HEADER: [&str; 5] = ["class", "guaranteed", "worst delay", "ceiling", "weight"];

/// What becomes of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// As [`HEADER`] says; what changes is told before and after.
    pub cells: [String; 5],
    /// It is promised less than before: a lower rate, or a longer delay, or nothing any more.
    pub worse: bool,
}

/// The effects that the answer to a change tells, class by class.
pub(crate) fn of(changed: &Json) -> Vec<Effect> {
    let effects = changed["effects"].as_array();
    effects.into_iter().flatten().map(one).collect()
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
                bound.map_or("none".to_owned(), |us| {
                    figures::time(Nanos((us * 1e3) as u64))
                })
            }),
            both(&rate("ceil_bps")),
            both(&|promise| promise["weight"].to_string()),
        ],
        worse: is_worse(&effect["before"], &effect["after"]),
    }
}

fn is_worse(before: &Json, after: &Json) -> bool {
    let guaranteed = |promise: &Json| promise["guaranteed_bps"].as_f64().unwrap_or(0.0);
    // No bound is as bad as an endless one.
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
            assert_eq!(of(&changed)[0].worse, worse, "{changed}");
        }
        assert!(of(&json!({"effects": "none"})).is_empty());
    }
}
