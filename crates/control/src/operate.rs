//! Operations on a running site other than changes of its configuration.

use std::sync::Arc;

use fairlane_config::{Grant, Interfaces, Near};
use fairlane_daemon::{Attaching, Error, Handle, Source};
use serde_json::{Value as Json, json};

use crate::change::{ATTEMPTS, Changed, Refused, beside, changed};
use crate::document::{Document, EditError};

/// Turns shaping of an interface's egress on or off, as the body says.
pub(crate) fn shape(site: &Handle, interface: &str, body: &[u8]) -> Result<Json, Refused> {
    let asked: Option<Json> = serde_json::from_slice(body).ok();
    let keys = asked.as_ref().and_then(Json::as_object);
    let enabled = keys
        .filter(|keys| keys.len() == 1)
        .and_then(|keys| keys.get("enabled")?.as_bool());
    let Some(enabled) = enabled else {
        let sentence = "the body is {\"enabled\": true} or {\"enabled\": false}";
        return Err(EditError::Value(sentence.to_owned()).into());
    };
    site.shape(interface, enabled)?;
    Ok(json!({ "interface": interface, "shaped": enabled }))
}

/// Drops the backlog of a class and those below it, or of the whole link, and returns its size.
pub(crate) fn flush(site: &Handle, link: &str, class: Option<&str>) -> Result<Json, Refused> {
    let dropped = site.flush(link, class)?;
    Ok(json!({ "packets": dropped.packets, "bytes": dropped.bytes }))
}

/// Detaches an interface.
pub(crate) fn detach(site: &Handle, interface: &str) -> Result<Json, Refused> {
    site.detach(interface)?;
    Ok(json!({ "detached": interface }))
}

/// Attaches the interface named in the body, or the former one, instead of one that was detached. Writes its name into
/// the configuration, with `grants` or the running ones.
pub(crate) fn attach(
    site: &Handle,
    place: &str,
    body: &[u8],
    dry: bool,
    grants: Option<&[Arc<Grant>]>,
) -> Result<Changed, Refused> {
    let named = interface_in(body)?;
    let mut attempt = 1;
    loop {
        let before = site.site();
        let (role, former) = role_of(before.interfaces.as_ref(), place)?;
        let attaching = Attaching {
            place: role.to_owned(),
            interface: named.clone().unwrap_or_else(|| former.to_owned()),
        };
        let mut document = Document::new(&before.text)?;
        document.name_interface(role, &attaching.interface)?;
        let source = beside(Source::Text(document.to_string()), grants);
        let after = match dry {
            true => site.consider_attaching(attaching, source),
            false => site.attach(attaching, source, before.clone()),
        };
        match after {
            Err(Error::Outdated) if attempt < ATTEMPTS => attempt += 1,
            after => {
                let after = after?;
                return Ok(changed(!dry, &before, &after));
            }
        }
    }
}

/// Returns the interface that a body names, if any.
fn interface_in(body: &[u8]) -> Result<Option<String>, Refused> {
    if body.is_empty() {
        return Ok(None);
    }
    let asked: Option<Json> = serde_json::from_slice(body).ok();
    let named = asked.as_ref().and_then(|asked| match asked.as_object()? {
        keys if keys.is_empty() => Some(None),
        keys if keys.len() == 1 => Some(Some(keys.get("interface")?.as_str()?.to_owned())),
        _ => None,
    });
    named.ok_or_else(|| {
        let sentence = "the body is {\"interface\": \"eth3\"}, or there is none";
        EditError::Value(sentence.to_owned()).into()
    })
}

/// Returns the role and the name of an interface, given either of them.
fn role_of<'a>(
    interfaces: Option<&'a Interfaces>,
    place: &str,
) -> Result<(&'static str, &'a str), Refused> {
    let near = interfaces.and_then(|interfaces| match &interfaces.near {
        Near::Inside(name) => Some(("inside", &**name)),
        Near::Tap(name) => Some(("tap", &**name)),
        Near::Nothing => None,
    });
    let outside = interfaces.map(|interfaces| ("outside", &*interfaces.outside));
    let all = || near.into_iter().chain(outside);
    let mut by_name = all().filter(|(_, name)| *name == place);
    let mut by_role = all().filter(|(role, _)| *role == place);
    by_name.next().or_else(|| by_role.next()).ok_or_else(|| {
        let there: Vec<&str> = all().map(|(_, name)| name).collect();
        let sentence = format!(
            "the site has no interface '{place}': there is {}",
            there.join(" and ")
        );
        EditError::Missing(sentence).into()
    })
}
