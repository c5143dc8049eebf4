"""What must hold of the conversations that went through the balancer. A check yields what it found wrong, in words."""

import itertools
import json
import time
import urllib.request

from conversation import SHORT
from scrape import scrape, total
from servers import MODEL

BLOCK_SIZE = 32
SETTLED_WITHIN_S = 10
# What turns that come one at a time, each with a home that is up, never need.
NEVER = ("in_flight", "spilled", "client_pinned", "balanced", "unrouted", "failed_over")


def all_checks(balancer, engines, conversations):
    """Every fault of the conversations, each of which is a list of its turns."""
    turns = [turn for conversation in conversations for turn in conversation]
    for conversation in conversations:
        yield from stays_home(conversation)
    yield from spreads(engines, conversations)
    yield from engines_agree(engines, turns)
    yield from routing_agrees(balancer, engines, turns)
    yield from prompt_tokens_agree(balancer, turns)


def stays_home(conversation):
    """One replica, placed and then sticky, and each later turn finds the turn before it in the prefix cache.

    A cached share alone would prove little, since the system prompt is everyone's. What a turn sends again must be
    cached up to the block in which the tokens may differ: there the answer's text begins.
    """
    first = conversation[0]
    name = f"conversation {first.conversation} ({first.dialect})"
    replicas = {turn.replica for turn in conversation}
    if len(replicas) != 1:
        yield f"{name} was served by {len(replicas)} replicas: {', '.join(sorted(replicas))}"
    decisions = [turn.decision for turn in conversation]
    if decisions != ["placed"] + ["sticky"] * (SHORT.turns - 1):
        yield f"{name} was decided {', '.join(decisions)}; expected placed, then sticky"
    for before, turn in itertools.pairwise(conversation):
        least = before.prompt_tokens - 2 * BLOCK_SIZE
        if turn.cached_tokens < least:
            yield f"{name}, turn {turn.number}: {turn.cached_tokens} cached tokens, at least {least} expected"


def spreads(engines, conversations):
    """The conversations of a dialect, one for each replica, are placed on all of them."""
    replicas = names(engines)
    for dialect in sorted({conversation[0].dialect for conversation in conversations}):
        homes = sorted(turns[0].replica for turns in conversations if turns[0].dialect == dialect)
        if homes != replicas:
            yield f"the {dialect} conversations were placed on {', '.join(homes)}; expected {', '.join(replicas)}"


def engines_agree(engines, turns):
    """Each engine, rank by rank, counted the prompt tokens of the turns that the balancer says it sent there."""
    for engine in engines:
        samples = scrape(engine.url)
        for rank, replica in enumerate(engine.replicas()):
            counted = total(samples, "vllm:prompt_tokens_total", engine=str(rank))
            sent = sum(turn.prompt_tokens for turn in turns if turn.replica == replica)
            if counted != sent:
                yield f"{replica} computed {counted:.0f} prompt tokens; its turns in the table have {sent}"


def routing_agrees(balancer, engines, turns):
    """The balancer's own account has nothing in flight, and the decisions that its headers told."""
    routing = wait_idle(balancer)
    found = routing["totals"]
    expected = dict.fromkeys(NEVER, 0)
    for decision in ("placed", "sticky"):
        expected[decision] = sum(turn.decision == decision for turn in turns)
    for name, count in expected.items():
        if found[name] != count:
            yield f"/routing: {name} is {found[name]} in all, {count} expected"
    rows = {row["replica"]: row for row in routing["replicas"]}
    if sorted(rows) != names(engines):
        yield f"/routing lists {', '.join(sorted(rows))}; expected {', '.join(names(engines))}"
    for replica, row in rows.items():
        if row["in_flight"] != 0:
            yield f"/routing: {replica} has {row['in_flight']} in flight, 0 expected"


def prompt_tokens_agree(balancer, turns):
    """The balancer read the same token counts in the streams as the clients did."""
    samples = scrape(balancer.admin_url)
    cached = sum(turn.cached_tokens for turn in turns)
    expected = {
        "cached": cached,
        "computed": sum(turn.prompt_tokens for turn in turns) - cached,
        "unmeasured": 0,
    }
    for source, tokens in expected.items():
        found = total(samples, "homing_prompt_tokens_total", source=source)
        if found != tokens:
            yield f"homing_prompt_tokens_total, source {source}: {found:.0f}; the clients were told {tokens}"


def wait_idle(balancer):
    """The balancer's account once nothing is in flight, or after a while as it then is."""
    deadline = time.monotonic() + SETTLED_WITHIN_S
    while True:
        routing = routing_of(balancer)
        if routing["totals"]["in_flight"] == 0 or time.monotonic() > deadline:
            return routing
        time.sleep(0.05)


def routing_of(balancer):
    with urllib.request.urlopen(f"{balancer.admin_url}/routing/{MODEL}", timeout=10) as response:
        return json.load(response)


def names(engines):
    return sorted(replica for engine in engines for replica in engine.replicas())
