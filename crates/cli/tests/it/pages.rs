//! The pages on the algorithms, `docs/algorithms`, agree with the program; packaged documentation has no dead links.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use fairlane_core::sched::Algorithm;

use crate::program::PROGRAM;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the pages by their file names.
fn pages() -> BTreeMap<String, String> {
    let files = fs::read_dir(root().join("docs/algorithms")).unwrap();
    let pages = files.map(|file| file.unwrap().path());
    pages
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, read(&path))
        })
        .collect()
}

/// Returns the commands on a page, each with the output shown in the following block.
fn commands(page: &str) -> Vec<(&str, &str)> {
    let pieces: Vec<&str> = page.split("```").collect();
    let shown = |number: usize| {
        let between = pieces.get(number + 1)?.trim();
        let block = pieces.get(number + 2)?.strip_prefix("text\n")?;
        between.is_empty().then_some(block)
    };
    let blocks = pieces.iter().enumerate().skip(1).step_by(2);
    blocks
        .filter_map(|(number, block)| Some((number, block.strip_prefix("sh\n")?)))
        .map(|(number, command)| (command, shown(number).unwrap_or_default()))
        .collect()
}

/// Runs a command in the repository's folder, with this test's program for `cargo run`.
fn run(command: &str) -> String {
    let cargo =
        r#"cargo() { test "$1 $2 $3" = "run --release --" && shift 3 && "$FAIRLANE" "$@"; }"#;
    let output = Command::new("sh")
        .args(["-euc", &format!("{cargo}\n{command}")])
        .current_dir(root())
        .env("FAIRLANE", PROGRAM)
        .env_remove("COLUMNS")
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{command}: {said:?}");
    said.concat()
}

/// Returns the cells of the table row that begins with this link.
fn row<'a>(table: &'a str, name: &str) -> Vec<&'a str> {
    let begins = [format!("| `{name}` |"), format!("| [`{name}`](")];
    let row = table
        .lines()
        .find(|line| begins.iter().any(|begin| line.starts_with(begin)));
    let row = row.unwrap_or_else(|| panic!("no row of {name}"));
    row.split('|').map(str::trim).collect()
}

#[test]
fn every_command_prints_what_its_page_shows() {
    thread::scope(|scope| {
        for (name, page) in pages() {
            scope.spawn(move || {
                let commands = commands(&page);
                assert!(!commands.is_empty(), "{name} has no command");
                for (command, shown) in commands {
                    let said = run(command);
                    let lines = shown
                        .lines()
                        .map(str::trim_end)
                        .filter(|line| *line != "..");
                    let mut rest = said.as_str();
                    for line in lines.clone() {
                        let at = rest.find(line);
                        let at = at.unwrap_or_else(|| panic!("{name}: no '{line}' in\n{said}"));
                        rest = &rest[at + line.len()..];
                    }
                    assert!(lines.count() > 0, "{name} shows nothing of\n{command}");
                }
            });
        }
    });
}

#[test]
fn every_algorithm_has_a_page_that_the_index_leads_to() {
    let pages = pages();
    let index = &pages["README.md"];
    for &algorithm in Algorithm::ALL {
        let name = algorithm.name();
        if algorithm.with_members(NonZeroU32::MIN) != algorithm {
            // Variants over aggregates share one page.
            assert!(
                pages["qfq-plus.md"].contains(&format!("`{name}`")),
                "{name}"
            );
        } else {
            let page = format!("{}.md", name.replace('+', "-plus"));
            assert!(index.contains(&format!("| [`{name}`]({page})")), "{name}");
            assert!(pages.contains_key(&page), "{page}");
        }
    }
    for name in pages.keys().filter(|name| *name != "README.md") {
        assert!(index.contains(&format!("]({name})")), "{name}");
    }
}

#[test]
fn links_lead_somewhere() {
    let folder = root().join("docs/algorithms");
    for (name, page) in pages() {
        for link in page.split("](").skip(1) {
            let link = link.split([')', '#']).next().unwrap();
            assert!(
                link.is_empty() || folder.join(link).exists(),
                "{name}: nothing at {link}"
            );
        }
    }
}

/// Every link of packaged pages leads to a file of the package: to a page, with its anchor.
#[test]
fn packaged_pages_have_no_dead_link() {
    let folder = tempfile::tempdir().unwrap();
    let script = root().join("packaging/install-docs");
    let installed = Command::new(script).arg(folder.path()).output().unwrap();
    assert!(installed.status.success(), "{installed:?}");
    let mut folders = vec![folder.path().to_owned()];
    let mut links = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                links += follow_links(&path);
            }
        }
    }
    assert!(links > 100, "{links}");
}

/// Checks the links of a page, and returns their number.
fn follow_links(page: &Path) -> usize {
    let text = read(page);
    let targets = text.split("](").skip(1);
    let targets = targets.map(|rest| rest.split(')').next().unwrap());
    let mut links = 0;
    for target in targets.filter(|target| !target.starts_with("http")) {
        links += 1;
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let file = match file {
            "" => page.to_owned(),
            file => page.with_file_name(file),
        };
        assert!(file.exists(), "{}: nothing at {target}", page.display());
        if !anchor.is_empty() {
            let there = read(&file);
            let headings = there.lines().filter(|line| line.starts_with('#'));
            let mut anchors = headings.map(anchor_of);
            assert!(
                anchors.any(|other| other == anchor),
                "{}: no heading of {target}",
                page.display()
            );
        }
    }
    links
}

/// Returns the anchor of a heading on the rendered page.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    text.chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

/// The costs agree with README, the examples with the command's output, and the plot with both.
#[test]
fn the_index_and_its_plot_have_the_figures_that_are_measured() {
    let index = &pages()["README.md"];
    let readme = read(&root().join("README.md"));
    let plot = read(&root().join("docs/algorithms/bound-cost.svg"));
    let (_, printed) = commands(index)[0];
    let printed: BTreeMap<&str, &str> = printed
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, bound)| (name, bound.trim()))
        .collect();
    for &algorithm in Algorithm::ALL {
        let name = algorithm.name();
        if !index.contains(&format!("| [`{name}`](")) {
            continue;
        }
        let cells = row(index, name);
        let cost = row(&readme, name)[4].rsplit(' ').next().unwrap();
        assert_eq!(cells[4], cost, "{name}");
        let bound = printed.get(name).copied().unwrap_or("none");
        assert_eq!(cells[6], bound, "{name}");
        let point = format!("<title>{name}: {cost} instructions, {bound}");
        assert!(plot.contains(&point), "{point}");
    }
}
