//! Checks that ARCHITECTURE.md's statements about the crates hold for their files, and that the names on it and on
//! other pages exist.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Those below `crates`, sorted.
const CRATES: [&str; 21] = [
    "bench",
    "classify",
    "cli",
    "config",
    "control",
    "core",
    "daemon",
    "dataplane",
    "demo",
    "fairlane",
    "io",
    "mailbox",
    "netlink",
    "runtime",
    "service",
    "sim",
    "terminal",
    "testkit",
    "tower",
    "traffic",
    "wire",
];

/// The published ones: those that programs embed, and those that these depend on (`config` and `netlink`).
const PUBLISHED: [&str; 12] = [
    "classify", "config", "core", "fairlane", "io", "mailbox", "netlink", "runtime", "sim",
    "testkit", "tower", "wire",
];

/// The others, by the way to them from `crates`, sorted.
const ELSEWHERE: [&str; 6] = [
    "../capi",
    "../lab/bench",
    "../lab/instruments",
    "../lab/netlab",
    "../lab/shards",
    "../python",
];

/// Returns the folders of all crates, from `crates`.
fn folders() -> impl Iterator<Item = &'static str> {
    CRATES.into_iter().chain(ELSEWHERE)
}

fn is_of_laboratory(folder: &str) -> bool {
    folder.starts_with("../lab/")
}

/// Returns the name of a folder's package without the prefix `fairlane-`.
fn package(folder: &str) -> String {
    let manifest = read(&crates().join(folder).join("Cargo.toml"));
    let name = manifest.split("name = \"").nth(1).unwrap();
    let name = name.split('"').next().unwrap();
    name.strip_prefix("fairlane-").unwrap_or(name).to_owned()
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns all Rust files below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    files(folder, "rs")
}

/// Returns all files below `folder` with this extension, except build output.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("target") {
                found.extend(files(&path, extension));
            }
        } else if path.extension().is_some_and(|end| end == extension) {
            found.push(path);
        }
    }
    found
}

/// Dependencies on our own crates, by name: those of a crate, and those that only its tests need in addition.
#[derive(Debug, PartialEq)]
struct Known {
    built: BTreeSet<String>,
    tests: BTreeSet<String>,
}

impl Known {
    /// Returns the dependencies in a manifest.
    fn by_manifest(folder: &str) -> Known {
        let manifest = read(&crates().join(folder).join("Cargo.toml"));
        let (mut built, mut tests) = (BTreeSet::new(), BTreeSet::new());
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            if !section.contains("dependencies") || line.starts_with('#') {
                continue;
            }
            // Also in `[dependencies.fairlane-x]` and `x = { package = "fairlane-x" }`.
            let ours = line.split_once("fairlane-");
            if let Some(other) = ours.and_then(|(_, rest)| rest.split(is_no_name).next()) {
                let of_tests = section.contains("dev-dependencies");
                let set = if of_tests { &mut tests } else { &mut built };
                set.insert(other.to_owned());
            }
        }
        tests.retain(|other| !built.contains(other));
        Known { built, tests }
    }

    /// Returns the dependencies in the page's column "knows".
    fn by_page(cell: &str) -> Known {
        let set = |names: &str| {
            let names = names.split([',', ';']).map(str::trim);
            let names = names.map(|name| name.trim_start_matches("by features "));
            names
                .filter(|name| !name.is_empty() && *name != "nothing")
                .map(str::to_owned)
                .collect()
        };
        let (built, tests) = cell.split_once("(tests:").unwrap_or((cell, ""));
        Known {
            built: set(built),
            tests: set(tests.trim().trim_end_matches(')')),
        }
    }
}

fn is_no_name(c: char) -> bool {
    !c.is_ascii_alphanumeric() && c != '-'
}

