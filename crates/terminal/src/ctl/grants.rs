//! Commands to request, list, renew and revoke grants.

use anyhow::Result;
use clap::Subcommand;
use fairlane_control::{Method, encoded, value_of};
use serde_json::{Map, Value as Json};

use super::edits::pair;
use super::{ALL, Change, LISTED, Site, effects, of_link};
use crate::plain::{plain, told};
use crate::{figures, output, table};

/// Keys of a request that are not conditions of a filter.
const OWN: [&str; 5] = ["rate", "burst", "delay", "parent", "note"];

#[derive(Clone, Debug, Subcommand)]
pub(super) enum Command {
    /// Request a guaranteed rate, burst and delay for a flow, for a limited time
    Grant {
        /// The link
        link: String,
        /// rate, and burst, delay, parent, note; all other keys are conditions on packets, as in a
        /// filter
        #[arg(value_name = "KEY=VALUE", required = true)]
        keys: Vec<String>,
        /// Lifetime, from 1s to 30d; it can be renewed
        #[arg(long = "for", value_name = "TIME", default_value = "1h")]
        lifetime: String,
        /// Print the answer without granting
        #[arg(long)]
        dry_run: bool,
    },
    /// List the grants
    Grants,
    /// Renew a grant, from now
    Renew {
        /// Its number
        id: String,
        /// Lifetime [default: as before]
        #[arg(long = "for", value_name = "TIME")]
        lifetime: Option<String>,
    },
    /// Revoke a grant
    Revoke {
        /// Its number
        id: String,
        #[command(flatten)]
        change: Change,
    },
}

pub(super) fn run(site: &Site, command: &Command) -> Result<()> {
    match command {
        Command::Grant {
            link,
            keys,
            lifetime,
            dry_run,
        } => {
            let listed = match site.json {
                true => ALL.to_owned(),
                false => LISTED.to_string(),
            };
            let path = format!(
                "{}/grants?dry-run={dry_run}&effects={listed}",
                of_link(link)
            );
            let body = request(keys, lifetime)?.to_string();
            let granted = site.client.json(Method::POST, &path, body)?;
            if site.json {
                return output::json(&granted);
            }
            output::line(sentence(&granted["grant"]))?;
            output::line(effects(&granted))
        }
        Command::Grants => {
            let all = site.client.json(Method::GET, "/v1/grants", "")?;
            match site.json {
                true => output::json(&all),
                false => output::line(listed(&all)),
            }
        }
        Command::Renew { id, lifetime } => {
            let lifetime = lifetime
                .iter()
                .map(|written| ("lifetime".to_owned(), time(written)));
            let body = Json::from(Map::from_iter(lifetime));
            let path = format!("/v1/grants/{}", encoded(id));
            let renewed = site.client.json(Method::PUT, &path, body.to_string())?;
            match site.json {
                true => output::json(&renewed),
                false => output::line(sentence(&renewed)),
            }
        }
        Command::Revoke { id, change } => {
            let path = format!("/v1/grants/{}", encoded(id));
            site.ask_to_change(Method::DELETE, &path, String::new(), change)
        }
    }
}

/// Parses a lifetime; a plain number is in seconds.
fn time(written: &str) -> Json {
    let seconds: Option<u64> = written.parse().ok();
    seconds.map_or_else(|| written.into(), Json::from)
}

/// Returns the request, with the filter in a table of its own.
fn request(written: &[String], lifetime: &str) -> Result<Json> {
    let mut request = Map::new();
    let mut filter = Map::new();
    for written in written {
        let (key, value) = pair(written)?;
        match OWN.contains(&key) {
            true => request.insert(key.to_owned(), value.into()),
            false => filter.insert(key.to_owned(), value_of(value)),
        };
    }
    request.insert("filter".to_owned(), filter.into());
    request.insert("lifetime".to_owned(), time(lifetime));
    Ok(request.into())
}

