//! The visible lines of the tree and their order.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::state::{Class, Link, State};

/// A link, or one of its classes.
pub(super) type Place = (String, Option<String>);

/// The order of the children of a link or class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    File,
    Name,
    Rate,
    Delay,
    Drops,
    Queue,
}

/// The orders through which a key cycles.
const SORTS: [(Sort, &str); 6] = [
    (Sort::File, "file"),
    (Sort::Rate, "rate"),
    (Sort::Delay, "delay of bound"),
    (Sort::Drops, "drops"),
    (Sort::Queue, "queue"),
    (Sort::Name, "name"),
];

impl Sort {
    pub(super) fn next(self) -> Sort {
        let at = SORTS.iter().position(|&(sort, _)| sort == self);
        SORTS[at.map_or(0, |at| (at + 1) % SORTS.len())].0
    }

    pub(super) fn name(self) -> &'static str {
        let found = SORTS.iter().find(|&&(sort, _)| sort == self);
        found.map_or("", |&(_, name)| name)
    }

    /// Compares classes in this order: largest counts first.
    fn order(self, a: &Class, b: &Class) -> Ordering {
        let drops = |class: &Class| class.since.map_or(0.0, |since| since.drops);
        match self {
            Sort::File => Ordering::Equal,
            Sort::Name => a.name.cmp(&b.name),
            Sort::Rate => b.bps.total_cmp(&a.bps),
            Sort::Delay => b.below.of_bound.total_cmp(&a.below.of_bound),
            Sort::Drops => (drops(b).total_cmp(&drops(a))).then(b.dropped.cmp(&a.dropped)),
            Sort::Queue => b.queued.cmp(&a.queued),
        }
    }
}

/// The state of the lines below a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    Nothing,
    Open,
    Closed,
}

/// A line of the tree, as indices into the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub link: usize,
    pub class: Option<usize>,
    /// Its depth in the tree.
    pub depth: usize,
    pub fold: Fold,
}

/// The view of the tree: order, filter and folded lines.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub sort: Sort,
    pub reversed: bool,
    /// Shows only classes whose name contains this text, and their ancestors.
    pub filter: String,
    pub folded: HashSet<Place>,
}

impl View {
    /// Returns the lines, with links in the order of the file. O(classes), plus sorting.
    pub(super) fn rows(&self, state: &State) -> Vec<Row> {
        let mut rows = Vec::new();
        for (at, link) in state.links.iter().enumerate() {
            self.add(at, link, &mut rows);
        }
        rows
    }

    fn add(&self, at: usize, link: &Link, rows: &mut Vec<Row>) {
        let shown = self.matching(link);
        // The last entry is the link's own.
        let root = link.classes.len();
        let mut children = vec![Vec::new(); root + 1];
        for (place, class) in link.classes.iter().enumerate() {
            if shown[place] {
                children[class.parent.unwrap_or(root)].push(place);
            }
        }
        let row = |class: Option<usize>, depth| {
            let place = class.unwrap_or(root);
            let name = class.map(|class| link.classes[class].name.clone());
            let fold = match children[place].is_empty() {
                true => Fold::Nothing,
                // Matches of the filter are always visible.
                false if !self.filter.is_empty() => Fold::Open,
                false if self.folded.contains(&(link.name.clone(), name)) => Fold::Closed,
                false => Fold::Open,
            };
            Row {
                link: at,
                class,
                depth,
                fold,
            }
        };
        let mut stack = vec![row(None, 0)];
        while let Some(next) = stack.pop() {
            rows.push(next);
            if next.fold != Fold::Open {
                continue;
            }
            let mut below = children[next.class.unwrap_or(root)].clone();
            below.sort_by(|&a, &b| self.sort.order(&link.classes[a], &link.classes[b]));
            // The top of the stack comes first.
            if !self.reversed {
                below.reverse();
            }
            stack.extend(below.iter().map(|&place| row(Some(place), next.depth + 1)));
        }
    }

    /// Returns true if the class matches the filter.
    pub(super) fn matches(&self, class: &Class) -> bool {
        let name = class.name.to_lowercase();
        name.contains(&self.filter.to_lowercase())
    }

    /// Returns which classes to show: matches and their ancestors.
    fn matching(&self, link: &Link) -> Vec<bool> {
        if self.filter.is_empty() {
            return vec![true; link.classes.len()];
        }
        let classes = link.classes.iter();
        let mut shown: Vec<bool> = classes.map(|class| self.matches(class)).collect();
        for place in (0..shown.len()).rev() {
            if let (true, Some(parent)) = (shown[place], link.classes[place].parent) {
                shown[parent] = true;
            }
        }
        shown
    }
}
