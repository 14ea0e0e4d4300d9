//! The web page of a running site, in a browser.

use std::fmt::Write;
use std::thread;
use std::time::Duration;

use fairlane_netlab::{Link, Wire};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::program::Pressure;
use crate::site::{Site, up, wire};
use crate::site_control::write_token;
use crate::site_reload::numbered;

const PAGE: &str = "http://127.0.0.1:7172/";
const TOKEN: &str = "a token that nobody guesses";
/// A class name that would run as a script if it were treated as markup.
const HOSTILE: &str = "<img src=x onerror=document.title='gone'>";

/// Returns the configuration of a site with these classes, where changes need the token in a file.
fn config(classes: &str, token: &str) -> String {
    let control = format!("\n[control]\nhttp = \"127.0.0.1:7172\"\ntoken = \"{token}\"\n");
    up("packet", "20mbit") + classes + &control
}

fn few() -> String {
    format!(
        "[[link.class]]\nname = \"voice\"\nrate = \"2mbit\"\nceil = \"4mbit\"\n\
         [[link.class]]\nname = \"office\"\n\
         [[link.class]]\nname = \"web\"\nparent = \"office\"\ndefault = true\n\
         [[link.class]]\nname = \"{HOSTILE}\"\nparent = \"office\"\n\
         [[link.filter]]\nclass = \"voice\"\ndestination-port = 1001\n"
    )
}

/// Returns hosts with a browser between them, in the middle namespace.
fn browsing(test: &str) -> Option<(Wire, Browser)> {
    let wire = wire(test, 1)?;
    Link::find(wire.middle(), "lo").unwrap().up().unwrap();
    let browser = Browser::start(test, wire.middle())?;
    Some((wire, browser))
}

/// Returns an expression: whether the text of the elements of a selector contains this text.
fn says(selector: &str, text: &str) -> String {
    let (selector, text) = (json!(selector), json!(text));
    format!(
        "[...document.querySelectorAll({selector})].some((it) => it.textContent.includes({text}))"
    )
}

/// Clicks the element of a selector with this text.
fn press(browser: &mut Browser, selector: &str, text: &str) {
    let (selector, text) = (json!(selector), json!(text));
    browser.value(&format!(
        "[...document.querySelectorAll({selector})].find((it) => it.textContent === {text}).click()"
    ));
}

/// Fills the field with this label in the panel's first form.
fn fill(browser: &mut Browser, label: &str, text: &str) {
    let label = json!(label);
    browser.value(&format!(
        "(() => {{ const labels = [...document.querySelectorAll('#panel form label')];
           const input = labels.find((it) => it.firstChild.data === {label}).querySelector('input');
           input.focus(); input.select(); }})()"
    ));
    browser.type_text(text);
}

/// Enters the token in the dialog.
fn give_token(browser: &mut Browser) {
    browser.until("document.getElementById('token').open");
    browser.value("document.getElementById('token-text').focus()");
    browser.type_text(TOKEN);
    browser.key("Enter");
    browser.until("!document.getElementById('token').open");
}

