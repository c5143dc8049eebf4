//! The binary as a person runs it beside a balancer.

use tokio::process::Command;

use super::balancer::Balancer;
use super::within;

/// How a command ended and what it said.
#[derive(Debug)]
pub struct Run {
    pub ok: bool,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the binary with these arguments, and with these variables in its environment.
pub async fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(arguments).env_remove("HOMING_ADMIN_TOKEN").envs(environment.iter().copied()).kill_on_drop(true);
    let output = within("the end of the command", command.output()).await.expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Run { ok: output.status.success(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Balancer {
    /// Runs a command against this balancer, on a `file` where one is given.
    pub async fn command(&self, name: &str, arguments: &[&str], file: Option<&[u8]>) -> Run {
        let (admin, path) = (format!("http://{}", self.admin), self.path("saved.http"));
        let mut all = vec![name, "--admin", &admin];
        all.extend(arguments);
        if let Some(bytes) = file {
            std::fs::write(&path, bytes).expect("the file is written");
            all.push(path.to_str().expect("a path that is text"));
        }
        run(&all, &[]).await
    }
}
