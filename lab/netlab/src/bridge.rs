//! The kernel's own switch, to join what nothing else joins.

use fairlane_netlink::{CREATE, Message};

use crate::link::{CONTROLLER, INFO, INFO_KIND, NAME, NEW_LINK, SET_LINK, ask, link};
use crate::{LabError, Link, Namespace};

/// Makes a bridge with this name in `namespace` and connects `ports` to it, which are links there:
/// it forwards frames between them as a switch does. It is up and has no address.
///
/// # Errors
///
/// If the name is taken, if a port is in another namespace or has been deleted, or if the kernel
/// has no bridges.
pub fn bridge(namespace: &Namespace, name: &str, ports: &[&Link]) -> Result<Link, LabError> {
    let info = Message::default().with_text(INFO_KIND, "bridge");
    let message = link(0).with_text(NAME, name).with_nested(INFO, &info);
    ask(namespace, NEW_LINK, CREATE, &message, || {
        format!("make the bridge {name}")
    })?;
    let bridge = Link::find(namespace, name)?;
    for port in ports {
        let message = link(port.index()).with_number(CONTROLLER, bridge.index());
        ask(namespace, SET_LINK, 0, &message, || {
            format!("connect {} to the bridge {name}", port.name())
        })?;
    }
    bridge.up()?;
    Ok(bridge)
}
