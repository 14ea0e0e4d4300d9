//! A requested change: a method, a path below `/v1/links`, and keys. Several can be made together.

use std::fmt;

use hyper::Method;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::document::{Document, EditError, Keys};

type Result<T> = std::result::Result<T, EditError>;

/// A change of the configuration.
#[derive(Debug)]
pub(crate) enum Edit {
    ChangeLink {
        link: String,
        keys: Keys,
    },
    AddClass {
        link: String,
        keys: Keys,
    },
    ChangeClass {
        link: String,
        class: String,
        keys: Keys,
    },
    RemoveClass {
        link: String,
        class: String,
    },
    AddFilter {
        link: String,
        keys: Keys,
        at: Option<usize>,
    },
    RemoveFilter {
        link: String,
        at: usize,
    },
}

/// One of several changes, with the fields of a single request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    method: String,
    path: Vec<String>,
    #[serde(default)]
    keys: Keys,
    at: Option<usize>,
}

impl Edit {
    /// Returns the change that a request describes; `None` if it is no change of the configuration. `keys` is called
    /// only if the request has keys.
    ///
    /// # Errors
    ///
    /// The keys cannot be parsed, or a filter's position is not a number.
    pub(crate) fn of(
        method: &Method,
        path: &[&str],
        keys: impl FnOnce() -> Result<Keys>,
        at: Option<&str>,
    ) -> Result<Option<Edit>> {
        let ["v1", "links", link, path @ ..] = path else {
            return Ok(None);
        };
        let link = (*link).to_owned();
        Ok(Some(match (method, path) {
            (&Method::PATCH, []) => Edit::ChangeLink {
                link,
                keys: keys()?,
            },
            (&Method::POST, ["classes"]) => Edit::AddClass {
                link,
                keys: keys()?,
            },
            (&Method::PATCH, ["classes", class]) => Edit::ChangeClass {
                link,
                class: (*class).to_owned(),
                keys: keys()?,
            },
            (&Method::DELETE, ["classes", class]) => Edit::RemoveClass {
                link,
                class: (*class).to_owned(),
            },
            (&Method::POST, ["filters"]) => Edit::AddFilter {
                link,
                keys: keys()?,
                at: at.map(number).transpose()?,
            },
            (&Method::DELETE, ["filters", at]) => Edit::RemoveFilter {
                link,
                at: number(at)?,
            },
            _ => return Ok(None),
        }))
    }

    /// Parses several changes, in the order in which they are made: a JSON array of objects with `method`, `path` as an
    /// array of its segments, `keys` and `at`.
    ///
    /// # Errors
    ///
    /// The body is malformed, or an element is not a change.
    pub(crate) fn several(body: &[u8]) -> Result<Vec<Edit>> {
        let steps: Vec<Step> = serde_json::from_slice(body).map_err(|error| {
            EditError::Value(format!(
                "the body is no JSON array of changes, as in [{{\"method\": \"PATCH\", \"path\": \
                 [\"v1\", \"links\", \"up\"], \"keys\": {{\"rate\": \"2mbit\"}}}}]: {error}"
            ))
        })?;
        let all = steps.len();
        let edits = steps.into_iter().enumerate().map(|(place, step)| {
            let Step {
                method,
                path,
                keys,
                at,
            } = step;
            let written = format!("{method} /{}", path.join("/"));
            let parts: Vec<&str> = path.iter().map(String::as_str).collect();
            let known = Method::from_bytes(method.as_bytes()).ok();
            let at = at.map(|at| at.to_string());
            let (has_keys, has_place) = (!keys.is_empty(), at.is_some());
            let edit = known.map_or(Ok(None), |method| {
                Edit::of(&method, &parts, || Ok(keys), at.as_deref())
            });
            let no_change = || {
                EditError::Value(format!(
                    "{written} is no change that can be made together with others: there are PATCH, \
                     POST and DELETE of links, classes and filters"
                ))
            };
            let fits = |edit: &Edit| match edit {
                Edit::AddFilter { .. } => Ok(()),
                _ if has_place => Err("at: only allowed for a new filter"),
                Edit::RemoveClass { .. } | Edit::RemoveFilter { .. } if has_keys => {
                    Err("keys: not allowed in a removal")
                }
                _ => Ok(()),
            };
            let edit = edit.and_then(|edit| edit.ok_or_else(no_change));
            edit.and_then(|edit| match fits(&edit) {
                Ok(()) => Ok(edit),
                Err(sentence) => Err(EditError::Value(sentence.to_owned())),
            })
                .map_err(|error| error.of(place, all))
        });
        edits.collect()
    }