#[test]
fn a_crate_knows_those_that_the_page_says_and_no_other() {
    let page = read(&crates().join("../ARCHITECTURE.md"));
    let table = page.split_once("| crate | what | knows |").unwrap().1;
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut listed = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [name, .., knows] = cells[..] else {
            panic!("{row}: too few columns");
        };
        let name = name.split('`').nth(1).unwrap();
        let folder = folders().find(|folder| package(folder) == name);
        let folder = folder.unwrap_or_else(|| panic!("{name}: no such crate"));
        assert_eq!(Known::by_page(knows), Known::by_manifest(folder), "{name}");
        listed.push(name.to_owned());
    }
    listed.sort();
    let mut all: Vec<String> = folders().map(package).collect();
    all.sort();
    assert_eq!(listed, all);
}

/// No code that the forwarding thread runs can log: only `daemon` has both that thread and events.
#[test]
fn what_forwards_knows_of_no_log() {
    for name in [
        "core",
        "wire",
        "classify",
        "mailbox",
        "io",
        "runtime",
        "dataplane",
        "fairlane",
    ] {
        let manifest = read(&crates().join(name).join("Cargo.toml"));
        assert!(!manifest.contains("tracing"), "{name} tells of events");
    }
    let of_daemon = read(&crates().join("daemon/Cargo.toml"));
    assert!(of_daemon.contains("tracing"), "the manifests are read");
    for path in sources(&crates().join("daemon/src")) {
        let tells = ["tracing::", "warn!(", "info!("];
        let tells = tells.iter().any(|part| read(&path).contains(part));
        assert_eq!(tells, path.ends_with("notice.rs"), "{}", path.display());
    }
}

/// Code shared by two commands of the program is in a separate module.
#[test]
fn commands_import_nothing_of_one_another() {
    let folder = crates().join("cli/src");
    let commands = ["bench", "check", "compare", "replay", "run", "sim"];
    for command in commands {
        let file = folder.join(command).with_extension("rs");
        let own = match file.is_file() {
            true => vec![file],
            false => sources(&folder.join(command)),
        };
        for path in own {
            let code = read(&path);
            let ours = code.lines().filter(|line| line.contains("crate::"));
            for line in ours {
                let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let other = |word: &&str| *word != command && commands.contains(word);
                let imported = words.find(other);
                assert_eq!(imported, None, "{}: {line}", path.display());
            }
        }
    }
}

/// The modules of a crate and the modules that each of them imports.
struct Imports(BTreeMap<String, BTreeSet<String>>);

impl Imports {
    /// Reads the files below `source`, except tests. Modules have their paths, as `device::xdp`, and the root has none.
    fn of(source: &Path) -> Imports {
        let mut texts = BTreeMap::new();
        for path in sources(source) {
            let inside = path.strip_prefix(source).unwrap().with_extension("");
            let names = inside.iter().map(|part| part.to_str().unwrap());
            let names: Vec<_> = names.filter(|name| *name != "mod").collect();
            if names.contains(&"tests") || names == ["lib"] {
                continue;
            }
            let text = read(&path);
            let (text, _) = text
                .split_once("\n#[cfg(test)]\nmod ")
                .unwrap_or((&text, ""));
            texts.insert(names.join("::"), text.to_owned());
        }
        let modules: BTreeSet<&String> = texts.keys().collect();
        let imports = texts.iter().map(|(module, text)| {
            let code: String = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .collect();
            let children = code
                .split("mod ")
                .skip(1)
                .filter_map(|rest| rest.split_once(';'));
            let children = children.map(|(child, _)| (child, format!("{module}::{child}")));
            let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
            let mut starts = vec![("crate", String::new()), ("super", parent.to_owned())];
            starts.extend(children);
            let found = starts.iter().flat_map(|(start, named)| {
                let start = format!("{start}::");
                let rests = code.match_indices(&start).filter(|(at, _)| {
                    let before = code[..*at].chars().next_back();
                    before.is_none_or(|c| !c.is_alphanumeric() && !"_:".contains(c))
                });
                let paths = rests.flat_map(|(at, _)| paths(named, &code[at + start.len()..]));
                paths.collect::<Vec<_>>()
            });
            let found = found.filter_map(|path| {
                let ends = path.match_indices("::").map(|(at, _)| at);
                let mut prefixes: Vec<_> = ends.map(|at| &path[..at]).chain([&*path]).collect();
                prefixes.reverse();
                let known = prefixes
                    .into_iter()
                    .find(|it| modules.contains(&(*it).to_owned()))?;
                (known != module).then(|| known.to_owned())
            });
            (module.clone(), found.collect())
        });
        Imports(imports.collect())
    }

