//! Checks the language of the project's texts: markers of unclear English, banned phrases, and type names that several
//! crates use for different things. CONTRIBUTING.md has the rules.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// The most sentences with a marker in a kind of text, in percent.
const MOST: f64 = 3.0;
/// Sentences below this number are too few for a percentage; then one marker is allowed.
const FEW: usize = 40;

/// Person words, which describe things badly, and other markers: words in sequence, in lower case.
const MARKERS: &[&str] = &[
    "he",
    "his",
    "him",
    "himself",
    "who",
    "is told",
    "are told",
    "told",
    "tell",
    "tells",
    "goes on",
    "go on",
    "went on",
    "goes by",
    "go by",
    "as it was",
    "so many",
    "is to be",
    "are to be",
    "beside",
];

/// Words after `what` that make a clause of it instead of a noun.
const AFTER_WHAT: &[&str] = &[
    "is", "was", "are", "were", "has", "had", "wait", "waits", "come", "comes", "came", "leave",
    "leaves", "left", "goes", "send", "sends", "sent", "may", "can", "they", "it", "he", "there",
    "each", "a", "the", "all", "others", "not",
];

/// Phrases that no text has.
const BANNED: &[&str] = &[
    "anew",
    "anybody",
    "came again",
    "came marked",
    "in place of",
    "let go of",
    "lets go of",
    "nobody",
    "seen in passing",
    "somebody",
    "whoever",
];

/// Texts that may have a banned phrase, with the reason.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("crates/instruments", "nobody", "the user of that name"),
    ("lab", "nobody", "the user of that name"),
];

/// Type names that more than two crates have, with the reason. A name in the field's sense, of the same thing in each
/// crate, may stay; the others are to be renamed after their role, which shortens the second list.
const OF_THE_FIELD: &[&str] = &[
    // Things of the network and of scheduling, in each crate that handles them.
    "Arrival",
    "Bound",
    "Class",
    "Classes",
    "Client",
    "Delays",
    "Device",
    "Flow",
    "Flows",
    "Frame",
    "Interface",
    "Link",
    "Network",
    "Node",
    "Packet",
    "Packets",
    "Port",
    "Ports",
    "Queue",
    "Ring",
    "Scheduler",
    "Sender",
    "Server",
    "Slot",
    "Socket",
    "Transmit",
    "Tree",
    "Wire",
    "Wfi",
    "Window",
    // The arguments, errors and reports of each command or crate.
    "Command",
    "FlowReport",
    "LinkReport",
    "Log",
    "Options",
    "Report",
    "Scenario",
    "Service",
    "Site",
    // Measurement and randomness.
    "Contender",
    "Costs",
    "Counter",
    "Counts",
    "Measured",
    "Meter",
    "Random",
];

const TO_RENAME: &[&str] = &[
    "Account",
    "Answer",
    "Attach",
    "Classified",
    "Ended",
    "Ending",
    "Event",
    "Family",
    "Found",
    "Handle",
    "Inner",
    "Kept",
    "Known",
    "Label",
    "Ledger",
    "Left",
    "Limit",
    "Line",
    "Listener",
    "Look",
    "Memory",
    "Near",
    "Next",
    "Offer",
    "Opener",
    "Order",
    "Outcome",
    "Owner",
    "Pace",
    "Part",
    "Place",
    "Places",
    "Plan",
    "Program",
    "Promise",
    "Reading",
    "Record",
    "Request",
    "Row",
    "Running",
    "Search",
    "Seen",
    "Served",
    "Shared",
    "Side",
    "Size",
    "Source",
    "Span",
    "Stage",
    "State",
    "Step",
    "Table",
    "Taken",
    "Target",
    "Terms",
    "Told",
    "Value",
    "Verdict",
    "View",
    "Waiting",
    "Watch",
    "Way",
    "Whole",
    "Words",
    "Written",
    "Work",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the files below a folder with one of these extensions, except build output.
fn files(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            let is_ours =
                !name.starts_with('.') && !["target", "uplot", "experiments"].contains(&&*name);
            if is_ours && name != "node_modules" {
                files(&path, extensions, found);
            }
        } else if path
            .extension()
            .is_some_and(|it| extensions.iter().any(|ours| it == *ours))
        {
            found.push(path);
        }
    }
}

/// Texts of one kind, each with the file that has it.
type Texts = Vec<(PathBuf, String)>;

