//! A configuration that is changed table by table; unchanged tables are neither parsed nor written again.
//!
//! A text is split into its tables, each of which can be parsed alone. The results are shared with those of earlier
//! reads, so that only changed tables are processed ([`site_again`](crate::read)). This works for texts as people write
//! them, `[[link]]` with `[[link.class]]` and `[[link.filter]]` below. Any other text is read as a whole, and so is a
//! text with errors or warnings, because those give positions in it.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::diagnostic::Report;
use crate::file::{Class, File, Filter, Link};
use crate::grant::Grant;
use crate::grants::NotGranted;
use crate::parse::parse;
use crate::read::{Reading, admit, site_again, together};
use crate::site::{MtuOf, Site};
use crate::text::excess;
use crate::written::At;

/// A table of a draft: the index of its link, and its own index in the link, each from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// The keys of a link itself.
    Link(usize),
    /// A class.
    Class(usize, usize),
    /// A filter.
    Filter(usize, usize),
}

/// A valid configuration for modification. A copy is O(classes and filters), with a small constant.
#[derive(Clone)]
pub struct Draft {
    text: Arc<str>,
    /// The parts of the whole text, in order.
    parts: Vec<Part>,
    /// The new text of changed parts.
    new: Vec<Arc<str>>,
    file: File,
    former: Arc<Vec<Reading>>,
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft").finish_non_exhaustive()
    }
}

/// A piece of the text: a table with the comments above it.
#[derive(Clone, Debug)]
struct Part {
    kind: TableKind,
    /// Its bytes in the text.
    length: u32,
    /// Number of its new text, from 1, if it has changed.
    new: Option<NonZeroU32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableKind {
    Link,
    Class,
    Filter,
    /// A table outside links.
    Other,
    /// A removed table.
    Gone,
}

/// One table of a link alone: without one above it, a link is no list.
#[derive(Deserialize)]
struct Alone<T> {
    link: T,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneClass {
    class: [Arc<At<Class>>; 1],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneFilter {
    filter: [Arc<At<Filter>>; 1],
}

/// Any tables of one link.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SomeTables {
    #[serde(default)]
    class: Vec<Arc<At<Class>>>,
    #[serde(default)]
    filter: Vec<Arc<At<Filter>>>,
}

/// Parses a text, if it is valid and gives rise to no message.
fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    parse(text, &mut Report::new("", text))
}

/// Returns the tables of a text that is split into these parts, parsed some at a time: parsing all of it at once takes
/// three times the memory of the tables. Returns `None` if a part cannot be parsed. Errors that involve several tables
/// are left to the caller; the tables' positions are those within some part of the text.
fn tables(text: &str, parts: &[Part]) -> Option<File> {
    /// Number of tables that are parsed together.
    const TOGETHER: usize = 64;
    let mut starts = Vec::with_capacity(parts.len());
    let mut end = 0;
    for part in parts {
        starts.push(end);
        end += part.length as usize;
    }
    let text_of = |from: usize, to: usize| {
        let end = starts.get(to).copied().unwrap_or(text.len());
        &text[starts[from]..end]
    };
    let is_below = |part: &Part| matches!(part.kind, TableKind::Class | TableKind::Filter);
    let others = (0..parts.len()).filter(|&at| !is_below(&parts[at]));
    let head: String = others.map(|at| text_of(at, at + 1)).collect();
    let mut file: File = read(&head)?;
    let mut links = file.link.iter_mut();
    let (mut classes, mut filters) = (Vec::new(), Vec::new());
    let mut link: Option<&mut Link> = None;
    let mut at = 0;
    while let Some(part) = parts.get(at) {
        let below = parts[at..].iter().take_while(|part| is_below(part));
        let count = below.take(TOGETHER).count();
        if count > 0 {
            let Alone { link: some } = read::<Alone<SomeTables>>(text_of(at, at + count))?;
            classes.extend(some.class);
            filters.extend(some.filter);
        }
        if part.kind == TableKind::Link {
            hand_over(link.take(), &mut classes, &mut filters)?;
            link = Some(Arc::make_mut(links.next()?).value_mut());
        }
        at += count.max(1);
    }
    hand_over(link, &mut classes, &mut filters)?;
    Some(file)
}

/// Moves the tables to a link; returns `None` if there are some and no link.
fn hand_over(
    link: Option<&mut Link>,
    classes: &mut Vec<Arc<At<Class>>>,
    filters: &mut Vec<Arc<At<Filter>>>,
) -> Option<()> {
    let (classes, filters) = (std::mem::take(classes), std::mem::take(filters));
    match link {
        // Tables inside the link's own table are no separate parts.
        Some(link) if link.class.is_empty() && link.filter.is_empty() => {
            link.class = classes.into();
            link.filter = filters.into();
            Some(())
        }
        _ => (classes.is_empty() && filters.is_empty()).then_some(()),
    }
}

/// Returns the site of a text that can be split into tables and gives rise to no message.
pub(crate) fn sound(text: &str, mtu: MtuOf<'_>) -> Option<Site> {
    let file = tables(text, &parts(text)?)?;
    let mut report = Report::new("", "");
    let (site, _) = site_again(&file, mtu, &[], &[], &mut report)?;
    report.is_empty().then(|| Site {
        text: text.into(),
        ..site
    })
}

impl Draft {
    /// Returns the draft of a text, or `None` if that can only be read as a whole, or if it gives rise to a message.
    /// Takes as long as reading the text.
    pub fn of(text: &Arc<str>, mtu: MtuOf<'_>) -> Option<Draft> {
        Draft::named_as(text, mtu, &[])
    }