    /// Removes the modules that import no other that is left, as often as there are any. The rest is in circles, or
    /// above one.
    fn circles(mut self) -> Vec<String> {
        loop {
            let left: BTreeSet<String> = self.0.keys().cloned().collect();
            let is_in = |uses: &BTreeSet<String>| uses.iter().any(|used| left.contains(used));
            self.0.retain(|_, uses| is_in(uses));
            if self.0.len() == left.len() {
                return left.into_iter().collect();
            }
        }
    }
}

/// Returns the paths that `rest` names below the module `start`: one, or those in braces.
fn paths(start: &str, rest: &str) -> Vec<String> {
    let join = |name: &str| match start {
        "" => name.to_owned(),
        _ => format!("{start}::{name}"),
    };
    if let Some(list) = rest.strip_prefix('{') {
        let depth = |at: usize| {
            let before = &list[..at];
            before.matches('{').count() as i32 - before.matches('}').count() as i32
        };
        let end = list.match_indices('}').find(|(at, _)| depth(*at) == 0);
        let end = end.map_or(list.len(), |(at, _)| at);
        let commas = list[..end].match_indices(',').map(|(at, _)| at);
        let commas: Vec<_> = commas.filter(|&at| depth(at) == 0).chain([end]).collect();
        let begins = std::iter::once(0).chain(commas.iter().map(|at| at + 1));
        let parts = begins
            .zip(&commas)
            .map(|(begin, &end)| &list[begin..end.max(begin)]);
        return parts.flat_map(|part| paths(start, part.trim())).collect();
    }
    let end = |c: char| !c.is_alphanumeric() && c != '_';
    let name = rest.split(end).next().unwrap_or_default();
    match rest[name.len()..].strip_prefix("::") {
        Some(behind) => paths(&join(name), behind),
        None => vec![join(name)],
    }
}

#[test]
fn modules_of_the_daemon_import_one_another_in_no_circle() {
    for name in ["dataplane", "daemon"] {
        let imports = Imports::of(&crates().join(name).join("src"));
        let all: usize = imports.0.values().map(BTreeSet::len).sum();
        assert!(all > 20, "{name}: the imports are read");
        assert_eq!(
            imports.circles(),
            [""; 0],
            "{name}: import circles, and modules above them"
        );
    }
}

#[test]
fn a_circle_of_imports_is_found() {
    let imports = |all: [(&str, &[&str]); 4]| {
        let all = all.map(|(module, uses)| {
            let uses = uses.iter().map(|used| (*used).to_owned());
            (module.to_owned(), uses.collect())
        });
        Imports(all.into())
    };
    let open: [(&str, &[&str]); 4] = [("a", &["b", "c"]), ("b", &["c"]), ("c", &[]), ("d", &["a"])];
    assert!(imports(open).circles().is_empty());
    let closed: [(&str, &[&str]); 4] = [("a", &["b"]), ("b", &["a"]), ("c", &[]), ("d", &["c"])];
    assert_eq!(imports(closed).circles(), ["a", "b"]);
    let braces = paths("", "a::{self, b::{C, d}, E}; use crate::f;");
    assert_eq!(braces, ["a::self", "a::b::C", "a::b::d", "a::E"]);
}

