//! A name may be any text, but no command prints its control sequences to a terminal.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::program::{Finished, fairlane};
use crate::site::{Site, up, wire};
use crate::site_control::until_it_tells;

/// A right-to-left override and an invisible character.
const NAME: &str = "a\u{202e}\u{200b}pwned";
/// The same in a site file.
const WRITTEN: &str = r#""a\u202e\u200bpwned""#;
/// A window title, and a forged line of output.
const CONTROLS: [&str; 4] = [
    r#""a\u001b]0;pwned\u0007""#,
    r#""a\u009b2J""#,
    r#""a\nforged""#,
    r#""\u0000""#,
];

fn config(socket: &str) -> String {
    let link = up("packet", "20mbit").replace("\"up\"", WRITTEN);
    format!(
        "{link}[[link.class]]\nname = {WRITTEN}\nper = \"source-ip\"\nrate = \"1mbit\"\nceil = \"8mbit\"\n\
         default = true\n[[link.class]]\nname = \"other\"\n[control]\nsocket = \"{socket}\"\n"
    )
}

#[track_caller]
fn harmless(text: &str) {
    let odd = |letter: char| {
        (letter.is_control() && letter != '\n') || matches!(letter, '\u{200b}' | '\u{202e}')
    };
    let found = text.find(odd).map(|at| &text[at..]);
    assert_eq!(found.map(|rest| rest.escape_debug().to_string()), None);
    assert!(
        !text.lines().any(|line| line.trim().starts_with("forged")),
        "{text}"
    );
}

#[track_caller]
fn prints(finished: Finished) -> String {
    harmless(&finished.stdout);
    harmless(&finished.stderr);
    finished.stdout
}

#[test]
fn no_command_says_to_the_terminal_what_a_name_says() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let socket = socket.to_str().unwrap();
    let file = folder.path().join("site.toml");
    fs::write(&file, config(socket)).unwrap();
    let file = file.to_str().unwrap();
    let table = prints(fairlane(&["check", file]));
    assert!(table.contains("a\u{fffd}\u{fffd}pwned"), "{table}");
    let checked: Value =
        serde_json::from_str(&prints(fairlane(&["check", file, "--json"]))).unwrap();
    assert_eq!(checked["links"][0]["classes"][0]["name"], NAME);
    for name in CONTROLS {
        fs::write(file, config(socket).replace("\"other\"", name)).unwrap();
        let refused = fairlane(&["check", file]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(
            refused.stderr.contains("is a control character"),
            "{refused:?}"
        );
        harmless(&refused.stderr);
    }
    // The error names the class.
    fs::write(file, config(socket).replace("8mbit", "1kbit")).unwrap();
    let refused = fairlane(&["check", file]);
    assert!(refused.stderr.contains("pwned"), "{refused:?}");
    harmless(&refused.stderr);

    let Some(wire) = wire("odd names", 1) else {
        return;
    };
    let site = Site::start_in_words(&wire, &config(socket));
    let ctl = |arguments: &[&str]| {
        prints(fairlane(
            &[&["ctl", "--socket", socket], arguments].concat(),
        ))
    };
    until_it_tells(Path::new(socket));
    for arguments in [
        &["show"][..],
        &["explain", NAME],
        &["flows"],
        &["set", NAME, "weight=3", "--dry-run"],
        &["set", NAME, "ceil=7mbit"],
        &["set", NAME, "ceil=1kbit"],
        &["flush", NAME],
        &["grants"],
    ] {
        let printed = ctl(arguments);
        let named = ["show", "explain"].contains(&arguments[0]);
        assert!(
            !named || printed.contains("a\u{fffd}\u{fffd}pwned"),
            "{printed}"
        );
    }
    let state: Value = serde_json::from_str(&ctl(&["show", "--json"])).unwrap();
    assert_eq!(state["links"][0]["classes"][0]["name"], NAME);
    let words = prints(site.end());
    assert!(words.contains("a\u{fffd}\u{fffd}pwned"), "{words}");
}