#[test]
fn page_shows_the_site_and_previews_changes() {
    let Some((wire, mut browser)) = browsing("the page of a site") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    write_token(&token, TOKEN);
    let site = Site::start(&wire, &config(&few(), token.to_str().unwrap()));
    browser.open(PAGE);
    browser.until(&says("#site-words", "connected"));
    browser.until("document.title === 'site – Fairlane'");
    browser.until(&says("#links .load", "of 20mbit"));
    browser.until("document.querySelector('.row .spark .one').getAttribute('d') !== ''");
    browser.until(&says(".row .name", "voice"));
    // A name is shown as text, whatever it contains.
    browser.until(&says(".row .name", HOSTILE));
    assert_eq!(browser.value("document.images.length"), 0);
    assert_ne!(browser.value("document.title"), "gone");
    // By keyboard alone: to the first class, and into it.
    browser.value("document.getElementById('grid').focus()");
    browser.key("Home");
    browser.key("ArrowDown");
    browser.key("Enter");
    browser.until(&says("#panel-title", "voice"));
    browser.until(&says("#panel dd", "2mbit"));
    let hosts = (wire.sender(0), wire.receiver());
    numbered(hosts, 1_001, || {
        browser.until("document.querySelectorAll('#panel .uplot canvas').length === 3");
        // 1,000 datagrams of 500 bytes a second and their headers are above the ceiling of 4 Mbit/s.
        let at_ceiling = r"/Rate: (3\.9\d*|4(\.0\d*)?)mbit/";
        browser.until(&format!(
            "{at_ceiling}.test(document.querySelector('.plot').ariaLabel)"
        ));
        browser.until(&says(
            "#panel .why li",
            "The ceiling of voice (4mbit) held packets back",
        ));
    });
    // Without a token: an error, and a dialog for it.
    fill(&mut browser, "Rate (guaranteed)", "3mbit");
    browser.key("Enter");
    browser.until(&says("#panel .answer.refused", "access token"));
    give_token(&mut browser);
    // Refused: an error, and nothing to apply.
    fill(&mut browser, "Rate (guaranteed)", "19999kbit");
    press(&mut browser, "#panel button", "Preview");
    browser.until(&says("#panel .answer.refused", "Refused: "));
    assert_eq!(
        browser.value("document.querySelector('#panel .main').disabled"),
        true
    );
    // After a preview of each changed guarantee; only then can it be applied.
    fill(&mut browser, "Rate (guaranteed)", "3mbit");
    press(&mut browser, "#panel button", "Preview");
    let guaranteed = "guaranteed 2mbit → 3mbit ▲ more";
    browser.until(&says("#panel .effects li", guaranteed));
    browser.until(&says("#panel .effects li", "▼ less"));
    browser.until(&says("#panel dd", "2mbit"));
    press(&mut browser, "#panel button", "Apply");
    browser.until(&says("#panel .answer", "Applied."));
    browser.until(&says("#panel dd", "3mbit"));
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
    site.stop();
}

#[test]
fn a_daemon_that_goes_is_missed_and_followed_again_when_it_is_back() {
    let Some((wire, mut browser)) = browsing("a page whose daemon goes") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    write_token(&token, TOKEN);
    let config = config(&few(), token.to_str().unwrap());
    let site = Site::start(&wire, &config);
    browser.open(PAGE);
    browser.until(&says("#site-words", "connected"));
    site.stop();
    browser.until("document.getElementById('site').className === 'gone'");
    browser.until(&says("#age", "ago"));
    // The last state is still shown, and marked as old.
    assert_eq!(browser.value(&says(".row .name", "voice")), true);
    let site = Site::start(&wire, &config.replace("voice", "calls"));
    browser.until("document.getElementById('site').className === 'fine'");
    browser.until(&says(".row .name", "calls"));
    assert_eq!(browser.value(&says(".row .name", "voice")), false);
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
    site.stop();
}

/// Answers a confirmation dialog by keyboard: the default of Enter is "no".
fn answer(browser: &mut Browser, means_it: bool) {
    browser.until("document.getElementById('sure').open");
    assert_eq!(browser.value("document.activeElement.id"), "sure-no");
    if means_it {
        browser.value("document.getElementById('sure-yes').focus()");
    }
    browser.key("Enter");
    browser.until("!document.getElementById('sure').open");
    // The button gets the dialog's close event a little later, and the result later still.
    browser.until("document.querySelector('[aria-busy]') === null");
}

/// Presses a button by keyboard, found by its accessible name.
fn press_called(browser: &mut Browser, begins: &str) {
    let selector = format!("[aria-label^={}]", json!(begins));
    let selector = json!(selector);
    browser.until(&format!("document.querySelector({selector}) !== null"));
    browser.value(&format!("document.querySelector({selector}).focus()"));
    browser.key("Enter");
}

