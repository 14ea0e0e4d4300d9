//! The text of a first site file, written for a newcomer.

use fairlane_core::Rate;

use super::ends::{Near, SiteInterfaces};

/// The tap device of a first site.
pub(super) const TAP: &str = "fair0";
/// The control socket: the default of `fairlane ctl`.
const SOCKET: &str = "/run/fairlane.sock";

/// The template of the file.
const FIRST: &str = include_str!("first.toml");

/// The contents of a first site file.
#[derive(Clone, Debug)]
pub(super) struct First {
    pub(super) ends: SiteInterfaces,
    /// Addresses and gateways of the outside interface, one per line.
    pub(super) known: Vec<String>,
    /// Rates of the egress at `outside` and at the other side.
    pub(super) up: Rate,
    pub(super) down: Rate,
}

impl First {
    pub(super) fn text(&self) -> String {
        // One pass, since a name may look like a placeholder.
        let mut parts = FIRST.split("{{");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (gap, rest) = part.split_once("}}").expect("a gap ends");
            text += &self.in_gap(gap);
            text += rest;
        }
        text
    }

    fn in_gap(&self, gap: &str) -> String {
        let is_bump = matches!(self.ends.near, Near::Inside(_));
        let either = |bump: &str, tap: &str| if is_bump { bump } else { tap }.to_owned();
        let (rate, what) = match gap.split_once('-') {
            Some(("up", what)) => (self.up, what),
            Some((_, what)) => (self.down, what),
            None => (self.up, ""),
        };
        // Calls need little, whatever the rate of the line.
        let voice = part(rate, 10, 1, 2_000_000);
        match (gap, what) {
            ("interfaces", _) => self.interfaces(),
            ("socket", _) => SOCKET.to_owned(),
            ("near", _) => either("inside", "tap"),
            ("from", _) => either("source-ip", "5-tuple"),
            ("to", _) => either("destination-ip", "5-tuple"),
            ("flows", _) => either(PER_HOST, PER_CONNECTION),
            ("up", _) => self.up.to_string(),
            ("down", _) => self.down.to_string(),
            (_, "less") => part(rate, 10, 9, u64::MAX).to_string(),
            (_, "voice") => voice.to_string(),
            (_, "ceil") => {
                let twice = Rate::from_bps(2 * voice.bps());
                twice.unwrap_or(voice).to_string()
            }
            (_, "interactive") => part(rate, 5, 1, 10_000_000).to_string(),
            _ => unreachable!("the text has no gap {gap}"),
        }
    }

    /// Returns the table of interfaces with comments.
    fn interfaces(&self) -> String {
        let quoted = |name: &str| toml::Value::from(name).to_string();
        let outside = &self.ends.outside;
        match &self.ends.near {
            Near::Inside(inside) => format!(
                "{BUMP}[interfaces]\n\
                 outside = {}   # towards the Internet, for example the modem\n\
                 inside = {}   # towards the hosts that share the line",
                quoted(outside),
                quoted(inside)
            ),
            Near::Tap => {
                let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
                let in_comment = match outside.chars().all(plain) {
                    true => outside,
                    false => "outside",
                };
                let said = HOST.replace("TAP", TAP).replace("OUTSIDE", in_comment);
                let known = self.known.iter().map(|line| format!("#   {line}\n"));
                let known: String = known.collect();
                let now = match known.is_empty() {
                    true => String::new(),
                    false => format!("# Now {in_comment} has\n{known}"),
                };
                format!(
                    "{said}{now}[interfaces]\n\
                     outside = {}   # the interface that this machine sends by\n\
                     tap = \"{TAP}\"   # made by Fairlane; this machine sends there\n\
                     move-addresses = true   # false: move them to {TAP} by hand, once it runs",
                    quoted(outside)
                )
            }
        }
    }
}

/// Returns `parts` of `of` equal parts of a rate, at most `most` bit/s, truncated to two digits.
fn part(rate: Rate, of: u64, parts: u64, most: u64) -> Rate {
    let bps = (rate.bps() / of * parts).min(most);
    let unit = 10_u64.pow(bps.max(10).ilog10() - 1);
    Rate::from_bps(bps / unit * unit).unwrap_or(Rate::MIN)
}

const BUMP: &str = "\
# The two ports that Fairlane bridges: frames received on one leave by the other. While Fairlane does
# not run, no frame passes. The ports need no addresses, and this machine must not route between them.
";

const HOST: &str = "\
# The packets that this machine itself sends and receives by OUTSIDE. While Fairlane runs, the device
# TAP has the addresses and routes of OUTSIDE, of IPv4 and IPv6, and a hardware address of its own
# that is the same at each start. Afterwards OUTSIDE has them again. Rules of a firewall and a DHCP
# client must name TAP.
";