    /// Returns the link and the class to change; no class if it changes a link.
    fn place(&self) -> (&str, Option<&str>) {
        match self {
            Edit::ChangeLink { link, .. } | Edit::RemoveFilter { link, .. } => (link, None),
            Edit::ChangeClass { link, class, .. } | Edit::RemoveClass { link, class } => {
                (link, Some(class))
            }
            Edit::AddClass { link, keys } => (link, keys.get("name").and_then(Json::as_str)),
            Edit::AddFilter { link, keys, .. } => (link, keys.get("class").and_then(Json::as_str)),
        }
    }

    /// Returns the link and the name of a class that is changed or removed.
    pub(crate) fn class(&self) -> Option<(&str, &str)> {
        match self {
            Edit::ChangeClass { link, class, .. } | Edit::RemoveClass { link, class } => {
                Some((link, class))
            }
            _ => None,
        }
    }

    /// Applies the change to a document.
    ///
    /// # Errors
    ///
    /// The target does not exist or exists already, or the file cannot represent a value.
    pub(crate) fn make(&self, document: &mut Document) -> Result<()> {
        match self {
            Edit::ChangeLink { link, keys } => document.change_link(link, keys),
            Edit::AddClass { link, keys } => document.add_class(link, keys),
            Edit::ChangeClass { link, class, keys } => document.change_class(link, class, keys),
            Edit::RemoveClass { link, class } => document.remove_class(link, class),
            Edit::AddFilter { link, keys, at } => document.add_filter(link, keys, *at),
            Edit::RemoveFilter { link, at } => document.remove_filter(link, *at),
        }
    }
}

impl fmt::Display for Edit {
    /// Writes the change as an operator types it: `up/voice rate=60mbit`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = |keys: &Keys| {
            let pairs = keys.iter().map(|(key, value)| match value {
                Json::String(text) => format!("{key}={text}"),
                Json::Null => format!("{key}="),
                other => format!("{key}={other}"),
            });
            pairs.collect::<Vec<_>>().join(" ")
        };
        match self {
            Edit::ChangeLink { link, keys } => write!(f, "{link} {}", pairs(keys)),
            Edit::AddClass { link, keys } => write!(f, "new class of {link}, {}", pairs(keys)),
            Edit::ChangeClass { link, class, keys } => write!(f, "{link}/{class} {}", pairs(keys)),
            Edit::RemoveClass { link, class } => write!(f, "removal of {link}/{class}"),
            Edit::AddFilter { link, keys, .. } => {
                write!(f, "new filter of {link}, {}", pairs(keys))
            }
            Edit::RemoveFilter { link, at } => write!(f, "removal of filter {at} of {link}"),
        }
    }
}

/// Changes that are applied as one.
#[derive(Debug)]
pub(crate) enum Edits {
    /// A single change.
    One(Edit),
    /// Several changes; errors name the one that failed.
    Together(Vec<Edit>),
}

impl Edits {
    pub(crate) fn all(&self) -> &[Edit] {
        match self {
            Edits::One(edit) => std::slice::from_ref(edit),
            Edits::Together(edits) => edits,
        }
    }

    /// Adds the change at a position to its error, if there are several.
    pub(crate) fn named(&self, number: usize, error: EditError) -> EditError {
        match self {
            Edits::One(_) => error,
            Edits::Together(edits) => error.of(number, edits.len()),
        }
    }

