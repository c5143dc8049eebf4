//! Has the head and the body of a request leave together.
//!
//! Pingora sends the one, then the other: twice the work for the system here and for the engine's. A corked connection holds
//! back what fills no packet.

use std::future::poll_fn;
use std::os::fd::RawFd;
use std::task::Poll;

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

/// Has the rest of this task go on first. Tokio's own also has the runtime look for events, which is a system call.
pub async fn give_way() {
    let mut gave = false;
    poll_fn(|cx| match std::mem::replace(&mut gave, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}
