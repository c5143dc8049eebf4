//! What `/routing/{model}` says.

use serde_json::Value;

use super::engine::Engine;

pub struct Routing(pub Value);

pub const DECISIONS: [&str; 6] = ["placed", "sticky", "spilled", "client_pinned", "balanced", "unrouted"];

impl Routing {
    pub fn total(&self, name: &str) -> u64 {
        number(&self.0["totals"], name)
    }

    /// What admission has counted.
    pub fn admission(&self, name: &str) -> u64 {
        number(&self.0["admission"]["totals"], name)
    }

    /// Requests that wait for room now.
    pub fn parked(&self) -> u64 {
        number(&self.0["admission"], "parked")
    }

    /// All requests that were given a decision.
    pub fn decided(&self) -> u64 {
        DECISIONS.iter().map(|decision| self.total(decision)).sum()
    }

    pub fn replicas(&self) -> &[Value] {
        self.0["replicas"].as_array().map(Vec::as_slice).expect("a list of replicas")
    }

    /// The replicas, in the order of the configuration.
    pub fn names(&self) -> Vec<&str> {
        self.replicas().iter().map(|row| row["replica"].as_str().expect("a name")).collect()
    }

    /// The row of a replica, named `host:port` or `host:port#rank`.
    pub fn replica(&self, name: &str) -> &Value {
        let found = self.replicas().iter().find(|row| row["replica"] == name);
        found.unwrap_or_else(|| panic!("no replica {name} in {}", self.0))
    }

    pub fn of(&self, engine: &Engine, field: &str) -> u64 {
        number(self.replica(&engine.name()), field)
    }

    pub fn state(&self, engine: &Engine) -> &str {
        self.replica(&engine.name())["state"].as_str().expect("a state")
    }

    /// Per replica, in the order of the configuration.
    pub fn column(&self, field: &str) -> Vec<u64> {
        self.replicas().iter().map(|row| number(row, field)).collect()
    }
}

fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_else(|| panic!("{field} is no number in {row}"))
}
