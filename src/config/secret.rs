//! Keys and tokens: read from where they are kept, and never shown.

use std::env::VarError;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use super::file;

/// The longest secret, in bytes.
pub const SECRET_MAX: usize = 4096;

/// A key or a token: 1 to [`SECRET_MAX`] visible ASCII characters, so that it fits in a header. It does not show itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret itself, for the one header it is meant for.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// White space at the ends is dropped: editors leave a newline there.
    ///
    /// # Errors
    /// What was expected, and what was found.
    pub fn from_file(path: &Path) -> Result<Secret, (String, String)> {
        // Room for the white space at the ends, and a limit for what is no key file at all.
        let most = 2 * SECRET_MAX as u64;
        let text = file::read(path, most)
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| ErrorKind::InvalidData.into()))
            .map_err(|error| ("a text file that can be read".into(), error.to_string()))?;
        Secret::checked(&text)
    }

    /// # Errors
    /// As [`Secret::from_file`].
    pub fn from_environment(variable: &str) -> Result<Secret, (String, String)> {
        let text = std::env::var(variable).map_err(|error| {
            let found = match error {
                VarError::NotPresent => "none of that name",
                VarError::NotUnicode(_) => "one that is no UTF-8",
            };
            ("a variable of the environment".into(), found.into())
        })?;
        Secret::checked(&text)
    }

    fn checked(text: &str) -> Result<Secret, (String, String)> {
        let secret = text.trim();
        let found = match secret.len() {
            0 => "nothing",
            1..=SECRET_MAX if secret.bytes().all(|byte| byte.is_ascii_graphic()) => {
                return Ok(Secret(secret.to_owned()));
            }
            1..=SECRET_MAX => "other characters",
            _ => "more",
        };
        let expected = format!("it to hold 1 to {SECRET_MAX} visible ASCII characters");
        Err((expected, found.into()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}
