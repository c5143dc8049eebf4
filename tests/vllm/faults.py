"""An engine core killed or stopped in the middle of a prefill: every client gets its answer, from the other replica.

The server of a killed core answers 503 for some seconds, ends its streams with an error event within their 200, and
exits. That of a stopped one goes on as if nothing were: only its silence tells, and it is well again once it goes on.
"""

import http.client
import json
import os
import random
import signal
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from checks import routing_of, wait_idle
from conversation import ANSWERED_WITHIN_S, AnthropicMessages, OpenAiChat, post, prose
from knee import SLOW
from scrape import scrape, total
from servers import Balancer, Engine, Failure, Servers

# A prefill of two seconds or more, on one core.
WORDS = 5000
MAX_MODEL_LEN = 8192
# Each dialect, streamed and not, once for each replica.
ASKS = [(dialect, streamed) for dialect in (OpenAiChat, AnthropicMessages) for streamed in (True, False)] * 2
SEEN_WITHIN_S = 60
# The hang limit, a prefill or two, and the request that asks for a token.
BACK_WITHIN_S = 180


def run(homing):
    """Plays each fault before fresh engines. Returns what was wrong."""
    faults = []
    for number in (signal.SIGKILL, signal.SIGSTOP):
        print(f"Two vLLM engines, and {number.name} for the core of one: 2 to 4 minutes.", flush=True)
        faults += [f"{number.name}: {fault}" for fault in play(homing, number)]
    return faults


def play(homing, number):
    engines = [
        Engine(name, max_model_len=MAX_MODEL_LEN, overrides=SLOW, core_apart=True)
        for name in ("replica-1", "replica-2")
    ]
    balancer = Balancer(homing, engines, admission="off")
    with ThreadPoolExecutor(len(ASKS)) as pool, Servers() as servers:
        for engine in engines:
            servers.start(engine)
        servers.wait_ready()
        servers.start(balancer)
        servers.wait_ready()
        victim, other = engines
        core = core_of(victim)

        began = time.monotonic()
        answers = [pool.submit(ask, balancer.url, index, *one) for index, one in enumerate(ASKS)]
        wait_for(f"{len(ASKS)} requests in flight", lambda: in_flight(balancer) == len(ASKS))
        time.sleep(0.5)
        generated = total(scrape(victim.url), "vllm:generation_tokens_total")
        if generated > 0:
            yield f"{victim.name} had generated {generated:.0f} tokens already: the prefill is too short to be met"
        os.kill(core, number)
        [survivor] = other.replicas()
        for answer in answers:
            replica = answer.result()
            if replica != survivor:
                yield f"an answer came from {replica}, {survivor} expected"
        print(f"  {len(ASKS)} answers, the last after {time.monotonic() - began:.0f} s", flush=True)

        totals = wait_idle(balancer)["totals"]
        if totals["in_flight"] != 0:
            yield f"{totals['in_flight']} in flight at the end"
        samples = scrape(balancer.admin_url)
        retries = {
            reason: int(total(samples, "homing_retries_total", reason=reason))
            for reason in ("hung", "error_event", "closed", "connect", "status_503", "status_500")
        }
        print(f"  asked elsewhere: {', '.join(f'{count} {name}' for name, count in retries.items() if count)}")
        hung = total(samples, "homing_hangs_total")
        if hung != (number == signal.SIGSTOP):
            yield f"homing_hangs_total is {hung:.0f}"
        if number == signal.SIGSTOP:
            yield from comes_back(balancer, victim, core)


def comes_back(balancer, victim, core):
    """A core that goes on generates a token when it is asked, and its replica takes conversations again."""
    [replica] = victim.replicas()
    if state_of(balancer, replica) != "suspect":
        yield f"{replica} is {state_of(balancer, replica)} while its core is stopped, suspect expected"
    os.kill(core, signal.SIGCONT)
    began = time.monotonic()
    wait_for(f"{replica} to be up", lambda: state_of(balancer, replica) == "up", BACK_WITHIN_S)
    print(f"  up again {time.monotonic() - began:.0f} s after its core went on", flush=True)
    served = {ask(balancer.url, 100 + index, OpenAiChat, True, words=20) for index in range(4)}
    if replica not in served:
        yield f"{replica} gets no conversation after it has come back"


def ask(base, number, dialect, streamed, words=WORDS):
    """Sends one turn and reads its answer whole. Returns the replica that gave it."""
    dialect = dialect()
    text = prose(random.Random(number), words)
    body = dialect.body(f"Conversation {number}.", [{"role": "user", "content": text}])
    if streamed:
        headers, _ = post(base, dialect, body)
        return headers["x-homing-replica"]
    body["stream"] = False
    body.pop("stream_options", None)
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(base).netloc, timeout=ANSWERED_WITHIN_S)
    try:
        headers = {"content-type": "application/json", **dialect.headers}
        connection.request("POST", dialect.path, json.dumps(body), headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200 or "usage" not in json.loads(answer):
            raise Failure(f"{dialect.path} answered {response.status}: {answer[:2000].decode(errors='replace')}")
        return response.headers["x-homing-replica"]
    finally:
        connection.close()


def in_flight(balancer):
    return routing_of(balancer)["totals"]["in_flight"]


def state_of(balancer, replica):
    [state] = [row["state"] for row in routing_of(balancer)["replicas"] if row["replica"] == replica]
    return state


def wait_for(what, reached, within_s=SEEN_WITHIN_S):
    deadline = time.monotonic() + within_s
    while not reached():
        if time.monotonic() > deadline:
            raise Failure(f"waited {within_s} s in vain for {what}")
        time.sleep(0.1)


def core_of(engine):
    """The process of an engine's core, by the name that vLLM gives it."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and is_core(entry, engine.child.pid):
            return int(entry.name)
    raise Failure(f"{engine.name} has no process of its own for its core")


def is_core(entry, server):
    try:
        parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        return parent == server and b"EngineCore" in (entry / "cmdline").read_bytes() + (entry / "comm").read_bytes()
    except (OSError, ValueError):
        # It has ended meanwhile.
        return False