    /// Returns the draft of a running site's text. Sites read from the draft share the names of its classes.
    pub fn of_running(site: &Site, mtu: MtuOf<'_>) -> Option<Draft> {
        Draft::named_as(&site.text, mtu, &site.links)
    }

    fn named_as(text: &Arc<str>, mtu: MtuOf<'_>, running: &[Arc<crate::Link>]) -> Option<Draft> {
        let parts = parts(text)?;
        let file = tables(text, &parts)?;
        let mut report = Report::new("", "");
        let (_, readings) = site_again(&file, mtu, &[], running, &mut report)?;
        let draft = Draft {
            text: Arc::clone(text),
            parts,
            new: Vec::new(),
            file,
            former: Arc::new(readings),
        };
        (report.is_empty() && draft.is_whole()).then_some(draft)
    }

    /// Returns the text from which it was made or last read.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns whether each parsed table has its part.
    fn is_whole(&self) -> bool {
        let mut kinds = self.parts.iter().map(|part| part.kind).peekable();
        while kinds.next_if_eq(&TableKind::Other).is_some() {}
        self.file.link.iter().all(|link| {
            let mut counts = (0, 0);
            let begins = kinds.next_if_eq(&TableKind::Link).is_some();
            while let Some(kind) = kinds.next_if(|&kind| kind != TableKind::Link) {
                counts.0 += usize::from(kind == TableKind::Class);
                counts.1 += usize::from(kind == TableKind::Filter);
            }
            begins && counts == (link.value().class.len(), link.value().filter.len())
        })
    }

    /// Returns the index of a link.
    pub fn link(&self, name: &str) -> Option<usize> {
        let mut links = self.file.link.iter();
        links.position(|link| link.value().name.value() == name)
    }

    fn of_link(&self, link: usize) -> Option<&Link> {
        self.file.link.get(link).map(|at| at.value())
    }

    /// Returns the index of a class.
    pub fn class(&self, link: usize, name: &str) -> Option<usize> {
        let mut classes = self.of_link(link)?.class.iter();
        classes.position(|class| class.value().name.value() == name)
    }

    /// Returns whether a class has children.
    pub fn has_children(&self, link: usize, name: &str) -> bool {
        let Some(link) = self.of_link(link) else {
            return false;
        };
        let parent = |class: &Arc<At<Class>>| {
            let parent = class.value().parent.as_ref();
            parent.is_some_and(|parent| parent.value() == name)
        };
        link.class.iter().any(parent)
    }

    /// Returns the numbers of classes and filters of a link.
    pub fn counts(&self, link: usize) -> (usize, usize) {
        let link = self.of_link(link);
        link.map_or((0, 0), |link| (link.class.len(), link.filter.len()))
    }

    /// Returns the indices of the filters to a class.
    pub fn filters_to(&self, link: usize, class: &str) -> Vec<usize> {
        let Some(link) = self.of_link(link) else {
            return Vec::new();
        };
        let filters = link.filter.iter().enumerate();
        let leads = |(at, filter): (usize, &Arc<At<Filter>>)| {
            (filter.value().class.value() == class).then_some(at)
        };
        filters.filter_map(leads).collect()
    }