#[test]
fn every_crate_is_listed_here() {
    let mut found: Vec<String> = Vec::new();
    for prefix in ["", "../lab/"] {
        let entries = fs::read_dir(crates().join(prefix)).unwrap();
        let crates =
            entries.filter(|entry| entry.as_ref().unwrap().path().join("Cargo.toml").is_file());
        found.extend(
            crates.map(|entry| format!("{prefix}{}", entry.unwrap().file_name().display())),
        );
    }
    found.sort();
    let mut listed: Vec<_> = folders()
        .filter(|folder| !["../capi", "../python"].contains(folder))
        .collect();
    listed.sort();
    assert_eq!(found, listed);
}

/// A product crate may use the testkit and the laboratory in tests, and no other crate links them.
#[test]
fn no_product_crate_links_the_testkit_or_the_laboratory() {
    let mut kept_out: Vec<String> = folders()
        .filter(|folder| is_of_laboratory(folder))
        .map(package)
        .collect();
    kept_out.push("testkit".to_owned());
    let mut for_tests = 0;
    for folder in folders().filter(|folder| !is_of_laboratory(folder)) {
        let known = Known::by_manifest(folder);
        for name in &kept_out {
            assert!(!known.built.contains(name), "{folder}: links {name}");
            for_tests += usize::from(known.tests.contains(name));
        }
    }
    assert!(for_tests > 5, "the manifests are read");
}

