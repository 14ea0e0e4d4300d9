//! Requests that change or operate a running site; the client waits for the result.

use std::io::{self, ErrorKind::InvalidData};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use fairlane_config::{NotGranted, SiteError, read_regular_text};
use fairlane_daemon::{Error, Source};
use hyper::{Method, StatusCode};
use serde_json::json;
use tokio::sync::oneshot;

use super::answers::{Answer, Failure, JSON, Result, fail, object, tag, text};
use super::asked::{BREAK_GRANTS, DISCARD, EFFECTS, EffectLimit, ParsedRequest};
use super::{Api, not_here};
use crate::change::{
    ATTEMPTS, Changed, EndedGrant, Refused, beside, broken_by, change_beside, replace,
};
use crate::edit::{Edit, Edits, keys};
use crate::grants::{Wanted, refusal};
use crate::operate;
use crate::save::save;

impl Api {
    /// Makes a change on a blocking thread, which may wait for the site. With `if_match`, only if that tag is of the
    /// running configuration.
    pub(super) async fn change(
        self: Arc<Self>,
        asked: ParsedRequest,
        body: Bytes,
        if_match: Option<Vec<u8>>,
    ) -> Result<Answer> {
        let Ok(_turn) = Arc::clone(&self.changes).acquire_owned().await else {
            return fail(StatusCode::SERVICE_UNAVAILABLE, Error::Ended.to_string());
        };
        let (told, answer) = oneshot::channel();
        let thread = thread::Builder::new().name("change".to_owned());
        let started = thread.spawn(move || {
            // A client that has disconnected needs no answer.
            let _ = told.send(self.write(&asked, &body, if_match.as_deref()));
            self.drafts.tidy_up();
        });
        match (started, answer.await) {
            (Ok(_), Ok(answer)) => answer,
            (Err(error), _) => fail(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("the system starts no thread for the change: {error}"),
            ),
            (Ok(_), Err(_)) => fail(StatusCode::SERVICE_UNAVAILABLE, Error::Ended.to_string()),
        }
    }

    /// Makes a change and returns its result.
    fn write(&self, asked: &ParsedRequest, body: &[u8], if_match: Option<&[u8]>) -> Result<Answer> {
        let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
        let edit = |edits: &Edits| {
            let also = match path.last() {
                Some(&"filters") => &["at", BREAK_GRANTS, EFFECTS][..],
                _ => &[BREAK_GRANTS, EFFECTS],
            };
            let (dry, breaks, listed) = (asked.is_dry(also)?, asked.breaks()?, asked.listed()?);
            let make =
                |grants: Option<&[_]>| change_beside(&self.site, &self.drafts, dry, grants, edits);
            answer(self.grants.despite(breaks, make), listed)
        };
        if let ["v1", "links", link, "classes", class] = path[..] {
            self.grants.guard(link, class)?;
        }
        match (&asked.method, &path[..]) {
            (&Method::PUT, ["v1", "config"]) => {
                let Ok(text) = std::str::from_utf8(body) else {
                    return fail(StatusCode::BAD_REQUEST, "the configuration is no UTF-8");
                };
                self.go_on_as(asked, &Source::Text(text.to_owned()), if_match)
            }
            (&Method::POST, ["v1", "reload"]) => match &self.file {
                Some(file) => {
                    let source = Source::File(file.clone());
                    let source = match asked.flag(DISCARD)? {
                        true => Source::Discarding(Box::new(source)),
                        false => source,
                    };
                    self.go_on_as(asked, &source, None)
                }
                None => fail(StatusCode::CONFLICT, "the site was read from no file"),
            },
            (&Method::POST, ["v1", "save"]) => match &self.file {
                Some(file) => self.save(asked, file),
                None => fail(StatusCode::CONFLICT, "the site was read from no file"),
            },
            (&Method::POST, ["v1", "changes"]) => {
                let edits = Edit::several(body)?;
                for (link, class) in edits.iter().filter_map(Edit::class) {
                    self.grants.guard(link, class)?;
                }
                edit(&Edits::Together(edits))
            }
            (_, ["v1", "links", _, "grants"] | ["v1", "grants", ..]) => {
                self.write_grants(asked, &path, body)
            }
            (
                _,
                ["v1", "interfaces", ..]
                | ["v1", "links", _, "flush"]
                | ["v1", "links", _, "classes", _, "flush"],
            ) => self.operate(asked, &path, body),
            _ => {
                let at = asked.parameter("at");
                match Edit::of(&asked.method, &path, || keys(body), at)? {
                    Some(one) => edit(&Edits::One(one)),
                    None => not_here(asked),
                }
            }
        }
    }

    /// Grants, renews and revokes.
    fn write_grants(&self, asked: &ParsedRequest, path: &[&str], body: &[u8]) -> Result<Answer> {
        match (&asked.method, path) {
            (&Method::POST, ["v1", "links", link, "grants"]) => {
                let wanted = Wanted::of(keys(body)?)?;
                let (dry, listed) = (asked.is_dry(&[EFFECTS])?, asked.listed()?);
                match self.grants.grant(link, &wanted, dry) {
                    Ok(mut granted) => {
                        listed.shorten(&mut granted.changed);
                        object(&granted)
                    }
                    Err(Refused::NotGranted(refused @ NotGranted::Full { .. })) => {
                        let body = refusal(&refused).to_string();
                        Ok(text(StatusCode::CONFLICT, JSON, body))
                    }
                    Err(refused) => Err(refused.into()),
                }
            }
            (&Method::PUT, ["v1", "grants", number]) => {
                let dry = asked.is_dry(&[])?;
                object(&self.grants.renew(number, &keys(body)?, dry)?)
            }
            (&Method::DELETE, ["v1", "grants", number]) => {
                let (dry, breaks, listed) = asked.change(&[])?;
                answer(self.grants.revoke(number, dry, breaks), listed)
            }
            _ => not_here(asked),
        }
    }

