//! Selects the interfaces of a first site.

use anyhow::{Result, bail};
use fairlane_config::{Backend, Interfaces};
use fairlane_daemon::bypasses;

use super::Options;
use super::interfaces::{Interface, Machine};

/// The interfaces of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SiteInterfaces {
    pub(super) outside: String,
    pub(super) near: Near,
}

/// The near side of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Near {
    /// An interface: the site is an inline bridge.
    Inside(String),
    /// The machine itself, through a tap device.
    Tap,
}

/// Advice for machines without two suitable interfaces.
const DEMONSTRATION: &str = "`fairlane run` without a file is a demonstration that needs none";

impl SiteInterfaces {
    /// Selects the interfaces from the options, then from the machine, and returns them with reasons.
    pub(super) fn choose(
        options: &Options,
        machine: &Machine,
    ) -> Result<(SiteInterfaces, Vec<String>)> {
        let mut words = Vec::new();
        let outside = match &options.outside {
            Some(name) => {
                words.extend(doubt(machine, name));
                name.clone()
            }
            None => {
                let (outside, why) = outside(options, machine)?;
                words.push(format!("outside is {}: {why}", shown(outside)));
                outside.name.clone()
            }
        };
        if options.tap {
            let near = Near::Tap;
            return Ok((SiteInterfaces { outside, near }, words));
        }
        let inside = match &options.inside {
            Some(name) => {
                words.extend(doubt(machine, name));
                name.clone()
            }
            None => {
                let (inside, why) = inside(options, machine, &outside)?;
                words.push(format!("inside is {}: {why}", shown(inside)));
                inside.name.clone()
            }
        };
        if inside == outside {
            bail!("{outside:?} is outside already: the two sides are two interfaces");
        }
        let near = Near::Inside(inside);
        Ok((SiteInterfaces { outside, near }, words))
    }
}

impl SiteInterfaces {
    /// Returns warnings about paths through this machine's kernel that bypass the site. They are errors if the program
    /// chose the interfaces.
    pub(super) fn bypasses(&self, options: &Options) -> Result<Vec<String>> {
        let Near::Inside(inside) = &self.near else {
            // The addresses for a tap device are still on the outside interface.
            return Ok(Vec::new());
        };
        let found = bypasses(&Interfaces {
            outside: self.outside.clone(),
            near: fairlane_config::Near::Inside(inside.clone()),
            move_addresses: false,
            allow_bypass: false,
            backend: Backend::default(),
            speed: None,
            longest_round: Interfaces::LONGEST_ROUND,
        });
        let is_named = options.inside.is_some() && options.outside.is_some();
        match found.iter().find(|it| it.is_certain()) {
            Some(bypass) if !is_named => bail!(
                "{bypass} (use --tap to shape the traffic of a router, or name both with --outside and --inside)"
            ),
            _ => Ok(found.iter().map(|it| format!("warning: {it}")).collect()),
        }
    }
}

/// Returns a warning about a given name, if the interface is unsuitable.
fn doubt(machine: &Machine, name: &str) -> Option<String> {
    if machine.find(name).is_some() {
        return None;
    }
    Some(
        match machine.unfit.iter().find(|(other, _)| other == name) {
            Some((name, why)) => format!("warning: {name:?} {why}"),
            None => format!("warning: there is no interface {name:?} here"),
        },
    )
}

/// Returns the interface towards the rest of the world, and the reason for the choice.
fn outside<'a>(options: &Options, machine: &'a Machine) -> Result<(&'a Interface, String)> {
    let others = |it: &&Interface| Some(&it.name) != options.inside.as_ref();
    let mut all = machine.interfaces.iter().filter(others);
    if let Some(named) = all.clone().find(|it| it.name.starts_with("wan")) {
        return Ok((named, "by its name".to_owned()));
    }
    let is_way_out = |it: &&Interface| Some(&it.name) == machine.default_route.as_ref();
    if let Some(way_out) = all.clone().find(is_way_out) {
        return Ok((way_out, "the default route leaves by it".to_owned()));
    }
    // An interface named lan* is chosen only if there is no other.
    let count = all.clone().count();
    let first = all.find(|it| count == 1 || !it.name.starts_with("lan"));
    let Some(first) = first else {
        bail!(
            "no interface here may be outside{}: name one with --outside; {DEMONSTRATION}",
            in_brackets(
                machine
                    .unfit
                    .iter()
                    .map(|(name, why)| format!("{name:?} {why}"))
            )
        );
    };
    let why = match &machine.default_route {
        Some(route) => {
            format!("a guess, for the default route leaves by {route:?}, where no site may stand")
        }
        None => "a guess, for there is no default route".to_owned(),
    };
    Ok((first, why))
}

