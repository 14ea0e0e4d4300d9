//! Requests that read a site without changing it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fairlane_config::class_report::ClassReport;
use fairlane_daemon::{Error, LinkReport, Report, TopFlows};
use hyper::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::access::Access;
use super::answers::{Answer, Failure, JSON, Result, fail, no_store, object, tag, text, with};
use super::asked::ParsedRequest;
use super::{Api, STREAMS, not_here};
use crate::classify::classify;
use crate::client::encoded;
use crate::explain::explain;
use crate::flows::Question;
use crate::history::{HistorySteps, Span};
use crate::reading::Content;
use crate::service::PATIENCE;
use crate::stream::Events;

/// Maximum interval between rounds of the forwarding thread.
const ROUND: Duration = Duration::from_millis(20);
/// Time without a round after which the forwarding thread counts as stalled.
const STALLED: Duration = Duration::from_secs(2);
/// The header of a stream with the name of the site.
const SITE: HeaderName = HeaderName::from_static("fairlane-site");
/// Maximum number of flows in an explanation.
const TALKERS: usize = 5;

/// The history of a class.
#[derive(Serialize)]
struct HistoryOf<'a> {
    link: &'a str,
    class: &'a str,
    #[serde(flatten)]
    told: HistorySteps,
}

impl Api {
    /// Answers a request that changes nothing.
    pub(super) async fn read(&self, asked: &ParsedRequest, access: Access) -> Result<Answer> {
        match &asked.path[..] {
            [v1, flows] if v1 == "v1" && flows == "flows" => self.flows(asked).await,
            [v1, links, link, classes, class, explain]
                if [v1, links, classes, explain] == ["v1", "links", "classes", "explain"] =>
            {
                self.explain(link, class).await
            }
            _ => self.read_at_once(asked, access),
        }
    }

    /// Answers from data at hand, without waiting.
    fn read_at_once(&self, asked: &ParsedRequest, access: Access) -> Result<Answer> {
        let state = Arc::clone(&self.states.borrow());
        let report = &*state.report;
        let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
        let of_state = !matches!(path[..], ["v1", "openapi.json" | "config" | "events"]);
        if of_state {
            told(report)?;
        }
        match path[..] {
            ["metrics"] => {
                let media_type = asked.format.media_type();
                let metrics = Content::Metrics(state, asked.format);
                Ok(with(StatusCode::OK, media_type, metrics))
            }
            ["v1", "openapi.json"] => Ok(text(StatusCode::OK, JSON, crate::OPENAPI)),
            ["v1", "state"] => Ok(with(StatusCode::OK, JSON, Content::State(state))),
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
            ["v1", "classify"] => self.classify(asked),
            ["v1", "events"] => self.events(access),
            ["v1", "grants"] => object(&self.grants.all(report)),
            ["v1", "grants", number] => object(&self.grants.one(number, report)?),
            ["v1", "history"] => self.history(asked, report),
            _ => not_here(asked),
        }
    }

    /// Answers whether frames are forwarded: whether the forwarding thread completes a round in time.
    pub(super) async fn health(&self) -> Result<Answer> {
        if !grows(|| self.site.rounds(), STALLED).await {
            let sentence = format!(
                "the forwarding thread made no round in {} s",
                STALLED.as_secs()
            );
            return fail(StatusCode::SERVICE_UNAVAILABLE, sentence);
        }
        Ok(text(StatusCode::OK, "text/plain; charset=utf-8", "ok\n"))
    }

    /// Explains the recent state of a class, with its top talkers if it has flows.
    async fn explain(&self, link: &str, class: &str) -> Result<Answer> {
        let state = Arc::clone(&self.states.borrow());
        told(&state.report)?;
        let link = find(&state.report, link)?;
        let class = find_class(link, class)?;
        let talkers = match class.terms.each {
            // An explanation without talkers is still useful.
            Some(_) => self.top_flows().await.map_or_else(
                |_| Vec::new(),
                |top| {
                    let own = top
                        .flows
                        .iter()
                        .filter(|flow| flow.link == link.name && flow.class == class.terms.name);
                    own.take(TALKERS).cloned().collect()
                },
            ),
            None => Vec::new(),
        };
        let site = self.site.site();
        let configured = site.links.iter().find(|other| *other.name == *link.name);
        let granted = site.granted_filters(&link.name);
        object(&explain(
            link,
            class,
            talkers,
            configured.map(|link| &**link),
            granted,
        ))
    }

