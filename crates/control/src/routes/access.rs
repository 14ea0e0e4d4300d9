//! Who may ask, and who may change.

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::http::request::Parts;

use super::Api;
use super::answers::{Result, fail};

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// By the Unix socket, which only those can open who may change the site.
    Unix,
    /// By HTTP on loopback.
    Http,
}

impl Api {
    /// Whether whoever asks over HTTP may.
    pub(super) fn admit(&self, parts: &Parts, reads: bool) -> Result<()> {
        let given = parts
            .headers
            .get(AUTHORIZATION)
            .map(|value| value.as_bytes());
        let may_change = self.token.as_ref().map(|token| token.is_in(given));
        let may_read = self.read_token.as_ref().map(|token| token.is_in(given));
        match (reads, may_change, may_read) {
            (_, Some(true), _) | (true, _, None | Some(true)) => Ok(()),
            (true, ..) => fail(
                StatusCode::UNAUTHORIZED,
                "a token is needed: send the first line of the file read-token (or token) in \
                 [control] as 'Authorization: Bearer ..'",
            ),
            (false, None, _) => fail(
                StatusCode::FORBIDDEN,
                "nothing can be changed over HTTP here: [control] names no file token; use its socket",
            ),
            (false, Some(false), _) => fail(
                StatusCode::UNAUTHORIZED,
                "a change over HTTP needs a token: send the first line of the file token in \
                 [control] as 'Authorization: Bearer ..'",
            ),
        }
    }
}

/// Whether whoever asks over HTTP has a name of this machine for us.
pub(super) fn from_loopback(parts: &Parts) -> Result<()> {
    // A page from elsewhere that a browser on this machine shows has another.
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    if host.is_some_and(is_loopback) {
        return Ok(());
    }
    let sentence = "the Host header names no loopback address: ask 127.0.0.1, [::1] or localhost";
    fail(StatusCode::FORBIDDEN, sentence)
}

/// Whether a Host header names this machine's loopback interface.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_loopback_are_taken_for_it() {
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:7172",
            "127.1.2.3",
            "[::1]:9",
            "[::1]",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "example.org",
            "127.0.0.1.example.org:80",
            "10.0.0.1:7172",
            "localhost.evil",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
