//! The refusals of a running site: each has the status and the sentence that the API's description gives, and no
//! partial effect.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use fairlane_control::OPENAPI;
use fairlane_io::Hold;
use fairlane_netlab::Wire;
use serde_json::Value;

use crate::described::{Description, filled};
use crate::site::{PATIENCE, wire};
use crate::site_control::{Answered, exchanged, request, request_over};
use crate::site_control_access::{HTTP, READ_TOKEN, Served, TOKEN};

/// A method and a path, in the description's form.
type Operation<'a> = (&'a str, &'a str);

const LINK: &str = "/v1/links/{link}";
const CLASSES: &str = "/v1/links/{link}/classes";
const CLASS: &str = "/v1/links/{link}/classes/{class}";
const FILTERS: &str = "/v1/links/{link}/filters";
const GRANTS: &str = "/v1/links/{link}/grants";
const DETACH: &str = "/v1/interfaces/{interface}/detach";
const ATTACH: &str = "/v1/interfaces/{interface}/attach";
/// Limit on the body of a change in bytes.
const MOST: usize = 1 << 20;

/// A site, and the description of its refusals.
struct Refusing<'a> {
    served: Served<'a>,
    description: Description,
}

impl<'a> Refusing<'a> {
    fn start(wire: &'a Wire) -> Refusing<'a> {
        let tokens = [("token", TOKEN), ("read-token", READ_TOKEN)];
        Refusing {
            served: Served::start(wire, &tokens),
            description: Description::new(OPENAPI),
        }
    }

    /// Returns the answer to a request at the socket.
    fn answer(
        &self,
        (method, path): Operation<'_>,
        names: &[&str],
        head: &str,
        body: &str,
    ) -> Answered {
        let socket = self.served.asked.socket();
        request(&socket, (method, &filled(path, names)), head, body)
    }

    /// Checks the status of an answer against the description, and returns its sentence.
    #[track_caller]
    fn held(&mut self, operation: Operation<'_>, status: u16, answer: &Answered) -> String {
        assert_eq!(answer.status, status, "{operation:?}: {}", answer.body);
        let told = match status {
            304 => answer.body.as_str().into(),
            _ => answer.json(),
        };
        let media_type = answer.field("content-type");
        let wrong = (self.description).hold(operation, status, media_type, &told);
        assert!(wrong.is_empty(), "{operation:?}: {wrong:#?}");
        let sentence = told["error"].as_str().unwrap_or_default();
        assert!(!sentence.contains('\n'), "{operation:?}: {sentence}");
        sentence.to_owned()
    }

    /// Over HTTP the site answers no request without the right token, and none for another host name.
    fn nobody_asks_without_a_token_or_by_another_name(&mut self) {
        for (method, path) in self.description.described() {
            let operation = (&*method, &*path);
            let asked = filled(&path, &["0", "0"]);
            let over = |served: &Served<'_>, head: &str| {
                request_over(served.connect(), (&method, &asked), head, "")
            };
            let elsewhere = over(&self.served, "Host: rebound.example\r\n");
            let sentence = self.held(operation, 403, &elsewhere);
            assert!(sentence.contains("Host"), "{sentence}");
            // The page and the health probe need no token.
            if ["/", "/healthz"].contains(&&*path) {
                continue;
            }
            for token in ["", "Authorization: Bearer as long, and another one\r\n"] {
                let unknown = over(&self.served, &format!("Host: {HTTP}\r\n{token}"));
                let sentence = self.held(operation, 401, &unknown);
                assert!(sentence.contains("token"), "{sentence}");
            }
        }
    }

    /// The variable parts of a path are treated as text.
    fn no_path_is_anything_but_text(&mut self) {
        for (method, path) in self.description.described() {
            if !path.contains('{') {
                continue;
            }
            let answer = self.answer((&method, &path), &["%ff", "%C3%28"], "", "");
            let sentence = self.held((&method, &path), 400, &answer);
            assert_eq!(sentence, "the path is no UTF-8");
        }
    }

