"""The mean of several tasks: its interval holds the truth as often as it says, and tells who has none."""

import numpy as np
import pytest

from search.evaluation_means import pooled
from tests.search.test_evaluation_table import row, terminal


def test_the_interval_of_the_mean_covers_the_truth_nineteen_times_of_twenty():
    rng = np.random.default_rng(3)
    truths, n, held = np.array([0.2, 0.5, 0.9, 0.7]), 60, 0
    for _ in range(800):
        found = rng.binomial(n, truths) / n
        z = 1.96
        center = (found + z * z / (2 * n)) / (1 + z * z / n)  # Wilson's interval of each task
        half = z * np.sqrt(found * (1 - found) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        scores = [{"score": s, "low": c - h, "high": c + h} for s, c, h in zip(found, center, half, strict=True)]
        interval = pooled(scores)
        held += interval["low"] <= truths.mean() <= interval["high"]
    assert 0.93 <= held / 800 <= 0.97


def test_an_interval_to_one_side_stays_so():
    sure = {"score": 1.0, "low": 0.8, "high": 1.0}
    assert pooled([sure, sure]) == pytest.approx({"score": 1.0, "low": 1 - 0.2 * 2**0.5 / 2, "high": 1.0})


def several(count):
    names = ["unchanged model", *(f"linear:factor={i}" for i in range(2, 2 + count))]
    tasks = {"ruler vt": "h1", "ruler cwe": "h2"}
    made = {"metric": "exact", "scoring": "generation", "asked_length": 96, "length": 95, "n": 6, "contexts": 3}
    made |= {"seed": 5, "notes": ["easy"]}
    rows = []
    for task, examples in tasks.items():
        for i, name in enumerate(names):
            gain = {} if i == 0 else {"gain": 0.25, "p": 0.01 * i}
            rows.append({**row(name, 0.5, **gain), "task": task, "asked_length": 96, "examples": examples})
    rows[-1] |= {"status": "failed", "reason": "no memory", "minus_unchanged": None}
    score = {"score": 0.5, "low": 0.4, "high": 0.6}
    return {
        "model": {"id": "tiny"},
        "seed": 5,
        "confidence": 0.95,
        "test": "a test",
        "correction": "Holm",
        "left_out": {"ruler qa_1": "squad: a file"},
        "sets": [{**made, "task": task, "hash": examples} for task, examples in tasks.items()],
        "rows": rows,
        "means": [
            {"name": name, "asked_length": 96, "tasks": list(tasks), "score": score, "minus_unchanged": score}
            for name in names[:-1]
        ],
    }


def test_several_tasks_are_rows_and_profiles_columns_with_their_mean_below():
    text = terminal(several(2), 160)
    assert "2 tasks at 96 tokens on tiny, seed 5, 95% intervals" in text
    lines = [line.strip() for line in text.splitlines()]
    vt = next(line for line in lines if line.startswith("ruler vt"))
    assert vt.split()[:5] == ["ruler", "vt", "score", "of", "outputs"]
    assert vt.count("0.500 [0.400, 0.600]") == 3
    assert vt.count("*") == 2
    cwe = next(line for line in lines if line.startswith("ruler cwe"))
    assert cwe.endswith("failed")
    mean = next(line for line in lines if line.startswith("mean of 2 tasks"))
    assert mean.count("0.500 [0.400, 0.600]") == 2
    assert mean.endswith("–")
    assert "linear:factor=3 failed on ruler cwe: no memory" in text
    assert "ruler vt, ruler cwe: easy" in text
    assert "ruler qa_1 left out: it needs squad: a file" in text


def test_profiles_that_do_not_fit_side_by_side_go_below_with_the_unchanged_model_again():
    text = terminal(several(5), 105)
    assert text.count("unchanged model") >= 4
    for factor in range(2, 7):
        assert f"linear:factor={factor}" in text
    assert all(len(line) <= 105 for line in text.splitlines() if "[0.400" in line)
