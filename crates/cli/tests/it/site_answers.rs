//! Every answer of a running site matches the description of its API, and everything described is in some answer.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use fairlane_control::{Client, OPENAPI, Target};
use serde_json::{Value, json};

use crate::described::{Description, filled};
use crate::site::{PATIENCE, up, wire};
use crate::site_control::{Asked, request};
use crate::site_reload::numbered;

/// Classes of every kind: a parent, one with a backlog, one of flows, and the implicit one.
const CLASSES: &str = "
[[link.class]]
name = \"office\"
rate = \"10mbit\"

[[link.class]]
name = \"voice\"
parent = \"office\"
rate = \"2mbit\"
ceil = \"4mbit\"

[[link.class]]
name = \"hosts\"
parent = \"office\"
per = \"source-ip\"
flows = { ceil = \"8mbit\" }

[[link.filter]]
class = \"voice\"
destination-port = 1002

[[link.filter]]
class = \"hosts\"
destination-port = 1001
";

/// A site under test, and the description of its answers.
struct Held {
    socket: PathBuf,
    description: Description,
}

impl Held {
    fn new(socket: PathBuf) -> Held {
        Held {
            socket,
            description: Description::new(OPENAPI),
        }
    }

    /// Returns the status and body of an answer to a method and path of the description; `parts` are its variable
    /// parts, and `query` follows.
    #[track_caller]
    fn asked(
        &mut self,
        (method, path): (&str, &str),
        parts: &[&str],
        query: &str,
        body: &str,
    ) -> (u16, Value) {
        let filled = filled(path, parts) + query;
        let answer = request(&self.socket, (method, &filled), "", body);
        let media_type = answer.field("content-type").to_owned();
        let told = match media_type.as_str() {
            "application/json" => answer.json(),
            _ => answer.body.clone().into(),
        };
        self.hold((method, path), answer.status, &media_type, &told);
        (answer.status, told)
    }

    #[track_caller]
    fn hold(&mut self, operation: (&str, &str), status: u16, media_type: &str, told: &Value) {
        let description = &mut self.description;
        let wrong = description.hold(operation, status, media_type, told);
        assert!(wrong.is_empty(), "{operation:?}: {wrong:#?}");
    }

    /// Returns the answer to an operation, checked against the description.
    #[track_caller]
    fn done(&mut self, operation: (&str, &str), parts: &[&str], query: &str, body: &str) -> Value {
        let (status, told) = self.asked(operation, parts, query, body);
        assert_eq!(status, 200, "{operation:?}: {told:#}");
        told
    }

    #[track_caller]
    fn read(&mut self, path: &str, parts: &[&str], query: &str) -> Value {
        self.done(("GET", path), parts, query, "")
    }

    #[track_caller]
    fn refused(&mut self, operation: (&str, &str), parts: &[&str], body: &str, status: u16) {
        let (told, answer) = self.asked(operation, parts, "", body);
        assert_eq!(told, status, "{operation:?}: {answer:#}");
    }

    /// Repeats the request until the answer has it.
    #[track_caller]
    fn until(&mut self, path: &str, parts: &[&str], has: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let told = self.read(path, parts, "");
            if has(&told) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{path}: {told:#}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Reads everything readable while packets pass.
    fn read_all(&mut self) {
        const CLASS: &str = "/v1/links/{link}/classes/{class}";
        self.until(CLASS, &["up", "hosts"], |class| {
            class["delay_us"].is_object() && class["recent"]["delay_us"].is_object()
        });
        self.until("/v1/flows", &[], |told| told["flows"][0].is_object());
        self.until("/v1/state", &[], |state| {
            state["forwarding"]["scan_us"].is_object()
        });
        for path in [
            "/",
            "/healthz",
            "/metrics",
            "/v1/openapi.json",
            "/v1/config",
        ] {
            self.read(path, &[], "");
        }
        for path in ["/v1/interfaces", "/v1/links", "/v1/grants"] {
            let told = self.read(path, &[], "");
            assert!(told[0].is_object(), "{path}: {told:#}");
        }
        self.read("/v1/links/{link}", &["up"], "");
        self.read("/v1/links/{link}/classes", &["up"], "");
        self.read(&format!("{CLASS}/explain"), &["up", "hosts"], "");
        let packet = "?packet=destination-port%3D1001%20protocol%3Dudp";
        self.read("/v1/classify", &[], packet);
        self.refused(("GET", "/v1/classify"), &[], "", 400);
        for span in ["hour", "week"] {
            let query = format!("?link=up&class=hosts&span={span}");
            self.read("/v1/history", &[], &query);
        }
        let measured = |grant: &Value| grant["measured"]["sent_packets"].is_u64();
        self.until("/v1/grants/{id}", &["1"], measured);
        self.refused(("GET", "/v1/links/{link}"), &["down"], "", 404);
        self.refused(("GET", CLASS), &["up", "hostz"], "", 404);
        self.refused(("GET", "/v1/history"), &[], "", 400);
        self.stream();
    }

    /// Reads the stream of states.
    fn stream(&mut self) {
        let client = Client::new(Target::Socket(self.socket.clone())).unwrap();
        let mut state = Value::Null;
        let first = |told| {
            state = told;
            false
        };
        client.watch(first).unwrap();
        self.hold(("GET", "/v1/state"), 200, "application/json", &state);
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let asking = "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(asking.as_bytes()).unwrap();
        let lines = BufReader::new(stream).lines().map(Result::unwrap);
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        assert!(head[0].starts_with("HTTP/1.1 200 "), "{head:?}");
        let types = head
            .iter()
            .filter_map(|line| line.strip_prefix("content-type: "));
        for media_type in types {
            self.hold(("GET", "/v1/events"), 200, media_type, &"".into());
        }
    }

    /// Makes each kind of change, and causes each refusal.
    fn change_all(&mut self) {
        const LINK: &str = "/v1/links/{link}";
        const CLASSES: &str = "/v1/links/{link}/classes";
        const CLASS: &str = "/v1/links/{link}/classes/{class}";
        const FILTERS: &str = "/v1/links/{link}/filters";
        let keys = |keys: Value| keys.to_string();
        let added = keys(json!({"name": "bulk", "weight": 4}));
        self.done(("POST", CLASSES), &["up"], "?dry-run=true", &added);
        let told = self.done(("POST", CLASSES), &["up"], "", &added);
        assert!(told["effects"][0].is_object(), "{told:#}");
        self.refused(("POST", CLASSES), &["up"], &added, 409);
        self.refused(("POST", CLASSES), &["up"], "[]", 400);
        let filter = keys(json!({"class": "bulk", "destination-port": 873}));
        self.done(("POST", FILTERS), &["up"], "?at=0", &filter);
        self.refused(("POST", FILTERS), &["up"], &filter, 422);
        let number = "/v1/links/{link}/filters/{number}";
        self.done(("DELETE", number), &["up", "0"], "", "");
        self.refused(("DELETE", number), &["up", "9"], "", 404);
        let weight = keys(json!({"weight": 2}));
        self.done(("PATCH", CLASS), &["up", "bulk"], "", &weight);
        let path = json!(["v1", "links", "up", "classes", "bulk"]);
        let both = json!([{"method": "PATCH", "path": path, "keys": {"weight": 3}}]);
        self.done(("POST", "/v1/changes"), &[], "", &both.to_string());
        self.done(("DELETE", CLASS), &["up", "bulk"], "?effects=1", "");
        self.refused(("DELETE", CLASS), &["up", "bulk"], "", 404);
        let config = self.read("/v1/config", &[], "");
        let config = config.as_str().unwrap();
        self.done(("PUT", "/v1/config"), &[], "", config);
        self.refused(("PUT", "/v1/config"), &[], "no configuration", 422);
        self.done(("POST", "/v1/save"), &[], "", "");
        self.done(("POST", "/v1/reload"), &[], "", "");
        self.done(
            ("POST", &format!("{CLASS}/flush")),
            &["up", "hosts"],
            "",
            "",
        );
        self.done(("POST", &format!("{LINK}/flush")), &["up"], "", "");
        self.done(
            ("PATCH", LINK),
            &["up"],
            "",
            &keys(json!({"rate": "18mbit"})),
        );
    }

    /// Makes grants, and changes that would break them; the first grant exists.
    fn grant_all(&mut self) {
        const GRANTS: &str = "/v1/links/{link}/grants";
        const GRANT: &str = "/v1/grants/{id}";
        const LINK: &str = "/v1/links/{link}";
        let wanted = |rate: &str, port: u16| {
            json!({"filter": {"destination-port": port}, "rate": rate}).to_string()
        };
        self.done(
            ("POST", GRANTS),
            &["up"],
            "?dry-run=true",
            &wanted("1mbit", 1_004),
        );
        self.refused(("POST", GRANTS), &["up"], &wanted("19mbit", 1_004), 409);
        self.refused(("POST", GRANTS), &["up"], &wanted("fast", 1_004), 400);
        self.done(("POST", GRANTS), &["up"], "", &wanted("1mbit", 1_004));
        self.done(("PUT", GRANT), &["2"], "", r#"{"lifetime": "2h"}"#);
        self.done(("DELETE", GRANT), &["2"], "", "");
        self.refused(("DELETE", GRANT), &["2"], "", 404);
        let narrow = json!({"rate": "11mbit"}).to_string();
        self.refused(("PATCH", LINK), &["up"], &narrow, 409);
        let (_, told) = self.asked(("PATCH", LINK), &["up"], "?break-grants=true", &narrow);
        assert!(told["ended_grants"][0].is_object(), "{told:#}");
    }

    /// Operates on interfaces.
    fn operate_all(&mut self) {
        let of = |what: &str| format!("/v1/interfaces/{{interface}}/{what}");
        let shaping = of("shaping");
        for enabled in [r#"{"enabled": false}"#, r#"{"enabled": true}"#] {
            self.done(("PUT", &shaping), &["outside"], "", enabled);
        }
        self.refused(("PUT", &shaping), &["outside"], "{}", 400);
        self.refused(("PUT", &shaping), &["eth9"], r#"{"enabled": true}"#, 404);
        self.refused(("POST", &of("attach")), &["outside"], "", 409);
        self.done(("POST", &of("detach")), &["outside"], "", "");
        self.refused(("POST", &of("detach")), &["outside"], "", 409);
        self.done(("POST", &of("attach")), &["outside"], "", "");
    }
}

#[test]
fn all_that_is_answered_is_described_and_all_that_is_described_is_answered() {
    let Some(wire) = wire("a site whose answers are held to their description", 1) else {
        return;
    };
    let asked = Asked::over(&wire, &(up("packet", "20mbit") + CLASSES), "");
    let mut held = Held::new(asked.socket());
    numbered((wire.sender(0), wire.receiver()), 1_001, || {
        let wanted =
            json!({"filter": {"destination-port": 1_003}, "rate": "6mbit", "note": "a film"});
        let grants = ("POST", "/v1/links/{link}/grants");
        held.done(grants, &["up"], "", &wanted.to_string());
        held.read_all();
        held.change_all();
        held.grant_all();
        held.operate_all();
    });
    let unmet = held.description.unmet();
    assert!(unmet.is_empty(), "not answered by any: {unmet:#?}");
    // It has logged the loss and the return of the interface.
    let finished = asked.site.end();
    assert!(finished.status.success(), "{finished:?}");
}
