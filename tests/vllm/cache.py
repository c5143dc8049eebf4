"""The prefix cache's script: requests played one after another to a fresh vLLM with a small cache, and its figures.

The script, bench/tests/vllm_cache_script.json, holds both: the requests, and what a real vLLM 0.32 counted for each.
It says itself how its prompts are made. `replay` plays it again and compares, `record` writes the figures anew.
"""

import json
import time
import urllib.request

from scrape import cache_config, scrape, total
from servers import MODEL, REPOSITORY, Engine, Failure

SCRIPT = REPOSITORY / "bench" / "tests" / "vllm_cache_script.json"
# A block of the tiny model takes 8 KiB: 2 layers, a key and a value of 32 numbers of 2 bytes, 32 tokens.
BLOCK_BYTES = 8192
FIRST_TOKEN, LAST_TOKEN = 256, 4095
COUNTED_WITHIN_S = 30
FIGURES = ("queries", "hits", "cached_tokens")


def load():
    return json.loads(SCRIPT.read_text())


def save(script):
    """Writes the script with one request a line."""
    head = json.dumps({key: value for key, value in script.items() if key != "requests"}, indent=2)
    lines = ",\n".join("    " + json.dumps(request) for request in script["requests"])
    SCRIPT.write_text(f'{head[:-2]},\n  "requests": [\n{lines}\n  ]\n}}\n')


def engine_of(script):
    """An engine with the cache that the script was written for."""
    cache = script["engine"]
    return Engine("cache", max_model_len=cache["max_model_len"], kv_cache_bytes=cache["num_gpu_blocks"] * BLOCK_BYTES)


def replay(engine, script):
    """Plays the script. Returns what differs from its figures."""
    differences = []
    for request, figures in zip(script["requests"], play(engine, script), strict=True):
        expected = {name: request[name] for name in FIGURES}
        if figures != expected:
            differences.append(f"cache script, request {request['id']}: {expected} expected, {figures} counted")
    return differences


def record(engine, script):
    """Plays the script and writes the figures that this engine counts into it."""
    for request, figures in zip(script["requests"], play(engine, script), strict=True):
        request.update(figures)
    save(script)


def play(engine, script):
    """Sends the requests one after another. Yields the figures of each."""
    check_cache(engine, script)
    before = counters(engine)
    for sent, request in enumerate(script["requests"], start=1):
        cached_tokens = complete(engine, request)
        after = wait_counted(engine, sent)
        yield {
            "queries": after["queries"] - before["queries"],
            "hits": after["hits"] - before["hits"],
            "cached_tokens": cached_tokens,
        }
        before = after


def check_cache(engine, script):
    """Refuses an engine whose cache is not the script's."""
    labels = cache_config(engine.url)
    for name in ("block_size", "num_gpu_blocks"):
        if int(labels[name]) != script["engine"][name]:
            raise Failure(f"the engine has {name} {labels[name]}, the cache script needs {script['engine'][name]}")


def complete(engine, request):
    """Sends one request of the script. Returns the cached tokens that its usage names."""
    output = request["output"]
    body = {
        "model": MODEL,
        "prompt": [token for part in request["prompt"] for token in tokens(part)],
        "max_tokens": output["len"],
        # The model may say one token only, so that its answer is known beforehand on every processor.
        "allowed_token_ids": [output["token"]],
        "ignore_eos": True,
        "return_token_ids": True,
    }
    url = f"{engine.url}/v1/completions"
    post = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(post, timeout=120) as response:
        answer = json.load(response)
    if answer["choices"][0]["token_ids"] != list(tokens(output)):
        raise Failure(f"cache script, request {request['id']}: the engine generated other tokens than it was made to")
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def tokens(part):
    """The token ids of a part: the first `len` of a named segment, or one token `len` times."""
    for index in range(part["len"]):
        yield part["token"] if "token" in part else segment_token(part["seg"], index)


def segment_token(name, index):
    """Token `index` of a segment: the 32-bit FNV-1a hash of `name:index`, brought into the range of plain tokens."""
    value = 0x811C9DC5
    for byte in f"{name}:{index}".encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return FIRST_TOKEN + value % (LAST_TOKEN - FIRST_TOKEN + 1)


def counters(engine):
    samples = scrape(engine.url)
    return {
        "queries": int(total(samples, "vllm:prefix_cache_queries_total")),
        "hits": int(total(samples, "vllm:prefix_cache_hits_total")),
        "finished": int(total(samples, "vllm:request_success_total")),
    }


def wait_counted(engine, requests):
    """The counters once they hold that many finished requests: vLLM counts a little after it has answered."""
    deadline = time.monotonic() + COUNTED_WITHIN_S
    while time.monotonic() < deadline:
        counted = counters(engine)
        if counted["finished"] == requests:
            return counted
        time.sleep(0.02)
    raise Failure(f"the engine did not count {requests} finished requests within {COUNTED_WITHIN_S} s")
