//! What an engine keeps for later requests, and the ids by which those ask for it. Only the engine that made it has it.

use super::json;

/// The longest id that is remembered, in bytes; those of engines have about 50.
const ID_MAX: usize = 256;

/// Something that an engine keeps. It has no `Debug`: an id is somebody's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stored<'a> {
    Response(&'a str),
    /// The thread of the Responses API that responses are added to; not what is called a conversation elsewhere here.
    Thread(&'a str),
}

/// The ids in one answer.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredIds {
    pub response: String,
    pub thread: Option<String>,
}

impl StoredIds {
    /// What the engine keeps, by these ids.
    pub fn all(&self) -> impl Iterator<Item = Stored<'_>> {
        [Some(Stored::Response(&self.response)), self.thread.as_deref().map(Stored::Thread)].into_iter().flatten()
    }
}

/// The ids in a response: an answer that came whole, or the data of an event that carries one. None where there is no response.
pub fn ids(answer: &[u8]) -> Option<StoredIds> {
    let [carried, object] = json::fields(answer, ["response", "object"])?;
    let response = match carried {
        Some(response) => response.as_bytes(),
        None => (json::text(object?)? == "response").then_some(answer)?,
    };
    let [id, thread] = json::fields(response, ["id", "conversation"])?;
    Some(StoredIds { response: id_in(id?)?, thread: thread.and_then(thread_id) })
}

/// The id of a thread, which stands there as a string or as an object with an `id`.
fn thread_id(json: &str) -> Option<String> {
    match json::fields(json.as_bytes(), ["id"]) {
        Some([id]) => id_in(id?),
        None => id_in(json),
    }
}

fn id_in(json: &str) -> Option<String> {
    json::text(json).filter(|id| (1..=ID_MAX).contains(&id.len())).map(Into::into)
}
