//! Queries and changes of a running site, by `fairlane ctl` and over HTTP.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fairlane_netlab::{Link, Wire};
use fairlane_testkit::long_tests;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{Finished, fairlane};
use crate::site::{BACKENDS, PATIENCE, Site, class, up, wire};
use crate::site_load::state;
use crate::site_reload::numbered;

const TOKEN: &str = "a token that nobody guesses";

/// A site with a control socket; loopback of the middle namespace is up.
pub(crate) struct Asked {
    pub(crate) site: Site,
    folder: TempDir,
}

const CLASSES: &str = "
# Calls.
[[link.class]]
name = \"voice\"
rate = \"2mbit\"  # for twenty
ceil = \"4mbit\"

[[link.class]]
name = \"web\"
default = true

[[link.filter]]
class = \"voice\"
destination-port = 1001
";

impl Asked {
    pub(crate) fn start(wire: &Wire, backend: &str, control: &str) -> Asked {
        Asked::over(wire, &(up(backend, "20mbit") + CLASSES), control)
    }

    /// Runs this configuration, with more keys in `[control]`.
    pub(crate) fn over(wire: &Wire, config: &str, control: &str) -> Asked {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("ctl.sock");
        let control = format!("\n[control]\nsocket = \"{}\"\n{control}", socket.display());
        let site = Site::start(wire, &(config.to_owned() + &control));
        let asked = Asked { site, folder };
        until_it_tells(&asked.socket());
        asked
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("ctl.sock")
    }

    pub(crate) fn ctl(&self, arguments: &[&str]) -> Finished {
        let socket = self.socket();
        fairlane(&[&["ctl", "--socket", socket.to_str().unwrap()], arguments].concat())
    }

    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let answer = self.ctl(&[arguments, &["--json"]].concat()).success();
        serde_json::from_str(&answer).unwrap()
    }

    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let finished = self.ctl(arguments);
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
        finished.stderr
    }

    pub(crate) fn config(&self) -> String {
        self.ctl(&["config"]).success()
    }
}

