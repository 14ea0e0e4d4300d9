//! The HTTP routes: each method and path ([`ROUTES`]), and its handler.

mod access;
mod answers;
mod asked;
mod read;
mod write;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use fairlane_config::MAX_FILE;
use fairlane_daemon::Handle;
use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue, IF_MATCH, IF_NONE_MATCH, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::Semaphore;
use tracing::debug;

pub(crate) use access::Access;
use access::{from_loopback, has_one_meaning};
pub(crate) use answers::{Answer, tag, text};
use answers::{Failure, Result, fail, refusal};
use asked::{ParsedRequest, whole};

use crate::draft::Drafts;
use crate::grants::Grants;
use crate::history::SharedHistory;
use crate::page;
use crate::reading::{Read, Retained};
use crate::stream::States;
use crate::token::Token;

/// Maximum body of a request that carries no configuration.
const MAX_BODY: usize = 1 << 20;
/// Maximum body of a list of changes: its values take up to 16 times as much memory.
const MAX_CHANGES: usize = 8 << 20;
/// Maximum number of open streams on the socket and over HTTP: fewer than connections, so that some always remain for
/// requests.
const STREAMS: [usize; 2] = [1_200, 128];
/// Maximum number of changes queued for the site.
const CHANGES: usize = 8;
/// Every route except those of the page: each path, with variable parts in braces, and its methods.
const ROUTES: [(&str, &[&str]); 28] = [
    ("/healthz", &["GET"]),
    ("/metrics", &["GET"]),
    ("/v1/openapi.json", &["GET"]),
    ("/v1/state", &["GET"]),
    ("/v1/events", &["GET"]),
    ("/v1/history", &["GET"]),
    ("/v1/flows", &["GET"]),
    ("/v1/classify", &["GET"]),
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

/// State shared by all requests.
#[derive(Debug)]
pub(crate) struct Api {
    site: Handle,
    grants: Arc<Grants>,
    drafts: Arc<Drafts>,
    states: States,
    history: SharedHistory,
    file: Option<PathBuf>,
    token: Option<Token>,
    read_token: Option<Token>,
    /// Permits for streams, of the socket and over HTTP.
    streams: [Arc<Semaphore>; 2],
    /// Data being read, of the socket and over HTTP. They are separate so that a client with access to one of them
    /// cannot evict the answers of the other.
    retained: [Arc<Retained>; 2],
    /// Permits to wait for the site.
    changes: Arc<Semaphore>,
}

impl Api {
    pub(crate) fn new(
        site: Handle,
        states: States,
        history: SharedHistory,
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
            retained: Default::default(),
            changes: Arc::new(Semaphore::new(CHANGES)),
        }
    }

    /// Discards the draft kept for the next change if none follows. Never returns.
    pub(crate) async fn let_go(self: Arc<Self>) {
        self.drafts.let_go().await;
    }

    /// Returns the grants.
    pub(crate) fn grants(&self) -> Arc<Grants> {
        Arc::clone(&self.grants)
    }

    /// Answers any request.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        access: Access,
    ) -> std::result::Result<Response<Read>, Infallible> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answered = Arc::clone(&self).respond(request, access).await;
        let answer = answered.unwrap_or_else(|Failure(status, sentence)| {
            let mut answer = refusal(status, &sentence);
            if status == StatusCode::UNAUTHORIZED {
                let scheme = HeaderValue::from_static("Bearer");
                answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            }
            answer
        });
        let status = answer.status().as_u16();
        debug!(name: "answered", %method, path, status, "{method} {path:?} was answered {status}");
        let retained = &self.retained[access as usize];
        Ok(answer.map(|content| content.read(retained)))
    }

    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        access: Access,
    ) -> Result<Answer> {
        let (parts, body) = request.into_parts();
        has_one_meaning(&parts)?;
        let asked = ParsedRequest::of(&parts)?;
        let reads = parts.method == Method::GET || parts.method == Method::HEAD;
        if access == Access::Http {
            from_loopback(&parts)?;
        }
        // The page contains no secrets: it requests its data.
        if let Some(asset) = page::asset(&asked.path).filter(|_| reads) {
            return Ok(asset.answer(parts.headers.get(IF_NONE_MATCH)));
        }
        // Liveness is public, because a probe has no token.
        if reads && asked.path == ["healthz"] {
            return self.health().await;
        }
        if access == Access::Http {
            self.admit(&parts, reads)?;
        }
        if !is_there(&asked) {
            return not_here(&asked);
        }
        if reads {
            return self.read(&asked, access).await;
        }
        let most = match asked.path.last().map(String::as_str) {
            Some("config") => MAX_FILE as usize,
            Some("changes") => MAX_CHANGES,
            _ => MAX_BODY,
        };
        let body = whole(body, most).await?;
        let if_match = parts.headers.get(IF_MATCH);
        let if_match = if_match.map(|value| value.as_bytes().to_vec());
        self.change(asked, body, if_match).await
    }
}

/// Returns the methods of a path; `None` if there is no such route.
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

/// Returns true if the path has the requested method.
fn is_there(asked: &ParsedRequest) -> bool {
    let method = match asked.method {
        Method::HEAD => Method::GET.as_str(),
        _ => asked.method.as_str(),
    };
    methods(&asked.path).is_some_and(|methods| methods.contains(&method))
}

/// Formats the methods of a path as an `Allow` header: GET implies HEAD.
fn allowed(methods: &[&str]) -> String {
    methods.join(", ").replace("GET", "GET, HEAD")
}

fn not_here(asked: &ParsedRequest) -> Result<Answer> {
    let (method, path) = (&asked.method, asked.path.join("/"));
    let of_page = || page::asset(&asked.path).map(|_| &["GET"][..]);
    if let Some(methods) = methods(&asked.path).or_else(of_page) {
        let methods = allowed(methods);
        let sentence = format!("{method} is not for /{path}: there is {methods}");
        let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, &sentence);
        let methods = HeaderValue::try_from(methods).expect("methods are words");
        answer.headers_mut().insert(ALLOW, methods);
        return Ok(answer);
    }
    let all = ROUTES.map(|(route, methods)| format!("{route} ({})", methods.join(", ")));
    let sentence = format!(
        "{method} /{path} does not exist: there is {}, and / for the page",
        all.join(", ")
    );
    fail(StatusCode::NOT_FOUND, sentence)
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
            // The page is served too but is not a route.
            .filter(|(path, _)| *path != "/")
            .collect();
        let answered = ROUTES.iter().flat_map(|(path, methods)| {
            let methods = methods.iter();
            methods.map(|method| (*path, (*method).to_owned()))
        });
        assert_eq!(answered.collect::<BTreeSet<_>>(), described);
    }

    #[test]
    fn unsupported_method_lists_the_allowed_ones() {
        for (method, path, allow) in [
            ("PUT", "/v1/state", "GET, HEAD"),
            ("DELETE", "/v1/config", "GET, HEAD, PUT"),
            ("HEAD", "/v1/save", "POST"),
            ("POST", "/", "GET, HEAD"),
        ] {
            let request = Request::builder().method(method).uri(path);
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let answer = not_here(&ParsedRequest::of(&parts).unwrap()).unwrap();
            assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
            assert_eq!(answer.headers()[ALLOW], allow, "{method} {path}");
        }
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
}
