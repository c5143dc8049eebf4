//! What finding the model and the session id takes in a body of 2 MB, with the session id behind the messages.

use divan::{Bencher, black_box};
use homing::request::peek;

fn main() {
    divan::main();
}

/// A body in the key order of Claude Code, with messages of `words` until it is 2 MB long.
fn body(words: &str) -> String {
    let message = format!(r#"{{"role":"user","content":"{}"}}"#, words.repeat(8000 / words.len()));
    let messages = vec![message; 2_000_000 / 8000].join(",");
    let session = r#"{\"session_id\":\"11111111-2222-3333-4444-555555555555\"}"#;
    format!(r#"{{"model":"m","messages":[{messages}],"metadata":{{"user_id":"{session}"}},"stream":true}}"#)
}

#[divan::bench(args = [("prose", "the quick brown fox "), ("code", "let a = b;\\n\\tcall(\\\"c\\\");")])]
fn peek_2_mb(bencher: Bencher, (_, words): (&str, &str)) {
    let body = body(words);
    bencher.counter(divan::counter::BytesCount::of_str(&body)).bench(|| peek(black_box(body.as_bytes())).is_ok());
}
