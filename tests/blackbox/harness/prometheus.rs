//! What /metrics says, read strictly.

use std::collections::{BTreeMap, HashMap};

pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// A scrape. Each sample belongs to a family that was announced with a type and a help text.
pub struct Samples {
    pub samples: Vec<Sample>,
    /// Family to type.
    pub kinds: HashMap<String, String>,
}

impl Samples {
    /// Panics at a line that Prometheus would refuse.
    pub fn parse(text: &str) -> Samples {
        let (mut samples, mut kinds, mut helped) = (Vec::new(), HashMap::new(), Vec::new());
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(type_of) = line.strip_prefix("# TYPE ") {
                let (name, kind) = type_of.split_once(' ').unwrap_or_else(|| panic!("a type line: {line}"));
                assert!(kinds.insert(name.to_string(), kind.to_string()).is_none(), "{name} has two types");
            } else if let Some(help) = line.strip_prefix("# HELP ") {
                helped.push(help.split(' ').next().unwrap_or_default().to_string());
            } else if !line.starts_with('#') {
                samples.push(sample(line));
            }
        }
        let whole = Samples { samples, kinds };
        for sample in &whole.samples {
            let family = whole.family(&sample.name);
            assert!(whole.kinds.contains_key(family), "{} has no type", sample.name);
            assert!(helped.iter().any(|name| name == family), "{} has no help", sample.name);
        }
        whole
    }

    /// The sum of the samples of that name which carry these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.with(name, labels).map(|sample| sample.value).sum()
    }

    pub fn with<'a>(&'a self, name: &'a str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            let carries = |(label, value): &(&str, &str)| sample.labels.get(*label).is_some_and(|v| v == value);
            sample.name == name && labels.iter().all(carries)
        })
    }

    /// The family a sample's name belongs to.
    pub fn family<'a>(&self, name: &'a str) -> &'a str {
        let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|part| name.strip_suffix(part));
        let histogram = |family: &&str| self.kinds.get(*family).is_some_and(|kind| kind == "histogram");
        parts.into_iter().find(histogram).unwrap_or(name)
    }
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("a sample without a value: {line}"));
    let value = match value {
        "+Inf" => f64::INFINITY,
        value => value.parse().unwrap_or_else(|_| panic!("a value that is no number: {line}")),
    };
    let (name, labels) = match series.split_once('{') {
        None => (series, BTreeMap::new()),
        Some((name, labels)) => {
            let labels = labels.strip_suffix('}').unwrap_or_else(|| panic!("labels without an end: {line}"));
            (name, labels.split_terminator("\",").map(label).collect())
        }
    };
    Sample { name: name.to_string(), labels, value }
}

/// One label; its values hold no quotes in these tests.
fn label(text: &str) -> (String, String) {
    let (name, value) = text.split_once("=\"").unwrap_or_else(|| panic!("a label without a value: {text}"));
    (name.to_string(), value.trim_end_matches('"').to_string())
}
