"""Metrics of generated outputs, each against outputs scored by hand."""

import pytest

from fitness.errors import TaskError
from fitness.examples import Question
from fitness.metrics import METRICS, normalised

CASES = [
    ("contains_any", ' "ABC-1"\n\nKey', ("abc-1",), 1.0),
    ("contains_any", " abc", ("abc-1",), 0.0),
    ("contains_any", "x two", ("one", "Two"), 1.0),
    ("contains_any", "x", (), 0.0),
    ("string_match_part", "The Normans", ("france", "normans"), 1.0),
    ("string_match_part", "The Norse", ("france", "normans"), 0.0),
    ("string_match_all", "values: 12, 34 and 56", ("12", "34", "56", "78"), 0.75),
    ("string_match_all", "ALPHA beta", ("alpha", "Beta"), 1.0),
    ("string_match_all", "", ("alpha",), 0.0),
    ("mdqa", " Wilhelm Conrad Röntgen.\nDocument", ("Wilhelm Conrad Röntgen",), 1.0),
    ("mdqa", "It is the 'Eiffel Tower', in Paris", ("an Eiffel tower!",), 1.0),
    ("mdqa", "\nEiffel Tower", ("Eiffel Tower",), 0.0),
    ("mdqa", "Big Ben\nEiffel Tower", ("Eiffel Tower", "Louvre"), 0.0),
    ("mdqa", "in 1,912 or so", ("1912",), 1.0),
]


@pytest.mark.parametrize(("metric", "output", "references", "score"), CASES)
def test_an_output_scores_as_by_hand(metric, output, references, score):
    assert METRICS[metric](output, references) == pytest.approx(score)


def test_normalising_drops_case_punctuation_articles_and_spaces():
    assert normalised(" The  cat's A-hat, an  Anthem \n") == "cats ahat anthem"


def test_a_share_of_no_references_is_refused():
    with pytest.raises(TaskError, match="references"):
        METRICS["string_match_all"]("x", ())


def test_a_question_of_an_unknown_metric_or_budget_is_refused():
    with pytest.raises(TaskError, match="did you mean string_match_all"):
        Question("q", "p", "a", ("r",), None, metric="string_match_al")
    with pytest.raises(TaskError, match="budget: got 0"):
        Question("q", "p", "a", ("r",), None, budget=0)
