#!/usr/bin/env python3
"""The balancer before real vLLM engines that share one GPU: the same load without affinity, with it, and with admission.

    bench/gpu/compare.py --vllm vllm --runs off:20:165,affinity:20:165,working-set:20:165

A run is an arm, a number of sessions, and seconds. Each begins with empty caches. Needs a GPU with about 110 GB of memory, vLLM
0.26 or later, and `make build`. Writes a line of JSON for each run.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import model

REPOSITORY = Path(__file__).resolve().parents[2]
BINARIES = REPOSITORY / "target" / "release"
MODEL = "qwen3-4b"
ENGINES = 4
# 120,000 tokens: 36 layers x 8 heads x 128 values x keys and values x 2 bytes a token.
KV_CACHE_BYTES = 120_000 * 36 * 8 * 128 * 2 * 2
READY_WITHIN_S = 300
FIRST_PORT, LISTEN, ADMIN = 8100, 8080, 9090
PORTS = range(FIRST_PORT, FIRST_PORT + ENGINES)
ARMS = {
    "off": "    affinity: off\n    admission: off\n",
    "affinity": "    admission: off\n",
    "working-set": "    admission: auto\n",
}
COUNTED = re.compile(r"^vllm:(prefix_cache_queries|prefix_cache_hits|generation_tokens|num_preemptions)_total\{.*\} (\S+)$")
SHOWN = ("output_tokens_per_min", "ttfb_p50_s", "ttfb_p95_s", "ttfb_mean_s", "prefix_hit_ratio", "replicas_busy",
         "session_mean_s", "session_wait_mean_s", "sessions_per_h")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", default="vllm", help="the command (%(default)s)")
    parser.add_argument("--runs", default="off:20:165,affinity:20:165,working-set:20:165", help="(%(default)s)")
    parser.add_argument("--engine-flags", default="", help="further flags of vllm serve, in one string")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = model.make(place / "model")
        for port in PORTS:
            start(stack, engine(arguments, folder, port), place / f"engine-{port}.log", f"http://127.0.0.1:{port}/health")
        for run in arguments.runs.split(","):
            arm, sessions, seconds = run.split(":")
            print(json.dumps({"arm": arm, "sessions": int(sessions), **compare(place, arm, sessions, seconds)}), flush=True)


def engine(arguments, folder, port):
    flags = {
        "--served-model-name": MODEL, "--load-format": "dummy", "--host": "127.0.0.1", "--port": port,
        "--max-model-len": 80000, "--max-num-seqs": 64, "--max-num-batched-tokens": 8192,
        # With its size given, vLLM measures no memory, which engines that start together would disturb.
        "--kv-cache-memory-bytes": KV_CACHE_BYTES, "--gpu-memory-utilization": 0.2, "--generation-config": "vllm",
        "--compilation-config": json.dumps({"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}),
    }
    valued = [str(part) for flag in flags.items() for part in flag]
    switches = ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
    return [arguments.vllm, "serve", folder, *valued, *switches, *arguments.engine_flags.split()]


def start(stack, command, log, ready_url):
    """Starts a process that ends with the stack, and waits until it answers."""
    environment = {
        **os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
        # Opens /reset_prefix_cache.
        "VLLM_SERVER_DEV_MODE": "1",
        # Sampling without limits needs none of it, and it would be compiled first.
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
    }
    child = subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT, env=environment)
    stack.callback(child.wait)
    stack.callback(child.terminate)
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline and child.poll() is None:
        try:
            return urllib.request.urlopen(ready_url, timeout=5).close()
        except OSError:
            time.sleep(0.2)
    sys.exit(f"{command[0]} was not ready:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:]))


def compare(place, arm, sessions, seconds):
    """One run, from empty caches: what the clients saw, and what the engines counted."""
    wait_idle()
    for port in PORTS:
        reset = urllib.request.Request(f"http://127.0.0.1:{port}/reset_prefix_cache", method="POST")
        urllib.request.urlopen(reset, timeout=20).close()
    before = counters()
    results = place / "results.json"
    with ExitStack() as stack:
        config = place / "homing.yaml"
        config.write_text(configuration(arm))
        start(stack, [BINARIES / "homing", "serve", "--config", config], place / "homing.log", f"http://127.0.0.1:{ADMIN}/readyz")
        subprocess.run(
            [BINARIES / "homing-bench", "sessions", "--url", f"http://127.0.0.1:{LISTEN}", "--sessions", sessions,
             "--load", "long-context", "--dialect", "chat", "--seconds", seconds, "--json", results],
            check=True, stdout=subprocess.DEVNULL)
    counted = {name: after - before[name] for name, after in counters().items()}
    row = json.loads(results.read_text())["rows"][0]
    return {
        **{name: round(row[name], 3) for name in SHOWN},
        "vllm_hit_ratio": round(counted["prefix_cache_hits"] / max(1, counted["prefix_cache_queries"]), 3),
        "preemptions": counted["num_preemptions"],
    }


def configuration(arm):
    replicas = "".join(f"      - url: http://127.0.0.1:{port}\n" for port in PORTS)
    return (
        f"listen:\n  - address: 127.0.0.1:{LISTEN}\nadmin:\n  address: 127.0.0.1:{ADMIN}\nserver:\n  access_log: off\n"
        f"models:\n  - name: {MODEL}\n{ARMS[arm]}    replicas:\n{replicas}"
    )


def metrics(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return answer.read().decode()


def counters():
    """Over all engines."""
    sums = {}
    for port in PORTS:
        for found in filter(None, map(COUNTED.match, metrics(port).splitlines())):
            sums[found[1]] = sums.get(found[1], 0) + float(found[2])
    return sums


def wait_idle():
    """An engine notices a little late that the clients of the run before have gone."""
    running = re.compile(r"^vllm:num_requests_running\{.*\} (\S+)$", re.MULTILINE)
    while any(float(running.search(metrics(port))[1]) for port in PORTS):
        time.sleep(0.2)


if __name__ == "__main__":
    main()