/// Returns all texts by kind.
fn texts() -> BTreeMap<&'static str, Texts> {
    let mut all: BTreeMap<&'static str, Texts> = BTreeMap::new();
    let mut found = Vec::new();
    files(
        &root(),
        &["rs", "md", "html", "js", "json", "toml", "yml", "py"],
        &mut found,
    );
    for path in found {
        let text = read(&path);
        let name = path.strip_prefix(root()).unwrap().to_owned();
        let mut add = |kind, text| all.entry(kind).or_default().push((name.clone(), text));
        match path.extension().and_then(|it| it.to_str()) {
            // This file lists the phrases.
            Some("rs") if !name.ends_with("tests/language.rs") => {
                let is_test = name.components().any(|it| it.as_os_str() == "tests");
                let is_test = is_test || name.ends_with("tests.rs");
                for (kind, text) in parts(&text) {
                    if kind != "strings" || !is_test {
                        add(kind, text);
                    }
                }
            }
            Some("md") => add("pages", prose(&text)),
            Some("html") => add("the page", without_tags(&text)),
            Some("js") => strings(&text, '`').for_each(|text| add("the page", filled(&text))),
            Some("json")
                if name.ends_with("openapi.json") || name.starts_with("examples/grafana") =>
            {
                let description = |line: &&str| {
                    ["\"description\": ", "\"title\": ", "\"summary\": "]
                        .iter()
                        .any(|key| line.trim().starts_with(key))
                };
                let lines = text.lines().filter(description);
                lines.for_each(|line| {
                    add(
                        "the API and the dashboard",
                        line.split_once(": ").unwrap().1.to_owned(),
                    )
                });
            }
            Some("toml" | "yml" | "py") => {
                let comments = text
                    .lines()
                    .filter_map(|line| line.trim().strip_prefix('#'));
                add(
                    "comments of other files",
                    comments.collect::<Vec<_>>().join("\n"),
                );
            }
            _ => {}
        }
    }
    all
}

/// Returns the documentation, the comments and the strings of a Rust file, by kind. Strings of its unit tests are left
/// out.
fn parts(text: &str) -> Vec<(&'static str, String)> {
    let mut parts = Vec::new();
    let mut run: Option<(&'static str, String)> = None;
    for line in text.lines() {
        let line = line.trim_start();
        let kinds = [
            ("//!", "module docs"),
            ("///", "item docs"),
            ("//", "comments"),
        ];
        let of = kinds
            .into_iter()
            .find_map(|(prefix, kind)| Some((kind, line.strip_prefix(prefix)?)));
        match (of, &mut run) {
            (Some((kind, words)), Some((last, text))) if kind == *last => {
                text.push('\n');
                text.push_str(words);
            }
            (of, _) => {
                parts.extend(run.take());
                run = of.map(|(kind, words)| (kind, words.to_owned()));
            }
        }
    }
    parts.extend(run);
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    // A text for people has several words.
    let several = |text: &String| text.split_whitespace().nth(2).is_some();
    parts.extend(
        strings(&text[..end], '"')
            .filter(several)
            .map(|text| ("strings", filled(&text))),
    );
    parts
        .into_iter()
        .map(|(kind, text)| (kind, prose(&text)))
        .collect()
}

/// Returns the strings of a source text, without comments; escapes are replaced.
fn strings(text: &str, quote: char) -> impl Iterator<Item = String> {
    let bytes = text.as_bytes();
    let quotes: &[u8] = if quote == '"' { b"\"" } else { b"\"`" };
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at = text[at..].find('\n').map_or(bytes.len(), |line| at + line);
            }
            // A character such as '"', and not a lifetime.
            b'\'' if bytes.get(at + 2) == Some(&b'\'') => at += 3,
            b'\'' if bytes.get(at + 1) == Some(&b'\\') => at += 4,
            b'r' if matches!(bytes.get(at + 1), Some(b'#')) => {
                let hashes = bytes[at + 1..].iter().take_while(|&&it| it == b'#').count();
                if bytes.get(at + 1 + hashes) != Some(&b'"') {
                    at += 1;
                    continue;
                }
                let start = at + 2 + hashes;
                let end = format!("\"{}", "#".repeat(hashes));
                let length = text[start..].find(&end).unwrap_or(text.len() - start);
                found.push(text[start..start + length].to_owned());
                at = start + length + end.len();
            }
            it if quotes.contains(&it) => {
                let start = at + 1;
                at = start;
                while at < bytes.len() && bytes[at] != it {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                found.push(unescaped(text.get(start..at).unwrap_or_default()));
                at += 1;
            }
            _ => at += 1,
        }
    }
    found.into_iter()
}

/// Replaces the gaps of a format, such as `{name}` and `${f(name)}`.
fn filled(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    let mut depth = 0_usize;
    for letter in text.chars() {
        match letter {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                whole.push('X');
            }
            _ if depth == 0 => whole.push(letter),
            _ => {}
        }
    }
    whole
}

