//! The core builds without the standard library and without `unsafe`. A build for a target without either library is
//! the proof; this test fails sooner, and names the place.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns all Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries
        .map(|entry| entry.path())
        .partition(|path| path.is_dir());
    let below = folders.iter().flat_map(|folder| sources(folder));
    below
        .chain(files)
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect()
}

/// Returns the lines that are compiled outside tests, without comments. Unit tests stand last in a file.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = text.split("#[cfg(test)]\nmod tests {").next();
    let lines = code.into_iter().flat_map(str::lines);
    (1..).zip(lines.map(|line| line.split("//").next().unwrap_or_default()))
}

#[test]
fn no_source_names_the_standard_library() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = sources(&root);
    for known in ["lib.rs", "scheduler.rs", "sched/qfq.rs", "queue/slab.rs"] {
        assert!(files.contains(&root.join(known)), "{known} is looked at");
    }
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in code(&text) {
            let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            for word in words {
                assert!(
                    !["std", "println", "eprintln", "unsafe"].contains(&word),
                    "{}:{number}: {word}",
                    file.display()
                );
            }
        }
    }
}

#[test]
fn the_crate_forbids_unsafe_code_and_the_standard_library() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let text = fs::read_to_string(path).unwrap();
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        let lines = code(&text).filter(|&(_, line)| line.trim() == attribute);
        assert_eq!(lines.count(), 1, "{attribute}");
    }
}
