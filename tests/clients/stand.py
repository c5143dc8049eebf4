"""What the clients talk to: two simulated replicas and the balancer before them. Leaving the `with` block ends all of it."""

import json
import re
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LOGS = REPOSITORY / "target" / "clients" / "logs"
STARTED_WITHIN_S = 30
SETTLED_WITHIN_S = 30
ENDED_WITHIN_S = 20
# The prompts of the command lines alone are 12,000 tokens: this profile takes 131,072.
FLEET = ["fleet", "--replicas", "2", "--profile", "h200-qwen3-32b", "--speed", "100", "--answer-tokens", "40"]
ALIASES = ["claude-*", "gpt-*"]
DECISIONS = ("placed", "sticky", "spilled_in", "client_pinned", "balanced", "unrouted")


class Failure(Exception):
    """What went wrong, in words for a person."""


class Stand:
    def __init__(self, binaries):
        self.binaries = Path(binaries).resolve()
        self.children = []

    def __enter__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="homing-clients-")
        self.folder = Path(self.scratch.name)
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in reversed(self.children):
            child.terminate()
            try:
                child.wait(ENDED_WITHIN_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self.scratch.cleanup()

    def start(self):
        (fleet,) = self.process("homing-bench", FLEET, r"^(\{.*\})$")
        fleet = json.loads(fleet)
        self.control = fleet["control"]
        model = {
            "name": fleet["model"],
            "max_num_seqs": 32,
            "aliases": ALIASES,
            "rewrite": "on",
            "replicas": [{"url": url} for url in fleet["replicas"]],
        }
        # JSON is YAML.
        config = self.folder / "homing.yaml"
        config.write_text(
            json.dumps(
                {
                    "listen": [{"address": "127.0.0.1:0"}],
                    "admin": {"address": "127.0.0.1:0"},
                    "scrape": {"interval": "1 s"},
                    "models": [model],
                }
            )
        )
        arguments = ["serve", "--config", str(config)]
        self.url, self.admin = self.process("homing", arguments, r" listening on (\S+)$", r" admin on (\S+)$")
        self.until_up()

    def process(self, name, arguments, *patterns):
        """Starts a binary and waits until its log matches each pattern: what their groups found."""
        LOGS.mkdir(parents=True, exist_ok=True)
        log = LOGS / f"{name}.log"
        if not (self.binaries / name).is_file():
            raise Failure(f"There is no {name} in {self.binaries}: build it with `cargo build --workspace`.")
        with log.open("wb") as output:
            command = [self.binaries / name, *arguments]
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        self.children.append(child)
        deadline = time.monotonic() + STARTED_WITHIN_S
        while time.monotonic() < deadline:
            ended = child.poll() is not None
            said = log.read_text(errors="replace")
            found = [re.search(pattern, said, re.MULTILINE) for pattern in patterns]
            if all(found):
                return [match[1] for match in found]
            if ended:
                break
            time.sleep(0.02)
        raise Failure(f"{name} did not say where it listens:\n{said}")

    def routing(self):
        """The model's routing, as the balancer tells it now."""
        with urllib.request.urlopen(f"{self.admin}/routing", timeout=10) as answer:
            return json.load(answer)["models"][0]

    def decided(self):
        """How often each replica was chosen so far, by decision: `{(replica, decision): times}`."""
        rows = self.routing()["replicas"]
        return {(row["replica"], name): row[name] for row in rows for name in DECISIONS}

    def fault(self, kind, **fields):
        """Puts both replicas into a state: `ok` is the healthy one."""
        body = json.dumps({"kind": kind, **fields}).encode()
        urllib.request.urlopen(f"{self.control}/_fault", data=body, timeout=10).close()

    def until_up(self):
        self.until("the replicas are up", lambda: all(row["state"] == "up" for row in self.routing()["replicas"]))

    def until_in_flight(self, number):
        self.until(f"{number} in flight", lambda: self.routing()["totals"]["in_flight"] == number)

    def until(self, what, holds):
        deadline = time.monotonic() + SETTLED_WITHIN_S
        while not holds():
            if time.monotonic() > deadline:
                raise Failure(f"waited {SETTLED_WITHIN_S} s in vain for: {what}")
            time.sleep(0.02)
