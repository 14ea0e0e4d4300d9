//! Tokens: secrets that permit a client to read or change a site over HTTP.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fairlane_config::{SiteError, read_regular_text};
use subtle::ConstantTimeEq;
use tracing::warn;

use crate::service::ServeError;

/// Minimum length of a token that cannot be guessed.
const SHORTEST: usize = 16;

/// A secret text.
pub(crate) struct Token(Vec<u8>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// Reads the first line of a regular file. Refuses a file that every user may write, and warns if every user may
    /// read it.
    pub(crate) fn read(path: &Path) -> Result<Token, ServeError> {
        let failed = |reason| ServeError {
            what: format!("control: token {}", path.display()),
            reason,
        };
        let refused = |reason: String| failed(io::Error::other(reason));
        let text = read_regular_text(path).map_err(|error| match error {
            SiteError::Unreadable { reason, .. } => failed(reason),
            other => failed(io::Error::other(other)),
        })?;
        let token = text.lines().next().unwrap_or_default().trim();
        if token.len() < SHORTEST {
            let reason = format!("its first line is shorter than {SHORTEST} characters");
            return Err(refused(reason));
        }
        let mode = fs::metadata(path).map_err(failed)?.mode() & 0o777;
        if mode & 0o002 != 0 {
            let reason = format!("every user may write it (mode {mode:04o}): chmod 0600 or 0640");
            return Err(refused(reason));
        }
        if mode & 0o004 != 0 {
            let path = path.display();
            warn!(name: "token", %path, "the token {path} may be read by every user (mode {mode:04o}): chmod 0600 or 0640");
        }
        Ok(Token(token.as_bytes().to_vec()))
    }

    /// Returns whether the value of an `Authorization` header contains the token, in constant time.
    pub(crate) fn is_in(&self, authorization: Option<&[u8]>) -> bool {
        const SCHEME: &[u8] = b"Bearer ";
        let value = authorization.and_then(|value| value.split_at_checked(SCHEME.len()));
        let given = value.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME));
        let given = given.map(|(_, token)| token);
        given.is_some_and(|given| bool::from(given.ct_eq(&self.0)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn token(text: &str) -> Result<Token, ServeError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Token::read(file.path())
    }

    #[test]
    fn only_the_whole_token_is_taken() {
        let token = token("correct horse battery\nsecond line\n").unwrap();
        for scheme in ["Bearer", "bearer"] {
            let value = format!("{scheme} correct horse battery");
            assert!(token.is_in(Some(value.as_bytes())), "{value}");
        }
        for other in [
            "",
            "Bearer ",
            "Bearer correct horse",
            "correct horse battery",
            "Basic x",
        ] {
            assert!(!token.is_in(Some(other.as_bytes())), "{other}");
        }
        assert!(!token.is_in(None));
    }

    #[test]
    fn a_token_that_every_user_may_write_is_refused() {
        use std::fs::Permissions;
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "correct horse battery\n").unwrap();
        for (mode, refused) in [
            (0o600, false),
            (0o640, false),
            (0o660, false),
            (0o644, false),
            (0o602, true),
            (0o666, true),
            (0o777, true),
        ] {
            fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            let error = Token::read(file.path())
                .err()
                .map(|error| error.to_string());
            assert_eq!(error.is_some(), refused, "{mode:o}: {error:?}");
            if let Some(error) = error {
                let path = file.path().display().to_string();
                assert!(
                    error.contains(&path) && error.contains("chmod 0600"),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn a_token_that_can_be_guessed_is_refused() {
        for text in ["", "\n", "short\n"] {
            let error = token(text).unwrap_err().to_string();
            assert!(error.contains("shorter than 16"), "{error}");
        }
        let error = Token::read(Path::new("/no/such/file")).unwrap_err();
        assert!(error.to_string().contains("/no/such/file"));
        // An endless file.
        let error = Token::read(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
}
