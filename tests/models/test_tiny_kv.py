"""The model that ships with the repository: a standard checkpoint, small, with the tokenizer its script builds."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from fitness.kv import KVTask
from fitness.scoring import METRICS, score_example

FOLDER = Path(__file__).parents[2] / "models" / "tiny-kv"


def script(name):
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location(f"tiny_kv_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(FOLDER)


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


def test_the_checkpoint_is_small_and_standard(model):
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) < 5e6
    assert sum(p.numel() for p in model.parameters()) < 1e6
    assert model.config.model_type == "llama"
    assert model.config.num_hidden_layers == 8
    assert model.config.max_position_embeddings == 256


def test_the_tokenizer_is_the_one_its_script_builds(tokenizer):
    assert script("make_tokenizer").build().get_vocab() == tokenizer.get_vocab()


@pytest.mark.parametrize("text", ['{"a1b2": "bead",\n "00ff": "1234"}', "Grüße — 3.14 \t\n\n «x» be bad", '"', " "])
def test_the_tokenizer_loses_nothing(tokenizer, text):
    assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text


def test_training_batches_are_what_the_tokenizer_gives_for_the_prompts(tokenizer):
    batches = script("train").Batches(tokenizer, 5)
    tokens, labels, asked = batches.key_value(3, 6, 1, 0.0)
    for row, wanted, first in zip(tokens, labels, asked, strict=True):
        text = tokenizer.decode(row, skip_special_tokens=True)
        assert [*tokenizer(text).input_ids, tokenizer.eos_token_id] == row.tolist()
        start = int(first.nonzero()[0])
        assert text.endswith(f'Corresponding value: "{tokenizer.decode(wanted[start : start + 2])}"')


def test_it_answers_at_its_trained_length(model, tokenizer):
    task = KVTask(length=256, contexts=4, questions=24, keys="hex4", values="hex4", answer="opened")
    examples = task.build(tokenizer, 11, "heldout").examples
    scores = [s for e in examples for s in score_example(model, tokenizer, e, "teacher_forcing").scores]
    assert METRICS["exact"](scores) > 0.8


def test_a_few_steps_of_its_training_script_run_and_save_a_checkpoint(tmp_path, monkeypatch):
    arguments = ["train.py", "--minutes", "0.02", "--tokens", "128", "--threads", "1", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    script("train").main()
    assert AutoModelForCausalLM.from_pretrained(tmp_path).config.num_hidden_layers == 8
