"""Makes a tiny Qwen3 model for vLLM in a folder: `make_model.py FOLDER`.

It has a configuration and a tokenizer and no weights: vLLM fills those with random numbers (`--load-format dummy`).
The tokenizer is trained on the text of Python's standard library.
"""

import itertools
import json
import sys
import sysconfig
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 4096
CONTEXT = 32768
# `True` marks what a reader of the text does not see.
SPECIAL_TOKENS = {
    "<|endoftext|>": True,
    "<|im_start|>": True,
    "<|im_end|>": True,
    "<tool_call>": False,
    "</tool_call>": False,
}
CHAT_TEMPLATE = """\
{%- if tools or messages[0].role == 'system' %}{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n' }}{%- endif %}
{%- for tool in tools or [] %}{{- (tool | tojson) + '\\n' }}{%- endfor %}
{{- '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages if message.role != 'system' %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


def train_tokenizer(vocabulary, samples):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library = Path(sysconfig.get_path("stdlib"))
    files = (file.read_text(errors="replace") for file in sorted(library.glob("*.py"))[:120])
    tokenizer.train_from_iterator(itertools.chain(samples, files), trainer)
    return tokenizer


def tokenizer_config(ids, context):
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
        "added_tokens_decoder": {
            str(ids[token]): {
                "content": token,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "single_word": False,
                "special": hidden,
            }
            for token, hidden in SPECIAL_TOKENS.items()
        },
    }


def model_config(ids):
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "attention_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
    }


def main(folder, vocabulary=VOCABULARY, context=CONTEXT, samples=(), shape=None):
    """`samples` are texts that the vocabulary is to know besides; `shape` stands in for settings of the configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(vocabulary, samples)
    ids = {token: tokenizer.token_to_id(token) for token in SPECIAL_TOKENS}
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in [
        ("tokenizer_config.json", tokenizer_config(ids, context)),
        ("config.json", {**model_config(ids), **(shape or {})}),
    ]:
        (folder / name).write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
