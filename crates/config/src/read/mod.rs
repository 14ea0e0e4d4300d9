//! Validation of a parsed file into a site, with all errors reported.

mod above;
mod admission;
mod again;
mod classes;
mod entitlements;
mod family;
mod filters;
mod grants;
mod link;
mod link_control;
mod longest;
mod machine;
mod queue;
mod rooms;
mod settle;
mod surroundings;
mod whole;
mod words;

pub(crate) use admission::admit;
pub(crate) use again::Reading;
pub(crate) use grants::together;
pub use whole::XDP_MOST_WAITING;
pub(crate) use whole::{site, site_again};
pub use words::{INTERFACE_NAME, is_interface_name};
