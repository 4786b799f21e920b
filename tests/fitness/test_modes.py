"""Which scoring goes with which metric: what a task allows it does, and everything else is refused."""

import pytest
from pydantic import ValidationError

from fitness.errors import TaskError
from fitness.kv import KVTask
from fitness.modes import METRICS_OF, check_metric, modes
from fitness.perplexity import PerplexityTask
from fitness.scoring import METRICS, SCORINGS, Score, score_example
from fitness.statistics import bootstrap_mean, paired_bootstrap, values, weights
from fitness.tasks import TASKS


def test_a_task_allows_its_default_and_only_what_a_scoring_can_give():
    for kind in TASKS.values():
        allowed = modes(kind)
        assert allowed[0] == tuple(kind.model_fields[name].default for name in ("scoring", "metric"))
        assert len(set(allowed)) == len(allowed)
        for scoring, metric in allowed:
            check_metric(scoring, metric)
            assert scoring in SCORINGS
            assert metric in METRICS
    assert modes(PerplexityTask) == (("teacher_forcing", "perplexity"),)
    assert modes(KVTask)[1:] == (
        ("teacher_forcing", "likelihood"),
        ("teacher_forcing", "perplexity"),
        ("generation", "exact"),
    )


@pytest.mark.parametrize("metric", ["likelihood", "perplexity"])
def test_generation_gives_no_likelihood(metric):
    with pytest.raises(TaskError, match=r"metric: got .*; allowed: exact with scoring: generation"):
        check_metric("generation", metric)
    with pytest.raises(ValidationError, match="exact with scoring: generation"):
        KVTask(pairs=3, scoring="generation", metric=metric)


@pytest.mark.parametrize("pair", modes(KVTask))
def test_every_mode_of_a_task_gives_a_number_and_larger_is_better(make_llama, tokenizer, pair):
    scoring, metric = pair
    task = KVTask(pairs=4, contexts=1, keys="hex4", values="hex4", scoring=scoring, metric=metric)
    (example,) = task.build(tokenizer, 1, "search").examples
    scores = score_example(make_llama(), tokenizer, example, scoring).scores
    value = METRICS[metric](scores)
    assert (0 <= value <= 1) if metric == "exact" else value < 0


def test_perplexity_of_answers_weighs_tokens_and_likelihood_weighs_questions():
    scores = [Score(str(i), str(i % 3), None, 0.0, -1.0 - i, 1 + i % 4, None) for i in range(12)]
    tokens = sum(s.answer_tokens for s in scores)
    for metric, expected in (
        ("perplexity", sum(s.logprob for s in scores) / tokens),
        ("likelihood", sum(s.logprob / s.answer_tokens for s in scores) / 12),
    ):
        assert METRICS[metric](scores) == pytest.approx(expected)
        clusters = [s.example_id for s in scores]
        interval = bootstrap_mean(values(scores, metric), clusters, seed=0, weights=weights(scores, metric))
        assert interval.mean == pytest.approx(expected)
        assert interval.low < expected < interval.high
    worse = [
        Score(s.question_id, s.example_id, None, 0.0, s.logprob - s.answer_tokens, s.answer_tokens, None)
        for s in scores
    ]
    for metric in ("perplexity", "likelihood"):
        gap = paired_bootstrap(
            values(scores, metric), values(worse, metric), clusters, seed=0, weights=weights(scores, metric)
        )
        assert (gap.mean, gap.low, gap.high) == pytest.approx((1, 1, 1))


def test_every_scoring_has_a_metric():
    assert {scoring for kind in TASKS.values() for scoring, _ in modes(kind)} <= set(METRICS_OF)
