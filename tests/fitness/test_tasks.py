"""The registry, the union that a campaign reads, example sets as values, and the split arithmetic."""

import hashlib
import itertools
import pickle
import re
from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from fitness import splits
from fitness.errors import TaskError
from fitness.examples import Example, ExampleSet, Question
from fitness.forms import form
from fitness.kv import KVTask
from fitness.perplexity import PerplexityTask
from fitness.scoring import METRICS, SCORINGS, VALUES, Score, score_example
from fitness.tasks import TASKS, Fitness

# what a task cannot do without, beside its length
NEEDED = {"infinitebench": {"name": "passkey"}, "mdqa": {"file": "rows.jsonl"}, "ruler": {"name": "vt"}}


def test_a_section_of_a_campaign_becomes_its_task():
    read = TypeAdapter(Fitness).validate_python
    assert read({"task": "kv", "pairs": 5}) == KVTask(pairs=5)
    assert read({"task": "perplexity", "length": 64}) == PerplexityTask(length=64)
    with pytest.raises(ValidationError, match=", ".join(map(repr, TASKS))):
        read({"task": "karaoke", "length": 64})


def test_every_task_is_registered_under_its_name_and_names_known_metrics_and_scorings():
    kinds, _ = get_args(Fitness)
    assert list(TASKS.values()) == list(get_args(kinds))
    for name, kind in TASKS.items():
        task = kind(length=64, **NEEDED.get(name, {}))
        assert task.task == name
        assert task.metric in METRICS
        assert task.scoring in SCORINGS
    assert set(METRICS) == set(VALUES)


def test_an_unknown_scoring_is_refused_with_the_known_ones(tokenizer):
    with pytest.raises(TaskError, match="teacher_forcing"):
        score_example(None, tokenizer, Example("e", "c", (Question("q", "p", "a", (), 0),)), "vibes")


def test_likelihood_is_refused_for_generated_scores():
    with pytest.raises(TaskError, match="no likelihood"):
        METRICS["likelihood"]([Score("a", "a", 0, 1.0, None, 4, "x")])


def test_a_set_hashes_all_of_its_content_and_survives_pickling():
    base = ExampleSet("kv", "search", 0, 9, (Example("e", "c", (Question("q", "p", "a", ("r",), 0),)),))
    assert pickle.loads(pickle.dumps(base)).hash == base.hash
    changed = [
        ExampleSet("kv", "heldout", 0, 9, base.examples),
        ExampleSet("kv", "search", 1, 9, base.examples),
        ExampleSet("kv", "search", 0, 9, (Example("e", "C", base.examples[0].questions),)),
        ExampleSet("kv", "search", 0, 9, (Example("e", "c", (Question("q", "p", "a", ("s",), 0),)),)),
        ExampleSet("kv", "search", 0, 9, (Example("e", "c", (Question("q", "p", "a", ("r",), 0, "mdqa"),)),)),
        ExampleSet("kv", "search", 0, 9, (Example("e", "c", (Question("q", "p", "a", ("r",), 0, budget=5),)),)),
        ExampleSet("kv", "search", 0, 9, base.examples, ("not comparable",)),
    ]
    assert len({base.hash, *(other.hash for other in changed)}) == 8


def test_a_slice_is_a_range_of_examples_and_no_more():
    examples = tuple(Example(str(i), "c", ()) for i in range(5))
    whole = ExampleSet("kv", "search", 0, 9, examples)
    assert whole.slice(1, 3) == examples[1:3]
    with pytest.raises(IndexError, match="of a set of 5"):
        whole.slice(3, 6)


def test_a_draw_is_the_sha256_of_its_label():
    digest = hashlib.sha256(b"3/search/0/key/1").hexdigest()
    assert splits.draw(3, "search", 0, "key", 1) == int(digest, 16)


def test_stretches_of_all_splits_cover_everything_once():
    for size in (0, 7, 10, 465_000):
        stops = [splits.stretch(name, size) for name in splits.SHARES]
        assert stops[0][0] == 0
        assert stops[-1][1] == size
        assert all(a[1] == b[0] for a, b in itertools.pairwise(stops))


def test_every_row_belongs_to_one_split():
    for row in range(40):
        assert sum(splits.holds(name, row) for name in splits.SHARES) == 1


def test_words_are_all_distinct_and_pronounceable():
    as_word, count = form("words")
    words = {as_word(i) for i in range(5000)}
    assert len(words) == 5000
    assert count == 512_000
    assert all(re.fullmatch("([bdfghjklmnprstvz][aeiou]){3}", word) for word in words)
