//! Reads the files that a configuration is made of, so that none of them can hold up who asks.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

/// What a file system has to answer in; one that is gone may never do so.
const READ_MAX: Duration = Duration::from_secs(5);

/// Reads that wait for an answer at once: each takes a thread, which nothing can end.
const WAITING_MAX: usize = 16;

static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The first `bytes_max` bytes of a regular file: a pipe has no end, and a device no meaning.
///
/// # Errors
/// If it is none, cannot be read, or does not come in time.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    if WAITING.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
        WAITING.fetch_sub(1, Ordering::Relaxed);
        return Err(io::Error::new(ErrorKind::TimedOut, "a file system that has not answered earlier reads"));
    }
    let (answer, answered) = sync_channel(1);
    let path = path.to_owned();
    let reader = thread::Builder::new().name("file".into()).spawn(move || {
        // Whoever asked may have given up.
        let _ = answer.send(read_here(&path, bytes_max));
        WAITING.fetch_sub(1, Ordering::Relaxed);
    });
    if let Err(error) = reader {
        WAITING.fetch_sub(1, Ordering::Relaxed);
        return Err(error);
    }
    answered.recv_timeout(READ_MAX).unwrap_or_else(|_| {
        Err(io::Error::new(ErrorKind::TimedOut, format!("no answer of the file system within {READ_MAX:?}")))
    })
}

fn read_here(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // Asked before it is opened: opening a pipe waits for its other end.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "no regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}