    /// Sends each change, except those with the length of a file, with one byte too many.
    fn no_body_is_too_long(&mut self) {
        let long = " ".repeat(MOST + 1);
        for (method, path) in self.changes() {
            if ["/v1/config", "/v1/changes"].contains(&&*path) {
                continue;
            }
            let answer = self.answer((&method, &path), &["0", "0"], "", &long);
            let sentence = self.held((&method, &path), 413, &answer);
            assert_eq!(sentence, format!("the body is longer than {MOST} bytes"));
        }
    }

    fn changes(&self) -> Vec<(String, String)> {
        let mut all = self.description.described();
        all.retain(|(method, _)| method != "GET");
        all
    }

    /// Starts each change with half of its body.
    fn begin(&self) -> Vec<((String, String), UnixStream)> {
        let begin = |(method, path): (String, String)| {
            let asked = filled(&path, &["0", "0"]);
            let half = format!(
                "{method} {asked} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n["
            );
            let mut stream = UnixStream::connect(self.served.asked.socket()).unwrap();
            stream.set_read_timeout(Some(3 * PATIENCE)).unwrap();
            stream.write_all(half.as_bytes()).unwrap();
            ((method, path), stream)
        };
        self.changes().into_iter().map(begin).collect()
    }

    /// The other half does not arrive in time.
    fn none_is_waited_for(&mut self, begun: Vec<((String, String), UnixStream)>) {
        for ((method, path), stream) in begun {
            let answer = Answered::of(&exchanged(stream, ""));
            let sentence = self.held((&method, &path), 408, &answer);
            assert_eq!(sentence, "the body did not come within 10 s");
        }
    }

    /// Opens more streams than are allowed.
    fn no_stream_has_a_place_that_is_taken(&mut self) {
        let head = format!("Host: {HTTP}\r\nAuthorization: Bearer {READ_TOKEN}\r\n");
        let events = ("GET", "/v1/events");
        let mut open = Vec::new();
        loop {
            let mut stream = self.served.connect();
            let asking = format!("GET /v1/events HTTP/1.1\r\n{head}\r\n");
            stream.write_all(asking.as_bytes()).unwrap();
            let mut begins = [0; 12];
            stream.read_exact(&mut begins).unwrap();
            if begins != *b"HTTP/1.1 200" {
                break;
            }
            open.push(stream);
            assert!(open.len() < 1_000, "there are places for all");
        }
        let refused = request_over(self.served.connect(), events, &head, "");
        let sentence = self.held(events, 503, &refused);
        assert_eq!(sentence, format!("{} streams are open already", open.len()));
    }

    /// Causes each of the other statuses once.
    fn nothing_else_is_undescribed(&mut self) {
        let more = r#"{"name": "more", "rate": "19mbit"}"#;
        for (operation, names, head, body, status) in [
            (("GET", LINK), &["down"][..], "", "", 404),
            (("GET", "/"), &[], "If-None-Match: *\r\n", "", 304),
            (("POST", CLASSES), &["up"], "", r#"{"name": "voice"}"#, 409),
            (
                ("PUT", "/v1/config"),
                &[],
                "If-Match: \"other\"\r\n",
                "",
                412,
            ),
            (("POST", CLASSES), &["up"], "", more, 422),
        ] {
            let answer = self.answer(operation, names, head, body);
            self.held(operation, status, &answer);
        }
        let file = self.served.asked.site.file();
        let aside = file.with_extension("aside");
        fs::rename(&file, &aside).unwrap();
        let save = ("POST", "/v1/save");
        let sentence = self.held(save, 500, &self.answer(save, &[], "", ""));
        assert!(sentence.contains("site.toml: No such file"), "{sentence}");
        fs::rename(&aside, &file).unwrap();
    }
}

#[test]
fn what_is_refused_is_refused_as_it_is_described() {
    let Some(wire) = wire("a site that refuses as described", 1) else {
        return;
    };
    let mut site = Refusing::start(&wire);
    let config = site.served.asked.config();
    let begun = site.begin();
    site.nobody_asks_without_a_token_or_by_another_name();
    site.no_path_is_anything_but_text();
    site.no_body_is_too_long();
    site.no_stream_has_a_place_that_is_taken();
    site.nothing_else_is_undescribed();
    site.none_is_waited_for(begun);
    let unmet = site.description.unmet_statuses();
    assert!(unmet.is_empty(), "not answered by any: {unmet:?}");
    let asked = site.served.asked;
    assert_eq!(asked.config(), config, "what is refused changes nothing");
    asked.site.stop();
}

/// An operation with names and a body, and the status and words of its refusal.
type Bad = (
    Operation<'static>,
    &'static [&'static str],
    &'static str,
    u16,
    &'static [&'static str],
);