/// Returns the other interface, and the reason.
fn inside<'a>(
    options: &Options,
    machine: &'a Machine,
    outside: &str,
) -> Result<(&'a Interface, String)> {
    let others: Vec<_> = (machine.interfaces.iter())
        .filter(|it| it.name != outside)
        .collect();
    let best = (others.iter()).min_by_key(|it| (!it.name.starts_with("lan"), !it.has_carrier));
    let Some(best) = best else {
        let again = match &options.outside {
            Some(_) => "name another with --inside".to_owned(),
            None => format!("{outside:?} is the only one here; name another with --inside"),
        };
        bail!(
            "a bump in the wire stands between two interfaces, and {again}, or shape with --tap what \
             this machine itself sends and receives by {outside:?}; {DEMONSTRATION}"
        );
    };
    let rest = others.iter().filter(|it| it.name != best.name);
    let rest = rest.map(|it| format!("{:?}", it.name));
    let why = match (others.len(), best.name.starts_with("lan")) {
        (1, _) => "the only other one".to_owned(),
        (_, true) => "by its name".to_owned(),
        (_, false) => format!("a guess; there are others{}", in_brackets(rest)),
    };
    Ok((best, why))
}

fn in_brackets(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    match items.is_empty() {
        true => String::new(),
        false => format!(" ({})", items.join(", ")),
    }
}

/// Formats a name with the interface's speed.
fn shown(interface: &Interface) -> String {
    match interface.speed {
        Some(speed) => format!("{:?} ({speed})", interface.name),
        None => format!("{:?}", interface.name),
    }
}

#[cfg(test)]
mod tests {
    use super::super::interfaces::tests::Files;
    use super::*;

    const PORT: &[(&str, &str)] = &[("device/vendor", ""), ("speed", "1000")];

    fn machine(ports: &[&str]) -> Files {
        let files = Files::new();
        for port in ports {
            files.port(port, PORT);
        }
        files
    }

    fn chosen(options: &Options, files: &Files) -> (String, String) {
        let (ends, _) = SiteInterfaces::choose(options, &files.machine()).unwrap();
        let Near::Inside(inside) = ends.near else {
            panic!("{ends:?}");
        };
        (ends.outside, inside)
    }

    fn pair(outside: &str, inside: &str) -> (String, String) {
        (outside.to_owned(), inside.to_owned())
    }

    fn refused(options: &Options, files: &Files) -> String {
        let sentence = SiteInterfaces::choose(options, &files.machine())
            .unwrap_err()
            .to_string();
        assert!(!sentence.contains('\n'), "{sentence}");
        sentence
    }

    #[test]
    fn the_default_route_and_names_say_which_is_which() {
        let none = Options::default();
        let files = machine(&["eth0", "eth1"]);
        assert_eq!(chosen(&none, &files), pair("eth0", "eth1"));
        files.route("eth1", "00000000", 0);
        assert_eq!(chosen(&none, &files), pair("eth1", "eth0"));
        let files = machine(&["mgmt", "lan0", "wan0"]);
        files.route("mgmt", "00000000", 0);
        assert_eq!(chosen(&none, &files), pair("wan0", "lan0"));
        let files = machine(&["lan0", "eth7"]);
        assert_eq!(chosen(&none, &files), pair("eth7", "lan0"));
        let files = machine(&["eth0", "eth1", "eth2"]);
        files.port("eth3", &[("device/vendor", ""), ("carrier", "0")]);
        files.route("eth0", "00000000", 0);
        let (_, words) = SiteInterfaces::choose(&none, &files.machine()).unwrap();
        let words = words.join("\n");
        for part in ["\"eth0\" (1gbit)", "default route", "guess", "eth2", "eth3"] {
            assert!(words.contains(part), "{words}");
        }
    }

    #[test]
    fn what_is_named_is_taken_with_a_warning_where_it_is_not_there() {
        let files = machine(&["eth0", "eth1"]);
        let mut options = Options {
            inside: Some("eth0".to_owned()),
            ..Options::default()
        };
        assert_eq!(chosen(&options, &files), pair("eth1", "eth0"));
        options.outside = Some("ppp0".to_owned());
        let (_, words) = SiteInterfaces::choose(&options, &files.machine()).unwrap();
        assert_eq!(words, ["warning: there is no interface \"ppp0\" here"]);
        options.outside = Some("lo".to_owned());
        let (_, words) = SiteInterfaces::choose(&options, &files.machine()).unwrap();
        assert_eq!(words, ["warning: \"lo\" is the loopback"]);
        options.outside = Some("eth0".to_owned());
        assert!(refused(&options, &files).contains("\"eth0\" is outside already"));
    }

    #[test]
    fn with_one_interface_or_none_a_sentence_says_what_to_do() {
        let none = Options::default();
        let one = machine(&["eth0"]);
        let sentence = refused(&none, &one);
        for part in [
            "\"eth0\" is the only one",
            "--inside",
            "--tap",
            "fairlane run",
        ] {
            assert!(sentence.contains(part), "{sentence}");
        }
        let sentence = refused(&none, &machine(&[]));
        for part in ["\"lo\" is the loopback", "--outside", "fairlane run"] {
            assert!(sentence.contains(part), "{sentence}");
        }
        let tap = Options {
            tap: true,
            ..Options::default()
        };
        let (ends, _) = SiteInterfaces::choose(&tap, &one.machine()).unwrap();
        assert_eq!((&*ends.outside, ends.near), ("eth0", Near::Tap));
    }
}
