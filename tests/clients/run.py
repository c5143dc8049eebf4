"""Holds conversations through the balancer with the clients that people use. `setup.sh` installs them first."""

import argparse
import os
import signal
import sys

import anthropic
import openai

import command_lines
import sdks
from stand import REPOSITORY, Failure, Stand
from turn import faults

ROW = "{:<24} {:>4}  {:<14} {:<18} {:<10}"
# A port of this machine where nothing listens: whatever is asked of another host fails, and nothing may depend on it.
NOWHERE = "http://127.0.0.1:9"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    binaries = REPOSITORY / "target" / "debug"
    parser.add_argument("--binaries", default=binaries, help="the folder of homing and homing-bench (%(default)s)")
    arguments = parser.parse_args()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    leave_settings_behind()
    try:
        with Stand(arguments.binaries) as stand:
            found = list(all_faults(stand))
    except (Failure, OSError, openai.OpenAIError, anthropic.AnthropicError) as failure:
        found = [str(failure)]
    for fault in found:
        print(f"FAILED: {fault}", file=sys.stderr)
    sys.exit(1 if found else 0)


def leave_settings_behind():
    """The clients see no keys, addresses or proxies of the caller's, and reach this machine alone."""
    path = os.environ.get("PATH", os.defpath)
    os.environ.clear()
    os.environ.update(PATH=path, HTTP_PROXY=NOWHERE, HTTPS_PROXY=NOWHERE, NO_PROXY="127.0.0.1")


def all_faults(stand):
    print(ROW.format("client", "turn", "how", "replica", "decision"))
    conversations = [
        sdks.openai_chat(stand),
        sdks.openai_responses(stand),
        sdks.openai_retried(stand),
        sdks.anthropic_messages(stand),
        command_lines.ClaudeCode(stand).turns(),
        command_lines.Codex(stand).turns(),
    ]
    answered = 0
    for conversation in conversations:
        turns = []
        for turn in conversation:
            turns.append(turn)
            print(ROW.format(turn.client, len(turns), turn.how, turn.replica, turn.decision), flush=True)
        yield from faults(turns)
        answered += len(turns)
    stand.until_in_flight(0)
    print(f"{len(conversations)} conversations, {answered} turns, nothing left in flight.")


if __name__ == "__main__":
    main()
