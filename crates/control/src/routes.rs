//! What may be asked: each method and path, and what it answers.

use std::convert::Infallible;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use fairlane_config::class_report::ClassReport;
use fairlane_config::{MAX_FILE, NotGranted};
use fairlane_site::{Error, Handle, LinkReport, Report, Source};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, HOST, HeaderValue, IF_MATCH,
    IF_NONE_MATCH, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::json;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tracing::debug;

use crate::change::{ATTEMPTS, Changed, Ended, Refused, beside, broken_by, change_beside, replace};
use crate::document::EditError;
use crate::draft::Drafts;
use crate::edit::{Edit, Edits, keys};
use crate::explain::explain;
use crate::flows::Question;
use crate::grants::{Grants, Wanted, refusal};
use crate::history::{Kept, Span, Told};
use crate::metrics::{Exposition, Format};
use crate::operate;
use crate::page;
use crate::save::save;
use crate::service::PATIENCE;
use crate::stream::{Events, States};
use crate::token::Token;

/// The longest body of a request that is no configuration.
const MAX_BODY: usize = 1 << 20;
/// Streams that are open at a time, of the socket and over HTTP: fewer than connections, so that there is
/// always one for a question.
const STREAMS: [usize; 2] = [1_200, 128];
/// Changes that wait for the site at a time.
const CHANGES: usize = 8;
const JSON: &str = "application/json";
/// The parameter with which a change ends the grants that it breaks.
const BREAK_GRANTS: &str = "break-grants";
/// The parameter that says how many effects of a change are told.
const EFFECTS: &str = "effects";
/// What there is beside the page: each path, its variable parts in braces, and its methods. Nothing else is
/// answered.
const ROUTES: [(&str, &[&str]); 26] = [
    ("/metrics", &["GET"]),
    ("/v1/openapi.json", &["GET"]),
    ("/v1/state", &["GET"]),
    ("/v1/events", &["GET"]),
    ("/v1/history", &["GET"]),
    ("/v1/flows", &["GET"]),
    ("/v1/config", &["GET", "PUT"]),
    ("/v1/changes", &["POST"]),
    ("/v1/reload", &["POST"]),
    ("/v1/save", &["POST"]),
    ("/v1/interfaces", &["GET"]),
    ("/v1/interfaces/{interface}/shaping", &["PUT"]),
    ("/v1/interfaces/{interface}/detach", &["POST"]),
    ("/v1/interfaces/{interface}/attach", &["POST"]),
    ("/v1/links", &["GET"]),
    ("/v1/links/{link}", &["GET", "PATCH"]),
    ("/v1/links/{link}/flush", &["POST"]),
    ("/v1/links/{link}/classes", &["GET", "POST"]),
    (
        "/v1/links/{link}/classes/{class}",
        &["GET", "PATCH", "DELETE"],
    ),
    ("/v1/links/{link}/classes/{class}/explain", &["GET"]),
    ("/v1/links/{link}/classes/{class}/flush", &["POST"]),
    ("/v1/links/{link}/filters", &["POST"]),
    ("/v1/links/{link}/filters/{number}", &["DELETE"]),
    ("/v1/links/{link}/grants", &["POST"]),
    ("/v1/grants", &["GET"]),
    ("/v1/grants/{id}", &["GET", "PUT", "DELETE"]),
];

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// By the Unix socket, which only those can open who may change the site.
    Unix,
    /// By HTTP on loopback.
    Http,
}

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// What became of a class.
#[derive(Serialize)]
struct HistoryOf<'a> {
    link: &'a str,
    class: &'a str,
    #[serde(flatten)]
    told: Told,
}

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Api {
    site: Handle,
    grants: Arc<Grants>,
    drafts: Arc<Drafts>,
    states: States,
    history: Kept,
    file: Option<PathBuf>,
    token: Option<Token>,
    read_token: Option<Token>,
    /// Places for streams, of the socket and over HTTP.
    streams: [Arc<Semaphore>; 2],
    /// Turns to wait for the site.
    changes: Arc<Semaphore>,
}