    /// Prefixes an error about the result with the change that caused it, since there is no file to point to. Of
    /// several changes, it is the first whose class or link the sentence names.
    pub(crate) fn blamed(&self, sentence: &str) -> String {
        let all = self.all();
        let names = |edit: &&Edit| {
            let (link, class) = edit.place();
            [class, Some(link)]
                .into_iter()
                .flatten()
                .any(|name| sentence.contains(&format!("'{name}'")))
        };
        match (self, all) {
            (_, [edit]) => format!("{edit}: {sentence}"),
            _ => match all.iter().position(|edit| names(&edit)) {
                Some(at) => format!(
                    "change {} of {}: {}: {sentence}",
                    at + 1,
                    all.len(),
                    all[at]
                ),
                None => format!("changes 1 to {} together: {sentence}", all.len()),
            },
        }
    }

    /// Applies all changes in order, and returns the filters that they add.
    ///
    /// # Errors
    ///
    /// The error of the first change that fails. The document then contains the earlier changes and must be discarded.
    pub(crate) fn make(&self, document: &mut Document) -> Result<Brought> {
        let mut brought = Brought::default();
        for (number, edit) in self.all().iter().enumerate() {
            brought.note(number, edit, document);
            edit.make(document)
                .map_err(|error| self.named(number, error))?;
        }
        Ok(brought)
    }
}

/// The filters added by some changes: the index of the change, the link, and the position in the link.
#[derive(Debug, Default)]
pub(crate) struct Brought(Vec<(usize, String, usize)>);

impl Brought {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the change that added the filter at a position of a link, if any.
    pub(crate) fn by(&self, link: &str, place: usize) -> Option<usize> {
        let mut all = self.0.iter();
        let found = all.find(|(_, of, at)| of == link && *at == place);
        found.map(|(number, ..)| *number)
    }

    /// Records the effect of a change on filters, before it is applied.
    fn note(&mut self, number: usize, edit: &Edit, document: &mut Document) {
        match edit {
            Edit::AddFilter { link, at, .. } => {
                let place = at.unwrap_or_else(|| document.classes_of_filters(link).len());
                for (_, of, at) in &mut self.0 {
                    *at += usize::from(of == link && *at >= place);
                }
                self.0.push((number, link.clone(), place));
            }
            Edit::RemoveFilter { link, at } => self.forget(link, *at),
            Edit::RemoveClass { link, class } => {
                let classes = document.classes_of_filters(link);
                let places = (0..classes.len()).rev();
                for place in places.filter(|&place| classes[place] == *class) {
                    self.forget(link, place);
                }
            }
            Edit::ChangeLink { link, keys } => {
                if let Some(Json::String(name)) = keys.get("name") {
                    let of_link = self.0.iter_mut().filter(|(_, of, _)| of == link);
                    of_link.for_each(|(_, of, _)| of.clone_from(name));
                }
            }
            Edit::AddClass { .. } | Edit::ChangeClass { .. } => {}
        }
    }

    /// Removes the filter at this position.
    fn forget(&mut self, link: &str, place: usize) {
        self.0.retain(|(_, of, at)| of != link || *at != place);
        for (_, of, at) in &mut self.0 {
            *at -= usize::from(of == link && *at > place);
        }
    }
}

/// Parses the keys of a body.
///
/// # Errors
///
/// The body is not a JSON object.
pub(crate) fn keys(body: &[u8]) -> Result<Keys> {
    let refused = |sentence: String| Err(EditError::Value(sentence));
    match serde_json::from_slice(body) {
        Ok(Json::Object(keys)) => Ok(keys),
        Ok(_) => refused(
            "the body is no JSON object of keys and values, as in {\"rate\": \"2mbit\"}".to_owned(),
        ),
        Err(error) => refused(format!("the body is no JSON: {error}")),
    }
}

