"""The model of the comparison: Qwen3-4B in size and shape, with random weights, which vLLM makes itself, and a vocabulary
trained on Python's standard library and on text such as the load's. What it says means nothing; that it takes as long is
all that is asked of it."""

import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "vllm"))
import make_model  # noqa: E402

VOCABULARY = 16384
CONTEXT = 131072
# https://huggingface.co/Qwen/Qwen3-4B, config.json; its vocabulary is larger.
QWEN3_4B = {
    "vocab_size": VOCABULARY,
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": CONTEXT,
}


def samples():
    """Texts as `homing-bench sessions` sends them."""
    chance = random.Random(1)
    for _ in range(40):
        subject = f"{chance.randrange(400)} 0 {chance.randrange(9)} of {chance.getrandbits(64):x}"
        yield "".join(f"{subject} {word} " for word in range(300))


def make(folder):
    make_model.main(folder, VOCABULARY, CONTEXT, samples(), QWEN3_4B)
    return folder
