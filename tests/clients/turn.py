"""A turn that a client took, and what must hold of the turns of one conversation."""

from dataclasses import dataclass


@dataclass
class Turn:
    client: str
    how: str
    replica: str
    decision: str
    text: str

    @classmethod
    def of(cls, client, how, headers, text):
        return cls(client, how, headers["x-homing-replica"], headers["x-homing-decision"], text)


def faults(turns):
    """Every turn has an answer, the first is placed, and all later ones are sticky on its replica."""
    home = turns[0].replica
    for number, turn in enumerate(turns, 1):
        name = f"{turn.client}, turn {number} ({turn.how})"
        if not turn.text.strip():
            yield f"{name} has no answer"
        expected = ("placed" if number == 1 else "sticky", home)
        if (turn.decision, turn.replica) != expected:
            yield f"{name}: {turn.decision} on {turn.replica}, expected {expected[0]} on {expected[1]}"
