"""InfiniteBench's metrics against outputs scored by hand; ROUGE-Lsum against what its package gave."""

import json
from pathlib import Path

import pytest

from fitness.infinitebench.formats import FORMATS
from fitness.infinitebench.scores import SCORES
from fitness.metrics import METRICS

CASES = [
    ("passkey", " 71432. Remember it, not 5", ("71432",), 1),
    ("passkey", " number 5, 71432", ("71432",), 0),
    ("passkey", "none", ("71432",), 0),
    ("number_string", "it is3366600122!", ("3366600122",), 1),
    ("number_string", "33666001", ("3366600122",), 0),
    ("kv_retrieval", ' "8c-4d", "x": "y"}', ("8c-4d",), 1),
    ("kv_retrieval", "8C-4D", ("8c-4d",), 0),
    ("code_run", "The value is: -14.", ("-14",), 1),
    ("code_run", "14 or 15", ("14",), 0),
    ("code_run", "fourteen", ("14",), 0),
    ("code_run", "", ("14",), 0),
    ("code_debug", " B. parse_row", ("parse_row", "B"), 1),
    ("code_debug", "B", ("parse_row", "B"), 0),  # the published code wants a point or a colon behind the letter
    ("code_debug", "I think the answer is: **parse_row**", ("parse_row", "B"), 1),
    ("code_debug", "the correct option is: C", ("parse_row", "B"), 0),
    ("code_debug", "answer:", ("parse_row", "B"), 0),
    ("math_find", " 73 is the largest", ("73",), 1),
    ("math_find", " 7.3", ("7",), 0),
    ("math_find", " 7.30", ("7.3",), 1),
    ("math_find", " 7", ("7.3",), 0),
    ("math_find", " no idea", ("73",), 0),
    ("math_calc", " [1, 4, 8]", ("1", "4", "8", "2"), 0.75),
    ("math_calc", " [1, 5, 8, 2]", ("1", "4", "8", "2"), 0.25),
    ("math_calc", " [1, 4, 8, 2, 9, 9]", ("1", "4", "8", "2"), 1),
    ("math_calc", "", ("1",), 0),
    ("longdialogue_qa_eng", " Vincent, I think", ("VINCENT",), 1),
    ("longdialogue_qa_eng", " Jules", ("VINCENT", "JULES"), 0),
    ("longbook_choice_eng", " C", ("a grey hat", "C"), 1),
    ("longbook_choice_eng", "Actually C", ("a grey hat", "C"), 0),  # it starts with the letter A
    ("longbook_choice_eng", "a grey hat", ("a grey hat", "C"), 1),
    ("longbook_choice_eng", "So the answer is: C.", ("a grey hat", "C"), 1),
    ("longbook_choice_eng", "So the answer is: D", ("a grey hat", "C"), 0),
    ("longbook_choice_eng", "maybe C or D", ("a grey hat", "C"), 1),
    ("longbook_choice_eng", " \n", ("a grey hat", "C"), 0),
    ("longbook_choice_eng", "nothing", ("a grey hat", "C"), 0),
    ("longbook_qa_eng", " The Grey hat!", ("a grey hat", "x"), 1),
    ("longbook_qa_eng", " grey old coat", ("a grey hat",), 0.4),  # 1 of 3 and 1 of 2 words
    ("longbook_qa_eng", " coat", ("a grey hat",), 0),
    ("longbook_qa_chn", "灰色的帽子。", ("灰色帽子",), 8 / 9),
    ("longbook_qa_chn", "“红”", ("灰色帽子",), 0),
    ("longbook_sum_eng", "The cat sat.\nA dog ran!", ("a dog ran\nthe cat sat",), 1),
    ("longbook_sum_eng", "the cat", ("the cat sat on it",), 2 * 2 / 7),
    ("longbook_sum_eng", "cat the", ("the cat sat on it", "x"), 2 * 1 / 7),
    ("longbook_sum_eng", "", ("the cat",), 0),
]


@pytest.mark.parametrize(("name", "output", "references", "score"), CASES)
def test_an_output_scores_as_by_hand(name, output, references, score):
    assert METRICS[f"infinitebench_{name}"](output, references) == pytest.approx(score)


def test_every_task_has_a_metric_and_a_format():
    assert {f"infinitebench_{name}" for name in FORMATS} == set(SCORES)
    assert len(SCORES) == 12
    assert {name for name, *_ in CASES} == set(FORMATS)


def test_rouge_is_what_its_package_gave():
    recorded = json.loads(Path(__file__).with_name("rouge_lsum.json").read_text(encoding="utf-8"))
    assert len(recorded["cases"]) == 30
    for output, reference, expected in recorded["cases"]:
        assert SCORES["infinitebench_longbook_sum_eng"](output, (reference,)) == pytest.approx(expected)


def test_the_best_of_several_references_counts():
    for name, references in (("longbook_sum_eng", ("a cat", "the dog ran")), ("longbook_qa_eng", ("cat", "dog ran"))):
        assert SCORES[f"infinitebench_{name}"]("the dog ran", references) == 1
