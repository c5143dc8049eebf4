//! What the routers know, kept over a restart of the process in a file.
//!
//! The file begins with a mark, the version of its form, the length of what follows and the SHA-256 of that; then comes
//! [`State`] in postcard's form. It holds no name of anyone and no text of theirs, but the routing key, with which a guessed
//! session id could be told to be right: so only its owner may read it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use log::{info, warn};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::fleet::Fleet;
use crate::live::Current;
use crate::metrics::METRICS;
use crate::panics::contained_now;
use crate::request::RoutingKey;
use crate::routing::Saved;

/// The largest that is written or read, in bytes: about four million conversations. Of more, those used last are kept.
pub const STATE_MAX: u64 = 256 << 20;

/// How often it is written while the process serves: what a sudden end loses at most.
const WRITE_EVERY: Duration = Duration::from_secs(60);

const MARK: [u8; 8] = *b"homing\0s";

/// Of the form of what follows: another one is not read.
const VERSION: u32 = 2;

/// How much of the room is filled where not all has room: not all conversations take the same.
const CUT: f64 = 0.9;

/// Mark, version, length, checksum.
const HEAD: usize = MARK.len() + 4 + 8 + 32;

/// What is kept.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The key under which conversations are named.
    pub key: RoutingKey,
    /// Seconds since 1970.
    written_s: u64,
    /// By the names of models.
    models: Vec<(Option<String>, Saved)>,
}

impl State {
    /// What the fleet knows now. Each router is locked for as long as it takes to copy its table.
    pub fn of(fleet: &Fleet, key: RoutingKey) -> State {
        let models = fleet.models().iter().map(|model| (model.name.clone(), model.save())).collect();
        State { key, written_s: since_1970().as_secs(), models }
    }

    /// Gives each model back what it knew. Models that are gone are left out. Returns the conversations that there were.
    pub fn restore(self, fleet: &Fleet) -> usize {
        let away = since_1970().saturating_sub(Duration::from_secs(self.written_s));
        let mut conversations = 0;
        for (name, saved) in self.models {
            if let Some(model) = fleet.models().iter().find(|model| model.name == name) {
                conversations += saved.conversations();
                model.restore(saved, away);
            }
        }
        conversations
    }

    /// As it is written, in at most so many bytes. Where that is too little, what was unused the longest is left out of each
    /// model alike.
    ///
    /// # Errors
    /// If there is no room for what else it says.
    pub fn into_bytes(mut self, bytes_max: u64) -> Result<Vec<u8>, String> {
        loop {
            let mut bytes = postcard::to_extend(&self, vec![0; HEAD]).map_err(|error| error.to_string())?;
            let length = bytes.len() as u64;
            if length <= bytes_max {
                let (head, state) = bytes.split_at_mut(HEAD);
                head.copy_from_slice(&head_of(state));
                return Ok(bytes);
            }
            // Freed before the next is made.
            drop(bytes);
            let share = bytes_max as f64 / length as f64 * CUT;
            let left_out: usize = self.models.iter_mut().map(|(_, saved)| saved.keep_newest(share)).sum();
            if left_out == 0 {
                return Err(format!("it would be larger than {bytes_max} bytes"));
            }
            METRICS.limits_hit.with_label_values(&["state"]).inc();
            warn!(
                "the state would take {length} bytes, of {bytes_max}: left out are {left_out} conversations and stored \
                 responses, those unused the longest"
            );
        }
    }

    /// Reads it again.
    ///
    /// # Errors
    /// What is wrong, in few words.
    pub fn from_bytes(bytes: &[u8]) -> Result<State, &'static str> {
        let (head, state) = bytes.split_at_checked(HEAD).ok_or("it is cut off")?;
        let version = MARK.len()..MARK.len() + 4;
        let expected = head_of(state);
        match () {
            _ if head[..MARK.len()] != MARK => Err("it is no state of Homing"),
            _ if head[version.clone()] != expected[version] => Err("another version of Homing wrote it"),
            _ if head != expected => Err("it is damaged"),
            _ => postcard::from_bytes(state).map_err(|_| "it is damaged"),
        }
    }
}

