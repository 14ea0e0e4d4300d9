//! The names that examples show: those in documentation that runs, and in the facade's programs, whose tests run them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

type Names = BTreeSet<String>;

/// Returns the names that the examples in a crate's documentation show.
pub(crate) fn of_crate(folder: &Path) -> Names {
    let mut names = in_documentation(&read(&folder.join("README.md")));
    for path in files(&folder.join("src")) {
        let source = read(&path);
        let lines = source.lines().map(|line| {
            let line = line.trim_start();
            let comment = line.strip_prefix("///").or(line.strip_prefix("//!"));
            comment.unwrap_or_default().trim_start()
        });
        names.extend(in_documentation(&lines.collect::<Vec<_>>().join("\n")));
    }
    names
}

/// Returns the names that each of the facade's programs shows.
pub(crate) fn of_programs(facade: &Path) -> Vec<Names> {
    let programs = files(&facade.join("examples"));
    programs
        .iter()
        .map(|path| in_code(read(path).lines()))
        .collect()
}

/// Returns all Rust files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let files = paths.flat_map(|path| match path.is_dir() {
        true => files(&path),
        false => vec![path],
    });
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns the names in the visible code of a Markdown text that is compiled and run.
fn in_documentation(text: &str) -> Names {
    let mut language = None;
    let code = text
        .lines()
        .filter(|line| match (line.strip_prefix("```"), language) {
            (Some(_), Some(_)) => {
                language = None;
                false
            }
            (Some(of), None) => {
                language = Some(of);
                false
            }
            (None, of) => matches!(of, Some("" | "rust")) && !line.starts_with("# "),
        });
    in_code(code)
}

fn in_code<'a>(lines: impl Iterator<Item = &'a str>) -> Names {
    let code = lines.map(|line| line.split("//").next().unwrap_or_default());
    let names = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}
