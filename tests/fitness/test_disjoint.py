"""Search and held-out sets share nothing: no context, no key, no seed, for every task that is registered.

The seeds of the splits are made equal here, on purpose: what keeps two sets apart is then the split alone.
"""

import itertools
import json
import re
from typing import get_args

import pytest
from pydantic import TypeAdapter

from fitness.composite import Goal, part_seed
from fitness.infinitebench.generated import MAKERS
from fitness.ruler import NAMES
from fitness.splits import SHARES
from fitness.tasks import TASKS
from search.seeds import derive

WORDS = 60_000


def numbered(text):
    """Words of the numbered running text."""
    return set(re.findall(r"\bw\d{5}\b", text))


def asked(examples):
    return {q.prompt for e in examples for q in e.questions}


def told(examples):
    """References, each of them: the values that were drawn."""
    return {r for e in examples for q in e.questions for r in q.references}


def answers(examples):
    """All references of a question together: of words from one list, single ones may come again."""
    return {q.references for e in examples for q in e.questions}


def uuids(examples):
    return {u for e in examples for u in re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", shown(e))}


def running(examples):
    return set().union(*(numbered(shown(e)) for e in examples))


def shown(example):
    """What an example shows the model: its context with all prompts, or the text itself where there is neither."""
    asked = [example.context, *(q.prompt for q in example.questions)]
    return "".join(asked) or "".join(q.answer for q in example.questions)


def ruler(name):
    spec = {"task": "ruler", "name": name, "length": 1200, "contexts": 3}
    if name == "qa_1":
        return spec | {"squad": "squad.json"}, (asked, told)
    if name == "qa_2":
        return spec | {"hotpotqa": "hotpot.json"}, (asked, told)
    if name in ("cwe", "fwe"):
        return spec | ({"length": 3000} if name == "cwe" else {}), (answers,)
    if name in ("niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery"):
        return spec | {"essays": "text.txt"}, (asked, told, running)
    return spec | ({"length": 1600} if name == "vt" else {}), (told,)


def infinitebench(name):
    spec = {"task": "infinitebench", "name": name, "length": 1200, "contexts": 3}
    return spec, {"passkey": (told,), "kv_retrieval": (asked, told, uuids), "number_string": (told,)}.get(name, ())


CASES = {  # name: the task, and what its keys are
    "kv": ({"task": "kv", "length": 900, "contexts": 3, "questions": 4}, (asked, told, uuids)),
    "kv-official": ({"task": "kv", "pairs": 6, "contexts": 3, "file": "kv.jsonl"}, (asked, told, uuids)),
    "mdqa": ({"task": "mdqa", "documents": 3, "contexts": 3, "file": "qa.jsonl"}, (asked, told)),
    "niah": ({"task": "niah", "length": 700, "contexts": 3, "haystack": "text.txt"}, (asked, told, running)),
    "niah-quarters": (
        {"task": "niah", "needle": "quarters", "length": 700, "contexts": 3, "haystack": "text.txt"},
        (asked, told, running),
    ),
    "perplexity": ({"task": "perplexity", "length": 300, "contexts": 3, "file": "text.txt"}, (running,)),
    "perplexity-sliding": (
        {"task": "perplexity", "length": 200, "contexts": 3, "file": "text.txt", "mode": "sliding"},
        (running,),
    ),
    "perplexity-folder": ({"task": "perplexity", "length": 200, "contexts": 2, "file": "books"}, (running,)),
    **{f"ruler-{name}": ruler(name) for name in NAMES},
    **{f"infinitebench-{name}": infinitebench(name) for name in MAKERS},
    "infinitebench-file": (
        {"task": "infinitebench", "name": "longbook_qa_eng", "length": 400, "contexts": 2, "file": "book.jsonl"},
        (asked, told, running),
    ),
    "composite": (
        {
            "task": "composite",
            "length": 900,
            "parts": [
                {"of": {"task": "kv", "contexts": 2, "questions": 3}, "lengths": [450, 900]},
                {"of": {"task": "perplexity", "file": "text.txt", "contexts": 2}, "lengths": [200, 400]},
            ],
        },
        (uuids, running),
    ),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Every kind of file that a task reads, in which nothing occurs twice."""
    folder = tmp_path_factory.mktemp("sources")

    def words(start, count):
        sentences = [f"w{i:05} and w{i + 1:05} stand here." for i in range(start, start + count, 2)]
        return " ".join(sentences)

    def uid(*numbers):
        return "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}".format(*numbers)

    def lines(name, rows):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    (folder / "text.txt").write_text(words(0, WORDS), encoding="utf-8")
    (folder / "books").mkdir()
    for i in range(20):
        (folder / "books" / f"{i:02}.txt").write_text(words(1000 * i, 900), encoding="utf-8")
    pairs = [[[uid(row, i, 0, 0, 0), uid(row, i, 1, 0, 0)] for i in range(8)] for row in range(40)]
    lines("kv.jsonl", [{"ordered_kv_records": p, "key": p[3][0], "value": p[3][1]} for p in pairs])
    lines(
        "qa.jsonl",
        [
            {
                "question": f"who built house {i}",
                "answers": [f"builder{i:03}"],
                "ctxs": [
                    {
                        "title": f"House {i}",
                        "text": f"House {i:03} was built by builder{i:03} himself.",
                        "hasanswer": True,
                        "isgold": True,
                    }
                ],
                "nq_annotated_gold": {},
            }
            for i in range(60)
        ],
    )
    lines(
        "book.jsonl",
        [
            {
                "id": i,
                "context": words(1000 * i, 900),
                "input": f"Who is number {i}?",
                "answer": [f"person{i:03}"],
                "options": [],
            }
            for i in range(20)
        ],
    )
    paragraphs = [
        {
            "context": f"The house a{i} was built by Builder b{i}.",
            "qas": [
                {
                    "question": f"Who built a{i}?",
                    "id": str(i),
                    "is_impossible": False,
                    "answers": [{"text": f"Builder b{i:03}", "answer_start": 0}],
                }
            ],
        }
        for i in range(120)
    ]
    articles = [{"title": f"T{i}", "paragraphs": paragraphs[3 * i : 3 * i + 3]} for i in range(40)]
    (folder / "squad.json").write_text(json.dumps({"version": "v2.0", "data": articles}), encoding="utf-8")
    hotpot = [
        {
            "_id": str(i),
            "question": f"What is {i}?",
            "answer": f"thing{i:03}",
            "context": [[f"Title {i}.{n}", [f"First of {i}.{n}.", f" Second of {i}.{n}."]] for n in range(10)],
        }
        for i in range(40)
    ]
    (folder / "hotpot.json").write_text(json.dumps(hotpot), encoding="utf-8")
    return folder


def placed(value, folder):
    """The specification with its files where they are."""
    if isinstance(value, dict):
        return {k: placed(v, folder) for k, v in value.items()}
    if isinstance(value, list):
        return [placed(v, folder) for v in value]
    return str(folder / value) if isinstance(value, str) and (folder / value).exists() else value


def test_every_registered_task_has_a_case():
    assert {spec["task"] for spec, _ in CASES.values()} == {*TASKS, "composite"}
    assert {spec["name"] for spec, _ in CASES.values() if spec["task"] == "ruler"} == set(NAMES)
    assert {spec["task"] for spec, _ in CASES.values()} <= {
        get_args(kind.model_fields["task"].annotation)[0] for kind in get_args(get_args(Goal)[0])
    }


@pytest.mark.parametrize(("seed", "name"), enumerate(CASES))
def test_two_splits_of_a_task_share_no_context_and_no_key_even_with_one_seed(tokenizer, sources, seed, name):
    spec, keys = CASES[name]
    task = TypeAdapter(Goal).validate_python(placed(spec, sources))
    sets = {split: task.build(tokenizer, seed, split) for split in ("search", "heldout", "guard")}
    for one, other in itertools.combinations(sets.values(), 2):
        contexts = [{shown(e) for e in s.examples} for s in (one, other)]
        assert all(contexts)
        assert contexts[0].isdisjoint(contexts[1])
        assert {e.id for e in one.examples}.isdisjoint(e.id for e in other.examples)
        for key in keys:
            mine, theirs = key(one.examples), key(other.examples)
            assert mine
            assert theirs
            assert mine.isdisjoint(theirs), key.__name__


@pytest.mark.parametrize("name", ["kv", "niah", "perplexity", "ruler-niah_single_1", "infinitebench-passkey"])
def test_a_shorter_set_of_another_split_shows_nothing_of_the_longer_one(tokenizer, sources, name):
    spec, keys = CASES[name]
    task = TypeAdapter(Goal).validate_python(placed(spec, sources))
    long, short = task.build(tokenizer, 5, "search"), task.at_length(task.length // 2).build(tokenizer, 5, "guard")
    for key in keys:
        assert key(long.examples).isdisjoint(key(short.examples))
    for a, b in itertools.product(long.examples, short.examples):
        assert shown(b) not in shown(a)


def test_the_seeds_of_a_campaigns_sets_are_all_different():
    names = ("search", "heldout", "guard", "feasibility")
    lengths = [str(n) for n in (None, 256, 1024, 4096)]
    for seed in range(200):
        seeds = [derive(seed, name) for name in names] + [derive(seed, "evaluate", length) for length in lengths]
        assert len(set(seeds)) == len(seeds)
        parts = {part_seed(s, part) for s in seeds for part in ("kv@256", "kv@512", "prose@512")}
        assert len(parts) == 3 * len(seeds)
        assert parts.isdisjoint(seeds)
    assert len({derive(seed, name) for seed in range(200) for name in names}) == 200 * len(names)


def test_the_parts_of_finite_data_that_splits_may_use_cover_all_of_it_once():
    assert sum(SHARES.values()) == 10
    assert {"search", "heldout", "guard", "validation"} == set(SHARES)
