//! Has the head and the body of a request leave together.
//!
//! Pingora sends the one, then the other: twice the work for the system here and for the engine's. A corked connection holds
//! back what fills no packet.

use std::os::fd::RawFd;

use bytes::Bytes;

/// A corked connection. What it holds leaves when this is dropped; the system lets it go after 200 ms anyway.
pub struct Cork(RawFd);

impl Cork {
    /// Corks a connection, which is to stay open until the cork is dropped.
    pub fn new(connection: RawFd) -> Cork {
        set(connection, true);
        Cork(connection)
    }
}

impl Drop for Cork {
    fn drop(&mut self) {
        set(self.0, false);
    }
}

/// Where it cannot be set, nothing is held back.
#[cfg(target_os = "linux")]
fn set(connection: RawFd, corked: bool) {
    let corked = libc::c_int::from(corked);
    let length = size_of_val(&corked) as libc::socklen_t;
    // SAFETY: the option's value is read from a place that lives as long as the call, and has this length.
    unsafe { libc::setsockopt(connection, libc::IPPROTO_TCP, libc::TCP_CORK, (&raw const corked).cast(), length) };
}

#[cfg(not(target_os = "linux"))]
fn set(_connection: RawFd, _corked: bool) {}

/// A body whose head is held back. Pingora drops a body once it has written it, and that draws the cork.
pub struct Corked {
    body: Bytes,
    _cork: Cork,
}

impl Corked {
    pub fn new(body: Bytes, cork: Cork) -> Corked {
        Corked { body, _cork: cork }
    }
}

impl AsRef<[u8]> for Corked {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}
