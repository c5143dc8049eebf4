"""Past the knee: twice as many conversations as two real engines can cache, with admission off and with it on.

The engines have a model whose prefill takes its time, so that turns wait for each other as they do on a GPU. Nobody
tells the balancer how much the engines can cache: it reads that in their metrics.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cache import wait_counted
from checks import routing_of, wait_idle
from conversation import AnthropicMessages, OpenAiChat, Shape, Turn, hold
from scrape import cache_config, scrape, total
from servers import Balancer, Engine, Failure, Servers

# 17 million parameters instead of 0.3.
SLOW = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8}
# 8 layers, a key and a value of 32 numbers of 2 bytes, 32 tokens.
BLOCK_BYTES = 32768
# With these the caches hold 49 % of the conversations below.
BLOCKS = 212
MAX_MODEL_LEN = 4096
CONVERSATIONS = 16
SHAPE = Shape(turns=6, system=300, opening=1000, later=60)
# A newcomer waits until another conversation has ended, however slow the machine.
PATIENCE = {"max_wait": "30 min"}

# How much of the working set the caches of both engines hold, at least and at most.
HALF = (0.45, 0.5)
# By how much admission raises the cached share, at least.
GAIN = 1.5
CAPACITY_KNOWN_WITHIN_S = 60
COLUMNS = ("admission", "cached", "by engines", "turns", "parked", "wait each", "seconds", "what became of caches")
ROW = "{:<9} {:>7} {:>10} {:>5} {:>6} {:>9} {:>7}  {}"


@dataclass
class Run:
    """What came of all conversations under one mode of admission."""

    mode: str
    turns: list[Turn]
    seconds: float
    routing: dict
    parked_s: float
    # Prompt tokens that the engines looked up in their caches, and those found.
    queries: int
    hits: int

    @property
    def cached_share(self):
        """The cached share of all prompt tokens, as the clients were told."""
        return sum(turn.cached_tokens for turn in self.turns) / sum(turn.prompt_tokens for turn in self.turns)

    @property
    def capacity(self):
        return sum(row["capacity_tokens"] for row in self.routing["replicas"])

    @property
    def working_set(self):
        """Tokens of all contexts at their last turn, with the prefix that all share counted once a replica."""
        shared = max(turn.cached_tokens for turn in self.turns if turn.number == 1)
        contexts = [turn.prompt_tokens for turn in self.turns if turn.number == SHAPE.turns]
        return sum(contexts) - shared * (len(contexts) - len(self.routing["replicas"]))

    def row(self):
        parked = self.routing["admission"]["totals"]["parked"]
        became = self.routing["cache"]["turns"]
        return ROW.format(
            self.mode,
            f"{self.cached_share:.1%}",
            f"{self.hits / self.queries:.1%}",
            len(self.turns),
            parked,
            f"{self.parked_s / max(parked, 1):.1f} s",
            f"{self.seconds:.0f}",
            ", ".join(f"{count} {name}" for name, count in became.items() if count),
        )


def run(homing):
    """Holds the same conversations twice, each time before fresh engines. Returns what was wrong."""
    print(f"{CONVERSATIONS} conversations, two vLLM engines started anew for each mode: 3 to 5 minutes.", flush=True)
    print(ROW.format(*COLUMNS), flush=True)
    runs, faults = [], []
    for mode in ("off", "auto"):
        one, found = play(homing, mode)
        print(one.row(), flush=True)
        runs.append(one)
        faults += [f"admission {mode}: {fault}" for fault in found]
    off, auto = runs
    faults += gain(off, auto)
    if not faults:
        gained = auto.cached_share / off.cached_share
        print(
            f"The engines say that they cache {auto.capacity} tokens, {auto.capacity / auto.working_set:.0%} of the "
            f"working set of {auto.working_set}; with admission the cached share is {gained:.1f} times as large."
        )
    return faults


def play(homing, mode):
    """Holds all conversations at once through a balancer with this mode of admission."""
    engines = [
        Engine(name, max_model_len=MAX_MODEL_LEN, kv_cache_bytes=BLOCKS * BLOCK_BYTES, overrides=SLOW)
        for name in ("replica-1", "replica-2")
    ]
    balancer = Balancer(homing, engines, admission={"mode": mode, **PATIENCE})
    # The servers end first, so that no conversation goes on where another has failed.
    with ThreadPoolExecutor(CONVERSATIONS) as pool, Servers() as servers:
        for engine in engines:
            servers.start(engine)
        servers.wait_ready()
        servers.start(balancer)
        servers.wait_ready()
        faults = list(capacities_agree(balancer, engines))

        began = time.monotonic()
        held = pool.map(lambda number: list(hold(balancer.url, dialect(number), number, SHAPE)), range(CONVERSATIONS))
        turns = [turn for conversation in held for turn in conversation]
        seconds = time.monotonic() - began

        counted = {engine.name: wait_counted(engine, served(engine, turns)) for engine in engines}
        one = Run(
            mode,
            turns,
            seconds,
            wait_idle(balancer),
            total(scrape(balancer.admin_url), "homing_parked_seconds_sum"),
            sum(counters["queries"] for counters in counted.values()),
            sum(counters["hits"] for counters in counted.values()),
        )
    return one, [*faults, *run_faults(one)]


def dialect(number):
    return (OpenAiChat if number % 2 else AnthropicMessages)()


def served(engine, turns):
    """How many of the turns the balancer sent to this engine."""
    return sum(turn.replica in engine.replicas() for turn in turns)


def capacities_agree(balancer, engines):
    """The balancer knows of each replica what its engine says that it can cache."""
    rows = wait_capacities(balancer)
    for engine in engines:
        says = cache_config(engine.url)
        [replica] = engine.replicas()
        row = rows[replica]
        if row["capacity_source"] != "engine":
            yield f"/routing: the capacity of {replica} comes from {row['capacity_source']}, engine expected"
        if row["capacity_tokens"] != int(says["kv_cache_size_tokens"]):
            yield (
                f"/routing: {replica} has a capacity of {row['capacity_tokens']} tokens; "
                f"its engine says {says['kv_cache_size_tokens']}: "
                f"{says['num_gpu_blocks']} blocks of {says['block_size']}"
            )


def wait_capacities(balancer):
    """The replicas of /routing by name, once the capacity of each is known."""
    deadline = time.monotonic() + CAPACITY_KNOWN_WITHIN_S
    while time.monotonic() < deadline:
        rows = {row["replica"]: row for row in routing_of(balancer)["replicas"]}
        if all(row["capacity_tokens"] for row in rows.values()):
            return rows
        time.sleep(0.1)
    raise Failure(f"/routing did not know the capacity of every replica within {CAPACITY_KNOWN_WITHIN_S} s")


def run_faults(one):
    """Every turn was answered and counted alike on all sides, and the caches hold half of what they should."""
    expected = CONVERSATIONS * SHAPE.turns
    if len(one.turns) != expected:
        yield f"{len(one.turns)} turns were answered, {expected} expected"
    prompt, cached = (sum(getattr(turn, name) for turn in one.turns) for name in ("prompt_tokens", "cached_tokens"))
    if (one.queries, one.hits) != (prompt, cached):
        yield f"the engines looked up {one.queries} tokens, found {one.hits}; the clients were told {prompt}, {cached}"
    totals = one.routing["admission"]["totals"]
    for name in ("left", "overdue", "full", "forced"):
        if totals[name] != 0:
            yield f"/routing: {name} is {totals[name]}, 0 expected"
    least, most = HALF
    if not least <= one.capacity / one.working_set <= most:
        yield f"the caches hold {one.capacity} tokens, the working set has {one.working_set}: not half of it"


def gain(off, auto):
    """Only with admission conversations wait, and their caches are kept for it."""
    for one, waits in ((off, False), (auto, True)):
        parked = one.routing["admission"]["totals"]["parked"]
        if (parked > 0) != waits:
            yield f"admission {one.mode}: {parked} turns were parked"
    if auto.cached_share < GAIN * off.cached_share:
        yield f"cached share {auto.cached_share:.1%} with admission, {off.cached_share:.1%} without: not {GAIN} times"