/// Invalid requests to a site with the class 'voice' (port 1001, 2 Mbit/s of 20) and a grant of 6 Mbit/s.
const BAD: [Bad; 10] = [
    (
        ("GET", CLASS),
        &["up", "voize"],
        "",
        404,
        &["'voize'", "'voice'"],
    ),
    (
        ("PATCH", CLASS),
        &["up", "voize"],
        r#"{"weight": 2}"#,
        404,
        &["'voize'", "'voice'"],
    ),
    (
        ("DELETE", CLASS),
        &["up", "voize"],
        "",
        404,
        &["'voize'", "'voice'"],
    ),
    // Guaranteed rates, and grants.
    (
        ("POST", CLASSES),
        &["up"],
        r#"{"name": "more", "rate": "19mbit"}"#,
        422,
        &["21mbit", "20mbit"],
    ),
    (
        ("PATCH", LINK),
        &["up"],
        r#"{"rate": "1500kbit"}"#,
        422,
        &["2mbit", "1500kbit"],
    ),
    (
        ("PATCH", LINK),
        &["up"],
        r#"{"rate": "7mbit"}"#,
        409,
        &["grant-1", "break-grants"],
    ),
    (("POST", CLASSES), &["up"], "abc", 400, &["no JSON"]),
    (("POST", CLASSES), &["up"], "[]", 400, &["no JSON object"]),
    (
        ("POST", FILTERS),
        &["up"],
        r#"{"class": "web", "destination-port": 1001}"#,
        422,
        &["'web'", "'voice'", "never match"],
    ),
    (
        ("POST", GRANTS),
        &["up"],
        r#"{"filter": {"family": "ipv4", "source": "::1"}, "rate": "1mbit"}"#,
        422,
        &["never match"],
    ),
];

#[test]
fn bad_input_has_its_status_and_a_sentence_and_nothing_is_half_done() {
    let Some(wire) = wire("bad input", 1) else {
        return;
    };
    let mut site = Refusing::start(&wire);
    let wanted = r#"{"filter": {"destination-port": 1002}, "rate": "6mbit"}"#;
    let granted = site.answer(("POST", GRANTS), &["up"], "", wanted);
    assert_eq!(granted.status, 200, "{}", granted.body);
    let state = |site: &Refusing<'_>| {
        let asked = &site.served.asked;
        let grants = asked.json(&["grants"]);
        let grants = grants.as_array().unwrap().iter();
        let classes: Vec<Value> = grants.map(|grant| grant["class"].clone()).collect();
        (asked.config(), classes)
    };
    let before = state(&site);
    for (operation, names, body, status, words) in BAD {
        let answer = site.answer(operation, names, "", body);
        let sentence = site.held(operation, status, &answer);
        let has = words.iter().all(|word| sentence.contains(word));
        assert!(has, "{operation:?} {body}: {words:?} in {sentence}");
        assert_eq!(state(&site), before, "{operation:?} {body}");
    }
    // An interface in use by another process.
    let outside = ["outside"];
    let detached = site.answer(("POST", DETACH), &outside, "", "");
    assert_eq!(detached.status, 200, "{}", detached.body);
    let held = wire.middle().run(|| Hold::take("outside").unwrap());
    let answer = site.answer(("POST", ATTACH), &outside, "", "");
    let sentence = site.held(("POST", ATTACH), 409, &answer);
    let why = "the interface outside is in use by another Fairlane";
    assert!(sentence.contains(why), "{sentence}");
    drop(held);
    // The site is still detached.
    assert_eq!(state(&site), before);
    let attached = site.answer(("POST", ATTACH), &outside, "", "");
    assert_eq!(attached.status, 200, "{}", attached.body);
    assert!(wire.is_through(PATIENCE).unwrap(), "nothing passes");
    let finished = site.served.asked.site.end();
    assert!(finished.status.success(), "{finished:?}");
}
