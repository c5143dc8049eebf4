use std::fs::DirBuilder;
use std::hash::Hasher;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher13;

use crate::config::Config;

/// Where an old and a new process of this configuration meet: as configured, else in a folder of the system's for temporary
/// files, named by the user and the configuration's path.
pub fn place(config: &Config, file: &Path) -> PathBuf {
    if let Some(socket) = &config.server.upgrade_socket {
        return socket.clone();
    }
    let file = file.canonicalize().unwrap_or(file.to_owned());
    // The same in every build, unlike the standard library's own.
    let mut hasher = SipHasher13::new();
    hasher.write(file.as_os_str().as_bytes());
    let folder = format!("homing-{}-{:016x}", rustix::process::geteuid().as_raw(), hasher.finish());
    std::env::temp_dir().join(folder).join("upgrade.sock")
}

/// Makes the folder of `socket` if there is none.
///
/// # Errors
/// If anyone but this user could put something there: whoever waits at the socket is given everything.
pub fn secure(socket: &Path) -> Result<(), String> {
    let folder = socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(format!("the folder {} cannot be made: {error}", folder.display()));
        }
        _ => {}
    }
    let found = folder.symlink_metadata().map_err(|error| format!("{}: {error}", folder.display()))?;
    let own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    match own {
        true => Ok(()),
        false => {
            Err(format!("{} is to be a folder of this user that no other may enter (mode 0700)", folder.display()))
        }
    }
}