#[test]
fn what_drops_packets_or_promises_is_asked_twice_and_said() {
    let Some((wire, mut browser)) = browsing("deeds on the page") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    write_token(&token, TOKEN);
    let narrow = few().replace(
        "\"2mbit\"\nceil = \"4mbit\"",
        "\"10kbit\"\nceil = \"20kbit\"",
    );
    let site = Site::start(&wire, &config(&narrow, token.to_str().unwrap()));
    browser.open(PAGE);
    browser.until(&says(".row .name", "voice"));
    browser.value("document.getElementById('grid').focus()");
    browser.key("Home");
    browser.key("ArrowDown");
    browser.key("Enter");
    browser.until(&says("#panel-title", "voice"));
    press(&mut browser, "#panel summary", "Flush queue");
    // Cancelled: no message, and the panel stays.
    press(&mut browser, "#panel button", "Flush queue");
    browser.until(&says("#sure-title", "Flush the queue of class voice?"));
    answer(&mut browser, false);
    assert_eq!(browser.value(&says("#panel .answer", "Dropped")), false);
    // Without a token: an error, and a dialog for it.
    press(&mut browser, "#panel button", "Flush queue");
    answer(&mut browser, true);
    browser.until(&says(
        "#panel .answer.refused",
        "Refused: enter the access token",
    ));
    give_token(&mut browser);
    let hosts = (wire.sender(0), wire.receiver());
    numbered(hosts, 1_001, || {
        browser.until(
            "/^[1-9]/.test([...document.querySelectorAll('#panel dt')]
            .find((it) => it.textContent === 'Queued').nextSibling.textContent)",
        );
        press(&mut browser, "#panel button", "Flush queue");
        browser.until("/^[1-9]/.test(document.getElementById('sure-words').textContent)");
        answer(&mut browser, true);
        browser.until(
            "[...document.querySelectorAll('#panel .answer')]
            .some((it) => /^Dropped [1-9]/.test(it.textContent) && it.role === 'status')",
        );
    });
    press(&mut browser, "nav button", "Interfaces");
    switch_off_and_on(&mut browser);
    detach_and_attach(&mut browser);
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
    // It logged the operations on standard error.
    assert!(site.end().status.success());
}

fn switch_off_and_on(browser: &mut Browser) {
    press_called(browser, "Stop shaping: ");
    browser.until(&says(
        "#sure-words",
        "rates, ceilings and delay bounds do not apply",
    ));
    answer(browser, false);
    press_called(browser, "Stop shaping: ");
    answer(browser, true);
    browser.until(&says("#interfaces .answer", "passes unshaped."));
    browser.until(&says("#interfaces td", "no: switched off"));
    press_called(browser, "Resume shaping: ");
    browser.until(&says("#interfaces .answer", "is shaped."));
    browser.until(&says("#interfaces td", "yes"));
}

fn detach_and_attach(browser: &mut Browser) {
    let attaches = "document.querySelector('#interfaces form').offsetParent !== null";
    assert_eq!(browser.value(attaches), false, "nothing is detached");
    press_called(browser, "Detach: ");
    answer(browser, true);
    browser.until(&says("#interfaces .answer", "is detached."));
    browser.until(&says("#interfaces td", "detached"));
    // Another interface instead: refused with an error.
    browser.until(attaches);
    browser.value("document.querySelector('#interfaces form input').focus()");
    browser.type_text("nowhere0");
    browser.key("Enter");
    browser.until(&says("#interfaces form .answer", "No guarantees"));
    press(browser, "#interfaces form button", "Attach");
    browser.until(&says("#interfaces form .answer.refused", "Refused: "));
    press_called(browser, "Attach again: ");
    browser.until(&says("#interfaces .answer", "is attached."));
    browser.until(&format!("!({})", says("#interfaces td", "detached")));
    browser.until(&format!("!({attaches})"));
}

/// Emulates a phone in portrait orientation with a dark colour scheme.
fn phone_in_the_dark(browser: &mut Browser) {
    let size = json!({ "width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": true });
    browser.ask("Emulation.setDeviceMetricsOverride", &size);
    let dark = json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
    browser.ask("Emulation.setEmulatedMedia", &dark);
}

/// Checks that nothing is wider than the screen, and that each control lies within it.
#[track_caller]
fn fits(browser: &mut Browser, what: &str) {
    let wide = browser.value("document.documentElement.scrollWidth");
    assert_eq!(wide, 360, "{what}");
    let beyond = browser.value(
        "[...document.querySelectorAll('button, input, select, summary')]
        .filter((it) => it.checkVisibility())
        .map((it) => [it.getBoundingClientRect(), it.outerHTML])
        .filter(([at]) => at.left < 0 || at.right > innerWidth).map(([, it]) => it)",
    );
    assert_eq!(beyond, json!([]), "{what}");
}