    /// Returns the class of a packet in each link.
    fn classify(&self, asked: &ParsedRequest) -> Result<Answer> {
        let refused = |sentence: String| fail(StatusCode::BAD_REQUEST, sentence);
        match &asked.query[..] {
            [(key, packet)] if key == "packet" => match classify(&self.site.site(), packet) {
                Ok(classes) => object(&classes),
                Err(error) => refused(error.to_string()),
            },
            _ => refused("packet= is required (no other parameter is allowed)".to_owned()),
        }
    }

    /// Returns the top talkers: from a recent request, or after the site has counted them.
    async fn top_flows(&self) -> Result<Arc<TopFlows>> {
        let (tell, top) = oneshot::channel();
        self.site.top_flows(move |top| {
            // An abandoned request needs no answer.
            let _ = tell.send(Arc::clone(top));
        });
        match timeout(PATIENCE, top).await {
            Ok(Ok(top)) => Ok(top),
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

    /// Answers a request for top talkers.
    async fn flows(&self, asked: &ParsedRequest) -> Result<Answer> {
        let question = Question::of(&asked.query);
        let question = question.map_err(|wrong| Failure(StatusCode::BAD_REQUEST, wrong))?;
        let state = Arc::clone(&self.states.borrow());
        told(&state.report)?;
        has_flows(&state.report, &question)?;
        object(&question.answer(&*self.top_flows().await?))
    }

    /// Returns the history of a class, for the last hour or week.
    fn history(&self, asked: &ParsedRequest, report: &Report) -> Result<Answer> {
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
            // A class that is new in this state is not recorded yet.
            told: told.unwrap_or_else(|| HistorySteps::nothing(span)),
        })
    }

    /// Opens a stream with each state that the site publishes.
    fn events(&self, access: Access) -> Result<Answer> {
        let places = &self.streams[access as usize];
        let Some(events) = Events::open(self.states.clone(), places) else {
            let sentence = format!("{} streams are open already", STREAMS[access as usize]);
            return fail(StatusCode::SERVICE_UNAVAILABLE, sentence);
        };
        let mut answer = Response::new(Content::Events(events));
        answer
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        // nginx would hold a stream back until its buffers are full.
        let at_once = HeaderName::from_static("x-accel-buffering");
        answer
            .headers_mut()
            .insert(at_once, HeaderValue::from_static("no"));
        let name = self.file.as_deref().and_then(Path::file_stem);
        let name = name.map(|name| encoded(&name.to_string_lossy()));
        if let Some(name) = name.and_then(|name| HeaderValue::try_from(name).ok()) {
            answer.headers_mut().insert(SITE, name);
        }
        no_store(&mut answer);
        Ok(answer)
    }
}

/// Returns true if a counter grows within a time.
async fn grows(count: impl Fn() -> u64, within: Duration) -> bool {
    let before = count();
    let next = async {
        while count() == before {
            sleep(ROUND).await;
        }
    };
    timeout(within, next).await.is_ok()
}

/// Checks that a state has been published.
fn told(report: &Report) -> Result<()> {
    match report.links.is_empty() {
        false => Ok(()),
        true => fail(
            StatusCode::SERVICE_UNAVAILABLE,
            "no state yet: the site has just started (try again)",
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
    let mut classes = link.classes.iter();
    let found = classes.find(|class| &*class.terms.name == name);
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

/// Checks that the link and the class of a request exist, and that the class has flows.
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
            // The error of a link that has a class of this name is more specific.
            Err(missing) => refused = refused.and(Err(missing)),
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_forwarding_thread_lives_while_it_makes_rounds() {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true);
        let runtime = runtime.build().unwrap();
        let rounds = Cell::new(7);
        // The counter grows at every tenth call, or never.
        for (more, lives) in [(1, true), (0, false)] {
            let looks = Cell::new(0);
            let count = || {
                looks.set(looks.get() + 1);
                rounds.set(rounds.get() + u64::from(looks.get() % 10 == 0) * more);
                rounds.get()
            };
            assert_eq!(runtime.block_on(grows(count, STALLED)), lives);
        }
    }
}
