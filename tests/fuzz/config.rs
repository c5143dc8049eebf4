//! The configuration: any text is either checked types or faults that say where, the same every time.

use std::fs;
use std::path::Path;

use homing::config::{Config, Faults};
use proptest::prelude::*;

use super::harness::{Fuzzer, Outcome};

#[test]
fn a_text_is_a_configuration_or_says_where_it_is_none() {
    Fuzzer { name: "config", seeds: seeds(), words: WORDS }.run(|input| {
        let text = input.text();
        let parse = |text: &str| Config::parse(Path::new("test.yaml"), text);
        match parse(&text) {
            Ok(config) => {
                prop_assert_eq!(config.needs_restart(&config), Vec::<&str>::new());
                let again = parse(&format!("{text}\n# a comment\n"));
                prop_assert!(again.as_ref() == Ok(&config), "a comment changes it: {again:?}");
                Ok(())
            }
            Err(faults) => {
                let again = parse(&text);
                prop_assert_eq!(again.as_ref().err(), Some(&faults));
                say_where(&faults, &text)
            }
        }
    });
}

const WORDS: &[&str] = &[
    "\n",
    "  ",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "'",
    "\"",
    "#",
    "&a ",
    "*a",
    "<<: *a",
    "!!binary ",
    "|\n",
    ">\n",
    "~",
    "\t",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "null",
    "0",
    "-1",
    "1e400",
    "99999999999999999999",
    "5 GiB",
    "10 ms",
    "é",
    "\u{85}",
    "\0",
    "?",
    "models:\n  - ",
    "replicas: [{url: 'http://h:1'}]",
    "listen: []\n",
    "a: &b [*b, *b]\n",
    "api_key: {env: HOME}",
];

fn seeds() -> Vec<Vec<u8>> {
    let mut files: Vec<_> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("conf"))
        .expect("the configurations are there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    files.iter().map(|path| fs::read(path).expect("it can be read")).collect()
}

fn say_where(faults: &Faults, text: &str) -> Outcome {
    prop_assert!(faults.iter().next().is_some());
    // A fault at the end of the text stands on the line after the last.
    let lines = text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count() + 1;
    for fault in faults.iter() {
        let at = fault.at.ok_or_else(|| TestCaseError::fail(format!("nowhere: {fault}")))?;
        prop_assert!((1..=lines).contains(&at.line) && at.column >= 1, "{fault}");
        prop_assert!(!fault.message.contains(char::is_control), "{fault:?}");
    }
    Ok(())
}
