"""Conversations through Claude Code and Codex, as processes that know nothing but the balancer's address.

The balancer's counters tell where a turn's requests went: a command line does not show the headers of its answers.
"""

import json
import os
import signal
import subprocess

from stand import REPOSITORY, Failure
from turn import Turn

INSTALLED = REPOSITORY / "target" / "clients" / "node_modules" / ".bin"
ANSWERED_WITHIN_S = 120
QUESTIONS = ["Say hello.", "And again.", "Thank you."]


class CommandLine:
    def __init__(self, stand):
        self.stand = stand
        self.home = stand.folder / self.program
        self.project = self.home / "project"
        self.project.mkdir(parents=True)

    def turns(self):
        for question in QUESTIONS:
            before = self.stand.decided()
            text = self.answer(question)
            self.stand.until_in_flight(0)
            after = self.stand.decided()
            chosen = {key: after[key] - before[key] for key in after if after[key] != before[key]}
            replicas = sorted({replica for replica, _ in chosen})
            decisions = sorted({decision for _, decision in chosen})
            requests = sum(chosen.values())
            yield Turn(self.name, f"requests: {requests}", " ".join(replicas), " ".join(decisions), text)

    def run(self, *arguments):
        """What the program wrote to its standard output. It starts with a fresh home and none of the caller's settings."""
        environment = {**os.environ, "HOME": str(self.home), **self.environment()}
        child = subprocess.Popen(
            [INSTALLED / self.program, *arguments],
            cwd=self.project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = child.communicate(timeout=ANSWERED_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} did not answer within {ANSWERED_WITHIN_S} s") from None
        finally:
            end_group(child)
        if child.returncode != 0:
            raise Failure(f"{self.name} ended with {child.returncode}:\n{output}\n{errors}")
        return output


class ClaudeCode(CommandLine):
    """Its second turn goes on with the last conversation of the folder, its third with the one of that id."""

    name = "Claude Code"
    program = "claude"

    def __init__(self, stand):
        super().__init__(stand)
        self.sessions = []

    def environment(self):
        return {
            "ANTHROPIC_BASE_URL": self.stand.url,
            "ANTHROPIC_AUTH_TOKEN": "any",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def answer(self, question):
        match self.sessions:
            case []:
                goes_on = []
            case [_]:
                goes_on = ["--continue"]
            case [*_, last]:
                goes_on = ["--resume", last]
        result = json.loads(self.run("-p", question, "--output-format", "json", *goes_on))
        self.sessions.append(result["session_id"])
        return result["result"]


class Codex(CommandLine):
    """Its later turns go on with the last conversation."""

    name = "Codex"
    program = "codex"

    def __init__(self, stand):
        super().__init__(stand)
        self.spoken = self.home / "answer.txt"
        settings = self.home / ".codex"
        settings.mkdir()
        (settings / "config.toml").write_text(
            f"""
model = "gpt-5.5"
model_provider = "homing"
check_for_update_on_startup = false

[model_providers.homing]
name = "Homing"
base_url = "{stand.url}/v1"
wire_api = "responses"
env_key = "HOMING_KEY"

[analytics]
enabled = false

[features]
apps = false
plugins = false
"""
        )

    def environment(self):
        return {"HOMING_KEY": "any"}

    def answer(self, question):
        goes_on = ["resume", "--last"] if self.spoken.exists() else []
        self.spoken.write_text("")
        self.run("exec", *goes_on, "--skip-git-repo-check", "--output-last-message", str(self.spoken), question)
        return self.spoken.read_text()


def end_group(child):
    """Ends the program and whatever it started and left."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()
