//! The metrics of a running site, checked by Prometheus' own programs if they are installed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_netlab::{Link, Program, skip_unsupported};
use serde_json::Value;

use crate::program::fairlane;
use crate::site::{PATIENCE, Site, up, wire};

const SITE: &str = "127.0.0.1:7172";
const PROMETHEUS: &str = "127.0.0.1:9090";

const CLASSES: &str = "
[[link.class]]
name = \"voice\"
rate = \"2mbit\"

[[link.class]]
name = \"web\"
default = true
";

/// Returns whether a program is installed.
fn has(program: &str, test: &str) -> bool {
    let version = Command::new(program).arg("--version").output();
    if let Err(error) = &version {
        skip_unsupported(test, format_args!("{program}: {error}"));
    }
    version.is_ok()
}

/// Returns the JSON answer for a path, if there is one.
fn answered(address: &str, path: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(address.parse::<SocketAddr>().unwrap()).ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

#[test]
fn promtool_finds_nothing_to_complain_of() {
    let test = "metrics checked by promtool";
    if !has("promtool", test) {
        return;
    }
    let Some(wire) = wire(test, 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let socket = socket.to_str().unwrap();
    let control = format!("\n[control]\nsocket = \"{socket}\"\n");
    let site = Site::start(&wire, &(up("packet", "20mbit") + CLASSES + &control));
    let begun = Instant::now();
    let metrics = loop {
        let told = fairlane(&["ctl", "--socket", socket, "metrics"]);
        if told.status.success() {
            break told.stdout;
        }
        assert!(begun.elapsed() < PATIENCE, "{told:?}");
    };
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(metrics.as_bytes())
        .unwrap();
    let verdict = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&verdict.stderr).into_owned()
        + &String::from_utf8_lossy(&verdict.stdout);
    assert!(verdict.status.success() && said.is_empty(), "{said}");
    site.stop();
}

#[test]
fn the_alert_rules_fire_as_their_tests_say() {
    if !has("promtool", "alert rules checked by promtool") {
        return;
    }
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/prometheus");
    for (command, file) in [
        ("check", "fairlane.rules.yml"),
        ("test", "fairlane.test.yml"),
    ] {
        let mut promtool = Command::new("promtool");
        promtool.args([command, "rules"]).arg(rules.join(file));
        let verdict = promtool.output().unwrap();
        assert!(verdict.status.success(), "{verdict:?}");
    }
}

/// Runs Prometheus next to a site, with `more` arguments, until each of these queries has an answer, and returns
/// the answers; `None`, with the reason printed, where there is no Prometheus. It scrapes the site by each of these
/// addresses.
fn scraped(test: &str, targets: &[&str], more: &[&str], asked: &[&str]) -> Option<Vec<Value>> {
    if !has("prometheus", test) {
        return None;
    }
    let wire = wire(test, 1)?;
    let middle = wire.middle();
    Link::find(middle, "lo").unwrap().up().unwrap();
    let control = format!("\n[control]\nhttp = \"{SITE}\"\n");
    let site = Site::start(&wire, &(up("packet", "20mbit") + CLASSES + &control));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prometheus.yml");
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
         scrape_configs: [{{job_name: fairlane, static_configs: [{{targets: {targets:?}}}]}}]\n"
    );
    fs::write(&file, config).unwrap();
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().display()))
        .arg(format!("--web.listen-address={PROMETHEUS}"))
        .arg("--log.level=error")
        .args(more);
    let prometheus = Program::start(middle, &mut command).unwrap();
    let query = |what: &str| {
        let path = format!("/api/v1/query?query={}", encoded(what));
        middle.run(|| answered(PROMETHEUS, &path))
    };
    let begun = Instant::now();
    let told = asked.iter().map(|what| {
        loop {
            let answer = query(what);
            let result = answer.as_ref().map(|answer| &answer["data"]["result"]);
            // A sum has no instance label; otherwise every instance must be present.
            let found = result.filter(|all| {
                let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
                !all.is_empty() && [0, targets.len()].contains(&instances(all))
            });
            if let Some(found) = found {
                break found.clone();
            }
            assert!(begun.elapsed() < 3 * PATIENCE, "{what}: {answer:?}");
            thread::sleep(Duration::from_millis(200));
        }
    });
    let told = told.collect();
    let targets = middle
        .run(|| answered(PROMETHEUS, "/api/v1/targets"))
        .unwrap();
    let target = &targets["data"]["activeTargets"][0];
    assert_eq!(
        (&target["health"], &target["lastError"]),
        (&"up".into(), &"".into()),
        "{targets:#}"
    );
    prometheus.interrupt();
    prometheus.finish(PATIENCE).unwrap();
    site.stop();
    Some(told)
}

