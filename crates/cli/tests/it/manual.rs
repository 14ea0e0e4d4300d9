//! `fairlane completions` and `fairlane manual` cover every command and option.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fairlane_netlab::skip;
use serde_json::Value;

use crate::program::fairlane;

const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

/// Returns the subcommands and options of the command `words` from its help.
fn explained(words: &[String]) -> (Vec<String>, Vec<String>) {
    let mut arguments: Vec<_> = words.iter().map(String::as_str).collect();
    arguments.push("--help");
    let help = fairlane(&arguments).success();
    let (mut commands, mut options, mut section) = (Vec::new(), Vec::new(), "");
    for line in help.lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        // Deeper lines continue the entry before.
        let begins = line.starts_with("  ") && !line.starts_with("    ");
        if line.ends_with(':') && !line.starts_with(' ') {
            section = line;
        } else if section == "Commands:" && begins && word != "help" {
            commands.push(word.to_owned());
        } else if section == "Options:" {
            let is_option = word.starts_with('-') && line.find(word) < Some(8);
            let mut parts = line.split([' ', ',', '=']);
            let long = parts.find(|part| is_option && part.starts_with("--"));
            options.extend(long.map(str::to_owned));
        }
    }
    (commands, options)
}

/// Collects all commands below `words` with their options.
fn tree(words: Vec<String>, found: &mut Vec<(Vec<String>, Vec<String>)>) {
    let (commands, options) = explained(&words);
    for command in commands {
        tree([&words[..], &[command]].concat(), found);
    }
    found.push((words, options));
}

fn piped(program: &str, arguments: &[&str], input: &str) -> Option<Output> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        skip(program, "there is no such program here");
        return None;
    };
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    Some(child.wait_with_output().unwrap())
}

#[test]
fn every_command_has_a_page_that_names_its_options_and_the_commands_below() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/man");
    fairlane(&["manual", "--out", out.to_str().unwrap()]).success();
    let mut all = Vec::new();
    tree(Vec::new(), &mut all);
    let mut pages = BTreeSet::new();
    for (words, options) in &all {
        let name = [&["fairlane".to_owned()], &words[..]].concat().join("-");
        let number = section(words);
        let file = format!("man{number}/{name}.{number}");
        let text = fs::read_to_string(out.join(&file)).unwrap();
        let text = text.replace("\\-", "-");
        pages.insert(file);
        assert!(!options.is_empty(), "{name}");
        for option in options {
            assert!(
                text.contains(option),
                "{option} is not in {name}({number}):\n{text}"
            );
        }
        for (below, _) in &all {
            if below.len() == words.len() + 1 && below.starts_with(words) {
                let below = format!("{name}-{}({})", below.last().unwrap(), section(below));
                assert!(
                    text.contains(&below),
                    "{below} is not in {name}({number}):\n{text}"
                );
            }
        }
        // A name, a one-line description, and the version.
        let about = format!("{name} - ");
        assert!(text.lines().any(|line| line.starts_with(&about)), "{text}");
        assert!(text.contains(&format!("\"fairlane {}\"", env!("CARGO_PKG_VERSION"))));
    }
    pages.insert("man5/fairlane.toml.5".to_owned());
    let written = written(&out);
    let written = written
        .iter()
        .map(|page| page.strip_prefix(&out).unwrap().to_str().unwrap());
    assert_eq!(written.map(str::to_owned).collect::<BTreeSet<_>>(), pages);
    assert!(pages.len() > 20, "{pages:?}");
    for page in [
        "man1/fairlane.1",
        "man1/fairlane-bench.1",
        "man8/fairlane-init.8",
        "man8/fairlane-ctl-filter-add.8",
    ] {
        assert!(pages.contains(page), "{pages:?}");
    }
}

/// Returns all pages in a folder.
fn written(out: &Path) -> Vec<PathBuf> {
    let files = |folder: &Path| {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path())
    };
    files(out).flat_map(|folder| files(&folder)).collect()
}