fn unescaped(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        whole.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let escaped = after.chars().next();
        rest = &after[escaped.map_or(0, char::len_utf8)..];
        match escaped {
            Some('\n') => rest = rest.trim_start(),
            Some('n') => whole.push('\n'),
            Some(other) => whole.push(other),
            None => {}
        }
    }
    whole + rest
}

/// Returns Markdown without code and link targets.
fn prose(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    for (at, part) in text.split("```").enumerate() {
        if at % 2 == 1 {
            whole.push('\n');
            continue;
        }
        for (at, part) in part.split('`').enumerate() {
            whole.push_str(if at % 2 == 1 { "X" } else { part });
        }
    }
    let mut plain = String::with_capacity(whole.len());
    let mut rest = &whole[..];
    while let Some(at) = rest.find("](") {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        rest = &rest[rest.find(')').unwrap_or(rest.len() - 1) + 1..];
    }
    plain + rest
}

fn without_tags(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    for part in text.split('<') {
        let (_, words) = part.split_once('>').unwrap_or(("", part));
        whole.push('\n');
        whole.push_str(words);
    }
    whole
}

/// Calls `tell` with each sentence: an end of a sentence or a clause, an empty line, and an item of a list or a cell of
/// a table end one.
fn sentences<'a>(text: &'a str, mut tell: impl FnMut(&'a str)) {
    let bytes = text.as_bytes();
    let mut start = 0;
    for at in 0..bytes.len() {
        let next = bytes.get(at + 1);
        let ends = match bytes[at] {
            b'.' | b';' | b':' | b'!' | b'?' => next.is_none_or(u8::is_ascii_whitespace),
            b'\n' => matches!(next, None | Some(b'\n' | b'#' | b'*' | b'-' | b'|')),
            b'|' => true,
            _ => false,
        };
        if ends {
            tell(&text[start..=at]);
            start = at + 1;
        }
    }
    tell(&text[start..]);
}

/// Phrases by their first word.
struct Phrases(HashMap<&'static str, Vec<Vec<&'static str>>>);

impl Phrases {
    fn of(all: impl IntoIterator<Item = &'static str>) -> Phrases {
        let mut phrases = Phrases(HashMap::new());
        for phrase in all {
            let words: Vec<&str> = phrase.split(' ').collect();
            phrases.0.entry(words[0]).or_default().push(words);
        }
        phrases
    }

    /// Returns the phrases in a sequence of words.
    fn found(&self, words: &[&str]) -> impl Iterator<Item = &[&'static str]> {
        let at = |at: usize| {
            self.0
                .get(words[at])
                .into_iter()
                .flatten()
                .map(move |phrase| (at, phrase))
        };
        let all = (0..words.len()).flat_map(at);
        all.filter(|(at, phrase)| words[*at..].starts_with(phrase))
            .map(|(_, phrase)| &phrase[..])
    }
}

/// The markers and the banned phrases.
struct Rules {
    markers: Phrases,
    banned: Phrases,
}

impl Rules {
    fn new() -> Rules {
        let after = |word: &&str| &*Box::leak(format!("what {word}").into_boxed_str());
        let markers = MARKERS.iter().copied().chain(AFTER_WHAT.iter().map(after));
        Rules {
            markers: Phrases::of(markers),
            banned: Phrases::of(BANNED.iter().copied()),
        }
    }

    /// Returns whether a sentence of at least three words has a marker or a banned phrase; `None` for shorter ones.
    fn judge(&self, sentence: &str) -> Option<(bool, Vec<String>)> {
        let lower = sentence.to_ascii_lowercase();
        let is_part = |it: char| it.is_alphanumeric() || it == '\'' || it == '_';
        let words: Vec<&str> = lower
            .split(|it: char| !is_part(it))
            .filter(|word| !word.is_empty())
            .collect();
        let first = *words.get(2).and(words.first())?;
        let asks = sentence.trim_end().ends_with('?');
        let is_clause = ["what", "who", "whoever", "whose", "whom"].contains(&first)
            && sentence.trim_start().starts_with('W');
        let banned: Vec<String> = self
            .banned
            .found(&words)
            .map(|phrase| phrase.join(" "))
            .collect();
        let marked = (is_clause && !asks) || self.markers.found(&words).next().is_some();
        Some((marked || !banned.is_empty(), banned))
    }
}