/// Why a request has no other answer: its status, and one sentence.
#[derive(Debug)]
struct Failure(StatusCode, String);

type Result<T> = std::result::Result<T, Failure>;

fn fail<T>(status: StatusCode, sentence: impl Into<String>) -> Result<T> {
    Err(Failure(status, sentence.into()))
}

impl From<EditError> for Failure {
    fn from(error: EditError) -> Failure {
        Refused::from(error).into()
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        let status = match &refused {
            Refused::Edit(EditError::Missing(_)) => StatusCode::NOT_FOUND,
            Refused::Edit(EditError::Conflict(_)) => StatusCode::CONFLICT,
            Refused::Edit(EditError::Value(_)) => StatusCode::BAD_REQUEST,
            Refused::Site(Error::Outdated | Error::Conflict(_)) => StatusCode::CONFLICT,
            Refused::Site(Error::Missing(_)) => StatusCode::NOT_FOUND,
            Refused::Site(Error::Interface(reason)) => match reason.kind() {
                io::ErrorKind::NotFound => StatusCode::NOT_FOUND,
                io::ErrorKind::ResourceBusy => StatusCode::CONFLICT,
                _ => StatusCode::UNPROCESSABLE_ENTITY,
            },
            Refused::Site(Error::Ended) => StatusCode::SERVICE_UNAVAILABLE,
            Refused::Site(_) if !broken_by(&refused).is_empty() => StatusCode::CONFLICT,
            Refused::Site(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Refused::Precondition(_) => StatusCode::PRECONDITION_FAILED,
            Refused::NotGranted(NotGranted::NoLink(_)) => StatusCode::NOT_FOUND,
            Refused::NotGranted(NotGranted::Full { .. }) => StatusCode::CONFLICT,
            Refused::NotGranted(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Refused::TooMany(_) => StatusCode::CONFLICT,
        };
        Failure(status, refused.to_string())
    }
}

/// What a request is about.
struct Asked {
    method: Method,
    /// The parts of its path, decoded.
    path: Vec<String>,
    query: Vec<(String, String)>,
    /// What metrics are wanted as.
    format: Format,
}

impl Asked {
    fn of(parts: &Parts) -> Result<Asked> {
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
        Ok(Asked {
            method: parts.method.clone(),
            path,
            query: query.collect(),
            format: Format::accepted(accept),
        })
    }

    /// Whether a change is only to be looked at. The other parameters that are allowed are `also`.
    fn is_dry(&self, also: &[&str]) -> Result<bool> {
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

    /// Whether a change may break what was granted.
    fn breaks(&self) -> Result<bool> {
        match self.parameter(BREAK_GRANTS) {
            None | Some("false") => Ok(false),
            Some("" | "true") => Ok(true),
            Some(other) => {
                let sentence = format!("{BREAK_GRANTS}={other}: it is true or false");
                fail(StatusCode::BAD_REQUEST, sentence)
            }
        }
    }

    /// Whether a change is only to be looked at, whether it may break what was granted, and how many of its
    /// effects are to be told.
    fn change(&self) -> Result<(bool, bool, Option<usize>)> {
        let dry = self.is_dry(&[BREAK_GRANTS, EFFECTS])?;
        Ok((dry, self.breaks()?, self.shortens()?))
    }

    /// As many effects of a change as are wanted: all of them, or those that lose most.
    fn shortens(&self) -> Result<Option<usize>> {
        let Some(wanted) = self.parameter(EFFECTS) else {
            return Ok(None);
        };
        match wanted.parse() {
            Ok(most) => Ok(Some(most)),
            Err(_) => {
                let sentence =
                    format!("{EFFECTS}={wanted}: it is how many effects are to be told, from 0");
                fail(StatusCode::BAD_REQUEST, sentence)
            }
        }
    }

    /// Refuses parameters where there are none.
    fn has_no_parameters(&self) -> Result<()> {
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

    fn parameter(&self, key: &str) -> Option<&str> {
        let found = self.query.iter().find(|(other, _)| other == key);
        found.map(|(_, value)| value.as_str())
    }
}

impl Api {
    pub(crate) fn new(
        site: Handle,
        states: States,
        history: Kept,
        file: Option<PathBuf>,
        [token, read_token]: [Option<Token>; 2],
    ) -> Api {
        let drafts = Arc::<Drafts>::default();
        Api {
            grants: Arc::new(Grants::new(site.clone(), Arc::clone(&drafts))),
            drafts,
            site,
            states,
            history,
            file,
            token,
            read_token,
            streams: STREAMS.map(|most| Arc::new(Semaphore::new(most))),
            changes: Arc::new(Semaphore::new(CHANGES)),
        }
    }

    /// Lets go of what is kept for the next change, where none comes. Does not end.
    pub(crate) async fn let_go(self: Arc<Self>) {
        self.drafts.let_go().await;
    }

    /// What was granted.
    pub(crate) fn grants(&self) -> Arc<Grants> {
        Arc::clone(&self.grants)
    }

    /// Answers a request, whatever it is.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        access: Access,
    ) -> std::result::Result<Answer, Infallible> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answered = self.respond(request, access).await;
        let answer = answered.unwrap_or_else(|Failure(status, sentence)| {
            let mut answer = text(status, JSON, json!({ "error": sentence }).to_string());
            if status == StatusCode::UNAUTHORIZED {
                let scheme = HeaderValue::from_static("Bearer");
                answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            }
            answer
        });
        let status = answer.status().as_u16();
        debug!(name: "answered", %method, path, status, "{method} {path:?} was answered {status}");
        Ok(answer)
    }

    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        access: Access,
    ) -> Result<Answer> {
        let (parts, body) = request.into_parts();
        let asked = Asked::of(&parts)?;
        let reads = parts.method == Method::GET || parts.method == Method::HEAD;
        if access == Access::Http {
            from_loopback(&parts)?;
        }
        // There is nothing secret in the page: what it shows it has to ask for.
        if let Some(asset) = page::asset(&asked.path).filter(|_| reads) {
            return Ok(asset.answer(parts.headers.get(IF_NONE_MATCH)));
        }
        if access == Access::Http {
            self.admit(&parts, reads)?;
        }
        if !is_there(&asked) {
            return not_here(&asked);
        }
        if reads {
            return match &asked.path[..] {
                [v1, flows] if v1 == "v1" && flows == "flows" => self.flows(&asked).await,
                _ => self.read(&asked, access),
            };
        }
        let most = match asked.path.last().map(String::as_str) {
            Some("config" | "changes") => MAX_FILE as usize,
            _ => MAX_BODY,
        };
        let body = whole(body, most).await?;
        // It waits for the site, on a thread where that is allowed.
        let Ok(_turn) = Arc::clone(&self.changes).acquire_owned().await else {
            return fail(StatusCode::SERVICE_UNAVAILABLE, Error::Ended.to_string());
        };
        let (told, answer) = oneshot::channel();
        let thread = thread::Builder::new().name("change".to_owned());
        let if_match = parts
            .headers
            .get(IF_MATCH)
            .map(|value| value.as_bytes().to_vec());
        let started = thread.spawn(move || {
            // Whoever does not wait any more needs no answer.
            let _ = told.send(self.write(&asked, &body, if_match.as_deref()));
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

    /// Whether whoever asks over HTTP may.
    fn admit(&self, parts: &Parts, reads: bool) -> Result<()> {
        let given = parts
            .headers
            .get(AUTHORIZATION)
            .map(|value| value.as_bytes());
        let may_change = self.token.as_ref().map(|token| token.is_in(given));
        let may_read = self.read_token.as_ref().map(|token| token.is_in(given));
        match (reads, may_change, may_read) {
            (_, Some(true), _) | (true, _, None | Some(true)) => Ok(()),
            (true, ..) => fail(
                StatusCode::UNAUTHORIZED,
                "a token is needed: send the first line of the file read-token (or token) in \
                 [control] as 'Authorization: Bearer ..'",
            ),
            (false, None, _) => fail(
                StatusCode::FORBIDDEN,
                "nothing can be changed over HTTP here: [control] names no file token; use its socket",
            ),
            (false, Some(false), _) => fail(
                StatusCode::UNAUTHORIZED,
                "a change over HTTP needs a token: send the first line of the file token in \
                 [control] as 'Authorization: Bearer ..'",
            ),
        }
    }

    /// Answers what changes nothing.
    fn read(&self, asked: &Asked, access: Access) -> Result<Answer> {
        let state = Arc::clone(&self.states.borrow());
        let report = &*state.report;
        let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
        let of_state = !matches!(path[..], ["v1", "openapi.json" | "config" | "events"]);
        if of_state {
            told(report)?;
        }
        match path[..] {
            ["metrics"] => {
                let metrics = Exposition::new(Arc::clone(&state.report), asked.format);
                let media_type = asked.format.media_type();
                Ok(with(StatusCode::OK, media_type, metrics.boxed_unsync()))
            }
            ["v1", "openapi.json"] => Ok(text(StatusCode::OK, JSON, crate::OPENAPI)),
            ["v1", "state"] => Ok(text(StatusCode::OK, JSON, state.json())),
            ["v1", "config"] => {
                let site = self.site.site();
                let media_type = "application/toml; charset=utf-8";
                let mut answer = text(StatusCode::OK, media_type, site.text.to_string());
                if let Ok(tag) = HeaderValue::from_str(&tag(&site.text)) {
                    answer.headers_mut().insert(ETAG, tag);
                }
                Ok(answer)
            }
            ["v1", "interfaces"] => object(&report.interfaces),
            ["v1", "links"] => object(&report.links),
            ["v1", "links", link] => object(find(report, link)?),
            ["v1", "links", link, "classes"] => object(&find(report, link)?.classes),
            ["v1", "links", link, "classes", class] => {
                object(find_class(find(report, link)?, class)?)
            }
            ["v1", "links", link, "classes", class, "explain"] => {
                let link = find(report, link)?;
                object(&explain(link, find_class(link, class)?))
            }
            ["v1", "events"] => self.events(access),
            ["v1", "grants"] => object(&self.grants.all(report)),
            ["v1", "grants", number] => object(&self.grants.one(number, report)?),
            ["v1", "history"] => self.history(asked, report),
            _ => not_here(asked),
        }
    }

    /// Answers who sends most: at once where somebody asked lately, else when that is known.
    async fn flows(&self, asked: &Asked) -> Result<Answer> {
        let question = Question::of(&asked.query);
        let question = question.map_err(|wrong| Failure(StatusCode::BAD_REQUEST, wrong))?;
        let state = Arc::clone(&self.states.borrow());
        told(&state.report)?;
        has_flows(&state.report, &question)?;
        let (tell, top) = oneshot::channel();
        self.site.top_flows(move |top| {
            // Whoever does not wait any more needs no answer.
            let _ = tell.send(Arc::clone(top));
        });
        match timeout(PATIENCE, top).await {
            Ok(Ok(top)) => object(&question.answer(&top)),
            Ok(Err(_)) => fail(StatusCode::SERVICE_UNAVAILABLE, Error::Ended.to_string()),
            Err(_) => {
                let sentence = format!(
                    "the flows were not counted within {} s: ask again",
                    PATIENCE.as_secs()
                );
                fail(StatusCode::SERVICE_UNAVAILABLE, sentence)
            }
        }
    }

    /// What became of a class in the last hour, or week.
    fn history(&self, asked: &Asked, report: &Report) -> Result<Answer> {
        let refused = |sentence: String| fail(StatusCode::BAD_REQUEST, sentence);
        let (mut link, mut class, mut span, mut since) = (None, None, Span::Hour, None);
        for (key, value) in &asked.query {
            match (key.as_str(), value.as_str()) {
                ("link", name) => link = Some(name),
                ("class", name) => class = Some(name),
                ("span", "hour") => span = Span::Hour,
                ("span", "week") => span = Span::Week,
                ("span", other) => return refused(format!("span={other}: it is hour or week")),
                ("since", time) => match time.parse() {
                    Ok(time) => since = Some(time),
                    Err(_) => {
                        return refused(format!("since={time}: it is whole seconds since 1970"));
                    }
                },
                (key, _) => {
                    return refused(format!(
                        "no parameter is '{key}': there are link, class, span and since"
                    ));
                }
            }
        }
        let (Some(link), Some(class)) = (link, class) else {
            return refused("a history is of one class: say link=.. and class=..".to_owned());
        };
        find_class(find(report, link)?, class)?;
        let told = self.history.told(link, class, span, since);
        object(&HistoryOf {
            link,
            class,
            // It came with the state that is noted next.
            told: told.unwrap_or_else(|| Told::nothing(span)),
        })
    }

    /// A stream of states, one as often as they are told.
    fn events(&self, access: Access) -> Result<Answer> {
        let places = &self.streams[access as usize];
        let Some(events) = Events::open(self.states.clone(), places) else {
            let sentence = format!("{} streams are open already", STREAMS[access as usize]);
            return fail(StatusCode::SERVICE_UNAVAILABLE, sentence);
        };
        let mut answer = Response::new(events.boxed_unsync());
        answer
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        no_store(&mut answer);
        Ok(answer)
    }

    /// Makes a change, and waits for what comes of it.
    fn write(&self, asked: &Asked, body: &[u8], if_match: Option<&[u8]>) -> Result<Answer> {
        let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
        let edit = |edits: &Edits| {
            let also = match path.last() {
                Some(&"filters") => &["at", BREAK_GRANTS, EFFECTS][..],
                _ => &[BREAK_GRANTS, EFFECTS],
            };
            let (dry, breaks, most) = (asked.is_dry(also)?, asked.breaks()?, asked.shortens()?);
            let make =
                |grants: Option<&[_]>| change_beside(&self.site, &self.drafts, dry, grants, edits);
            answer(self.grants.despite(breaks, make), most)
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
                Some(file) => self.go_on_as(asked, &Source::File(file.clone()), None),
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
    fn write_grants(&self, asked: &Asked, path: &[&str], body: &[u8]) -> Result<Answer> {
        match (&asked.method, path) {
            (&Method::POST, ["v1", "links", link, "grants"]) => {
                let wanted = Wanted::of(keys(body)?)?;
                let (dry, most) = (asked.is_dry(&[EFFECTS])?, asked.shortens()?);
                match self.grants.grant(link, &wanted, dry) {
                    Ok(mut granted) => {
                        shorten(&mut granted.changed, most);
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
                let (dry, breaks, most) = asked.change()?;
                answer(self.grants.revoke(number, dry, breaks), most)
            }
            _ => not_here(asked),
        }
    }

    /// Does what is no change of the configuration, or not only that.
    fn operate(&self, asked: &Asked, path: &[&str], body: &[u8]) -> Result<Answer> {
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
                let (dry, breaks, most) = asked.change()?;
                let attach =
                    |grants: Option<&[_]>| operate::attach(&self.site, place, body, dry, grants);
                answer(self.grants.despite(breaks, attach), most)
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

    /// Has another configuration take over; where `if_match` is given, only if what runs is that.
    fn go_on_as(&self, asked: &Asked, source: &Source, if_match: Option<&[u8]>) -> Result<Answer> {
        let (dry, breaks, most) = asked.change()?;
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
                    // Another change came first.
                    Err(Refused::Site(Error::Outdated)) => {}
                    done => return done,
                }
            }
            Err(Refused::Site(Error::Outdated))
        };
        answer(self.grants.despite(breaks, make), most)
    }

    /// Writes what runs to the file that it was read from.
    fn save(&self, asked: &Asked, file: &Path) -> Result<Answer> {
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
        let found = fs::read(file).map_err(failed)?;
        if !force && found != self.site.file_text().as_bytes() && found != text.as_bytes() {
            return fail(
                StatusCode::CONFLICT,
                format!(
                    "{} was changed since it was read: reload it, or save with force=true (ctl save \
                     --force), and what was changed there is lost",
                    file.display()
                ),
            );
        }
        save(file, &text).map_err(failed)?;
        self.site.wrote(text);
        object(&json!({ "saved": file }))
    }
}

/// Whether a state was told.
fn told(report: &Report) -> Result<()> {
    match report.links.is_empty() {
        false => Ok(()),
        true => fail(
            StatusCode::SERVICE_UNAVAILABLE,
            "the site has just started, and has told no state yet: ask again",
        ),
    }
}

/// Whether whoever asks over HTTP has a name of this machine for us.
fn from_loopback(parts: &Parts) -> Result<()> {
    // A page from elsewhere that a browser on this machine shows has another.
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    if host.is_some_and(is_loopback) {
        return Ok(());
    }
    let sentence = "the Host header names no loopback address: ask 127.0.0.1, [::1] or localhost";
    fail(StatusCode::FORBIDDEN, sentence)
}

/// What tells a configuration, or an asset of the page, from any other.
pub(crate) fn tag(content: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

/// The methods of a path; `None` where it is none.
fn methods(path: &[impl AsRef<str>]) -> Option<&'static [&'static str]> {
    let is = |route: &str| {
        let parts = route.split('/').skip(1);
        let mut pairs = parts.clone().zip(path);
        parts.count() == path.len()
            && pairs.all(|(part, is)| part.starts_with('{') || part == is.as_ref())
    };
    let found = ROUTES.iter().find(|(route, _)| is(route));
    found.map(|&(_, methods)| methods)
}

/// Whether a path has the method that is asked for.
fn is_there(asked: &Asked) -> bool {
    let method = match asked.method {
        Method::HEAD => Method::GET.as_str(),
        _ => asked.method.as_str(),
    };
    methods(&asked.path).is_some_and(|methods| methods.contains(&method))
}

fn not_here(asked: &Asked) -> Result<Answer> {
    let (method, path) = (&asked.method, asked.path.join("/"));
    let of_page = || page::asset(&asked.path).map(|_| &["GET"][..]);
    if let Some(methods) = methods(&asked.path).or_else(of_page) {
        let sentence = format!(
            "{method} is not for /{path}: there is {}",
            methods.join(", ")
        );
        return fail(StatusCode::METHOD_NOT_ALLOWED, sentence);
    }
    let all = ROUTES.map(|(route, methods)| format!("{route} ({})", methods.join(", ")));
    let sentence = format!(
        "{method} /{path} does not exist: there is {}, and / for the page",
        all.join(", ")
    );
    fail(StatusCode::NOT_FOUND, sentence)
}

/// Whether a Host header names this machine's loopback interface.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// All of a body, if it is short enough and comes in time.
async fn whole(body: Incoming, most: usize) -> Result<Bytes> {
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

fn find<'a>(report: &'a Report, name: &str) -> Result<&'a LinkReport> {
    let links = || report.links.iter();
    let found = links().find(|link| &*link.name == name);
    let names = || {
        links()
            .map(|link| &*link.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let sentence = || format!("link '{name}' does not exist: there is {}", names());
    found.ok_or_else(|| Failure(StatusCode::NOT_FOUND, sentence()))
}

fn find_class<'a>(link: &'a LinkReport, name: &str) -> Result<&'a ClassReport> {
    let found = link.classes.iter().find(|class| &*class.terms.name == name);
    let names = || link.classes.iter().map(|class| &*class.terms.name);
    let near = || fairlane_config::suggestion(name, names());
    let sentence = || {
        format!(
            "class '{name}' does not exist in link '{}'{}",
            link.name,
            near()
        )
    };
    found.ok_or_else(|| Failure(StatusCode::NOT_FOUND, sentence()))
}

/// Whether there are the link and the class that a question is about, and the class has flows.
fn has_flows(report: &Report, question: &Question) -> Result<()> {
    let links = match &question.link {
        Some(link) => vec![find(report, link)?],
        None => report.links.iter().collect(),
    };
    let Some(name) = &question.class else {
        return Ok(());
    };
    let mut refused = Ok(());
    for link in links {
        match find_class(link, name) {
            Ok(class) if class.terms.each.is_some() => return Ok(()),
            Ok(_) => {
                let sentence = format!(
                    "class '{name}' of link '{}' has no flows: a class with the key per has",
                    link.name
                );
                refused = fail(StatusCode::BAD_REQUEST, sentence);
            }
            // What another link has of that name says more.
            Err(missing) => refused = refused.and(Err(missing)),
        }
    }
    refused
}

fn shorten(changed: &mut Changed, most: Option<usize>) {
    if let Some(most) = most {
        changed.shorten(most);
    }
}

/// What came of a change, with so many effects at most; of one that was refused for grants, which they are.
fn answer(changed: std::result::Result<Changed, Refused>, most: Option<usize>) -> Result<Answer> {
    let refused = match changed {
        Ok(mut changed) => {
            shorten(&mut changed, most);
            return object(&changed);
        }
        Err(refused) if broken_by(&refused).is_empty() => return Err(refused.into()),
        Err(refused) => refused,
    };
    let grants: Vec<Ended> = broken_by(&refused).iter().map(Ended::from).collect();
    let error = format!("{refused}; {BREAK_GRANTS}=true (ctl --break-grants) ends what it breaks");
    let body = json!({ "error": error, "grants": grants });
    Ok(text(StatusCode::CONFLICT, JSON, body.to_string()))
}

fn object(value: &(impl Serialize + ?Sized)) -> Result<Answer> {
    match serde_json::to_string(value) {
        Ok(body) => Ok(text(StatusCode::OK, JSON, body)),
        Err(error) => fail(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

pub(crate) fn text(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Answer {
    with(status, media_type, Full::new(body.into()).boxed_unsync())
}

fn with(
    status: StatusCode,
    media_type: &'static str,
    body: UnsyncBoxBody<Bytes, Infallible>,
) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    answer.headers_mut().insert(CONTENT_TYPE, media_type);
    let sniffed = HeaderValue::from_static("nosniff");
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, sniffed);
    no_store(&mut answer);
    answer
}

fn no_store(answer: &mut Answer) {
    let value = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(CACHE_CONTROL, value);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value as Json;

    use super::*;

    #[test]
    fn what_is_answered_is_what_the_description_has() {
        let document: Json = serde_json::from_str(crate::OPENAPI).unwrap();
        let paths = document["paths"].as_object().unwrap().iter();
        let described: BTreeSet<(&str, String)> = paths
            .flat_map(|(path, operations)| {
                let methods = operations.as_object().unwrap().keys();
                methods.map(|method| (&**path, method.to_uppercase()))
            })
            // The page, which lies beside them.
            .filter(|(path, _)| *path != "/")
            .collect();
        let answered = ROUTES.iter().flat_map(|(path, methods)| {
            let methods = methods.iter();
            methods.map(|method| (*path, (*method).to_owned()))
        });
        assert_eq!(answered.collect::<BTreeSet<_>>(), described);
    }

    #[test]
    fn a_path_is_one_of_the_table_whatever_its_names_are() {
        for (path, has) in [
            (&["v1", "links", "a/b", "classes", "{}"][..], Some(3)),
            (&["v1", "links", "up", "filters", "0"], Some(1)),
            (&["v1", "links", "up", "filters", "0", "explain"], None),
            (&["v1", "Links"], None),
            (&["metrics", "more"], None),
            (&["v1"], None),
            (&[], None),
        ] {
            assert_eq!(methods(path).map(<[_]>::len), has, "{path:?}");
        }
    }

    #[test]
    fn only_names_of_loopback_are_taken_for_it() {
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:7172",
            "127.1.2.3",
            "[::1]:9",
            "[::1]",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "example.org",
            "127.0.0.1.example.org:80",
            "10.0.0.1:7172",
            "localhost.evil",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