#[test]
fn unsafe_code_stays_in_its_named_homes() {
    let homes = [
        "../capi/src/client.rs",
        "../capi/src/pointers.rs",
        "../capi/src/scheduler.rs",
        "../capi/src/table.rs",
        "mailbox/src/slots.rs",
        "mailbox/src/prefetch.rs",
        "mailbox/src/producer.rs",
        "mailbox/src/consumer.rs",
        "io/src/sys/bpf.rs",
        "io/src/sys/heap.rs",
        "io/src/sys/interface.rs",
        "io/src/sys/memory.rs",
        "io/src/sys/mod.rs",
        "io/src/sys/packet.rs",
        "io/src/sys/tun.rs",
        "io/src/sys/peer.rs",
        "io/src/sys/udp.rs",
        "io/src/sys/umask.rs",
        "io/src/sys/umem.rs",
        "io/src/sys/umem/kept.rs",
        "io/src/sys/xdp.rs",
        "io/src/sys/xdp/receiving.rs",
        "io/src/sys/xdp/ring.rs",
        "io/src/sys/xdp/sending.rs",
    ];
    let mut found = Vec::new();
    for name in folders() {
        for path in sources(&crates().join(name).join("src")) {
            let code = read(&path);
            let uses = code.lines().any(|line| {
                let line = line.trim_start();
                !line.starts_with("//")
                    && ["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern"]
                        .iter()
                        .any(|form| line.contains(form))
            });
            if uses {
                let home = path.strip_prefix(crates()).unwrap();
                found.push(home.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    let mut expected: Vec<_> = homes.iter().map(|&home| home.to_owned()).collect();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn crates_without_a_home_for_unsafe_code_forbid_it() {
    for (root, attribute) in [
        ("../capi/src/lib.rs", "#![deny(unsafe_op_in_unsafe_fn)]"),
        ("classify/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("config/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("core/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("../lab/bench/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("../lab/netlab/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("runtime/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("fairlane/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("service/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("../lab/shards/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("sim/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("daemon/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("dataplane/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("demo/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("traffic/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("cli/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("cli/src/main.rs", "#![forbid(unsafe_code)]"),
        ("../lab/instruments/src/main.rs", "#![forbid(unsafe_code)]"),
        ("testkit/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("tower/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("wire/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("mailbox/src/lib.rs", "#![deny(unsafe_code)]"),
        ("io/src/lib.rs", "#![deny(unsafe_code)]"),
        ("../python/src/lib.rs", "#![deny(unsafe_code)]"),
    ] {
        assert!(read(&crates().join(root)).contains(attribute), "{root}");
    }
}

/// A published package has a description and licenses, and names its dependencies' versions. It links published packages
/// only.
#[test]
fn what_is_published_is_whole() {
    let manifest = |folder: &str| read(&crates().join(folder).join("Cargo.toml"));
    let (kept_back, published): (Vec<&str>, Vec<&str>) =
        folders().partition(|folder| manifest(folder).contains("\npublish = false\n"));
    assert_eq!(published, PUBLISHED);
    for name in published {
        let (folder, manifest) = (crates().join(name), manifest(name));
        for key in [
            "description = ",
            "license.workspace",
            "keywords",
            "categories",
        ] {
            let there = manifest.contains(&format!("\n{key}"));
            assert!(there, "{}: no {key}", folder.display());
        }
        assert!(read(&folder.join("README.md")).starts_with("# fairlane"));
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            assert!(read(&folder.join(licence)).contains("icense"));
        }
        for other in Known::by_manifest(name).built {
            let is_published = PUBLISHED.contains(&other.as_str());
            assert!(is_published, "{name}: links {other}");
        }
    }

    // All of them are packaged together, as each needs the others.
    let ci = read(&crates().join("../.ci/run"));
    let packaged = ci.split("--package=fairlane-{").nth(1).unwrap();
    let packaged = packaged.split('}').next().unwrap().split(',');
    assert!(packaged.eq(PUBLISHED.into_iter().filter(|name| *name != "fairlane")));

    let workspace = read(&crates().join("../Cargo.toml"));
    let version = workspace.split("version = ").nth(1).unwrap();
    let version = version.lines().next().unwrap();
    let ours = workspace
        .lines()
        .filter(|line| line.starts_with("fairlane"));
    let unversioned = ours
        .filter(|line| !line.ends_with(&format!("version = {version} }}")))
        .filter_map(|line| line.strip_prefix("fairlane-")?.split(' ').next());
    let unversioned: BTreeSet<String> = unversioned.map(str::to_owned).collect();
    // Tests of the core need the testkit, which depends on the core.
    let mut expected: BTreeSet<String> = kept_back.into_iter().map(package).collect();
    expected.retain(|name| !["capi", "instruments", "python"].contains(&name.as_str()));
    expected.insert("testkit".to_owned());
    assert_eq!(unversioned, expected);
}

/// Returns a page's text between backticks, except in code blocks.
fn code_spans(page: &str) -> Vec<String> {
    let mut is_code = false;
    let prose = page.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        !fence && !is_code
    });
    let prose = prose.collect::<Vec<_>>().join("\n");
    let spans = prose.split('`').skip(1).step_by(2);
    spans.map(str::to_owned).collect()
}

/// Whether the text is the path of a source file of ours, which may omit leading folders. Other names that end in
/// `.toml` may be a user's.
fn is_path(span: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let source = span.ends_with(".rs") || span.ends_with(".py");
    span.chars().all(plain)
        && !span.starts_with('/')
        && (source || span.ends_with(".toml") && span.contains('/'))
}

/// Whether it can only be the name of a test: four words or more, and neither a metric nor a key.
fn is_test(span: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let figure = [
        "_total",
        "_seconds",
        "_bytes",
        "_per_second",
        "_successful",
        "_us",
    ];
    span.chars().all(plain)
        && span.split('_').filter(|word| !word.is_empty()).count() > 3
        && !figure.iter().any(|end| span.ends_with(end))
}

/// Returns the names of all functions that begin a line.
fn functions(sources: &[PathBuf]) -> HashSet<String> {
    let mut names = HashSet::new();
    for source in sources {
        let text = read(source);
        let begins = text.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("async ")
                .unwrap_or(line)
                .strip_prefix("fn ")
        });
        names.extend(begins.filter_map(|rest| Some(rest.split_once('(')?.0.to_owned())));
    }
    names
}

/// Returns the names of all theorems and lemmas.
fn theorems() -> HashSet<String> {
    let mut names = HashSet::new();
    for theory in files(&crates().join("../proofs/theories"), "v") {
        for line in read(&theory).lines() {
            if let Some(("Theorem" | "Lemma" | "Corollary", rest)) = line.split_once(' ') {
                let end = |c: char| !c.is_alphanumeric() && c != '_';
                names.extend(rest.split(end).next().map(str::to_owned));
            }
        }
    }
    names
}

/// Tables of docs/proofs.md with a column `theorem` name theorems in it, some with the theory's name before it.
#[test]
fn theorems_that_the_page_of_proofs_names_are_there() {
    let page = read(&crates().join("../docs/proofs.md"));
    let theorems = theorems();
    let tables = page.split("\n\n");
    let tables = tables.filter(|block| block.starts_with("| theorem |"));
    let rows = tables.flat_map(|table| table.lines().skip(2));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let named: Vec<String> = cells.flat_map(code_spans).collect();
    for name in &named {
        let theorem = name.rsplit('.').next().unwrap_or_default();
        assert!(theorems.contains(theorem), "there is no theorem `{name}`");
    }
    assert!(named.len() > 10, "the page is read: {named:?}");
}

/// Each row of docs/internals/promises.md names tests and metrics.
#[test]
fn promises_have_tests_and_metrics() {
    let page = read(&crates().join("../docs/internals/promises.md"));
    let ours = ["", "../capi", "../lab"].map(|folder| sources(&crates().join(folder)));
    let ours = ours.concat();
    let functions = functions(&ours);
    let families = ours
        .iter()
        .find(|path| path.ends_with("metrics/families.rs"));
    let families = read(families.expect("the metrics have a file"));
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let rows: Vec<_> = cells
        .filter(|row| !["promise", "---"].contains(&row[1]))
        .collect();
    for row in &rows {
        let [_, promise, tests, metrics, _] = row[..] else {
            panic!("a row has three cells: {row:?}");
        };
        let tests = code_spans(tests);
        assert!(!tests.is_empty(), "{promise}: no test");
        for test in tests {
            assert!(
                functions.contains(&test),
                "{promise}: there is no test `{test}`"
            );
        }
        let metrics = match metrics {
            "–" => Vec::new(),
            named => code_spans(named),
        };
        for metric in metrics {
            let name = metric.strip_suffix("_total").unwrap_or(&metric);
            let is_there = families.contains(&format!("\"{name}\""));
            assert!(is_there, "{promise}: there is no metric `{metric}`");
        }
    }
    assert!(rows.len() > 30, "the page is read: {} rows", rows.len());
}

#[test]
fn files_and_tests_that_pages_name_are_there() {
    let root = crates().join("..");
    let folders = [
        "capi", "crates", "docs", "examples", "fuzz", "lab", "proofs", "python",
    ];
    let all = |extension: &str| -> Vec<PathBuf> {
        let found = folders.iter();
        let found = found.flat_map(|folder| files(&root.join(folder), extension));
        found.collect()
    };
    let rust = all("rs");
    let functions = &functions(&rust) | &theorems();
    let there = [rust, all("py"), all("toml")].concat();
    let own = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"];
    let pages = [all("md"), own.map(|page| root.join(page)).to_vec()].concat();
    let (mut paths, mut tests) = (0, 0);
    for page in pages {
        for span in code_spans(&read(&page)) {
            let place = page.display();
            if is_path(&span) {
                paths += 1;
                let found = there.iter().any(|file| file.ends_with(&span));
                assert!(found, "{place}: there is no file `{span}`");
            } else if is_test(&span) {
                tests += 1;
                let found = functions.contains(&span);
                assert!(found, "{place}: there is no function `{span}`");
            }
        }
    }
    assert!(
        paths > 50 && tests > 30,
        "the pages are read: {paths}, {tests}"
    );
}