/// Returns the number of instances of these series.
fn instances(series: &[Value]) -> usize {
    let instances = series
        .iter()
        .filter_map(|series| series["metric"]["instance"].as_str());
    instances.collect::<BTreeSet<_>>().len()
}

/// Encodes a text as a value in a URL.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Two addresses make two instances of one site. Each query of the dashboard has series of both, with classic and with
/// native histograms.
#[test]
fn the_dashboard_shows_two_instances_with_either_kind_of_histograms() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/grafana/fairlane.json");
    let dashboard: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$__rate_interval", "10s");
            let query = query.replace("$__range", "1m");
            let names = ["$instance", "$link", "$class"];
            queries.push(
                names
                    .iter()
                    .fold(query, |query, name| query.replace(name, ".*")),
            );
        }
    }
    let asked: Vec<&str> = queries.iter().map(String::as_str).collect();
    let test = "a dashboard over Prometheus";
    for more in [&[][..], &["--enable-feature=native-histograms"]] {
        let Some(told) = scraped(test, &[SITE, "localhost:7172"], more, &asked) else {
            return;
        };
        for (query, told) in asked.iter().zip(told) {
            let expected = if query.starts_with("sum(") { 0 } else { 2 };
            let series = told.as_array().unwrap();
            assert_eq!(instances(series), expected, "{query}: {told:#}");
        }
    }
}

#[test]
fn prometheus_scrapes_a_running_site() {
    let asked = [
        "fairlane_class_bytes_total",
        "fairlane_class_delay_bound_seconds",
        "fairlane_class_sojourn_seconds_count",
        "fairlane_class_bound_violations_total",
    ];
    let Some(told) = scraped("a site scraped by Prometheus", &[SITE], &[], &asked) else {
        return;
    };
    for (what, told) in asked.iter().zip(told) {
        // Two classes, and that of link-layer control.
        assert_eq!(told.as_array().unwrap().len(), 3, "{what}: {told:#}");
    }
}

#[test]
fn prometheus_takes_delays_as_native_histograms() {
    let test = "native histograms scraped by Prometheus";
    // These histogram functions work on native histograms only.
    let asked = [
        "fairlane_class_bytes_total",
        "sum(histogram_count(fairlane_class_sojourn_seconds))",
        "histogram_quantile(0.5,sum(fairlane_class_sojourn_seconds))",
        "histogram_quantile(1,sum(fairlane_class_sojourn_seconds))",
    ];
    let native = ["--enable-feature=native-histograms"];
    let Some(told) = scraped(test, &[SITE], &native, &asked) else {
        return;
    };
    let [bytes, delays @ ..] = &told[..] else {
        unreachable!("as many answers as questions");
    };
    assert_eq!(bytes.as_array().unwrap().len(), 3, "{bytes:#}");
    let value = |told: &Value| {
        told[0]["value"][1]
            .as_str()
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    let [count, median, longest] = delays else {
        unreachable!("as many answers as questions");
    };
    // The probe that showed that frames pass is counted.
    assert!(value(count) >= 1.0, "{count:#}");
    let (median, longest) = (value(median), value(longest));
    assert!(
        0.0 < median && median <= longest && longest < 10.0,
        "{median} {longest}"
    );
}
