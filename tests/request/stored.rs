//! Ids of what engines keep, and their keys.

use homing::request::stored::ids;
use homing::request::usage::UsageReader;
use homing::request::{Caller, KeyHasher, Stored};
use proptest::prelude::*;

fn read(answer: &str) -> Option<(String, Option<String>)> {
    ids(answer.as_bytes()).map(|ids| (ids.response, ids.thread))
}

fn found(response: &str, thread: Option<&str>) -> Option<(String, Option<String>)> {
    Some((response.to_owned(), thread.map(str::to_owned)))
}

#[test]
fn a_response_tells_its_id_and_its_thread() {
    for (response, expected) in [
        (r#"{"id":"resp_1","object":"response"}"#, found("resp_1", None)),
        (r#"{"object":"response","conversation":"conv_1","id":"resp_1"}"#, found("resp_1", Some("conv_1"))),
        (
            r#"{"object":"response","conversation":{"x":[],"id":"conv_1"},"id":"resp_1"}"#,
            found("resp_1", Some("conv_1")),
        ),
        (r#"{"object":"response","conversation":{"id":7},"id":"resp_1"}"#, found("resp_1", None)),
        (r#"{"object":"response","conversation":null,"id":"resp_1"}"#, found("resp_1", None)),
        (r#"{"object":"response","id":""}"#, None),
        (r#"{"object":"response","id":7}"#, None),
        (r#"{"object":"response"}"#, None),
    ] {
        assert_eq!(read(response), expected, "{response}");
        let event = format!(r#"{{"response":{response},"type":"response.created"}}"#);
        assert_eq!(read(&event), expected, "{event}");
    }
    for other in [
        r#"{"id":"chatcmpl-1","object":"chat.completion"}"#,
        r#"{"id":"resp_1"}"#,
        r#"{"response":"resp_1","id":"x","object":"response"}"#,
        r#"{"item":{"id":"msg_1"},"type":"response.output_item.added"}"#,
        "[DONE]",
        "",
    ] {
        assert_eq!(read(other), None, "{other}");
    }
    assert_eq!(read(&format!(r#"{{"object":"response","id":"{}"}}"#, "x".repeat(257))), None);
}

#[test]
fn a_stream_tells_its_ids_once_and_at_once() {
    let event = |data: &str| format!("event: x\ndata: {data}\n\n");
    let created = event(r#"{"response":{"id":"resp_1"},"type":"response.created"}"#);
    let mut reader = UsageReader::of_response();
    reader.feed(event(r#"{"item":{"id":"msg_1"}}"#).as_bytes());
    assert!(reader.take_ids().is_none());
    reader.feed(created.as_bytes());
    assert!(reader.take_ids().is_some_and(|ids| ids.response == "resp_1"));
    reader.feed(created.as_bytes());
    assert!(reader.take_ids().is_none());
    // Other streams have none, whatever they say.
    let mut other = UsageReader::new();
    other.feed(created.as_bytes());
    assert!(other.take_ids().is_none());
}

#[test]
fn a_response_and_a_thread_of_one_id_have_keys_of_their_own() {
    let keys = KeyHasher::new([1; 16]);
    let nobody = Caller::NOBODY;
    assert_ne!(keys.stored(Stored::Response("a"), nobody), keys.stored(Stored::Thread("a"), nobody));
    let [ann, bob] = ["ann", "bob"].map(|name| keys.stored(Stored::Response("a"), Caller::named(name)));
    assert!(ann != bob && ann != keys.stored(Stored::Response("a"), nobody));
    assert_ne!(keys.stored(Stored::Response("a"), nobody), keys.stored(Stored::Response("ab"), nobody));
    assert_ne!(
        keys.stored(Stored::Response("a"), nobody),
        KeyHasher::new([2; 16]).stored(Stored::Response("a"), nobody)
    );
    assert_eq!(
        keys.stored(Stored::Response("a"), nobody),
        KeyHasher::new([1; 16]).stored(Stored::Response("a"), nobody)
    );
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        ids(&bytes);
        ids(&[br#"{"object":"response","id":"#, &bytes[..], b"}"].concat());
    }
}
