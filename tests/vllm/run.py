"""Holds the balancer, and the script of the prefix cache, against a real vLLM 0.32. `setup.sh` installs it first."""

import argparse
import signal
import sys

import cache
import faults
import knee
from checks import all_checks, names
from conversation import AnthropicMessages, OpenAiChat, hold
from servers import REPOSITORY, Balancer, Engine, Failure, Servers

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ROW = "{:<10} {:>12} {:>5}  {:<20} {:<18} {:>13} {:>13}"
COLUMNS = ("dialect", "conversation", "turn", "x-homing-replica", "x-homing-decision", "prompt tokens", "cached tokens")


def main():
    arguments = parse_arguments()
    for ending in ENDINGS:
        signal.signal(ending, end_in_order)
    try:
        found = list(arguments.part(arguments))
    except (Failure, OSError) as failure:
        found = [str(failure)]
    for fault in found:
        print(f"FAILED: {fault}", file=sys.stderr)
    sys.exit(1 if found else 0)


def end_in_order(number, _):
    """Leaves the `with` blocks, which end what was started, and lets no further signal break that off."""
    for ending in ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    sys.exit(128 + number)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(required=True)
    conversations = parts.add_parser("conversations", help="agent conversations through the balancer to real engines")
    conversations.set_defaults(part=run_conversations)
    past_knee = parts.add_parser("knee", help="more conversations than the engines can cache, admission off and on")
    past_knee.set_defaults(part=run_knee)
    core_faults = parts.add_parser("faults", help="an engine core killed and stopped in the middle of a prefill")
    core_faults.set_defaults(part=run_faults)
    for part in (conversations, past_knee, core_faults):
        part.add_argument(
            "--homing", default=REPOSITORY / "target" / "debug" / "homing", help="the balancer's binary (%(default)s)"
        )
    parts.add_parser("cache", help="the cache script, compared with a real engine").set_defaults(part=run_cache)
    parts.add_parser("record-cache", help="write a real engine's figures into the cache script").set_defaults(
        part=record_cache
    )
    return parser.parse_args()


def run_conversations(arguments):
    """Holds in each dialect as many conversations as there are replicas, one turn at a time: every replica gets one."""
    engines = [Engine("replica-1"), Engine("replica-2"), Engine("ranks", ranks=2)]
    balancer = Balancer(arguments.homing, engines)
    with Servers() as servers:
        for engine in engines:
            servers.start(engine)
        print("Starting three vLLM engines, one of them with two data-parallel ranks: 1 to 3 minutes.", flush=True)
        servers.wait_ready()
        servers.start(balancer)
        servers.wait_ready()

        print(ROW.format(*COLUMNS))
        conversations = []
        for dialect in (OpenAiChat, AnthropicMessages):
            for _ in names(engines):
                turns = []
                for turn in hold(balancer.url, dialect(), len(conversations) + 1):
                    print(ROW.format(*vars(turn).values()), flush=True)
                    turns.append(turn)
                conversations.append(turns)
        found = list(all_checks(balancer, engines, conversations))
    if not found:
        print(f"{len(conversations)} conversations stayed home, and the engines' own counters agree.")
    return found


def run_knee(arguments):
    return knee.run(arguments.homing)


def run_faults(arguments):
    return faults.run(arguments.homing)


def run_cache(_):
    script = cache.load()
    engine = cache.engine_of(script)
    with Servers() as servers:
        servers.start(engine)
        servers.wait_ready()
        differences = cache.replay(engine, script)
    if not differences:
        print(f"The cache script's {len(script['requests'])} requests counted as recorded.")
    return differences


def record_cache(_):
    script = cache.load()
    engine = cache.engine_of(script)
    with Servers() as servers:
        servers.start(engine)
        servers.wait_ready()
        cache.record(engine, script)
    return []


if __name__ == "__main__":
    main()