#[test]
fn a_phone_in_the_dark_shows_all_within_its_width() {
    let Some((wire, mut browser)) = browsing("the page on a phone") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    write_token(&token, TOKEN);
    let site = Site::start(&wire, &config(&few(), token.to_str().unwrap()));
    phone_in_the_dark(&mut browser);
    browser.open(PAGE);
    browser.until(&says(".row .name", "voice"));
    browser.save("phone-tree");
    fits(&mut browser, "the tree");
    // Light text on a dark page, and not the reverse.
    let sum = |of: &str, what: &str| {
        format!(
            "getComputedStyle({of}).{what}.match(/\\d+/g).slice(0, 3).reduce((all, it) => all + +it, 0)"
        )
    };
    let text = sum("document.body", "color");
    let back = sum("document.documentElement", "backgroundColor");
    assert_eq!(
        browser.value(&format!("{text} > 500 && {back} < 150")),
        true
    );
    browser.value("document.getElementById('grid').focus()");
    for key in ["Home", "ArrowDown", "Enter"] {
        browser.key(key);
    }
    browser.until(&says("#panel-title", "voice"));
    fits(&mut browser, "a class");
    fill(&mut browser, "Rate (guaranteed)", "3mbit");
    browser.key("Enter");
    browser.until("document.getElementById('token').open");
    fits(&mut browser, "the question for a token");
    give_token(&mut browser);
    // Refused as elsewhere, and the error is not truncated.
    fill(&mut browser, "Rate (guaranteed)", "19999kbit");
    press(&mut browser, "#panel button", "Preview");
    browser.until(&says("#panel .answer.refused", "Refused: "));
    browser.value("document.querySelector('#panel .answer.refused').scrollIntoView()");
    browser.save("phone-refused");
    fits(&mut browser, "a refused change");
    press(&mut browser, "nav button", "Interfaces");
    browser.until(&says("#interfaces button", "Detach"));
    browser.save("phone-interfaces");
    fits(&mut browser, "interfaces");
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
    site.stop();
}

/// Returns the longest task of the page's main thread, in milliseconds of CPU time.
fn longest_task(events: &[Value]) -> f64 {
    let all = || {
        events
            .iter()
            .filter_map(|event| event["value"].as_array())
            .flatten()
    };
    let main = all()
        .find(|event| event["name"] == "thread_name" && event["args"]["name"] == "CrRendererMain");
    let main = main.expect("a thread of the page");
    let tasks = all().filter(|event| {
        event["name"]
            .as_str()
            .is_some_and(|name| name.ends_with("RunTask"))
            && (&event["pid"], &event["tid"]) == (&main["pid"], &main["tid"])
    });
    let took = |event: &Value| event["tdur"].as_f64().or_else(|| event["dur"].as_f64());
    let longest = tasks.filter_map(took).fold(0.0, f64::max);
    longest / 1e3
}

#[test]
fn a_thousand_classes_leave_no_frame_late() {
    let Some((wire, mut browser)) = browsing("a page of 1,000 classes") else {
        return;
    };
    let mut classes = String::new();
    for site in 0..20 {
        writeln!(classes, "[[link.class]]\nname = \"site-{site}\"").unwrap();
        for class in 0..49 {
            writeln!(
                classes,
                "[[link.class]]\nname = \"class-{site}-{class}\"\nparent = \"site-{site}\"\n\
                 default = {}",
                (site, class) == (0, 0)
            )
            .unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    write_token(&token, TOKEN);
    let site = Site::start(&wire, &config(&classes, token.to_str().unwrap()));
    let pressure = Pressure::begin();
    let categories = json!({
        "traceConfig": { "includedCategories": ["toplevel", "disabled-by-default-devtools.timeline"] },
    });
    browser.ask("Tracing.start", &categories);
    browser.open(PAGE);
    // With `link-control`.
    browser.until(&says("#shown", "1001 classes"));
    let hosts = (wire.sender(0), wire.receiver());
    numbered(hosts, 1_001, || {
        for order in ["rate", "drops", "name", "file"] {
            browser.value(&format!(
                "(() => {{ const order = document.getElementById('order');
                   order.value = '{order}'; order.dispatchEvent(new Event('change')); }})()"
            ));
            for part in 1..=4 {
                browser.value(&format!(
                    "scrollTo(0, document.body.scrollHeight * {part} / 4)"
                ));
                thread::sleep(Duration::from_millis(300));
            }
        }
        browser.value("document.getElementById('filter').focus()");
        browser.type_text("class-1");
        browser.until(&says("#shown", "of 1001 classes"));
    });
    // Only visible rows are in the document.
    let rows = browser.value("document.querySelectorAll('.row').length");
    assert!(rows.as_u64().unwrap() < 60, "{rows}");
    browser.ask("Tracing.end", &json!({}));
    let events = browser.events_until("Tracing.dataCollected", "Tracing.tracingComplete");
    let longest = longest_task(&events);
    let most = pressure.most(100.0, 200.0);
    assert!(longest > 0.0 && longest <= most, "{longest} ms of {most}");
    site.stop();
}