/// Waits for the first state, which is published when it is due.
#[track_caller]
pub(crate) fn until_it_tells(socket: &Path) {
    let begun = Instant::now();
    let asked = || {
        let stream = UnixStream::connect(socket).ok()?;
        let request = "GET /v1/state HTTP/1.1\r\nHost: localhost\r\n\r\n";
        Some(exchanged(stream, request))
    };
    while !asked().is_some_and(|answer| answer.starts_with("HTTP/1.1 200 ")) {
        assert!(begun.elapsed() < PATIENCE, "it tells nothing");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the state reports this number of reloads.
#[track_caller]
pub(crate) fn until_reloads(socket: &Path, times: u64) {
    until_it_tells(socket);
    let begun = Instant::now();
    while state(socket)["reloads"] != times {
        assert!(begun.elapsed() < PATIENCE, "the file is not taken over");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The response to a request.
pub(crate) struct Answered {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answered {
    #[track_caller]
    pub(crate) fn of(answer: &str) -> Answered {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Answered {
            status: status.unwrap_or_else(|| panic!("{answer}")),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    /// Returns a header field.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found
            .unwrap_or_else(|| panic!("no {name} in {}", self.head))
            .1
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Sends a request to a socket, with these further header lines and this body.
#[track_caller]
pub(crate) fn request(socket: &Path, operation: (&str, &str), more: &str, body: &str) -> Answered {
    let stream = UnixStream::connect(socket).unwrap();
    let head = format!("Host: localhost\r\n{more}");
    request_over(stream, operation, &head, body)
}

/// Sends a request over a connection, with these header lines before the body's length.
#[track_caller]
pub(crate) fn request_over(
    stream: impl Read + Write,
    (method, path): (&str, &str),
    head: &str,
    body: &str,
) -> Answered {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\n{head}Content-Length: {length}\r\n\r\n");
    Answered::of(&exchanged(stream, head + body))
}

/// Sends these bytes and returns the response.
pub(crate) fn exchanged(mut stream: impl Read + Write, request: impl AsRef<[u8]>) -> String {
    // The site may answer, and close, before the whole request is sent.
    let _ = stream.write_all(request.as_ref());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn change_lists_the_greatest_losses_and_counts_all_effects() {
    let Some(wire) = wire("effects of a change", 1) else {
        return;
    };
    let classes: String = (0..30)
        .map(|number| format!("[[link.class]]\nname = \"c{number}\"\n"))
        .collect();
    let asked = Asked::over(&wire, &(up("packet", "20mbit") + CLASSES + &classes), "");
    let set = ["set", "voice", "rate=3mbit", "--dry-run"];
    let whole = asked.json(&set);
    let listed = |told: &Value| told["effects"].as_array().unwrap().len();
    // The guarantees of all classes but the class itself are lower.
    assert_eq!((listed(&whole), &whole["effects_total"]), (32, &32.into()));
    assert_eq!(whole["effects_worse"], 31);
    assert_eq!(whole["effects"][0]["class"], "voice");
    let short = asked.json(&[&set[..], &["--effects", "3"]].concat());
    assert_eq!((listed(&short), &short["effects_total"]), (3, &32.into()));
    assert_eq!(short["effects_worse"], 31);
    let named = short["effects"].as_array().unwrap().iter();
    assert!(
        named.into_iter().all(|effect| effect["class"] != "voice"),
        "{short:#}"
    );
    let words = asked.ctl(&set).success();
    assert!(
        words.contains("and 12 more; 31 of 32 are guaranteed less"),
        "{words}"
    );
    let words = asked
        .ctl(&[&set[..], &["--effects", "0"]].concat())
        .success();
    assert!(words.contains("and 32 more"), "{words}");
    let request = "PATCH /v1/links/up/classes/voice?effects=few HTTP/1.1\r\nHost: localhost\r\n\
                   Content-Length: 2\r\n\r\n{}";
    let stream = UnixStream::connect(asked.socket()).unwrap();
    let refused = exchanged(stream, request);
    assert!(
        refused.starts_with("HTTP/1.1 400 ") && refused.contains("effects=few"),
        "{refused}"
    );
    asked.site.stop();
}

#[test]
fn a_change_says_what_it_does_and_is_made_whole_or_not_at_all() {
    let Some(wire) = wire("a site that is changed", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    let before = asked.config();
    let dry = asked.json(&["set", "voice", "rate=3mbit", "--dry-run"]);
    assert_eq!(dry["applied"], false);
    let of = |changed: &Value, name: &str| {
        let effects = changed["effects"].as_array().unwrap().clone();
        let effect = effects.into_iter().find(|effect| effect["class"] == name);
        effect.unwrap_or_else(|| panic!("{changed:#}"))
    };
    let voice = of(&dry, "voice");
    assert_eq!(voice["before"]["guaranteed_bps"], 2_000_000);
    assert_eq!(voice["after"]["guaranteed_bps"], 3_000_000);
    assert_eq!(of(&dry, "web")["after"]["guaranteed_bps"], 16_800_000);
    assert_eq!(asked.config(), before, "a dry run changes nothing");

    let made = asked.json(&["set", "up/voice", "rate=3mbit"]);
    assert_eq!(made["applied"], true);
    assert_eq!(
        (&made["effects"], &made["warnings"]),
        (&dry["effects"], &dry["warnings"])
    );
    assert_eq!(asked.config(), before.replace("\"2mbit\"", "\"3mbit\""));
    let words = asked.ctl(&["set", "voice", "rate=2.5mbit"]).success();
    assert!(
        words.contains("3mbit -> 2.5mbit") && words.contains("applied"),
        "{words}"
    );

    asked.json(&["add", "up/bulk", "weight=4", "limit={ packets = 50 }"]);
    asked.json(&[
        "filter",
        "add",
        "up",
        "class=bulk",
        "destination-port=873",
        "--at",
        "0",
    ]);
    asked.json(&["set", "bulk", "name=backup", "weight=2"]);
    asked.json(&["link", "up", "rate=18mbit"]);
    let config = asked.config();
    assert!(
        config.contains("name = \"backup\"") && config.contains("class = \"backup\""),
        "{config}"
    );
    assert!(
        config.contains("# for twenty") && config.contains("\"18mbit\""),
        "{config}"
    );
    // The saved configuration matches the running one.
    let begun = Instant::now();
    loop {
        let state = asked.json(&["show"]);
        let link = &state["links"][0];
        let classes = link["classes"].as_array().unwrap();
        let runs = classes.iter().any(|class| class["name"] == "backup");
        if runs && link["rate_bps"] == 18_000_000 {
            assert_eq!(asked.json(&["show", "backup"])["name"], "backup");
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{state:#}");
    }
    asked.json(&["remove", "backup"]);
    assert!(!asked.config().contains("backup"));

    let config = asked.config();
    assert_ne!(fs::read_to_string(asked.site.file()).unwrap(), config);
    let saved = asked.ctl(&["save"]).success();
    assert!(saved.contains("site.toml"), "{saved}");
    assert_eq!(
        fs::read_to_string(asked.site.file()).unwrap().trim_end(),
        config.trim_end()
    );
    fs::write(asked.site.file(), before).unwrap();
    assert_eq!(asked.json(&["reload"])["applied"], true);
    asked.site.stop();
    assert!(!asked.folder.path().join("ctl.sock").exists());
}

#[test]
fn refused_request_changes_nothing_and_gives_a_sentence() {
    let Some(wire) = wire("changes that are refused", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    let config = asked.config();
    for (arguments, names) in [
        (&["set", "voize", "rate=3mbit"][..], "'up/voice'"),
        (&["set", "voice", "rate=3mbits"], "3mbits"),
        (&["set", "voice", "rate=19mbit"], "19mbit"),
        (&["set", "voice", "speed=3mbit"], "speed"),
        (&["set", "voice", "rate"], "rate=2mbit"),
        (&["add", "voice"], "up/voice"),
        (&["add", "up/voice"], "already"),
        (&["add", "down/voice"], "'down'"),
        (&["filter", "remove", "up", "7"], "no number 7"),
        (&["filter", "add", "up", "class=nobody"], "nobody"),
        (&["link", "up", "to=inside"], "restart"),
        (&["apply", "/no/such/file"], "/no/such/file"),
    ] {
        let sentence = asked.refused(arguments);
        assert!(sentence.contains(names), "{sentence}");
    }
    assert_eq!(asked.config(), config, "what is refused changes nothing");
    let nobody = fairlane(&["ctl", "--socket", "/no/such/socket", "show"]);
    assert_eq!(nobody.status.code(), Some(2), "{nobody:?}");
    assert!(nobody.stderr.contains("/no/such/socket"), "{nobody:?}");
    asked.site.stop();
}

#[test]
fn ctl_show_prints_a_table_and_tc_json() {
    let Some(wire) = wire("a site that is asked", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    let mode = fs::metadata(asked.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let table = asked.ctl(&["show"]).success();
    for word in [
        "up to outside",
        "voice",
        "web",
        "guaranteed",
        "2mbit",
        "bound",
    ] {
        assert!(table.contains(word), "{word} in {table}");
    }
    let rows = asked.ctl(&["show", "--tc"]).success();
    let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
    let voice = rows.iter().find(|row| row["name"] == "voice").unwrap();
    assert_eq!(voice["rate"], 250_000, "bytes a second");
    assert_eq!(
        (&voice["handle"], &voice["parent"]),
        (&json!("1:1"), &json!("1:"))
    );
    for count in [
        "bytes",
        "packets",
        "drops",
        "overlimits",
        "requeues",
        "backlog",
        "qlen",
    ] {
        assert!(voice["stats"][count].is_u64(), "{voice:#}");
    }
    let words = asked.ctl(&["explain", "voice"]).success();
    assert!(words.contains("No packets are queued in voice."), "{words}");
    let metrics = asked.ctl(&["metrics"]).success();
    assert!(
        metrics.contains("fairlane_class_bytes_total{link=\"up\",class=\"voice\",leaf=\"true\"}"),
        "{metrics}"
    );
    asked.site.stop();
}

#[test]
fn explain_names_the_ceiling_that_delays_a_class() {
    let Some(wire) = wire("a class that waits", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    let few = "limit={ packets = 10 }";
    asked.json(&[
        "set",
        "voice",
        "ceil=200kbit",
        "rate=100kbit",
        "burst=3kb",
        few,
    ]);
    // 1,000 datagrams of 500 bytes a second: 4 Mbit/s.
    let hosts = (wire.sender(0), wire.receiver());
    let (words, ..) = numbered(hosts, 1_001, || {
        let begun = Instant::now();
        loop {
            let words = asked.ctl(&["explain", "voice"]).success();
            let enough = words.contains("The ceiling of voice (200kbit) held");
            if enough || begun.elapsed() > PATIENCE {
                return words;
            }
        }
    });
    assert!(
        words.contains("The ceiling of voice (200kbit) held"),
        "{words}"
    );
    asked.site.stop();
}

/// Two classes below one, and a sibling of their parent: guaranteed a quarter, a quarter and a half of 1 Mbit/s.
const BESIDE: &str = "
[[link.class]]
name = \"business\"

[[link.class]]
name = \"office\"
parent = \"business\"
limit = { packets = 50 }

[[link.class]]
name = \"backup\"
parent = \"business\"
limit = { packets = 50 }

[[link.class]]
name = \"rest\"
limit = { packets = 50 }
default = true

[[link.filter]]
class = \"office\"
destination-port = 1001

[[link.filter]]
class = \"backup\"
destination-port = 1002
";

impl Asked {
    /// Requests the explanation of a class's delay until its sentences are as expected, and returns them.
    fn explained(&self, class: &str, is_it: impl Fn(&[&str]) -> bool) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let told = self.json(&["explain", class]);
            let because = told["because"].as_array().unwrap().iter();
            let because: Vec<_> = because.map(|one| one.as_str().unwrap()).collect();
            if is_it(&because) || begun.elapsed() > PATIENCE {
                assert!(is_it(&because), "{told:#}");
                return because.into_iter().map(str::to_owned).collect();
            }
        }
    }
}

impl Asked {
    /// The state includes the delays that the forwarding thread adds, and nothing about attached processes if there are
    /// none.
    fn tells_how_its_thread_fares(&self) {
        let state = self.json(&["show"]);
        let pipeline = &state["links"][0]["pipeline"];
        assert_eq!(pipeline["receive_workers"], 0, "{pipeline}");
        assert_eq!(
            pipeline["waited_us"],
            Value::Null,
            "nobody waits for others"
        );
        for key in ["late_us", "departure_us", "device_most_bytes"] {
            assert!(pipeline[key].as_f64() > Some(0.0), "{key}: {pipeline}");
        }
        assert!(pipeline["device_most_bytes"].as_u64() <= pipeline["device_bytes"].as_u64());
        let forwarding = state["forwarding"].clone();
        assert!(forwarding["rounds"].as_u64().unwrap() > 0, "{forwarding}");
        assert_eq!(forwarding["delta_a_us"], Value::Null);
        let metrics = self.ctl(&["metrics"]).success();
        for (key, name) in [("scan_us", "scan"), ("delta_d_us", "release_delay")] {
            let [mean, max] = ["mean", "max"].map(|of| forwarding[key][of].as_f64().unwrap());
            assert!(0.0 < mean && mean < max, "{forwarding}");
            assert!(metrics.contains(&format!("\nfairlane_{name}_max_seconds ")));
        }
        assert!(!metrics.contains("\nfairlane_delta_a_"), "{metrics}");
    }
}

#[test]
fn explain_of_a_full_link_names_active_siblings() {
    let Some(wire) = wire("a full link", 1) else {
        return;
    };
    let asked = Asked::over(&wire, &(up("packet", "1mbit") + BESIDE), "");
    let hosts = || (wire.sender(0), wire.receiver());
    let full = "Link up is full: ";
    let sentence = |because: &[&str], begins: &str| {
        let mut all = because.iter();
        let found = all.find(|one| one.starts_with(begins));
        found.map_or(String::new(), |one| (*one).to_owned())
    };
    let alone = "No other class is active.";
    // Each of them sends four times the rate of the whole link.
    numbered(hosts(), 1_001, || {
        asked.explained("office", |because| {
            let office = sentence(because, "office: sending ");
            let business = sentence(because, "business: sending ");
            sentence(because, full).ends_with(" of 1mbit.")
                && office.contains(" (guarantee 247.5kbit), offered ")
                && office.ends_with(alone)
                && business.contains(" (guarantee 495kbit), offered ")
                && business.ends_with(alone)
        })
    });
    numbered(hosts(), 1_001, || {
        let beside = || {
            let with = |because: &[&str], class: &str, other: &str, guarantee: &str| {
                let sentence = sentence(because, &format!("{class}: sending "));
                sentence.contains(&format!(". Also active: {other} "))
                    && sentence.ends_with(&format!(" (guarantee {guarantee})."))
            };
            asked.explained("office", |because| {
                !sentence(because, full).is_empty()
                    && with(because, "office", "backup", "247.5kbit")
                    && with(because, "business", "rest", "495kbit")
            });
            asked.explained("rest", |because| {
                with(because, "rest", "business", "495kbit")
            });
        };
        numbered(hosts(), 1_002, || numbered(hosts(), 1_003, beside).0);
    });
    asked.tells_how_its_thread_fares();
    asked.site.stop();
}

#[test]
fn changes_lose_and_reorder_nothing() {
    let Some(wire) = wire("changes while frames pass", 1) else {
        return;
    };
    let rounds = if long_tests() { 100 } else { 20 };
    for backend in BACKENDS {
        let asked = Asked::start(&wire, backend, "");
        let hosts = (wire.sender(0), wire.receiver());
        let ((), numbers, sent) = numbered(hosts, 1_001, || {
            for round in 0..rounds {
                let rate = format!("rate={}mbit", 4 + round % 2);
                asked.json(&["set", "voice", "ceil=9mbit", &rate]);
                match round % 4 {
                    0 => asked.json(&["add", "up/more", "weight=3"]),
                    1 => asked.json(&["set", "voice", "parent=more"]),
                    2 => asked.json(&["set", "voice", "parent="]),
                    _ => asked.json(&["remove", "more"]),
                };
            }
        });
        let report = asked.site.stop();
        assert!(
            numbers.iter().copied().eq(0..sent),
            "{backend}: {} of {sent}",
            numbers.len()
        );
        assert_eq!(class(&report, "up", "voice")["sent_packets"], sent);
        assert_eq!(report["reloads"], 2 * rounds);
    }
}

/// Writes a token file that only its owner may read.
pub(crate) fn write_token(file: &Path, token: &str) {
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .unwrap();
    writeln!(file, "{token}").unwrap();
}

#[test]
fn http_change_without_token_is_refused() {
    let Some(wire) = wire("a site behind a token", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    write_token(&token, TOKEN);
    let http: SocketAddr = "127.0.0.1:7172".parse().unwrap();
    Link::find(wire.middle(), "lo").unwrap().up().unwrap();
    let asked = Asked::start(
        &wire,
        "packet",
        &format!("http = \"{http}\"\ntoken = \"{}\"\n", token.display()),
    );
    let before = asked.config();
    let connect = || wire.middle().run(|| TcpStream::connect(http).unwrap());
    let ask = |request: &str| exchanged(connect(), request);
    let put = |more: &str| {
        ask(&format!(
            "PATCH /v1/links/up HTTP/1.1\r\nHost: {http}\r\n{more}Content-Length: 17\r\n\r\n\
                 {{\"rate\":\"9mbit\"}}\n"
        ))
    };
    for (answer, status) in [
        (
            ask(&format!("GET /v1/state HTTP/1.1\r\nHost: {http}\r\n\r\n")),
            "200",
        ),
        (
            ask(&format!("GET /metrics HTTP/1.1\r\nHost: {http}\r\n\r\n")),
            "200",
        ),
        (
            ask("GET /v1/state HTTP/1.1\r\nHost: rebound.example:7172\r\n\r\n"),
            "403",
        ),
        (
            ask(&format!("GET /v1/nothing HTTP/1.1\r\nHost: {http}\r\n\r\n")),
            "404",
        ),
        (ask("no HTTP at all\r\n\r\n"), "400"),
        (put(""), "401"),
        (
            put("Authorization: Bearer something else, as long\r\n"),
            "401",
        ),
    ] {
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{status}: {answer}"
        );
    }
    assert_eq!(asked.config(), before);
    let answer = put(&format!("Authorization: Bearer {TOKEN}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(asked.config(), before.replace("20mbit", "9mbit"));
    asked.site.stop();
}

#[test]
fn slow_and_oversized_requests_delay_no_other_client() {
    let Some(wire) = wire("clients that are slow", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    let connect = || UnixStream::connect(asked.socket()).unwrap();
    let too_long = format!(
        "PATCH /v1/links/up HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        2 << 20
    );
    let body = "x".repeat(2 << 20);
    let answer = exchanged(connect(), &(too_long + &body));
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 413 "),
        "{answer}"
    );
    let no_json =
        "POST /v1/links/up/classes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc";
    let answer = exchanged(connect(), no_json);
    assert!(
        answer.starts_with("HTTP/1.1 400 ") && answer.contains("no JSON"),
        "{answer}"
    );
    // Hundreds of silent connections, and of streams that are not read.
    let silent: Vec<UnixStream> = (0..300).map(|_| connect()).collect();
    let stalled: Vec<UnixStream> = (0..300)
        .map(|_| {
            let mut stream = connect();
            let request = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
            stream.write_all(request).unwrap();
            stream
        })
        .collect();
    let hosts = (wire.sender(0), wire.receiver());
    let (applied, numbers, sent) = numbered(hosts, 1_001, || {
        std::thread::sleep(Duration::from_millis(500));
        asked.json(&["set", "voice", "ceil=9mbit", "rate=8mbit"])["applied"].clone()
    });
    assert_eq!(applied, true);
    // The first of them arrived while it still had a lower ceiling.
    assert!(numbers.is_sorted() && numbers.len() as u32 <= sent);
    // The site closes silent connections, and still reports to watching ones.
    let mut watching = asked.watched();
    let state = watching.line();
    assert!(
        state.starts_with('{') && state.contains("\"links\""),
        "{state}"
    );
    watching.signal("INT");
    drop((silent, stalled));
    asked.site.stop();
}

impl Asked {
    fn watched(&self) -> crate::program::Running {
        let socket = self.socket();
        crate::program::start(&["ctl", "--socket", socket.to_str().unwrap(), "watch"])
    }
}

#[test]
fn watch_reports_the_end_of_the_daemon() {
    let Some(wire) = wire("a site that ends", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    let mut watching = asked.watched();
    watching.line();
    asked.site.stop();
    let watched = watching.finish();
    assert!(
        watched.status.success() && watched.stderr.is_empty(),
        "{watched:?}"
    );
}

/// A pipe without a writer instead of the file does not block the site.
fn waits_for_no_pipe(asked: &Asked) {
    let file = asked.site.file();
    let aside = file.with_extension("aside");
    fs::rename(&file, &aside).unwrap();
    let made = Command::new("mkfifo").arg(&file).status();
    assert!(made.unwrap().success());
    let sentence = asked.refused(&["save"]);
    assert!(sentence.contains("not a regular file"), "{sentence}");
    fs::rename(&aside, &file).unwrap();
    asked.ctl(&["save"]).success();
}

#[test]
fn save_refuses_to_overwrite_unseen_edits() {
    let Some(wire) = wire("changes of two at once", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    let connect = || UnixStream::connect(asked.socket()).unwrap();
    let got = exchanged(
        connect(),
        "GET /v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    let (head, text) = got.split_once("\r\n\r\n").unwrap();
    let tag = head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .unwrap();
    asked.json(&["set", "voice", "rate=3mbit"]);
    let put = |tag: &str| {
        let length = text.len();
        let head = format!("Host: localhost\r\nIf-Match: {tag}\r\nContent-Length: {length}");
        exchanged(
            connect(),
            format!("PUT /v1/config HTTP/1.1\r\n{head}\r\n\r\n{text}"),
        )
    };
    let late = put(tag);
    assert!(late.starts_with("HTTP/1.1 412 "), "{late}");
    assert!(asked.config().contains("3mbit"));
    let made = put("*");
    assert!(made.starts_with("HTTP/1.1 200 "), "{made}");
    assert!(!asked.config().contains("3mbit"));

    // The file is edited in the meantime.
    let edited = fs::read_to_string(asked.site.file()).unwrap() + "# by hand\n";
    fs::write(asked.site.file(), &edited).unwrap();
    asked.json(&["set", "voice", "rate=3mbit"]);
    let sentence = asked.refused(&["save"]);
    assert!(
        sentence.contains("was changed since it was read"),
        "{sentence}"
    );
    assert_eq!(fs::read_to_string(asked.site.file()).unwrap(), edited);
    asked.ctl(&["save", "--force"]).success();
    asked.json(&["set", "voice", "rate=2mbit"]);
    asked.ctl(&["save"]).success();
    assert!(
        !fs::read_to_string(asked.site.file())
            .unwrap()
            .contains("by hand")
    );
    waits_for_no_pipe(&asked);
    let method = exchanged(
        connect(),
        "PUT /v1/state HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
    );
    assert!(method.starts_with("HTTP/1.1 405 "), "{method}");
    assert!(method.contains("\r\nallow: GET, HEAD\r\n"), "{method}");
    asked.site.stop();
}

#[test]
fn every_path_of_the_description_is_there() {
    let Some(wire) = wire("a description that is true", 1) else {
        return;
    };
    let asked = Asked::start(&wire, "packet", "");
    let connect = || UnixStream::connect(asked.socket()).unwrap();
    let request = |method: &str, path: &str| {
        // Nothing is changed: the bodies are invalid, or it is a dry run.
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n[]");
        let mut stream = connect();
        stream.write_all(request.as_bytes()).unwrap();
        // A stream has no end.
        let mut answer = vec![0; 1 << 16];
        let read = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..read]).into_owned()
    };
    let described = exchanged(
        connect(),
        "GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    let document: Value =
        serde_json::from_str(described.split_once("\r\n\r\n").unwrap().1).unwrap();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 12, "{}", paths.len());
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().unwrap() {
            let path = path
                .replace("{link}", "up")
                .replace("{class}", "voice")
                .replace("{id}", "1")
                .replace("{interface}", "outside")
                .replace("{number}", "0");
            let answer = request(&method.to_uppercase(), &format!("{path}?dry-run=true"));
            assert!(
                !answer.contains("does not exist"),
                "{method} {path}: {answer}"
            );
            let status = answer.split(' ').nth(1).unwrap();
            assert!(
                !operation["responses"][status].is_null(),
                "{method} {path}: {answer}"
            );
        }
    }
    let answer = request("POST", "/v1/nothing");
    assert!(answer.contains("does not exist"), "{answer}");
    asked.site.stop();
}