    /// Performs operations that are not changes of the configuration, or not only that.
    fn operate(&self, asked: &ParsedRequest, path: &[&str], body: &[u8]) -> Result<Answer> {
        match (&asked.method, path) {
            (&Method::PUT, ["v1", "interfaces", interface, "shaping"]) => {
                asked.has_no_parameters()?;
                object(&operate::shape(&self.site, interface, body)?)
            }
            (&Method::POST, ["v1", "interfaces", interface, "detach"]) => {
                asked.has_no_parameters()?;
                object(&operate::detach(&self.site, interface)?)
            }
            (&Method::POST, ["v1", "interfaces", place, "attach"]) => {
                let (dry, breaks, listed) = asked.change(&[])?;
                let attach =
                    |grants: Option<&[_]>| operate::attach(&self.site, place, body, dry, grants);
                answer(self.grants.despite(breaks, attach), listed)
            }
            (&Method::POST, ["v1", "links", link, "flush"]) => {
                asked.has_no_parameters()?;
                object(&operate::flush(&self.site, link, None)?)
            }
            (&Method::POST, ["v1", "links", link, "classes", class, "flush"]) => {
                asked.has_no_parameters()?;
                object(&operate::flush(&self.site, link, Some(*class))?)
            }
            _ => not_here(asked),
        }
    }

    /// Applies another configuration; with `if_match`, only if that tag is of the running one.
    fn go_on_as(
        &self,
        asked: &ParsedRequest,
        source: &Source,
        if_match: Option<&[u8]>,
    ) -> Result<Answer> {
        let also: &[&str] = match source {
            Source::Text(_) => &[],
            _ => &[DISCARD],
        };
        let (dry, breaks, listed) = asked.change(also)?;
        let make = |grants: Option<&[_]>| {
            for _ in 0..ATTEMPTS {
                let before = self.site.site();
                let tag = tag(&before.text);
                if if_match.is_some_and(|given| given != tag.as_bytes() && given != b"*") {
                    return Err(Refused::Precondition(format!(
                        "If-Match: the configuration that runs is {tag} by now; look again"
                    )));
                }
                let base = (!dry).then(|| Arc::clone(&before));
                let source = beside(source.clone(), grants);
                match replace(&self.site, source, base, &before) {
                    // Another change was applied in the meantime.
                    Err(Refused::Site(Error::Outdated)) => {}
                    done => return done,
                }
            }
            Err(Refused::Site(Error::Outdated))
        };
        answer(self.grants.despite(breaks, make), listed)
    }

    /// Writes the running configuration to its file.
    fn save(&self, asked: &ParsedRequest, file: &Path) -> Result<Answer> {
        let mut force = false;
        for (key, value) in &asked.query {
            match (key.as_str(), value.as_str()) {
                ("force", "" | "true") => force = true,
                ("force", "false") => force = false,
                (key, value) => {
                    let sentence = format!("{key}={value}: there is only force=true, or false");
                    return fail(StatusCode::BAD_REQUEST, sentence);
                }
            }
        }
        let failed = |error: io::Error| {
            let owner = match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    ": it and its folder are to belong to the user that the site runs as, and to be \
                     writable for it"
                }
                _ => "",
            };
            let sentence = format!("{}: {error}{owner}", file.display());
            Failure(StatusCode::INTERNAL_SERVER_ERROR, sentence)
        };
        let text = Arc::clone(&self.site.site().text);
        let is_known = |found: String| *found == *self.site.file_text() || *found == *text;
        let known = match read_regular_text(file) {
            _ if force => true,
            Ok(found) => is_known(found),
            Err(SiteError::Unreadable { reason, .. }) if reason.kind() != InvalidData => {
                return Err(failed(reason));
            }
            // The file is not text.
            Err(_) => false,
        };
        if !known {
            return fail(
                StatusCode::CONFLICT,
                format!(
                    "{} was changed since it was read: reload it, or overwrite those changes with force=true (ctl \
                     save --force)",
                    file.display()
                ),
            );
        }
        save(file, &text).map_err(failed)?;
        self.site.wrote(text);
        object(&json!({ "saved": file }))
    }
}

/// Returns the answer to a change with the selected effects, or the grants because of which it was rejected.
fn answer(changed: std::result::Result<Changed, Refused>, listed: EffectLimit) -> Result<Answer> {
    let refused = match changed {
        Ok(mut changed) => {
            listed.shorten(&mut changed);
            return object(&changed);
        }
        Err(refused) if broken_by(&refused).is_empty() => return Err(refused.into()),
        Err(refused) => refused,
    };
    let grants: Vec<EndedGrant> = broken_by(&refused).iter().map(EndedGrant::from).collect();
    let error =
        format!("{refused}; {BREAK_GRANTS}=true (ctl --break-grants) revokes the broken grants");
    let body = json!({ "error": error, "grants": grants });
    Ok(text(StatusCode::CONFLICT, JSON, body.to_string()))
}
