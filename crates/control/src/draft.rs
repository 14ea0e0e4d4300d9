//! Changes of a draft: each replaces a table by the one that an edit of the whole text would give.
//!
//! [`Document`] makes each change in the shortest text that contains the table. A change that is not possible in this
//! way is made in the whole text, which also gives the reason of a refusal.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fairlane_config::{Draft, Grant, NotGranted, Site, Table};
use fairlane_daemon::mtu_beside;
use serde_json::Value as Json;
use tokio::time::sleep;

use crate::document::{Document, EditError};
use crate::edit::Edit;

/// Minimum time for which an unchanged draft is kept.
const KEPT: Duration = Duration::from_secs(2);
/// Number of changes made together from which the draft is not kept: it is as large as the site, the result of that
/// many changes needs the memory, and rebuilding the draft takes no longer than the changes.
const MANY: usize = 100;

/// The draft of the running configuration while it is being changed. The first change after a while parses the whole
/// text.
#[derive(Debug, Default)]
pub(crate) struct Drafts(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    draft: Option<Draft>,
    /// The previous draft, which can be dropped.
    former: Option<Draft>,
    /// True if it was used since the last check.
    is_used: bool,
}

impl Drafts {
    /// Returns the site after some changes, and its draft, if that should be kept; `None` if the whole text must be
    /// changed and read.
    pub(crate) fn changed(&self, site: &Site, edits: &[Edit]) -> Option<(Option<Draft>, Site)> {
        if !site.grants.is_empty() {
            return None;
        }
        let is_kept = edits.len() < MANY;
        if !is_kept {
            // The draft of the previous change is not kept either.
            self.forget();
            fairlane_io::give_back_unused();
        }
        let mut draft = self.of(site)?;
        if !is_kept {
            self.forget();
        }
        for edit in edits {
            edit.draft(&mut draft)?;
        }
        let (draft, site) = draft.read(&mtu_beside(site))?;
        if is_kept {
            return Some((Some(draft), site));
        }
        drop(draft);
        // Other threads build the next objects and cannot reuse the memory freed by this one.
        fairlane_io::give_back_unused();
        Some((None, site))
    }

    /// Drops all drafts.
    fn forget(&self) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Last { draft, former, .. } = std::mem::take(&mut *last);
        drop(last);
        drop((draft, former));
    }

    /// Returns the draft of a site's text; `None` if that can only be read whole.
    fn of(&self, site: &Site) -> Option<Draft> {
        if !site.warnings.is_empty() {
            return None;
        }
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_used = true;
        let of_text = |draft: &Draft| Arc::ptr_eq(draft.text(), &site.text);
        if !last.draft.as_ref().is_some_and(of_text) {
            // Drops the draft of another text first.
            last.draft = None;
            last.draft = Draft::of_running(site, &mtu_beside(site));
        }
        last.draft.clone()
    }

    /// Returns a grant next to those of a site, and the site with it, or the reason for a refusal; `None` if only the
    /// whole text can decide.
    pub(crate) fn admitted(
        &self,
        site: &Site,
        grant: Grant,
    ) -> Option<Result<(Arc<Grant>, Site), NotGranted>> {
        self.of(site)?.admit(grant, &mtu_beside(site), &site.grants)
    }

    /// Returns a site with these grants; `None` if only the whole text can decide.
    pub(crate) fn beside(&self, site: &Site, grants: &[Arc<Grant>]) -> Option<Site> {
        self.of(site)?.beside(&mtu_beside(site), grants)
    }

    /// Keeps the draft of the running site.
    pub(crate) fn keep(&self, draft: Draft) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.former = last.draft.replace(draft);
    }

    /// Drops the previous draft. Called when no request is pending.
    pub(crate) fn tidy_up(&self) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let former = last.former.take();
        drop(last);
        drop(former);
    }

    /// Drops a draft that is not changed any more, since it is as large as the site. Never returns.
    pub(crate) async fn let_go(&self) {
        loop {
            sleep(KEPT).await;
            // A draft in use is needed.
            if let Ok(mut last) = self.0.try_lock()
                && !std::mem::take(&mut last.is_used)
            {
                last.draft = None;
            }
        }
    }
}

impl Edit {
    /// Makes the change in a draft; `None` if that is not possible.
    fn draft(&self, draft: &mut Draft) -> Option<()> {
        match self {
            Edit::ChangeLink { link, keys } => {
                if keys.contains_key("name") {
                    return None;
                }
                let at = Table::Link(draft.link(link)?);
                let new = around(draft, at, None, |site| site.change_link(link, keys))?;
                draft.replace(at, &new)
            }
            Edit::ChangeClass { link, class, keys } => {
                if keys.contains_key("name") {
                    return None;
                }
                let of = draft.link(link)?;
                let at = Table::Class(of, draft.class(of, class)?);
                let change = |site: &mut Document| site.change_class(link, class, keys);
                let new = around(draft, Table::Link(of), Some(at), change)?;
                draft.replace(at, new.strip_prefix(draft.table(Table::Link(of))?)?)
            }
            Edit::AddClass { link, keys } => {
                let of = draft.link(link)?;
                let Some(Json::String(name)) = keys.get("name") else {
                    return None;
                };
                if draft.class(of, name).is_some() {
                    return None;
                }
                let (classes, _) = draft.counts(of);
                let last = Table::Class(of, classes.checked_sub(1)?);
                let new = behind(draft, of, last, |site| site.add_class(link, keys))?;
                draft.insert(Table::Class(of, classes), &new)
            }
            Edit::RemoveClass { link, class } => {
                let of = draft.link(link)?;
                let at = draft.class(of, class)?;
                if draft.has_children(of, class) {
                    return None;
                }
                draft.remove(Table::Class(of, at))?;
                let filters = draft.filters_to(of, class).into_iter().rev();
                filters
                    .map(|at| draft.remove(Table::Filter(of, at)))
                    .collect()
            }
            Edit::AddFilter { link, keys, at } => {
                let of = draft.link(link)?;
                let (_, filters) = draft.counts(of);
                let place = at.unwrap_or(filters);
                if place > filters {
                    return None;
                }
                let last = Table::Filter(of, filters.checked_sub(1)?);
                let new = behind(draft, of, last, |site| site.add_filter(link, keys, None))?;
                draft.insert(Table::Filter(of, place), &new)
            }
            Edit::RemoveFilter { link, at } => {
                let of = draft.link(link)?;
                draft.remove(Table::Filter(of, *at))
            }
        }
    }
}

/// Returns the text of a table, and of one below it, after a change.
fn around(
    draft: &Draft,
    table: Table,
    below: Option<Table>,
    change: impl FnOnce(&mut Document) -> Result<(), EditError>,
) -> Option<String> {
    let mut text = draft.table(table)?.to_owned();
    if let Some(below) = below {
        text.push_str(draft.table(below)?);
    }
    let mut document = Document::new(&text).ok()?;
    change(&mut document).ok()?;
    Some(document.to_string())
}

/// Returns the text that a change appends after a table of a link.
fn behind(
    draft: &Draft,
    link: usize,
    last: Table,
    change: impl FnOnce(&mut Document) -> Result<(), EditError>,
) -> Option<String> {
    let head = Table::Link(link);
    let text = around(draft, head, Some(last), change)?;
    let rest = text.strip_prefix(draft.table(head)?)?;
    Some(rest.strip_prefix(draft.table(last)?)?.to_owned())
}

#[cfg(test)]
mod tests;
