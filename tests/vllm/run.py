"""Holds the balancer, and the script of the prefix cache, against a real vLLM 0.32. `setup.sh` installs it first."""

import argparse
import signal
import sys

import cache
from checks import all_checks, names
from conversation import AnthropicMessages, OpenAiChat, hold
from servers import Balancer, Engine, Failure, Servers

ROW = "{:<10} {:>12} {:>5}  {:<20} {:<18} {:>13} {:>13}"
COLUMNS = ("dialect", "conversation", "turn", "x-homing-replica", "x-homing-decision", "prompt tokens", "cached tokens")


def main():
    arguments = parse_arguments()
    # These signals become an exception, so that leaving the `with` blocks ends what was started.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    try:
        faults = list(arguments.part(arguments))
    except (Failure, OSError) as failure:
        faults = [str(failure)]
    for fault in faults:
        print(f"FAILED: {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(required=True)
    conversations = parts.add_parser("conversations", help="agent conversations through the balancer to real engines")
    conversations.add_argument("--homing", default="target/debug/homing", help="the balancer's binary (%(default)s)")
    conversations.set_defaults(part=run_conversations)
    parts.add_parser("cache", help="the cache script, compared with a real engine").set_defaults(part=run_cache)
    parts.add_parser("record-cache", help="write a real engine's figures into the cache script").set_defaults(
        part=record_cache
    )
    return parser.parse_args()


def run_conversations(arguments):
    """Holds in each dialect as many conversations as there are replicas, one turn at a time: every replica gets one."""
    with Servers() as servers:
        engines = [
            servers.start(Engine("replica-1")),
            servers.start(Engine("replica-2")),
            servers.start(Engine("ranks", ranks=2)),
        ]
        print("Starting three vLLM engines, one of them with two data-parallel ranks: 1 to 3 minutes.", flush=True)
        servers.wait_ready()
        balancer = servers.start(Balancer(arguments.homing, engines))
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
        faults = list(all_checks(balancer, engines, conversations))
    if not faults:
        print(f"{len(conversations)} conversations stayed home, and the engines' own counters agree.")
    return faults


def run_cache(_):
    script = cache.load()
    with Servers() as servers:
        engine = servers.start(cache.engine_of(script))
        servers.wait_ready()
        differences = cache.replay(engine, script)
    if not differences:
        print(f"The cache script's {len(script['requests'])} requests counted as recorded.")
    return differences


def record_cache(_):
    script = cache.load()
    with Servers() as servers:
        engine = servers.start(cache.engine_of(script))
        servers.wait_ready()
        cache.record(engine, script)
    return []


if __name__ == "__main__":
    main()