#[test]
fn texts_are_in_plain_english() {
    let rules = Rules::new();
    let mut wrong = Vec::new();
    for (kind, texts) in texts() {
        let (mut all, mut marked) = (0, Vec::new());
        for (path, text) in &texts {
            sentences(text, |sentence| {
                let Some((is_marked, banned)) = rules.judge(sentence) else {
                    return;
                };
                all += 1;
                let line = || {
                    format!(
                        "{}: {}",
                        path.display(),
                        sentence.split_whitespace().collect::<Vec<_>>().join(" ")
                    )
                };
                for phrase in banned {
                    let allowed = |(place, of, _): &&(&str, &str, &str)| {
                        path.starts_with(place) && phrase == *of
                    };
                    if ALLOWED.iter().find(allowed).is_none() {
                        wrong.push(format!("\"{phrase}\" is banned: {}", line()));
                    }
                }
                if is_marked {
                    marked.push(line());
                }
            });
        }
        let most = (MOST / 100.0 * all as f64).max(if all < FEW { 1.0 } else { 0.0 });
        if std::env::var_os("FAIRLANE_LANGUAGE").is_some() {
            println!("{kind}: {} of {all} sentences have a marker", marked.len());
            marked.iter().for_each(|line| println!("  {line}"));
        }
        if marked.len() as f64 > most {
            wrong.push(format!(
                "{kind}: {} of {all} sentences have a marker:",
                marked.len()
            ));
            wrong.extend(marked.into_iter().take(40));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn markers_and_banned_phrases_are_found() {
    let rules = Rules::new();
    let of = |text: &str| rules.judge(text);
    assert_eq!(
        of("Packets for a missing interface are dropped."),
        Some((false, vec![]))
    );
    assert_eq!(of("What waits is dropped."), Some((true, vec![])));
    assert_eq!(of("What does the class guarantee?"), Some((false, vec![])));
    assert_eq!(of("It reports what was dropped."), Some((true, vec![])));
    assert_eq!(
        of("Nobody is served now."),
        Some((true, vec!["nobody".to_owned()]))
    );
    assert_eq!(of("Two words."), None);
    let text = "fn f() { let a = \"one \\\n  \\\"two\\\" three\"; let b = '\"'; g(r#\"x \"y\" z\"#) } // \"no\"";
    assert_eq!(
        strings(text, '"').collect::<Vec<_>>(),
        ["one \"two\" three", "x \"y\" z"]
    );
    let mut all = Vec::new();
    sentences("One clause: the other. A list\n- of `items`\n\nEnd", |it| {
        all.push(it.trim().to_owned())
    });
    assert_eq!(
        all,
        ["One clause:", "the other.", "A list", "- of `items`", "End"]
    );
}

/// Returns the crates that define each type name.
fn types() -> BTreeMap<String, BTreeSet<String>> {
    let mut found = Vec::new();
    let crates = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let lab = fs::read_dir(root().join("lab"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let outside = lab.chain(["capi", "python"].map(|name| root().join(name)));
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for folder in crates.chain(outside) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        found.clear();
        if folder.join("src").is_dir() {
            files(&folder.join("src"), &["rs"], &mut found);
        }
        for path in &found {
            for line in read(path).lines() {
                let line = line.trim_start();
                let line = line.strip_prefix("pub").unwrap_or(line);
                let line = match line.strip_prefix('(') {
                    Some(rest) => rest.split_once(')').map_or("", |(_, rest)| rest),
                    None => line,
                };
                let words: Vec<&str> = line.split_whitespace().take(2).collect();
                if let ["struct" | "enum" | "trait" | "union", defined] = words[..] {
                    let end = defined
                        .find(|it: char| !it.is_alphanumeric())
                        .unwrap_or(defined.len());
                    all.entry(defined[..end].to_owned())
                        .or_default()
                        .insert(name.clone());
                }
            }
        }
    }
    all
}

#[test]
fn a_type_name_has_one_meaning() {
    let listed: BTreeSet<&str> = OF_THE_FIELD.iter().chain(TO_RENAME).copied().collect();
    assert_eq!(
        listed.len(),
        OF_THE_FIELD.len() + TO_RENAME.len(),
        "a name is listed twice"
    );
    let all = types();
    let many = all
        .iter()
        .filter(|(name, crates)| crates.len() > 2 && !listed.contains(&***name));
    let many: Vec<String> = many
        .map(|(name, crates)| format!("{name}: {crates:?}"))
        .collect();
    let sentence = "name a type after its role, or list the name with a reason";
    assert!(many.is_empty(), "{sentence}: {}", many.join("; "));
    assert!(all.len() > 1_000, "{} names", all.len());
    let unknown: Vec<&&str> = listed
        .iter()
        .filter(|name| !all.contains_key(**name))
        .collect();
    assert!(
        unknown.is_empty(),
        "no type has these names any more, remove them: {unknown:?}"
    );
}
