//! From what a client sent to the key of its conversation: one way, and with a secret.

use std::hash::Hasher;
use std::net::IpAddr;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use siphasher::sip128::{Hasher128, SipHasher13};

use super::session::Session;
use super::stored::Stored;
use crate::routing::Key;

/// Who calls: the same session id from two callers is two conversations.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    name: Option<&'a [u8]>,
    authorization: Option<&'a [u8]>,
    api_key: Option<&'a [u8]>,
}

impl<'a> Caller<'a> {
    /// Nobody that is known by anything.
    pub const NOBODY: Caller<'static> = Caller { name: None, authorization: None, api_key: None };

    /// A caller that is configured, whichever of its keys it used.
    pub fn named(name: &'a str) -> Self {
        Self { name: Some(name.as_bytes()), authorization: None, api_key: None }
    }

    /// As far as the credential says: takes `Authorization` and `x-api-key` as they stand.
    pub fn of(headers: &'a HeaderMap) -> Self {
        Self {
            name: None,
            authorization: headers.get(AUTHORIZATION).map(|value| value.as_bytes()),
            api_key: headers.get("x-api-key").map(|value| value.as_bytes()),
        }
    }
}

/// What conversations are named under. Whoever has it could tell that a guessed session id is right.
pub type RoutingKey = [u8; 16];

/// Makes conversation keys. Two of them agree only where their seeds do.
#[derive(Clone)]
pub struct KeyHasher {
    seed: RoutingKey,
}

impl KeyHasher {
    /// The seed is to be random: a key then says nothing to anyone outside.
    pub fn new(seed: RoutingKey) -> Self {
        Self { seed }
    }

    /// The key of a session's conversation; of its agent's, where the session names one.
    pub fn key(&self, session: &Session<'_>, caller: Caller<'_>) -> Key {
        let mut hasher = SipHasher13::new_with_key(&self.seed);
        // An opening that reads like an id is not that id.
        hasher.write(&[u8::from(session.is_opening())]);
        for field in [caller.name, caller.authorization, caller.api_key, Some(&session.id), session.agent] {
            write_field(&mut hasher, field);
        }
        Key::new(hasher.finish128().as_u128())
    }

    /// The key of something that an engine keeps. The id alone says where it is, whatever the credential; but what one
    /// configured caller had made is unknown to another.
    pub fn stored(&self, stored: Stored<'_>, caller: Caller<'_>) -> Key {
        let mut hasher = SipHasher13::new_with_key(&self.seed);
        // None of the first bytes of other keys.
        let (kind, id) = match stored {
            Stored::Response(id) => (3, id),
            Stored::Thread(id) => (4, id),
        };
        hasher.write(&[kind]);
        for field in [caller.name, Some(id.as_bytes())] {
            write_field(&mut hasher, field);
        }
        Key::new(hasher.finish128().as_u128())
    }

    /// Tells callers apart: by name or credential, else by the address that they call from.
    pub fn caller(&self, caller: Caller<'_>, address: Option<IpAddr>) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.seed);
        // Neither of the first bytes of a conversation's key.
        hasher.write(&[2]);
        let address = address.map(|address| address.to_string());
        let unnamed = [caller.name, caller.authorization, caller.api_key].iter().all(Option::is_none);
        let address = address.as_ref().filter(|_| unnamed).map(|address| address.as_bytes());
        for field in [caller.name, caller.authorization, caller.api_key, address] {
            write_field(&mut hasher, field);
        }
        hasher.finish128().h1
    }
}

/// Writes presence and length before the bytes, so that no two lists of fields make the same input.
fn write_field(hasher: &mut SipHasher13, field: Option<&[u8]>) {
    match field {
        None => hasher.write(&[0]),
        Some(bytes) => {
            hasher.write(&[1]);
            hasher.write(&(bytes.len() as u64).to_le_bytes());
            hasher.write(bytes);
        }
    }
}
