//! The command line, as scripts use it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// Ends the process when the test does.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing-bench"));
    command.args(args);
    command
}

fn health(url: &str) -> String {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn one_line_of_json_says_where_the_fleet_listens() {
    let mut child = command(&["fleet", "--replicas", "3"]).stdout(Stdio::piped()).spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    let _running = Running(child);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let fleet: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&fleet["model"], &fleet["ranks"]), (&"qwen3-4b".into(), &1.into()));
    let replicas = fleet["replicas"].as_array().unwrap();
    assert_eq!(replicas.len(), 3);
    for replica in replicas {
        assert!(health(replica.as_str().unwrap()).starts_with("HTTP/1.1 200"));
    }
    assert!(health(fleet["control"].as_str().unwrap()).starts_with("HTTP/1.1 404"));
}

#[test]
fn what_cannot_be_started_says_why() {
    let cases = [
        (["fleet", "--profile", "no-such-profile"], "a4000-qwen3-4b"),
        (["fleet", "--replicas", "0"], "replicas is out of range"),
        (["fleet", "--speed", "0"], "speed"),
        (["fleet", "--port", "65534"], "above 65535"),
    ];
    for (args, named) in cases {
        let output = command(&args).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(named), "{args:?}: {error}");
    }
}