    /// Returns the text of a table, with the comments above it.
    pub fn table(&self, table: Table) -> Option<&str> {
        let at = self.part(table)?;
        let part = &self.parts[at];
        if let Some(new) = part.new {
            return Some(&self.new[new.get() as usize - 1]);
        }
        let before = self.parts[..at].iter().map(|part| part.length as usize);
        let start: usize = before.sum();
        Some(&self.text[start..start + part.length as usize])
    }

    /// Returns the index of a table's part.
    fn part(&self, table: Table) -> Option<usize> {
        let (link, kind, at) = match table {
            Table::Link(link) => (link, TableKind::Link, 0),
            Table::Class(link, at) => (link, TableKind::Class, at),
            Table::Filter(link, at) => (link, TableKind::Filter, at),
        };
        let kinds = self.parts.iter().map(|part| part.kind).enumerate();
        let mut heads = kinds.clone().filter(|&(_, kind)| kind == TableKind::Link);
        let (begin, _) = heads.nth(link)?;
        let of_link = (kinds.skip(begin))
            .take_while(|&(part, other)| part == begin || other != TableKind::Link);
        let (found, _) = of_link.filter(|&(_, other)| other == kind).nth(at)?;
        Some(found)
    }

    fn link_mut(&mut self, link: usize) -> Option<&mut Link> {
        let at = self.file.link.get_mut(link)?;
        Some(Arc::make_mut(at).value_mut())
    }

    /// Replaces the text of a table. Returns `None` if `text` is not exactly one such table; the whole text must then
    /// be read to report why.
    pub fn replace(&mut self, table: Table, text: &str) -> Option<()> {
        let part = self.part(table)?;
        match table {
            Table::Link(link) => {
                let mut file: File = read(text)?;
                let head = Arc::make_mut(file.link.get_mut(0)?).value_mut();
                let whole = self.link_mut(link)?;
                head.class = std::mem::take(&mut whole.class);
                head.filter = std::mem::take(&mut whole.filter);
                std::mem::swap(head, whole);
            }
            Table::Class(link, at) => {
                let Alone {
                    link: OneClass { class: [class] },
                } = read(text)?;
                self.link_mut(link)?.class.set(at, class);
            }
            Table::Filter(link, at) => {
                let Alone {
                    link: OneFilter { filter: [filter] },
                } = read(text)?;
                self.link_mut(link)?.filter.set(at, filter);
            }
        }
        self.parts[part].new = self.say(text);
        Some(())
    }

    /// Inserts a class or filter after the last one of its kind, or before the one whose index it takes. Returns `None`
    /// as [`replace`](Draft::replace) does, and if the link has none of its kind.
    pub fn insert(&mut self, table: Table, text: &str) -> Option<()> {
        let (kind, part) = match table {
            Table::Link(_) => return None,
            Table::Class(link, at) => {
                let Alone {
                    link: OneClass { class: [class] },
                } = read(text)?;
                let part = self.place_for(table, Table::Class(link, at.checked_sub(1)?))?;
                self.link_mut(link)?.class.splice(at..at, [class]);
                (TableKind::Class, part)
            }
            Table::Filter(link, at) => {
                let Alone {
                    link: OneFilter { filter: [filter] },
                } = read(text)?;
                let part = self.place_for(table, Table::Filter(link, at.saturating_sub(1)))?;
                self.link_mut(link)?.filter.splice(at..at, [filter]);
                (TableKind::Filter, part)
            }
        };
        let new = Part {
            kind,
            length: 0,
            new: self.say(text),
        };
        self.parts.insert(part, new);
        Some(())
    }

    /// Stores the new text of a part.
    fn say(&mut self, text: &str) -> Option<NonZeroU32> {
        self.new.push(Arc::from(text));
        NonZeroU32::new(self.new.len() as u32)
    }

    fn place_for(&self, table: Table, last: Table) -> Option<usize> {
        match self.part(table) {
            Some(part) => Some(part),
            None => Some(self.part(last)? + 1),
        }
    }

    /// Removes a class or filter; returns `None` if there is none.
    pub fn remove(&mut self, table: Table) -> Option<()> {
        let part = self.part(table)?;
        match table {
            Table::Link(_) => return None,
            Table::Class(link, at) => self.link_mut(link)?.class.splice(at..at + 1, []),
            Table::Filter(link, at) => self.link_mut(link)?.filter.splice(at..at + 1, []),
        }
        self.parts[part].kind = TableKind::Gone;
        Some(())
    }

