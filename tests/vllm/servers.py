"""The processes of the test: real vLLM engines and the balancer. Each is a process group that `close` ends."""

import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PLACE = REPOSITORY / "target" / "vllm"
VLLM = PLACE / "venv" / "bin" / "vllm"
MODEL = "tiny"
READY_WITHIN_S = 600
END_WITHIN_S = 20
PORT_TRIES = 5


class Failure(Exception):
    """What went wrong, in words for a person."""


def free_port():
    """A port of 127.0.0.1 that was free a moment ago. Another process may take it first: `Server` tries again."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


class Server:
    """A process with a log file that answers HTTP once it is ready, ended together with all of its children.

    A kind of server says in `command()` how it starts, on ports that it chooses there, and in `ready_url()` what
    answers 200 when it is ready.
    """

    environment = {}

    def __init__(self, name):
        self.name = name
        self.log = PLACE / "logs" / f"{name}.log"
        self.child = None

    def start(self):
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # vLLM leaves sockets and files among the temporary ones.
        self.scratch = tempfile.TemporaryDirectory(prefix="homing-")
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment, "TMPDIR": self.scratch.name},
                start_new_session=True,
            )

    def wait_ready(self):
        """Waits until the server answers. Starts it anew on other ports where others took its own."""
        for _ in range(PORT_TRIES):
            if self.answers():
                return
            if "in use" not in self.log.read_text(errors="replace"):
                break
            self.close()
            self.start()
        raise Failure(f"{self.name} ended before it was ready.\n{self.log_end()}")

    def answers(self):
        """Waits until the server answers: true. False as soon as it has ended."""
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                return False
            try:
                with urllib.request.urlopen(self.ready_url(), timeout=5):
                    return True
            except (OSError, http.client.HTTPException):
                time.sleep(0.2)
        raise Failure(f"{self.name} was not ready after {READY_WITHIN_S} s.\n{self.log_end()}")

    def log_end(self):
        lines = self.log.read_text(errors="replace").splitlines()[-30:]
        return "\n".join([f"The end of {self.log.relative_to(REPOSITORY)}:", *lines])

    def close(self):
        """Ends the process group: with SIGTERM, and what is left of it after a while with SIGKILL."""
        if self.child is None:
            return
        for ending in (signal.SIGTERM, signal.SIGKILL):
            self.group_gets(ending)
            deadline = time.monotonic() + END_WITHIN_S
            while self.group_gets(0) and time.monotonic() < deadline:
                self.child.poll()
                time.sleep(0.05)
        self.scratch.cleanup()

    def group_gets(self, number):
        """Sends a signal to the process group. False where none of it is left."""
        try:
            os.killpg(self.child.pid, number)
            return True
        except ProcessLookupError:
            return False


class Engine(Server):
    """A vLLM 0.32 on the CPU with the tiny model, and `ranks` data-parallel ranks behind one port.

    `overrides` stand in for settings of the model's configuration, such as its size: its weights are random anyway.
    With `core_apart` the core is a process beside the server, as it is by default.
    """

    environment = {
        "VLLM_TARGET_DEVICE": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # Many engines share few cores: one thread each, bound to none.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        # Lets the executor be `uni`, in which a rank is one process and not two: 0.6 GB and half a minute less.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }

    def __init__(self, name, ranks=1, max_model_len=32768, kv_cache_bytes=64 << 20, overrides=None, core_apart=False):
        if not VLLM.is_file():
            raise Failure(f"There is no vLLM at {VLLM}: install it with tests/vllm/setup.sh.")
        self.ranks = ranks
        if core_apart:
            self.environment = {**Engine.environment, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        self.flags = {
            "--served-model-name": MODEL,
            "--load-format": "dummy",
            "--host": "127.0.0.1",
            "--dtype": "bfloat16",
            "--max-model-len": max_model_len,
            "--max-num-seqs": 32,
            "--kv-cache-memory-bytes": kv_cache_bytes,
            "--block-size": 32,
            "--tool-call-parser": "hermes",
            "--distributed-executor-backend": "uni",
            "--data-parallel-size": ranks,
            "--hf-overrides": json.dumps(overrides or {}),
        }
        super().__init__(name)

    def command(self):
        self.port = free_port()
        valued = [str(part) for flag in self.flags.items() for part in flag]
        switches = [
            "--enable-prefix-caching",
            "--enable-prompt-tokens-details",
            "--enforce-eager",
            "--enable-auto-tool-choice",
        ]
        return [VLLM, "serve", PLACE / "model", "--port", str(self.port), *valued, *switches]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def ready_url(self):
        return f"{self.url}/health"

    def replicas(self):
        """The names that the balancer gives to this engine's replicas, in the order of their ranks."""
        name = f"127.0.0.1:{self.port}"
        return [name] if self.ranks == 1 else [f"{name}#{rank}" for rank in range(self.ranks)]


class Balancer(Server):
    """The balancer's binary in front of engines, to be started when they are ready.

    `settings` of the model are written into its configuration as they are: JSON is YAML.
    """

    def __init__(self, binary, engines, **settings):
        self.binary = Path(binary).resolve()
        self.engines = engines
        self.settings = settings
        if not self.binary.is_file():
            raise Failure(f"There is no balancer at {self.binary}: build it with `cargo build`.")
        super().__init__("homing")

    def command(self):
        listen, admin = free_port(), free_port()
        self.url, self.admin_url = (f"http://127.0.0.1:{port}" for port in (listen, admin))
        replicas = [f"      - url: {engine.url}\n        data_parallel_size: {engine.ranks}" for engine in self.engines]
        lines = [
            "listen:",
            f"  - address: 127.0.0.1:{listen}",
            "admin:",
            f"  address: 127.0.0.1:{admin}",
            "models:",
            f"  - name: {MODEL}",
            "    max_num_seqs: 32",
            *(f"    {name}: {json.dumps(value)}" for name, value in self.settings.items()),
            "    replicas:",
            *replicas,
        ]
        config = PLACE / "homing.yaml"
        config.write_text("\n".join(lines) + "\n")
        return [self.binary, "serve", "--config", config]

    def ready_url(self):
        return f"{self.admin_url}/readyz"


class Servers:
    """Everything that a run started, for `with`: leaving it ends all of them, whatever happened inside."""

    def __init__(self):
        self.started = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in reversed(self.started):
            server.close()

    def start(self, server):
        """Starts a server without waiting for it."""
        self.started.append(server)
        server.start()

    def wait_ready(self):
        for server in self.started:
            server.wait_ready()