const PER_HOST: &str = "\
Each host gets its own queue (per), so a heavy sender delays only itself. If a router between here and
# the hosts translates their addresses, all of them look like one host: then use per = \"5-tuple\", so
# that each connection gets its own queue.";

const PER_CONNECTION: &str = "\
Each connection gets its own queue (per), so a heavy connection delays only itself. On a router that
# translates no addresses, per = \"source-ip\" (up) and \"destination-ip\" (down) give each host a queue.";

#[cfg(test)]
mod tests {
    use fairlane_config::Site;

    use super::*;

    fn first(outside: &str, near: Near, up: &str, down: &str) -> First {
        First {
            ends: SiteInterfaces {
                outside: outside.to_owned(),
                near,
            },
            known: vec!["address 192.0.2.7/24".to_owned()],
            up: up.parse().unwrap(),
            down: down.parse().unwrap(),
        }
    }

    /// Names that the kernel accepts for an interface.
    const ODD: [&str; 14] = [
        "wan0",
        "eth0.100",
        "enp0s31f6",
        "br-lan",
        "0",
        "-",
        "a\"b",
        "a\\b",
        "'''",
        "\"\"\"",
        "#\u{1b}[2J\u{7f}",
        "netz-größe",
        "$(reboot)",
        "{{up}}",
    ];

    #[test]
    fn every_first_file_is_a_site_without_a_warning() {
        let rates = [
            "100kbit",
            "999kbit",
            "20mbit",
            "18500kbit",
            "2.5gbit",
            "1tbit",
        ];
        for (at, outside) in ODD.iter().enumerate() {
            let others = ODD.iter().filter(|other| *other != outside);
            let near = others.map(|name| Near::Inside((*name).to_owned()));
            for (turn, near) in near.chain([Near::Tap]).enumerate() {
                let (up, down) = (rates[(at + turn) % 6], rates[turn % 6]);
                let first = first(outside, near, up, down);
                let text = first.text();
                let site = Site::parse(&text, "first.toml");
                let site = site.unwrap_or_else(|error| panic!("{error}\n{text}"));
                assert!(site.warnings.is_empty(), "{:?}\n{text}", site.warnings);
                let interfaces = site.interfaces.unwrap();
                assert_eq!(interfaces.outside, first.ends.outside);
                let near = match &first.ends.near {
                    Near::Inside(name) => fairlane_config::Near::Inside(name.clone()),
                    Near::Tap => fairlane_config::Near::Tap(TAP.to_owned()),
                };
                assert_eq!(interfaces.near, near);
                let rates: Vec<_> = site.links.iter().map(|link| link.rate).collect();
                assert_eq!(rates, [first.up, first.down]);
                let control = site.control.unwrap();
                assert_eq!(control.socket.as_deref(), Some(SOCKET.as_ref()));
            }
        }
    }

    #[test]
    fn every_rate_leaves_the_classes_with_something() {
        let mut bps = 64_000;
        while bps <= Rate::MAX.bps() {
            let rate = Rate::from_bps(bps).unwrap();
            let near = Near::Inside("lan0".to_owned());
            let text = first("wan0", near, &rate.to_string(), &rate.to_string()).text();
            Site::parse(&text, "first.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
            bps = bps * 37 / 31 + 1;
        }
    }

    #[test]
    fn lines_are_short_and_comments_name_plain_interfaces() {
        for name in ["$(reboot)", "eth0;ls", "#\u{1b}[2J"] {
            let text = first(name, Near::Tap, "20mbit", "100mbit").text();
            let comments = text.lines().filter(|line| line.starts_with('#'));
            assert!(comments.clone().all(|line| !line.contains(name)), "{text}");
        }
        let text = first("wan0", Near::Tap, "20mbit", "100mbit").text();
        assert!(
            text.contains("# Now wan0 has\n#   address 192.0.2.7/24\n[interfaces]"),
            "{text}"
        );
        assert!(
            !text.contains("OUTSIDE") && !text.contains("TAP "),
            "{text}"
        );
        for near in [Near::Tap, Near::Inside("lan0".to_owned())] {
            let text = first("wan0", near, "20mbit", "100mbit").text();
            for line in text.lines() {
                assert!(line.chars().count() <= 104, "{line}");
            }
        }
    }

    #[test]
    fn parts_are_what_a_person_would_write() {
        for (rate, of, parts, most, expected) in [
            ("20mbit", 10, 1, 2_000_000, "2mbit"),
            ("18500kbit", 10, 1, 2_000_000, "1800kbit"),
            ("18500kbit", 10, 9, u64::MAX, "16mbit"),
            ("64kbit", 10, 1, 2_000_000, "6400bit"),
            ("1tbit", 5, 1, 10_000_000, "10mbit"),
        ] {
            let part = part(rate.parse().unwrap(), of, parts, most);
            assert_eq!(part, expected.parse().unwrap(), "{rate}: {part}");
        }
    }
}