    /// Returns the site of the current text, with a draft for further changes. Returns `None` if the text is invalid or
    /// gives rise to a message; read the [whole text](Draft::written) to get that with its position. Visits all
    /// classes, and processes those that changed.
    pub fn read(mut self, mtu: MtuOf<'_>) -> Option<(Draft, Site)> {
        // Settles first, while there is only one site in memory.
        self.settle();
        let (site, readings) = self.alone(mtu)?;
        self.former = Arc::new(readings);
        let text = Arc::clone(&self.text);
        Some((self, Site { text, ..site }))
    }

    /// Finds capacity for a grant in addition to others, as [`Grant::admit`] does. Returns the grant, and the site that
    /// includes it. Returns `None` if one of the grants would be broken, or if the text now gives rise to a message;
    /// read the whole text to get that. The draft must have no pending changes: O(classes and filters).
    pub fn admit(
        &self,
        grant: Grant,
        mtu: MtuOf<'_>,
        others: &[Arc<Grant>],
    ) -> Option<Result<(Arc<Grant>, Site), NotGranted>> {
        let (alone, readings) = self.alone(mtu)?;
        let file = &mut self.file.clone();
        let grant = match admit(file, &alone, &readings, mtu, others, grant) {
            Ok(grant) => Arc::new(grant),
            Err(refused) => return Some(Err(refused)),
        };
        let all: Vec<_> = others.iter().chain([&grant]).cloned().collect();
        let site = self.together(&alone, &readings, mtu, &all)?;
        Some(Ok((grant, site)))
    }

    /// Returns the site with these grants. Returns `None` if one of them would be broken, or as [`admit`](Draft::admit)
    /// does.
    pub fn beside(&self, mtu: MtuOf<'_>, grants: &[Arc<Grant>]) -> Option<Site> {
        let (alone, readings) = self.alone(mtu)?;
        match grants {
            [] => Some(Site {
                text: Arc::clone(&self.text),
                ..alone
            }),
            _ => self.together(&alone, &readings, mtu, grants),
        }
    }

    /// Returns the site without any grants.
    fn alone(&self, mtu: MtuOf<'_>) -> Option<(Site, Vec<Reading>)> {
        let mut report = Report::new("", "");
        let alone = site_again(&self.file, mtu, &self.former, &[], &mut report)?;
        report.is_empty().then_some(alone)
    }

    fn together(
        &self,
        alone: &Site,
        readings: &[Reading],
        mtu: MtuOf<'_>,
        grants: &[Arc<Grant>],
    ) -> Option<Site> {
        let together = together(&mut self.file.clone(), alone, readings, mtu, grants);
        let text = Arc::clone(&self.text);
        Some(Site {
            text,
            ..together.ok()?
        })
    }

    /// Returns the whole current text.
    pub fn written(mut self) -> Arc<str> {
        self.settle();
        self.text
    }