fn number(text: &str) -> Result<usize> {
    let sentence = || format!("'{text}' is no number of a filter, which count from 0");
    text.parse().map_err(|_| EditError::Value(sentence()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: &str = "[[link]]\nname = \"up\"\nrate = \"20mbit\"\n\
        [[link.class]]\nname = \"voice\"  # calls\n";

    #[test]
    fn several_changes_are_written_down_in_their_order() {
        let body = br#"[
            {"method": "POST", "path": ["v1", "links", "up", "classes"], "keys": {"name": "a/b"}},
            {"method": "PATCH", "path": ["v1", "links", "up", "classes", "a/b"], "keys": {"weight": 3}},
            {"method": "POST", "path": ["v1", "links", "up", "filters"], "keys": {"class": "a/b", "dscp": 8}},
            {"method": "POST", "path": ["v1", "links", "up", "filters"], "keys": {"class": "voice", "dscp": 46}, "at": 0},
            {"method": "DELETE", "path": ["v1", "links", "up", "filters", "1"]},
            {"method": "PATCH", "path": ["v1", "links", "up"], "keys": {"rate": "9mbit"}}
        ]"#;
        let edits = Edit::several(body).unwrap();
        let mut document = Document::new(SITE).unwrap();
        Edits::Together(edits).make(&mut document).unwrap();
        let text = document.to_string();
        assert!(
            text.contains("rate = \"9mbit\"") && text.contains("# calls"),
            "{text}"
        );
        assert!(text.contains("name = \"a/b\"\nweight = 3"), "{text}");
        assert!(
            text.contains("dscp = 46") && !text.contains("dscp = 8"),
            "{text}"
        );
    }

    #[test]
    fn of_the_filters_that_come_it_is_known_where_they_stand_in_the_end() {
        let body = br#"[
            {"method": "POST", "path": ["v1", "links", "up", "classes"], "keys": {"name": "a"}},
            {"method": "POST", "path": ["v1", "links", "up", "filters"], "keys": {"class": "voice", "dscp": 1}},
            {"method": "POST", "path": ["v1", "links", "up", "filters"], "keys": {"class": "a", "dscp": 2}, "at": 0},
            {"method": "POST", "path": ["v1", "links", "up", "filters"], "keys": {"class": "voice", "dscp": 3}},
            {"method": "DELETE", "path": ["v1", "links", "up", "filters", "1"]},
            {"method": "PATCH", "path": ["v1", "links", "up"], "keys": {"name": "west"}},
            {"method": "PATCH", "path": ["v1", "links", "west", "classes", "a"], "keys": {"weight": 2}}
        ]"#;
        let brought = |edits| {
            let mut document = Document::new(SITE).unwrap();
            let brought = Edits::Together(edits).make(&mut document).unwrap();
            [0, 1, 2].map(|place| brought.by("west", place))
        };
        let edits = || Edit::several(body).unwrap();
        assert_eq!(brought(edits()), [Some(2), Some(3), None]);
        let mut more = edits();
        let (link, class) = ("west".to_owned(), "a".to_owned());
        more.push(Edit::RemoveClass { link, class });
        assert_eq!(brought(more), [Some(3), None, None]);
        let mut fewer = edits();
        fewer.drain(1..5);
        assert_eq!(brought(fewer), [None; 3]);
    }

    #[test]
    fn the_one_that_cannot_be_made_is_named() {
        let sentence = |body: &str| match Edit::several(body.as_bytes()) {
            Ok(edits) => {
                let mut document = Document::new(SITE).unwrap();
                let refused = Edits::Together(edits).make(&mut document);
                refused.unwrap_err().to_string()
            }
            Err(error) => error.to_string(),
        };
        let missing = sentence(
            r#"[{"method": "PATCH", "path": ["v1", "links", "up"], "keys": {}},
                {"method": "DELETE", "path": ["v1", "links", "up", "classes", "voise"]}]"#,
        );
        assert!(
            missing.starts_with("change 2 of 2: class 'voise' does not exist"),
            "{missing}"
        );
        for body in [
            r#"[{"method": "POST", "path": ["v1", "reload"]}]"#,
            r#"[{"method": "GET", "path": ["v1", "links", "up"]}]"#,
            r#"[{"method": " ", "path": []}]"#,
        ] {
            let refused = sentence(body);
            assert!(
                refused.starts_with("change 1 of 1: ") && refused.contains("is no change that"),
                "{refused}"
            );
        }
        for body in [
            "",
            "{}",
            "[1]",
            r#"[{"method": "PATCH", "path": "/v1", "x": 1}]"#,
        ] {
            assert!(
                sentence(body).contains("no JSON array of changes"),
                "{body}"
            );
        }
    }
}
