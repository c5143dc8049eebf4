//! The model in a form: what is read is a part of the form, and another name put there is read again.

use homing::request::multipart::model;
use homing::request::rewrite::{Edit, apply};
use proptest::prelude::*;

use super::harness::Fuzzer;

const KIND: &str = "multipart/form-data; boundary=XX";

#[test]
fn another_name_in_a_form_is_read_again() {
    let file = "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n\
                RIFF\0\r\n--X\r\n\r\n";
    let named = "--XX\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n";
    let seeds = [format!("{file}{named}--XX--\r\n"), format!("{named}{named}{file}--XX--"), format!("{named}--XX--")];
    let seeds = seeds.into_iter().map(String::into_bytes).collect();
    Fuzzer { name: "form", seeds, words: WORDS }.run(|input| {
        let Some(found) = model(KIND, &input.bytes) else {
            prop_assert!(Edit::form_model(KIND, &input.bytes, "tiny").is_none());
            return Ok(());
        };
        prop_assert!(input.bytes.as_ptr_range().contains(&found.as_ptr()) && found.chars().count() <= 256);
        prop_assert!(!found.contains("\r\n--XX"), "{found:?}");
        let edit = Edit::form_model(KIND, &input.bytes, "tiny");
        let edited = apply(&input.bytes, edit.into_iter().collect());
        prop_assert_eq!(model(KIND, &edited), Some("tiny"));
        let place = found.as_ptr().addr() - input.bytes.as_ptr().addr();
        let (before, after) = (&input.bytes[..place], &input.bytes[place + found.len()..]);
        prop_assert_eq!(edited, [before, b"tiny", after].concat());
        Ok(())
    });
}

const WORDS: &[&str] = &[
    "\r\n",
    "\n",
    "\r",
    "--XX",
    "--XX\r\n",
    "\r\n--XX\r\n",
    "--XX--",
    "--",
    ";",
    "=",
    "\"",
    "\\",
    "\\\"",
    "name=\"model\"",
    "name=model",
    "filename=\"x\"",
    "; name=\"model\"; name=\"file\"",
    "Content-Disposition: form-data; name=\"model\"\r\n\r\nm",
    ": ",
    "\0",
    "é",
];
