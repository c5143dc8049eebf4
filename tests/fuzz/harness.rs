//! Inputs, and the loop that tries them until the time is over.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

/// How long each fuzzer runs where `FUZZ_SECONDS` does not say it: a part of every run of the tests.
const SECONDS: u64 = 5;

/// Inputs between two looks at the clock.
const CASES: u32 = 64;

/// What one fuzzer tries, and how it damages it.
pub struct Fuzzer {
    /// Its folder in `corpus/`.
    pub name: &'static str,
    /// Sound inputs to begin with, beside those of the folder.
    pub seeds: Vec<Vec<u8>>,
    /// What is put in, beside bytes of any kind.
    pub words: &'static [&'static str],
}

/// One input.
#[derive(Clone, Debug)]
pub struct Input {
    pub bytes: Vec<u8>,
    cuts: Vec<Index>,
}

/// What a property says of an input.
pub type Outcome = Result<(), TestCaseError>;

impl Input {
    /// The input in pieces, cut anywhere.
    pub fn pieces(&self) -> Vec<&[u8]> {
        let mut cuts: Vec<usize> = self.cuts.iter().map(|cut| cut.index(self.bytes.len() + 1)).collect();
        cuts.extend([0, self.bytes.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|cut| &self.bytes[cut[0]..cut[1]]).collect()
    }

    /// The input as text, with what is none replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

impl Fuzzer {
    /// Tries inputs until the time is over: first those that are kept, then what becomes of them.
    pub fn run(mut self, property: impl Fn(&Input) -> Outcome) {
        let until = Instant::now() + seconds();
        let kept = kept(self.name);
        for (path, bytes) in &kept {
            let input = Input { bytes: bytes.clone(), cuts: Vec::new() };
            property(&input).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        self.seeds.extend(kept.into_iter().map(|(_, bytes)| bytes));
        assert!(!self.seeds.is_empty(), "{}: nothing to begin with", self.name);
        let config = Config { cases: CASES, max_shrink_iters: 50_000, failure_persistence: None, ..Config::default() };
        let (damaged, mut tried) = (damaged(&self), 0);
        while Instant::now() < until {
            tried += CASES;
            match TestRunner::new(config.clone()).run(&damaged, |input| property(&input)) {
                Ok(()) => {}
                Err(TestError::Fail(why, input)) => {
                    let path = keep(self.name, &input.bytes);
                    panic!("{why}\nthe input is kept in {}:\n{}", path.display(), input.bytes.escape_ascii());
                }
                Err(TestError::Abort(why)) => panic!("{}: {why}", self.name),
            }
        }
        println!("{}: {tried} inputs", self.name);
    }
}

/// The files of a folder of `tests/`, in the order of their names.
pub fn files(folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", folder].iter().collect();
    let Ok(entries) = fs::read_dir(&folder) else { return Vec::new() };
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .map(|path| (path.clone(), fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))))
        .collect();
    files.sort();
    files
}

/// What is left of a captured message behind its head.
pub fn body(message: &[u8]) -> Vec<u8> {
    let head = memchr::memmem::find(message, b"\r\n\r\n").map_or(0, |end| end + 4);
    message[head..].to_vec()
}

fn kept(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    files(&format!("fuzz/corpus/{name}"))
}

fn keep(name: &str, bytes: &[u8]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/fuzz/corpus", name].iter().collect();
    let path = folder.join(format!("{:016x}", hasher.finish()));
    fs::create_dir_all(&folder).and_then(|()| fs::write(&path, bytes)).expect("the input is kept");
    path
}

fn seconds() -> Duration {
    let asked = std::env::var("FUZZ_SECONDS").ok();
    let seconds = asked.map_or(SECONDS, |text| text.parse().expect("FUZZ_SECONDS is a number"));
    Duration::from_secs(seconds)
}

/// One change of an input.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Delete(Index, usize),
    Insert(Index, Vec<u8>),
    /// Copies so many bytes from one place to another.
    Copy(Index, usize, Index),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Set(..) | Change::Delete(..) | Change::Copy(..) if bytes.is_empty() => {}
            Change::Set(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            Change::Delete(at, length) => {
                let at = at.index(bytes.len());
                let end = (at + length).min(bytes.len());
                bytes.drain(at..end);
            }
            Change::Insert(at, inserted) => {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, inserted.iter().copied());
            }
            Change::Copy(from, length, to) => {
                let from = from.index(bytes.len());
                let copied = bytes[from..(from + length).min(bytes.len())].to_vec();
                Change::Insert(*to, copied).apply(bytes);
            }
        }
    }
}

fn change(words: &'static [&'static str]) -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let length = || prop_oneof![4 => 1..4usize, 2 => 1..40usize, 1 => 1..4000usize];
    let word = || select(words).prop_map(|word| word.as_bytes().to_vec());
    let many = (select(words), 2..300usize).prop_map(|(word, count)| word.repeat(count).into_bytes());
    prop_oneof![
        3 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        3 => (at(), length()).prop_map(|(at, length)| Change::Delete(at, length)),
        6 => (at(), word()).prop_map(|(at, word)| Change::Insert(at, word)),
        2 => (at(), prop::collection::vec(any::<u8>(), 1..5)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (at(), many).prop_map(|(at, many)| Change::Insert(at, many)),
        3 => (at(), length(), at()).prop_map(|(from, length, to)| Change::Copy(from, length, to)),
    ]
}

fn damaged(fuzzer: &Fuzzer) -> impl Strategy<Value = Input> + use<> {
    let changes = prop::collection::vec(change(fuzzer.words), 0..6);
    let cuts = prop::collection::vec(any::<Index>(), 0..6);
    (select(fuzzer.seeds.clone()), changes, cuts).prop_map(|(mut bytes, changes, cuts)| {
        changes.iter().for_each(|change| change.apply(&mut bytes));
        Input { bytes, cuts }
    })
}
