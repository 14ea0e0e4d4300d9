//! The configuration outside the links.

use std::sync::Arc;

use super::words::word;
use crate::diagnostic::Report;
use crate::file;
use crate::site::{Interfaces, Link, MtuOf, Near, Role, Site};

/// The configuration outside the links, as far as it is valid.
pub(super) struct Surroundings<'a> {
    /// `None` if the file has none; `Some(None)` if they are invalid.
    pub(super) interfaces: Option<Option<&'a Interfaces>>,
    pub(super) attach: bool,
    pub(super) mtu: MtuOf<'a>,
    pub(super) running: &'a [Arc<Link>],
}

impl Surroundings<'_> {
    /// Returns whether there is such a side; true for all if that is unknown.
    pub(super) fn has(&self, role: Role) -> bool {
        match (role, self.interfaces) {
            (Role::Attached, Some(_)) => self.attach,
            (_, None | Some(None)) | (Role::Outside, _) => true,
            (Role::Inside, Some(Some(interfaces))) => matches!(interfaces.near, Near::Inside(_)),
            (Role::Tap, Some(Some(interfaces))) => matches!(interfaces.near, Near::Tap(_)),
        }
    }

    pub(super) fn to(&self, link: &file::Link, report: &mut Report) -> Role {
        let Some(to) = &link.to else {
            return Role::Outside;
        };
        let roles = [Role::Outside, Role::Inside, Role::Tap].map(|role| (role.name(), role));
        let Some(role) = word(to, "to", &roles, report) else {
            return Role::Outside;
        };
        if !self.has(role) {
            report.error(
                &to.span(),
                format!("to '{}': [interfaces] has no '{0}'", role.name()),
            );
        }
        role
    }

    /// Returns those of a valid site.
    pub(super) fn of<'a>(site: &'a Site, mtu: MtuOf<'a>) -> Surroundings<'a> {
        Surroundings {
            interfaces: site.interfaces.as_ref().map(Some),
            attach: site.attach.is_some(),
            mtu,
            running: &site.links,
        }
    }
}
