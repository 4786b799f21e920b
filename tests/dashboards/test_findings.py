"""The wording of a result: what is called a gain, what is not, and what is added when the search went by likelihood."""

import pytest

from dashboards.findings import sentences, table


def interval(score, low, high):
    return {"score": score, "low": low, "high": high, "n": 80}


def report(metric="likelihood", difference=(0.05, 0.01, 0.09), exact=(0.1, -0.02, 0.2)):
    def row(name, score):
        return {
            "name": name,
            "label": f"the {name}",
            "frequency": {"method": "linear", "factor": 2.0},
            "search_score": score,
            "evaluations": 9,
            "heldout": interval(score, score - 0.02, score + 0.02),
            "winner_minus": interval(*difference),
            "accuracy": interval(0.5, 0.4, 0.6),
            "winner_minus_accuracy": interval(*exact),
            "guard": {**interval(0.9, 0.8, 1.0), "loss": interval(0.0, -0.1, 0.1), "harmful": False},
        }

    return {
        "metric": metric,
        "length": 900,
        "guard": {"length": 200, "tolerance": 0.02},
        "rows": [row("winner", -0.1), row("linear", -0.15)],
    }


def test_a_search_by_likelihood_also_shows_exact_answers():
    headers, rows = table(report())
    assert headers[6:8] == ("exact answers", "winner − this, exact")
    assert rows[1][6:8] == ("0.500 [0.400, 0.600]", "+0.100 [−0.020, +0.200]")
    assert all(len(row) == len(headers) for row in rows)
    assert len(set(headers)) == len(headers)


def test_a_search_by_exact_answers_has_no_second_column_of_them():
    headers, rows = table(report("exact"))
    assert not any("exact answers" in h for h in headers)
    assert all(len(row) == len(headers) for row in rows)


def test_a_profile_that_failed_has_as_many_cells_as_the_others():
    made = report()
    made["rows"].append(
        {
            "name": "ntk",
            "label": "ntk",
            "frequency": {"method": "ntk"},
            "search_score": 0.1,
            "evaluations": 1,
            "failed": "NaN",
        }
    )
    headers, rows = table(made)
    assert rows[-1][4] == "failed"
    assert all(len(row) == len(headers) for row in rows)


@pytest.mark.parametrize(
    ("exact", "words"), [((0.1, 0.02, 0.2), False), ((0.1, -0.02, 0.2), True), ((-0.1, -0.2, -0.02), False)]
)
def test_a_difference_of_exact_answers_whose_interval_holds_0_is_said_to(exact, words):
    (sentence,) = (s for s in sentences(report(exact=exact)) if s.startswith("Exact answers"))
    assert ("contains 0" in sentence) == words


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        ((0.05, 0.01, 0.09), "gain of the winner over it"),
        ((0.05, -0.01, 0.09), "do not show that the layer-wise scale is better"),
        ((-0.05, -0.09, -0.01), "worse than one factor for all layers"),
    ],
)
def test_only_a_difference_above_0_is_called_a_gain(difference, words):
    assert words in " ".join(sentences(report(difference=difference)))


def with_rows(made, **rows):
    """The report with more rows, copies of the one for linear under another name and method."""
    linear = made["rows"][1]
    for name, difference in rows.items():
        frequency = {"method": name, "factor": 2.0}
        changed = {"name": name, "label": f"the {name}", "frequency": frequency, "winner_minus": interval(*difference)}
        made["rows"].append({**linear, **changed})
    return made


def test_a_winner_is_compared_with_the_best_uniform_factor_of_its_own_method():
    made = with_rows(report("exact", difference=(0.6, 0.5, 0.7)), ntk=(0.01, -0.02, 0.03))
    made["rows"][0]["frequency"] = {"method": "ntk", "factor": [2.0, 3.0]}
    said = " ".join(sentences(made))
    assert "The best uniform ntk factor (2) scores" in said
    assert "gain of the winner" not in said
    assert "do not show that the layer-wise scale is better" in said


def test_a_linear_factor_that_beats_the_winner_of_another_method_is_named():
    made = with_rows(report("exact", difference=(-0.1, -0.2, -0.05)), ntk=(0.1, 0.05, 0.2))
    made["rows"][0]["frequency"] = {"method": "ntk", "factor": [2.0, 3.0]}
    assert any(s.startswith("the linear scores higher than the winner") for s in sentences(made))


def test_a_perplexity_is_told_as_such_beside_the_log_likelihoods_that_were_compared():
    headers, _ = table(report("perplexity"))
    assert headers[4] == "held out (log-likelihood per token)"
    (said,) = (s for s in sentences(report("perplexity")) if s.startswith("Perplexity"))
    assert said == "Perplexity: winner 1.105 [1.083, 1.127], best uniform factor 1.162 [1.139, 1.185]."


def test_a_campaign_without_a_uniform_baseline_claims_no_gain():
    made = report()
    made["rows"] = made["rows"][:1]
    assert "The best uniform linear factor has no held-out score in this campaign" in " ".join(sentences(made))


def test_what_the_guard_refused_and_what_is_missing_is_said():
    made = report("exact")
    assert not any("guard was enforced" in said for said in sentences(made))
    made["guard"] |= {"enforced": True, "infeasible": 7, "candidates": 40}
    made |= {"without": {"yarn": "9 of 9 factors are infeasible"}, "notes": ["not comparable"]}
    said = sentences(made)
    assert said[-1].startswith("The guard was enforced: 7 of 40 candidates were infeasible, losing more than 0.02")
    assert "yarn is not in the table: 9 of 9 factors are infeasible." in said
    assert "About these examples: not comparable." in said


def test_exact_answers_are_shown_where_the_perplexity_of_answers_was_searched_by():
    assert "exact answers" in table({**report("perplexity"), "task": {"task": "kv"}})[0]
    assert "exact answers" not in table({**report("perplexity"), "task": {"task": "perplexity"}})[0]