    /// Writes the text of the changed parts.
    fn settle(&mut self) {
        let mut text = String::with_capacity(self.text.len() + 256);
        let (mut same, mut end) = (0..0, 0);
        for part in &mut self.parts {
            end += part.length as usize;
            let new = match (part.kind, part.new.take()) {
                (TableKind::Gone, _) => "",
                (_, Some(new)) => &self.new[new.get() as usize - 1],
                (_, None) => {
                    same.end = end;
                    continue;
                }
            };
            text.push_str(&self.text[same]);
            text.push_str(new);
            part.length = new.len() as u32;
            // The next part starts a new run.
            same = end..end;
        }
        text.push_str(&self.text[same]);
        self.parts.retain(|part| part.kind != TableKind::Gone);
        self.new.clear();
        self.text = text.into();
    }
}

/// Splits a text into its tables, each with the comments above it. Returns `None` if a table might be split in two.
fn parts(text: &str) -> Option<Vec<Part>> {
    let lines_in_text = ["\"\"\"", "'''", "\r"];
    let is_cut = lines_in_text.iter().any(|mark| text.contains(mark)) || !text.ends_with('\n');
    if is_cut || excess(text).is_some() {
        return None;
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut kind = TableKind::Other;
    let mut start = 0;
    // Start of the comments and empty lines just before, if the last line is one.
    let mut comments = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let (here, trimmed) = (at, line.trim());
        at += line.len();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            comments = comments.or(Some(here));
            continue;
        }
        let begin = comments.take().unwrap_or(here);
        if !trimmed.starts_with('[') {
            continue;
        }
        let header = trimmed.split('#').next().unwrap_or_default().trim_end();
        let next = match header {
            "[[link]]" => TableKind::Link,
            "[[link.class]]" => TableKind::Class,
            "[[link.filter]]" => TableKind::Filter,
            "[interfaces]" | "[attach]" | "[control]" | "[workers]" => TableKind::Other,
            "[link.limit]" if kind == TableKind::Link => continue,
            _ if kind == TableKind::Class && header.starts_with("[link.class.") => continue,
            _ => return None,
        };
        parts.push(Part {
            kind,
            length: (begin - start) as u32,
            new: None,
        });
        (kind, start) = (next, begin);
    }
    for (kind, start, end) in [
        (kind, start, comments.unwrap_or(at)),
        (TableKind::Other, comments.unwrap_or(at), at),
    ] {
        parts.push(Part {
            kind,
            length: (end - start) as u32,
            new: None,
        });
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(_: &str) -> Option<u32> {
        None
    }

    /// Formats a link with all its guarantees.
    fn told(site: &Site) -> String {
        let links: Vec<_> = (site.links.iter())
            .map(|link| (link, link.guarantees()))
            .collect();
        format!("{:?} {:?} {links:?}", site.interfaces, site.control)
    }

    #[test]
    fn what_is_read_of_some_tables_at_a_time_is_what_is_read_of_the_whole() {
        let mut cut = 0;
        let head = "[interfaces]\ninside = \"a\"\noutside = \"b\"\n\
                    # The first.\n[[link]]\nname = \"up\"\nrate = \"1gbit\"\n";
        let many: String = (0..200)
            .map(|number| {
                format!(
                    "# {number}\n[[link.class]]\nname = \"c{number}\"\n\
                     [[link.filter]]\nclass = \"c{number}\"\ndestination = \"10.0.0.{number}\"\n"
                )
            })
            .collect();
        let rest = "[[link.class]]\nname = \"rest\"\ndefault = true\n\
                    [link.class.limit]\npackets = 7\n[control]\nsocket = \"/run/s\"\n\
                    [[link]]\nname = \"down\"\nto = \"inside\"\nrate = \"2gbit\"\n\
                    [[link.class]]\nname = \"all\"\ndefault = true\n# The end.\n";
        let mut texts = vec![head.to_owned() + &many + rest];
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
        for entry in std::fs::read_dir(examples).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "toml")
            {
                texts.push(std::fs::read_to_string(path).unwrap());
            }
        }
        for text in texts {
            let (whole, _) = Site::tables_of(&text, "whole", &unknown).unwrap();
            if let Some(site) = sound(&text, &unknown) {
                cut += 1;
                assert_eq!(told(&site), told(&whole), "{text}");
            }
        }
        assert!(cut > 3, "{cut} texts were cut");
    }

    #[test]
    fn tables_that_belong_to_no_link_or_are_told_twice_are_not_read_in_parts() {
        let link = "[[link]]\nname = \"up\"\nrate = \"1gbit\"\n";
        let class = "[[link.class]]\nname = \"all\"\ndefault = true\n";
        let sound = |text: &str| sound(text, &unknown).is_some();
        assert!(sound(&[link, class].concat()));
        for wrong in [
            [class, link].concat(),
            [link, "class = [{ name = \"one\" }]\n", class].concat(),
            [link, class, class].concat(),
            [link, class, "nobody = 1\n"].concat(),
            [link, "[link.limit]\n[link.limit]\n", class].concat(),
            [link, class, "[control]\n[control]\n"].concat(),
        ] {
            assert!(!sound(&wrong), "{wrong}");
        }
    }

    #[test]
    fn the_draft_of_what_runs_has_its_links_and_no_copies() {
        let text = "[[link]]\nname = \"up\"\nrate = \"1gbit\"\n\
                    [[link.class]]\nname = \"all\"\ndefault = true\n";
        let site = Site::parse(text, "text").unwrap();
        let same = |draft: &Draft| Arc::ptr_eq(&draft.former[0].link, &site.links[0]);
        assert!(same(&Draft::of_running(&site, &unknown).unwrap()));
        assert!(!same(&Draft::of(&site.text, &unknown).unwrap()));
        // The new site may have another longest packet.
        let mut other = site.clone();
        Arc::make_mut(&mut other.links[0]).longest = fairlane_core::Length::new(900).unwrap();
        assert!(!Arc::ptr_eq(
            &Draft::of_running(&other, &unknown).unwrap().former[0].link,
            &other.links[0]
        ));
    }
}
