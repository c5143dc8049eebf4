use std::borrow::Cow;

use homing::request::key::{Caller, KeyHasher};
use homing::request::session::{Found, Session};
use homing::request::source::KeySource;
use homing::routing::Key;
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

/// All that a key depends on.
#[derive(Clone, Debug, PartialEq)]
struct Sent {
    authorization: Option<String>,
    api_key: Option<String>,
    id: String,
    agent: Option<String>,
    source: Found,
}

fn sent(authorization: Option<&str>, api_key: Option<&str>, id: &str, agent: Option<&str>) -> Sent {
    Sent {
        authorization: authorization.map(Into::into),
        api_key: api_key.map(Into::into),
        id: id.into(),
        agent: agent.map(Into::into),
        source: Found::Source(KeySource::SessionHeaders),
    }
}

fn key(seed: u8, sent: &Sent) -> Key {
    let mut headers = HeaderMap::new();
    let value = |text: &String| HeaderValue::from_str(text).expect("a header value");
    sent.authorization.iter().for_each(|text| _ = headers.insert("authorization", value(text)));
    sent.api_key.iter().for_each(|text| _ = headers.insert("x-api-key", value(text)));
    let session = Session {
        id: Cow::Borrowed(sent.id.as_bytes()),
        agent: sent.agent.as_ref().map(|agent| agent.as_bytes()),
        source: sent.source,
    };
    KeyHasher::new([seed; 16]).key(&session, Caller::of(&headers))
}

#[test]
fn the_same_id_is_the_same_key_whatever_gave_it() {
    let by_header = sent(Some("Bearer a"), None, "session-1", None);
    let by_body = Sent { source: Found::Source(KeySource::MetadataUserId), ..by_header.clone() };
    let by_operator = Sent { source: Found::Operator, ..by_header.clone() };
    assert_eq!(key(1, &by_header), key(1, &by_body));
    assert_eq!(key(1, &by_header), key(1, &by_operator));
    assert_ne!(key(1, &by_header), key(2, &by_header), "the seed counts");
}

#[test]
fn an_opening_is_never_the_id_that_it_reads_like() {
    let id = sent(None, None, "session-1", None);
    let opening = Sent { source: Found::Source(KeySource::Opening), ..id.clone() };
    assert_ne!(key(1, &id), key(1, &opening));
}

#[test]
fn nothing_runs_together() {
    let different = [
        sent(None, None, "session-1", None),
        sent(None, None, "session-12", None),
        sent(None, None, "session-1", Some("2")),
        sent(None, None, "session-1", Some("")),
        sent(Some(""), None, "session-1", None),
        sent(None, Some(""), "session-1", None),
        sent(Some("k"), None, "session-1", None),
        sent(None, Some("k"), "session-1", None),
        sent(Some("k"), Some("k"), "session-1", None),
        sent(Some("kk"), None, "session-1", None),
        sent(Some("ksession-1"), None, "", None),
        sent(None, None, "ksession-1", None),
        sent(None, None, "", Some("session-1")),
        // Bytes that could pass for the frame around the fields.
        sent(None, None, "a\u{1}b", None),
        sent(None, None, "a", Some("b\0")),
    ];
    for (at, one) in different.iter().enumerate() {
        for other in &different[at + 1..] {
            assert_ne!(key(1, one), key(1, other), "{one:?} {other:?}");
        }
    }
}

#[test]
fn a_key_shows_little_of_itself() {
    let shown = format!("{:?}", Key::new(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
    assert_eq!(shown, "Key(0123…)");
}

fn any_sent() -> impl Strategy<Value = Sent> {
    // Few letters and short fields make different tuples with the same concatenation common.
    let field = || prop::option::of("[ab]{0,3}");
    let inner = "[ab\\x00\\x01]{0,3}";
    (field(), field(), inner, prop::option::of(inner), any::<bool>()).prop_map(
        |(authorization, api_key, id, agent, opening)| Sent {
            source: Found::Source(if opening { KeySource::Opening } else { KeySource::SessionHeaders }),
            ..sent(authorization.as_deref(), api_key.as_deref(), &id, agent.as_deref())
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn keys_are_equal_exactly_where_all_that_was_sent_is(one in any_sent(), other in any_sent()) {
        prop_assert_eq!(key(1, &one) == key(1, &other), one == other);
    }
}

#[test]
fn callers_are_told_apart_by_credential_and_else_by_address() {
    let keys = KeyHasher::new([7; 16]);
    let [here, there] = ["192.0.2.1", "2001:db8::1"].map(|address| address.parse().ok());
    let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    };
    let caller = |pairs: &[_], address| keys.caller(Caller::of(&headers(pairs)), address);
    let (ann, bob) = ([("authorization", "Bearer ann")], [("authorization", "Bearer bob")]);
    assert_eq!(caller(&ann, here), caller(&ann, there), "a credential goes with its holder");
    assert_eq!(caller(&[], here), caller(&[], here));
    let named = |name, address| keys.caller(Caller::named(name), address);
    assert_eq!(named("ann", here), named("ann", there), "a name goes with its holder");
    let all = [
        caller(&ann, here),
        caller(&bob, here),
        caller(&[("x-api-key", "Bearer ann")], here),
        caller(&[], here),
        caller(&[], there),
        caller(&[], None),
        named("Bearer ann", here),
        named("bob", here),
        KeyHasher::new([8; 16]).caller(Caller::of(&headers(&ann)), here),
    ];
    for (n, one) in all.iter().enumerate() {
        assert!(!all[..n].contains(one), "{n}");
    }
}
