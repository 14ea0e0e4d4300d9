//! Parents and children among classes.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::diagnostic::{Report, suggestion};
use crate::file;

/// Name of the implicit default class.
pub(super) const DEFAULT: &str = "default";

/// Limit on levels of classes below a link. Each level adds a step to the path of a packet, and a term to its bound.
pub(super) const MOST_LEVELS: usize = 64;

/// The parent of each class, by index in the file.
#[derive(Debug)]
pub(crate) struct Family {
    pub parents: Vec<Option<usize>>,
    pub has_children: Vec<bool>,
    /// Indices in the file, parents before their children.
    pub order: Vec<usize>,
}

/// The classes of a file with their parents.
pub(super) struct Tree<'a> {
    pub written: Vec<&'a file::Class>,
    pub family: Arc<Family>,
}

impl Deref for Tree<'_> {
    type Target = Family;

    fn deref(&self) -> &Family {
        &self.family
    }
}

impl<'a> Tree<'a> {
    /// Builds the tree of classes with distinct names. `family` is known if all names and parents are those of an
    /// earlier read.
    pub(super) fn of(
        link: &'a file::Link,
        family: Option<Arc<Family>>,
        report: &mut Report,
    ) -> Option<Tree<'a>> {
        let written: Vec<_> = link.class.iter().map(|at| at.value()).collect();
        if let Some(family) = family {
            return Some(Tree { written, family });
        }
        Tree::anew(written, report)
    }

    fn anew(written: Vec<&'a file::Class>, report: &mut Report) -> Option<Tree<'a>> {
        let before = report.errors();
        let by_name: HashMap<_, _> = written
            .iter()
            .enumerate()
            .rev()
            .map(|(at, class)| (class.name.value().as_str(), at))
            .collect();
        let mut parents = vec![None; written.len()];
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); written.len()];
        let mut top = Vec::new();
        for (at, class) in written.iter().enumerate() {
            let Some(parent) = &class.parent else {
                top.push(at);
                continue;
            };
            match by_name.get(parent.value().as_str()) {
                Some(&above) => {
                    parents[at] = Some(above);
                    children[above].push(at);
                }
                None => {
                    let near = suggestion(parent.value(), by_name.keys().copied());
                    report.error(
                        &parent.span(),
                        format!(
                            "parent '{}' does not exist in this link{near}",
                            parent.value()
                        ),
                    );
                }
            }
        }
        if report.errors() > before {
            return None;
        }
        let mut order = Vec::with_capacity(written.len());
        let mut next: Vec<_> = top.into_iter().rev().map(|at| (at, 1)).collect();
        let mut deep = None;
        while let Some((at, level)) = next.pop() {
            if level > MOST_LEVELS {
                deep = deep.or(Some(at));
            }
            order.push(at);
            next.extend(children[at].iter().rev().map(|&below| (below, level + 1)));
        }
        if let Some(at) = deep {
            let class: &file::Class = written[at];
            let parent = class.parent.as_ref().unwrap_or(&class.name);
            report.error(
                &parent.span(),
                format!(
                    "class '{}' is {} levels below its link: {MOST_LEVELS} are the most",
                    class.name.value(),
                    MOST_LEVELS + 1
                ),
            );
        }
        let family = Arc::new(Family {
            has_children: children.iter().map(|below| !below.is_empty()).collect(),
            parents,
            order,
        });
        let tree = Tree { written, family };
        tree.report_circles(report);
        (report.errors() == before).then_some(tree)
    }

    /// Classes that are not reached from the root are in a cycle or below one.
    fn report_circles(&self, report: &mut Report) {
        let mut seen = vec![false; self.written.len()];
        for &at in &self.order {
            seen[at] = true;
        }
        for start in 0..self.written.len() {
            let mut path = Vec::new();
            let mut at = start;
            while !seen[at] {
                seen[at] = true;
                path.push(at);
                at = self.parents[at].expect("those without a parent are reached");
            }
            let Some(first) = path.iter().position(|&other| other == at) else {
                continue;
            };
            let circle = path[first..].iter().chain([&at]);
            let names: Vec<_> = circle
                .map(|&at| self.written[at].name.value().as_str())
                .collect();
            let parent = self.written[at].parent.as_ref().expect("it is in a circle");
            report.error(
                &parent.span(),
                format!(
                    "class '{}' is its own ancestor: {}",
                    names[0],
                    names.join(" < ")
                ),
            );
        }
    }

    /// Returns the default class, by its setting or its name.
    pub(super) fn default(&self, report: &mut Report) -> Option<usize> {
        let mut found: Option<usize> = None;
        for (at, class) in self.written.iter().enumerate() {
            let Some(default) = class.default.as_ref().filter(|default| *default.value()) else {
                continue;
            };
            let name = class.name.value();
            if self.has_children[at] {
                report.error(
                    &default.span(),
                    format!(
                        "default: class '{name}' has children, and packets go to a class without"
                    ),
                );
            }
            if let Some(first) = found {
                let first = self.written[first].name.value();
                report.error(
                    &default.span(),
                    format!("default: class '{first}' is it already, and a link has one"),
                );
            }
            found = found.or(Some(at));
        }
        let named = || {
            let at = self
                .written
                .iter()
                .position(|class| class.name.value() == DEFAULT)?;
            if self.has_children[at] {
                report.error(
                    &self.written[at].name.span(),
                    "class 'default' has children: another class needs 'default = true'",
                );
            }
            Some(at)
        };
        found.or_else(named)
    }
}
