//! Access control: which clients may read, and which may change the site.

use hyper::header::{AUTHORIZATION, HOST};
use hyper::http::request::Parts;
use hyper::{StatusCode, Version};

use super::Api;
use super::answers::{Result, fail};

/// The transport of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The Unix socket, whose file mode admits only users who may change the site.
    Unix,
    /// HTTP on loopback.
    Http,
}

impl Api {
    /// Checks the token of a request over HTTP.
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
                "enter the access token to read (the first line of the file named by read-token or \
                 token in [control], sent as 'Authorization: Bearer ..')",
            ),
            (false, None, _) => fail(
                StatusCode::FORBIDDEN,
                "changes over HTTP are off: [control] names no token file (use its socket)",
            ),
            (false, Some(false), _) => fail(
                StatusCode::UNAUTHORIZED,
                "enter the access token to make changes (the first line of the file named by token \
                 in [control], sent as 'Authorization: Bearer ..')",
            ),
        }
    }
}

/// Rejects a request whose headers are ambiguous: RFC 9112 (3.2) requires one `Host` in an HTTP/1.1 request, and no
/// single-valued field may be repeated.
pub(super) fn has_one_meaning(parts: &Parts) -> Result<()> {
    for name in [HOST, AUTHORIZATION] {
        if parts.headers.get_all(&name).iter().nth(1).is_some() {
            let sentence = format!("header '{name}': sent twice (only one is allowed)");
            return fail(StatusCode::BAD_REQUEST, sentence);
        }
    }
    if parts.version >= Version::HTTP_11 && !parts.headers.contains_key(HOST) {
        let sentence = "a request of HTTP/1.1 needs the header 'host'";
        return fail(StatusCode::BAD_REQUEST, sentence);
    }
    Ok(())
}

/// Checks that a request over HTTP names a loopback address of this machine as its host.
pub(super) fn from_loopback(parts: &Parts) -> Result<()> {
    // A page from another site in a browser on this machine sends that site's name.
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    if host.is_some_and(is_loopback) {
        return Ok(());
    }
    let sentence = "the Host header names no loopback address: ask 127.0.0.1, [::1] or localhost";
    fail(StatusCode::FORBIDDEN, sentence)
}

/// Returns true if a `Host` header names the loopback interface.
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
    fn a_request_has_one_host_and_at_most_one_authorization() {
        let status = |version, headers: &[(&str, &str)]| {
            let mut request = hyper::Request::builder().version(version);
            for &(name, value) in headers {
                request = request.header(name, value);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            has_one_meaning(&parts).err().map(|refused| refused.0)
        };
        let (here, other) = (("Host", "localhost"), ("host", "example.org"));
        let bad = Some(StatusCode::BAD_REQUEST);
        for (headers, of_11, of_10) in [
            (&[here][..], None, None),
            (&[], bad, None),
            (&[here, here], bad, bad),
            (&[here, other], bad, bad),
            (&[here, ("Authorization", "Bearer a")], None, None),
            (
                &[here, ("Authorization", "Bearer a"), ("authorization", "")],
                bad,
                bad,
            ),
        ] {
            let found =
                [Version::HTTP_11, Version::HTTP_10].map(|version| status(version, headers));
            assert_eq!(found, [of_11, of_10], "{headers:?}");
        }
    }

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
