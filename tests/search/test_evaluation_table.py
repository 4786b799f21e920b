"""The evaluation's table on the terminal: figures, failures, and what a narrow terminal leaves out."""

import io

import pytest
from rich.console import Console

from search.evaluation_table import show, too_few
from search.figures import interval, number, p_value


def row(name, score, gain=None, p=1.0):
    score = {"score": score, "low": score - 0.1, "high": score + 0.1, "n": 6}
    places = [{"position": i, "score": i / 12, "low": 0, "high": 1, "n": 1} for i in range(6)]
    difference = None if gain is None else {"score": gain, "low": gain - 0.1, "high": gain + 0.1, "p": p, "p_holm": p}
    return {
        "name": name,
        "examples": "h",
        "status": "ok",
        "score": score,
        "minus_unchanged": difference,
        "by_position": places,
        "seconds": 1.25,
    }


DATA = {
    "model": {"id": "tiny"},
    "confidence": 0.95,
    "test": "a test",
    "correction": "Holm, over the 2 comparisons",
    "left_out": {},
    "sets": [
        {
            **{
                "task": "kv",
                "metric": "exact",
                "scoring": "teacher_forcing",
                "hash": "h",
                "asked_length": 100,
                "length": 96,
            },
            **{"n": 6, "contexts": 3, "seed": 5, "notes": []},
        }
    ],
    "rows": [
        row("unchanged model", 0.5),
        row("yarn:factor=2+self_extend:window=64,group_size=6", 0.75, 0.25, 0.01),
        row("linear:factor=4", 0.25, -0.25, 0.2),
        {"name": "rerope", "examples": "h", "status": "failed", "reason": "window 1024, at most 64"},
    ],
}


def terminal(data, width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, no_color=True, highlight=False)
    show(data, console)
    return console.file.getvalue()


def shown(width):
    return terminal(DATA, width)


def test_each_row_has_its_interval_its_difference_and_its_corrected_p_value():
    text = shown(160)
    assert "kv at 96 tokens on tiny, n = 6 questions in 3 contexts, seed 5, 95% intervals" in text
    assert "0.750 [0.650, 0.850]   +0.250 [+0.150, +0.350]    0.010 *" in text
    assert "−0.250 [−0.350, −0.150]      0.200 " in text
    assert "0.00 0.08 0.17 0.25 0.38" in text
    assert "a test. Correction: Holm, over the 2 comparisons" in text


def test_a_failed_row_is_named_with_its_reason():
    assert "rerope failed: window 1024, at most 64" in shown(160)


def test_a_narrow_terminal_leaves_out_what_is_least_needed_and_folds_names():
    assert "seconds" in shown(160)
    narrow = shown(80)
    assert "seconds" not in narrow
    assert "first to last" not in narrow
    assert "0.750 [0.650, 0.850]   +0.250 [+0.150, +0.350]    0.010 *" in narrow


@pytest.mark.parametrize(("contexts", "few"), [(1, False), (2, True), (6, True), (7, False), (24, False)])
def test_it_says_when_no_number_of_right_answers_could_be_a_finding(contexts, few):
    data = {**DATA, "sets": [{**DATA["sets"][0], "contexts": contexts}]}
    assert too_few(data) == (
        f"{contexts} contexts are too few for any finding among 2 comparisons: --contexts 7 or more." if few else None
    )


@pytest.mark.parametrize(
    ("value", "signed", "text"),
    [(0.12345, False, "0.123"), (-1.5, False, "−1.500"), (0.25, True, "+0.250"), (-0.0001, True, "0.000")],
)
def test_numbers(value, signed, text):
    assert number(value, signed=signed) == text


def test_what_is_not_there_is_a_dash():
    assert interval(None) == p_value(None) == "–"
    assert p_value({"p_holm": 0.0001}) == "<0.001 *"