/// Returns the manual section of a command.
fn section(words: &[String]) -> u8 {
    let administration = ["check", "ctl", "init", "run", "top"];
    match words.first() {
        Some(first) if administration.contains(&first.as_str()) => 8,
        _ => 1,
    }
}

#[test]
fn the_page_of_the_format_has_every_table_and_key_of_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    fairlane(&["manual", "--out", folder.path().to_str().unwrap()]).success();
    let text = fs::read_to_string(folder.path().join("man5/fairlane.toml.5")).unwrap();
    // `roff` escapes a hyphen, an apostrophe and the start of a line.
    let text = text
        .replace("\\-", "-")
        .replace("\\*(Aq", "'")
        .replace("\\&", "");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let whole = words(&text);
    for table in [
        "[interfaces]",
        "[[link]]",
        "[[link.class]]",
        "[link.class.flows]",
    ] {
        assert!(text.contains(&format!(".SH {table}\n")), "{table}: {text}");
    }
    let schema: Value = serde_json::from_str(&fairlane(&["check", "--schema"]).success()).unwrap();
    let tables = schema["$defs"].as_object().unwrap().values();
    let keys = tables
        .flat_map(|table| table["properties"].as_object())
        .flatten();
    let mut known = 0;
    for (key, value) in keys {
        let description = value["description"].as_str().unwrap();
        assert!(text.contains(&format!("\\fB{key}\\fR")), "{key}: {text}");
        assert!(whole.contains(&words(description)), "{key}: {description}");
        known += 1;
    }
    assert!(known > 50, "{known}");
}

#[test]
fn the_pages_are_what_man_reads() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    fairlane(&["manual", "--out", out]).success();
    for page in written(folder.path()) {
        let text = fs::read_to_string(page).unwrap();
        let arguments = ["-man", "-Tutf8", "-ww", "-rLL=78n", "-z"];
        let Some(read) = piped("groff", &arguments, &text) else {
            return;
        };
        let complaints = String::from_utf8_lossy(&read.stderr);
        assert!(
            read.status.success() && complaints.is_empty(),
            "{complaints}\n{text}"
        );
    }
    let page = fairlane(&["manual"]).success();
    assert_eq!(
        page,
        fs::read_to_string(format!("{out}/man1/fairlane.1")).unwrap()
    );
}

#[test]
fn a_folder_that_cannot_be_written_to_is_named() {
    let finished = fairlane(&["manual", "--out", "/proc/man"]);
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    assert!(finished.stderr.contains("/proc/man"), "{finished:?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
}

#[test]
fn a_shell_that_is_not_known_is_named_with_those_that_are() {
    let finished = fairlane(&["completions", "tcsh"]);
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    for name in SHELLS.iter().chain(&["'tcsh'"]) {
        assert!(finished.stderr.contains(name), "{finished:?}");
    }
    for shell in SHELLS {
        let text = fairlane(&["completions", shell]).success();
        for word in ["init", "rate-up", "explain", "completions"] {
            assert!(text.contains(word), "{word} is not in {shell}'s");
        }
    }
}

#[test]
fn bash_reads_its_completions_and_completes_with_them() {
    let text = fairlane(&["completions", "bash"]).success();
    let Some(read) = piped("bash", &["-n"], &text) else {
        return;
    };
    assert!(read.status.success() && read.stderr.is_empty(), "{read:?}");
    for (line, completions) in [
        ("fairlane ini", "init"),
        ("fairlane ctl expl", "explain"),
        ("fairlane ctl filter rem", "remove"),
        ("fairlane init --outs", "--outside"),
        ("fairlane run --alg gf", "gfq gfq+"),
        ("fairlane completions zs", "zsh"),
    ] {
        let complete = format!(
            "{text}\nCOMP_WORDS=({line})\nCOMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))\n\
             _fairlane fairlane \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
             echo \"${{COMPREPLY[*]}}\"\n"
        );
        let completed = piped("bash", &[], &complete).unwrap();
        let words = String::from_utf8_lossy(&completed.stdout);
        assert_eq!(words.trim(), completions, "{line}: {completed:?}");
    }
}