/// Returns a sentence with the grant's guarantees and remaining lifetime.
fn sentence(grant: &Json) -> String {
    let name = match grant["id"].as_u64() {
        Some(number) => format!("grant {number}"),
        None => "it would be granted".to_owned(),
    };
    let burst = grant["burst"].as_u64();
    let burst = burst.map_or(String::new(), |bytes| {
        format!(" and bursts of {bytes} bytes")
    });
    let delay = match us(&grant["delay_us"]) {
        Some(delay) => format!(" within {delay}"),
        None => String::new(),
    };
    let bound = us(&grant["granted"]["bound_us"]).unwrap_or_else(|| "none".to_owned());
    format!(
        "{name}: {}{burst}{delay} on link {}, for {}; reserved {}, worst delay of a single packet {bound}, \
         room for {} packets",
        rate(&grant["rate_bps"]),
        told(&grant["link"]),
        seconds(&grant["expires_in_s"]),
        rate(&grant["reserved_bps"]),
        grant["granted"]["room_packets"]
    )
}

fn listed(all: &Json) -> String {
    let all = all.as_array().map_or(&[][..], Vec::as_slice);
    if all.is_empty() {
        return "nothing is granted".to_owned();
    }
    let mut table = table::new([
        "grant", "link", "flow", "rate", "delay", "reserved", "bound", "max", "missed", "ends in",
    ]);
    for grant in all {
        let measured = &grant["measured"];
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.add_row([
            grant["id"].to_string(),
            told(&grant["link"]).into_owned(),
            plain(&flow(grant)).into_owned(),
            rate(&grant["rate_bps"]),
            or_none(us(&grant["delay_us"])),
            rate(&grant["reserved_bps"]),
            or_none(us(&measured["bound_us"])),
            or_none(us(&measured["delay_max_us"])),
            or_none(
                measured["violations"]
                    .as_u64()
                    .map(|count| count.to_string()),
            ),
            seconds(&grant["expires_in_s"]),
        ]);
    }
    table.to_string()
}

/// Returns its note, or else its filters.
fn flow(grant: &Json) -> String {
    if let Some(note) = grant["note"].as_str() {
        return note.to_owned();
    }
    let filters = grant["filter"].as_array().into_iter().flatten();
    let filters = filters.filter_map(Json::as_object).map(|keys| {
        let pairs = keys.iter().map(|(key, value)| match value.as_str() {
            Some(text) => format!("{key}={text}"),
            None => format!("{key}={value}"),
        });
        pairs.collect::<Vec<_>>().join(" ")
    });
    filters.collect::<Vec<_>>().join(", ")
}

fn rate(bps: &Json) -> String {
    bps.as_u64().map_or_else(|| "-".to_owned(), figures::rate)
}

fn us(us: &Json) -> Option<String> {
    us.as_f64().map(figures::micros)
}

fn seconds(seconds: &Json) -> String {
    match seconds.as_f64().unwrap_or(0.0) {
        0.0..120.0 => format!("{:.1}s", seconds.as_f64().unwrap_or(0.0)),
        long @ 120.0..7_200.0 => format!("{:.0}min", long / 60.0),
        long => format!("{:.1}h", long / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_no_key_of_a_request_is_the_filters() {
        let written = [
            "rate=2mbit",
            "note=7",
            "destination-port=5060",
            "source=10.0.0.1",
        ];
        let request = request(&written.map(str::to_owned), "10min").unwrap();
        assert_eq!(
            request,
            json!({
                "rate": "2mbit", "note": "7", "lifetime": "10min",
                "filter": {"destination-port": 5060, "source": "10.0.0.1"},
            })
        );
        assert!(super::request(&["rate".to_owned()], "1h").is_err());
    }

    #[test]
    fn grant_is_printed_with_its_guarantees() {
        let grant = json!({
            "id": 7, "link": "up", "rate_bps": 2_000_000, "burst": 10_240, "delay_us": 20_000.0,
            "reserved_bps": 2_500_000, "expires_in_s": 600.0, "lifetime_s": 600.0,
            "filter": [{"destination-port": 5060}, {"source": "10.0.0.1"}],
            "granted": {"bound_us": 12_300.0, "room_packets": 100}, "note": null,
        });
        assert_eq!(
            sentence(&grant),
            "grant 7: 2mbit and bursts of 10240 bytes within 20ms on link up, for 10min; reserved \
             2.5mbit, worst delay of a single packet 12.3ms, room for 100 packets"
        );
        assert_eq!(flow(&grant), "destination-port=5060, source=10.0.0.1");
        assert!(listed(&json!([grant])).contains("10min"));
        assert_eq!(listed(&json!([])), "nothing is granted");
    }
}
