//! Compares the library's public names with the files next to this test, so that a change of the API is noticed, and
//! checks that each item of the facade has an example that runs. After an intended change: `FAIRLANE_WRITE_API=1 cargo
//! test -p fairlane --test api`.
//!
//! The test reads the sources, since no stable compiler lists public items. Automatic traits (`Send`, `Sync`), and
//! items that a macro repeats or implements for other types, are therefore missing.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

mod examples;
mod listing;
mod source;
mod text;

use listing::Listing;

/// The crates that the facade gathers.
const GATHERED: [&str; 8] = [
    "classify", "config", "core", "io", "mailbox", "runtime", "sim", "wire",
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

fn listing(name: &str) -> Listing {
    let called = match name {
        "fairlane" => name.to_owned(),
        _ => format!("fairlane_{name}"),
    };
    Listing::of(&folder(name), &called)
}

/// Fails if a crate's public items differ from its file.
fn is_as_written(name: &str, listing: &Listing) {
    let file = folder("fairlane/tests/api")
        .join(name)
        .with_extension("txt");
    if env::var_os("FAIRLANE_WRITE_API").is_some() {
        fs::write(&file, listing.items.join("\n") + "\n").expect("the file is written");
    }
    let known = fs::read_to_string(&file).unwrap_or_default();
    // Items begin at the margin.
    let known = known.trim_end().replace("\npub ", "\n\0pub ");
    let known: BTreeSet<&str> = known.split("\n\0").collect();
    let found: BTreeSet<&str> = listing.items.iter().map(String::as_str).collect();
    let only = |of: &BTreeSet<&str>, other| {
        let items: Vec<_> = of.difference(other).copied().collect();
        items.join("\n")
    };
    assert!(
        known == found,
        "{name} was\n\n{}\n\nand is\n\n{}\n\nIf that is meant: \
        FAIRLANE_WRITE_API=1 cargo test -p fairlane --test api",
        only(&known, &found),
        only(&found, &known)
    );
}

#[test]
fn what_is_public_is_what_was_meant_to_be() {
    for name in GATHERED.into_iter().chain(["fairlane", "testkit", "tower"]) {
        is_as_written(name, &listing(name));
    }
}

/// Error enums are non-exhaustive, so that programs still compile when errors are added.
#[test]
fn a_list_of_errors_may_grow() {
    let error = [
        "thiserror::Error",
        " std::error::Error for",
        " core::error::Error for",
    ];
    for name in GATHERED.into_iter().chain(["testkit", "tower"]) {
        for item in listing(name).items {
            let is_error = error.iter().any(|words| item.contains(words));
            let may_grow = item.contains("\n    non_exhaustive");
            assert!(
                !item.starts_with("pub enum") || !is_error || may_grow,
                "{item}"
            );
        }
    }
}

#[test]
fn all_that_the_facade_offers_has_an_example_that_runs() {
    let facade = folder("fairlane");
    let mut programs = examples::of_programs(&facade);
    programs.push(examples::of_crate(&facade));
    // Items with a name of the facade's own are shown there.
    let at_root: BTreeSet<_> = programs.iter().flatten().cloned().collect();
    let (mut missing, mut known) = (Vec::new(), 0);
    for name in GATHERED {
        let mut shown = examples::of_crate(&folder(name));
        for program in &programs {
            // Items of another part are preceded by the part's name.
            if name == "core" || program.contains(name) {
                shown.extend(program.iter().cloned());
            }
        }
        for path in listing(name).names {
            let item = path.rsplit("::").next().expect("a name");
            let is_at_root = name == "runtime" && at_root.contains(item);
            known += 1;
            if !shown.contains(item) && !is_at_root {
                missing.push(path);
            }
        }
    }
    assert!(
        missing.is_empty(),
        "no example in the documentation shows {missing:#?}"
    );
    assert!(known > 300, "the sources are read");
}
