"""A tiny random model on disk and an example set for it."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from fitness.examples import Example, ExampleSet, Question
from ropewalk import Frequency, ModelShape, Profile
from workers.messages import Request

LETTERS = "abcdefghijklmnop"


def save_model(folder: Path, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({"?": 0, **{c: i + 1 for i, c in enumerate(LETTERS)}}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(folder)
    return folder


def examples(count: int = 6, words: int = 40) -> ExampleSet:
    def text(i: int, n: int) -> str:
        return " ".join(LETTERS[(i * 7 + j * j) % len(LETTERS)] for j in range(n))

    made = tuple(
        Example(
            f"e{i}",
            text(i, words),
            tuple(
                Question(f"e{i}q{q}", f" {LETTERS[q]}", f" {LETTERS[i + q]}", (LETTERS[i + q],), q) for q in range(3)
            ),
        )
        for i in range(count)
    )
    return ExampleSet("test", "search", 0, words + 2, made)


def profile(shape: ModelShape, factor: float) -> Profile:
    return Profile("p", shape, 256, Frequency("linear", factor=factor))


def requests(shape: ModelShape, factors: tuple[float, ...], count: int = 6) -> list[Request]:
    return [
        Request(f"{factor}/{i}", profile(shape, factor).to_dict(), "search", i, i + 1, "teacher_forcing")
        for factor in factors
        for i in range(count)
    ]
