//! Keys and tokens: read from where they are kept, and never shown.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

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
    pub(super) fn from_file(path: &Path) -> Result<Secret, String> {
        let mut text = String::new();
        File::open(path)
            .and_then(|file| {
                // Room for the white space at the ends, and a limit for what is no key file at all.
                file.take(2 * SECRET_MAX as u64).read_to_string(&mut text)
            })
            .map_err(|error| format!("a readable text file ({error})"))?;
        Secret::checked(&text)
    }

    pub(super) fn from_environment(variable: &str) -> Result<Secret, String> {
        match std::env::var(variable) {
            Ok(text) => Secret::checked(&text),
            Err(error) => Err(format!("a variable that is set ({error})")),
        }
    }

    fn checked(text: &str) -> Result<Secret, String> {
        let secret = text.trim();
        let visible = secret.bytes().all(|byte| byte.is_ascii_graphic());
        if visible && (1..=SECRET_MAX).contains(&secret.len()) {
            Ok(Secret(secret.to_owned()))
        } else {
            Err(format!("a secret of 1 to {SECRET_MAX} visible ASCII characters in it"))
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}