fn head_of(state: &[u8]) -> [u8; HEAD] {
    let parts = [&MARK[..], &VERSION.to_le_bytes(), &(state.len() as u64).to_le_bytes(), &Sha256::digest(state)];
    let mut head = [0; HEAD];
    head.iter_mut().zip(parts.concat()).for_each(|(to, from)| *to = from);
    head
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Looks at what stands where the file is to be. What is not Homing's is not Homing's to move away, nor to write over.
///
/// # Errors
/// If it is a folder, a device or the like, someone else's file, or cannot be read.
pub fn check_place(path: &Path) -> Result<(), String> {
    let refused = |why: &str| Err(format!("server.state_file: {}: {why}", path.display()));
    match path.metadata() {
        Ok(found) if !found.is_file() => return refused("expected a file, or nothing so far, and not something else"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        _ => {}
    }
    match is_ours(path) {
        Ok(true) => Ok(()),
        Ok(false) => {
            refused("expected a state file of Homing, or nothing so far: this is another file, and is left as it is")
        }
        Err(error) => refused(&format!("cannot be read: {error}")),
    }
}

/// Whether a file begins as ours do, as far as it goes.
fn is_ours(path: &Path) -> io::Result<bool> {
    let mut mark = Vec::new();
    File::open(path)?.take(MARK.len() as u64).read_to_end(&mut mark)?;
    Ok(MARK.starts_with(&mark))
}

/// Reads the file. None: there is none, or it is damaged; then it is set aside, so that it can be looked at.
pub fn read(path: &Path) -> Option<State> {
    let why = match read_bytes(path) {
        Ok(bytes) => match State::from_bytes(&bytes) {
            Ok(state) => return Some(state),
            Err(why) => why.into(),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => error.to_string(),
    };
    let aside = beside(path, ".unread");
    match std::fs::rename(path, &aside) {
        Ok(()) => warn!("the state is not taken back from {}: {why}; it is now {}", path.display(), aside.display()),
        Err(error) => warn!("the state is not taken back from {}: {why}; nor set aside: {error}", path.display()),
    }
    None
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if file.metadata()?.len() > STATE_MAX {
        return Err(io::Error::other(format!("it is larger than {STATE_MAX} bytes")));
    }
    let mut bytes = Vec::new();
    file.take(STATE_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes the file so that there is always a whole one: beside it first, then in its place.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = beside(path, ".new");
    // What an end in the middle of writing left.
    if let Err(error) = std::fs::remove_file(&new)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// Keeps the file.
pub struct Keeper {
    path: PathBuf,
    key: RoutingKey,
    live: Current,
    /// Whether the file is still this process's to write. One writes at a time.
    ours: Mutex<bool>,
}

impl Keeper {
    /// A keeper of the file at `path`.
    pub fn new(path: &Path, key: RoutingKey, live: Current) -> Keeper {
        Keeper { path: path.to_owned(), key, live, ours: Mutex::new(true) }
    }

    /// Writes the file, and then every minute, on a thread of its own.
    ///
    /// # Errors
    /// If it cannot be written, or the system gives no thread.
    pub fn start(self: std::sync::Arc<Self>) -> Result<(), String> {
        let ours = self.ours.lock();
        self.try_write().map_err(|why| self.not_written(&why))?;
        drop(ours);
        let every_minute = move || {
            loop {
                std::thread::sleep(WRITE_EVERY);
                // The next round may do better.
                let _ = contained_now(|| self.write());
            }
        };
        let started = std::thread::Builder::new().name("state".into()).spawn(every_minute);
        started.map(drop).map_err(|error| format!("the state file has no thread: {error}"))
    }

    /// Writes it now, unless another process has come to keep it.
    pub fn write(&self) {
        let ours = self.ours.lock();
        if !*ours {
            return;
        }
        let outcome = self.try_write();
        METRICS.state_writes.with_label_values(&[if outcome.is_ok() { "ok" } else { "failed" }]).inc();
        if let Err(why) = outcome {
            warn!("{}", self.not_written(&why));
        }
    }

    /// Whether the file is to be written by this process from now on, or by another.
    pub fn keeps(&self, ours: bool) {
        *self.ours.lock() = ours;
    }

    fn try_write(&self) -> Result<(), String> {
        let bytes = State::of(&self.live.load().fleet, self.key).into_bytes(STATE_MAX)?;
        write(&self.path, &bytes).map_err(|error| error.to_string())
    }

    fn not_written(&self, why: &str) -> String {
        format!("the state cannot be written to {}: {why}", self.path.display())
    }
}

/// The state of the file at `path`, put back into the fleet; and its key.
pub fn take_back(path: &Path, fleet: &Fleet) -> Option<RoutingKey> {
    let state = read(path)?;
    let key = state.key;
    let conversations = state.restore(fleet);
    info!("conversations taken back from {}: {conversations}", path.display());
    Some(key)
}
