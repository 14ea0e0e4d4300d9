//! Views of a state: one class or all of them, and the format of `tc`.

use serde_json::{Value as Json, json};

/// Link and name of a class.
pub type Place = (String, String);

/// Returns the classes of a state, or only one of them, each with its link.
pub fn classes<'a>(
    state: &'a Json,
    only: Option<&'a Place>,
) -> impl Iterator<Item = (&'a Json, &'a Json)> {
    let links = state["links"].as_array().into_iter().flatten();
    let all = links.flat_map(|link| {
        let classes = link["classes"].as_array().into_iter().flatten();
        classes.map(move |class| (link, class))
    });
    all.filter(move |(link, class)| {
        only.is_none_or(|(of, name)| link["name"] == **of && class["name"] == **name)
    })
}

/// Returns link and name of each class of a state.
#[must_use]
pub fn places(state: &Json) -> Vec<(String, String)> {
    let name = |of: &Json| of["name"].as_str().unwrap_or_default().to_owned();
    classes(state, None)
        .map(|(link, class)| (name(link), name(class)))
        .collect()
}

/// Returns the class named `LINK/CLASS`, or `CLASS` if only one class has that name.
///
/// # Errors
///
/// One sentence: there is no such class, or several.
pub fn find(places: &[Place], class: &str) -> Result<Place, String> {
    // A name may contain a slash.
    let is = |(link, name): &&Place| {
        name == class || class.strip_prefix(&format!("{link}/")) == Some(name)
    };
    let found: Vec<_> = places.iter().filter(is).collect();
    match found[..] {
        [one] => Ok(one.clone()),
        [] => {
            // Only classes of the named link, if there is one.
            let of = places.iter().find_map(|(link, _)| {
                let name = class.strip_prefix(&**link)?.strip_prefix('/')?;
                Some((link, name))
            });
            let name = of.map_or(class, |(_, name)| name);
            let is_there = |link: &String| of.is_none_or(|(of, _)| of == link);
            let there = || places.iter().filter(|(link, _)| is_there(link));
            let near = fairlane_config::nearest(name, there().map(|(_, name)| &**name));
            let near = near.and_then(|near| there().find(|(_, name)| name == near));
            let near = near.map_or(String::new(), |(link, name)| {
                format!(", did you mean '{link}/{name}'?")
            });
            Err(match of {
                Some((link, name)) => {
                    format!("class '{name}' does not exist in link '{link}'{near}")
                }
                None => format!("class '{class}' does not exist{near}"),
            })
        }
        _ => {
            let places = found.iter().map(|(link, name)| format!("{link}/{name}"));
            let places = places.collect::<Vec<_>>().join(" or ");
            Err(format!("class '{class}' is in several links: say {places}"))
        }
    }
}

/// Returns the drops of a class for any reason.
#[must_use]
pub fn drops(class: &Json) -> u64 {
    let by_reason = class["drops"].as_object().into_iter().flatten();
    by_reason.filter_map(|(_, count)| count.as_u64()).sum()
}

/// Returns the whole state, or the selected class.
#[must_use]
pub fn picked(state: &Json, only: Option<&Place>) -> Json {
    match only {
        Some(_) => classes(state, only)
            .next()
            .map_or(Json::Null, |(_, class)| class.clone()),
        None => state.clone(),
    }
}

/// Returns classes in the format of `tc -s -j class show`: rates in bytes per second, handles by place. Links, and the
/// classes of each, are numbered from 1; each entry also has the name.
#[must_use]
pub fn as_tc(state: &Json, only: Option<&Place>) -> Json {
    let links = state["links"].as_array().map_or(&[][..], Vec::as_slice);
    let major = |link: &Json| {
        1 + links
            .iter()
            .position(|other| std::ptr::eq(other, link))
            .unwrap_or(0)
    };
    let minor = |class: &Json| class["number"].as_u64().unwrap_or(0) + 1;
    let bytes = |value: &Json| value.as_u64().map(|bps| bps / 8);
    let rows = classes(state, only).map(|(link, class)| {
        let major = major(link);
        let parent = class["parent"].as_str().and_then(|name| {
            let classes = link["classes"].as_array()?;
            classes.iter().find(|class| class["name"] == *name)
        });
        json!({
            "class": "fairlane",
            "handle": format!("{major:x}:{:x}", minor(class)),
            "parent": parent.map_or(format!("{major:x}:"), |parent| format!("{major:x}:{:x}", minor(parent))),
            "dev": link["to"],
            "name": class["name"],
            "rate": bytes(&class["guaranteed_bps"]),
            "ceil": bytes(&class["ceil_bps"]),
            "stats": {
                "bytes": class["sent_bytes"],
                "packets": class["sent_packets"],
                "drops": drops(class),
                "overlimits": class["overlimits"],
                "requeues": 0,
                "backlog": class["queued_bytes"],
                "qlen": class["queued_packets"],
            },
        })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_found_by_its_name_or_with_its_link() {
        let place = |link: &str, name: &str| (link.to_owned(), name.to_owned());
        let places = [
            place("up", "voice"),
            place("down", "voice"),
            place("up", "a/b"),
        ];
        assert_eq!(find(&places, "a/b"), Ok(place("up", "a/b")));
        assert_eq!(find(&places, "up/a/b"), Ok(place("up", "a/b")));
        assert_eq!(find(&places, "down/voice"), Ok(place("down", "voice")));
        let sentence = find(&places, "voice").unwrap_err();
        assert!(
            sentence.contains("say up/voice or down/voice"),
            "{sentence}"
        );
        let sentence = find(&places, "voise").unwrap_err();
        assert!(sentence.contains("'up/voice'"), "{sentence}");
        let sentence = find(&places, "up/voise").unwrap_err();
        assert!(
            sentence.ends_with("in link 'up', did you mean 'up/voice'?"),
            "{sentence}"
        );
        let one = [place("up", "voice"), place("down", "everybody")];
        let sentence = find(&one, "up/everybodi").unwrap_err();
        assert!(!sentence.contains("did you mean"), "{sentence}");
    }
}
