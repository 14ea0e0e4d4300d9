//! A parsed request: its path, parameters and body.

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::ACCEPT;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use tokio::time::timeout;

use super::answers::{Result, fail};
use crate::change::Changed;
use crate::metrics::Format;
use crate::service::PATIENCE;

/// The parameter that lets a change end the grants that it breaks.
pub(super) const BREAK_GRANTS: &str = "break-grants";
/// The parameter that lets a reload discard changes that are not in the file.
pub(super) const DISCARD: &str = "discard";
/// The parameter that limits the effects listed in the answer.
pub(super) const EFFECTS: &str = "effects";

/// The effects of a change to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EffectLimit {
    /// All effects of a dry run; of an applied change at most [`UNASKED`].
    AsUsual,
    All,
    /// This many, largest loss first.
    Worst(usize),
}

/// Maximum number of effects listed for an applied change by default: those with the largest loss.
const UNASKED: usize = 100;

impl EffectLimit {
    /// Removes the other effects.
    pub(super) fn shorten(self, changed: &mut Changed) {
        match self {
            EffectLimit::AsUsual if changed.applied && changed.effects.len() > UNASKED => {
                changed.shorten(UNASKED);
            }
            EffectLimit::AsUsual | EffectLimit::All => {}
            EffectLimit::Worst(most) => changed.shorten(most),
        }
    }
}

/// A request without its body.
pub(super) struct ParsedRequest {
    pub(super) method: Method,
    /// The segments of its path, decoded.
    pub(super) path: Vec<String>,
    pub(super) query: Vec<(String, String)>,
    /// The preferred format of metrics.
    pub(super) format: Format,
}

impl ParsedRequest {
    pub(super) fn of(parts: &Parts) -> Result<ParsedRequest> {
        let mut path = Vec::new();
        for part in parts.uri.path().split('/').filter(|part| !part.is_empty()) {
            match percent_decode_str(part).decode_utf8() {
                Ok(part) => path.push(part.into_owned()),
                Err(_) => return fail(StatusCode::BAD_REQUEST, "the path is no UTF-8"),
            }
        }
        let query = parts.uri.query().unwrap_or_default();
        let query = form_urlencoded::parse(query.as_bytes()).into_owned();
        let accept = parts.headers.get(ACCEPT);
        let accept = accept.and_then(|accept| accept.to_str().ok()).unwrap_or("");
        Ok(ParsedRequest {
            method: parts.method.clone(),
            path,
            query: query.collect(),
            format: Format::accepted(accept),
        })
    }

    /// Returns true for a dry run. `also` lists the other parameters that are allowed.
    pub(super) fn is_dry(&self, also: &[&str]) -> Result<bool> {
        let mut dry = false;
        for (key, value) in &self.query {
            match (key.as_str(), value.as_str()) {
                ("dry-run", "" | "true") => dry = true,
                ("dry-run", "false") => dry = false,
                ("dry-run", other) => {
                    let sentence = format!("dry-run={other}: it is true or false");
                    return fail(StatusCode::BAD_REQUEST, sentence);
                }
                (key, _) if also.contains(&key) => {}
                (key, _) => {
                    let also = also.iter().map(|also| format!(" or '{also}'"));
                    let sentence = format!(
                        "the parameter '{key}' does not exist: there is 'dry-run'{}",
                        also.collect::<String>()
                    );
                    return fail(StatusCode::BAD_REQUEST, sentence);
                }
            }
        }
        Ok(dry)
    }

    /// Returns true if the change may break grants.
    pub(super) fn breaks(&self) -> Result<bool> {
        self.flag(BREAK_GRANTS)
    }

    /// Returns the value of a boolean parameter; false without it.
    pub(super) fn flag(&self, key: &str) -> Result<bool> {
        match self.parameter(key) {
            None | Some("false") => Ok(false),
            Some("" | "true") => Ok(true),
            Some(other) => {
                let sentence = format!("{key}={other}: unknown value (use true or false)");
                fail(StatusCode::BAD_REQUEST, sentence)
            }
        }
    }

    /// Returns whether a change is a dry run, whether it may break grants, and which of its effects to list.
    pub(super) fn change(&self, also: &[&str]) -> Result<(bool, bool, EffectLimit)> {
        let dry = self.is_dry(&[&[BREAK_GRANTS, EFFECTS], also].concat())?;
        Ok((dry, self.breaks()?, self.listed()?))
    }

    /// Returns the effects of a change to list.
    pub(super) fn listed(&self) -> Result<EffectLimit> {
        match self
            .parameter(EFFECTS)
            .map(|wanted| (wanted, wanted.parse()))
        {
            None => Ok(EffectLimit::AsUsual),
            Some(("all", _)) => Ok(EffectLimit::All),
            Some((_, Ok(most))) => Ok(EffectLimit::Worst(most)),
            Some((wanted, Err(_))) => {
                let sentence = format!(
                    "{EFFECTS}={wanted}: expected the number of effects to report, from 0, or 'all'"
                );
                fail(StatusCode::BAD_REQUEST, sentence)
            }
        }
    }

    /// Rejects any parameter.
    pub(super) fn has_no_parameters(&self) -> Result<()> {
        match self.query.first() {
            None => Ok(()),
            Some((key, _)) => fail(
                StatusCode::BAD_REQUEST,
                format!(
                    "/{} has no parameter '{key}', and no other",
                    self.path.join("/")
                ),
            ),
        }
    }

    pub(super) fn parameter(&self, key: &str) -> Option<&str> {
        let found = self.query.iter().find(|(other, _)| other == key);
        found.map(|(_, value)| value.as_str())
    }
}

/// Reads a whole body, up to a maximum length and within a time limit.
pub(super) async fn whole(body: Incoming, most: usize) -> Result<Bytes> {
    match timeout(PATIENCE, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => fail(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is longer than {most} bytes"),
        ),
        Ok(Err(error)) => fail(
            StatusCode::BAD_REQUEST,
            format!("the body ended early: {error}"),
        ),
        Err(_) => fail(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not come within {} s", PATIENCE.as_secs()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use crate::change::Effect;

    use super::*;

    /// Returns how many of `effects` effects are listed, and whether they keep the order of the file.
    fn told(listed: EffectLimit, applied: bool, effects: usize) -> (usize, bool) {
        let effect = |at: usize| Effect {
            link: format!("{at}").into(),
            before: None,
            after: None,
        };
        let mut changed = Changed {
            applied,
            effects: (0..effects).map(effect).collect(),
            effects_total: effects,
            effects_worse: 0,
            warnings: Vec::new(),
            ended: Vec::new(),
        };
        listed.shorten(&mut changed);
        assert_eq!(changed.effects_total, effects);
        let mut pairs = changed.effects.iter().enumerate();
        let in_order = pairs.all(|(at, effect)| *effect.link == at.to_string());
        (changed.effects.len(), in_order)
    }

    #[test]
    fn dry_run_lists_all_effects_and_a_change_a_hundred() {
        for (listed, applied, effects, expected) in [
            (EffectLimit::AsUsual, false, 101, 101),
            (EffectLimit::AsUsual, true, 100, 100),
            (EffectLimit::AsUsual, true, 101, 100),
            (EffectLimit::All, true, 101, 101),
            (EffectLimit::Worst(7), true, 101, 7),
            (EffectLimit::Worst(7), false, 3, 3),
        ] {
            let told = told(listed, applied, effects);
            assert_eq!(told, (expected, true), "{listed:?} {applied} {effects}");
        }
    }
}
