"""A stage that is selected by likelihood at first: where no answer is right yet, it still finds the slope."""

import json
import random
from dataclasses import replace

import pytest

from search.campaign import parse
from search.errors import CampaignError
from search.events import GenerationFinished, Improved
from tests.search.fake import IDEAL, FakeEvaluator, after, campaign, events, quality, run

STAGE = {"kind": "genetic", "population": 8, "generations": 5, "elite": 2}
EARLY = STAGE | {"early": {"generations": 3}}


class Steep(FakeEvaluator):
    """An answer is right only near the ideal, but its likelihood rises all the way there."""

    def _scores(self, profile, request):
        good = quality(profile)
        return tuple(
            replace(s, exact=float(good > 0.8 + random.Random(s.question_id).random() / 5), logprob=good - 3)
            for s in super()._scores(profile, request)
        )


def steep(folder, stage, baselines=("identity", "linear"), **settings):
    return run(folder, evaluator=Steep(), stages=[stage], baselines=list(baselines), **settings)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("early")
    return folder / "it", *steep(folder, EARLY)


def test_the_first_generations_are_selected_by_likelihood_and_the_rest_by_the_campaigns_metric(finished):
    _, _, seen, _ = finished
    told = [e for e in events(seen, GenerationFinished) if e.stage == "genetic"]
    assert [e.selected_by for e in told] == ["likelihood"] * 3 + [None] * 3
    first, second = ({i.hash: i for i in e.individuals} for e in told[:2])
    kept = [i for i in second.values() if i.origin == "elite"]
    assert {i.hash for i in kept} <= set(first)
    assert max(e.best for e in told[:3]) == 0  # by exact answers, all of these are alike


def test_it_gets_where_a_search_by_exact_answers_sees_no_slope(tmp_path):
    long = STAGE | {"generations": 9}

    def nearest(stage, seed):
        _, seen, _ = steep(tmp_path / f"{len(stage)}-{seed}", stage, ["identity"], seed=seed)
        told = [e for e in events(seen, GenerationFinished) if e.stage == "genetic"]
        return min(distance(i.factors) for e in told for i in e.individuals)

    with_slope, without = (
        [nearest(stage, seed) for seed in (1, 2)] for stage in (long | {"early": {"generations": 8}}, long)
    )
    assert sum(with_slope) < 0.8 * sum(without)


def distance(factors):
    return sum(abs(f - i) for f, i in zip(factors, IDEAL, strict=True))


def test_scores_in_events_are_the_campaigns_metric_throughout(finished):
    _, result, seen, _ = finished
    for event in events(seen, GenerationFinished):
        scores = [i.score for i in event.individuals if i.score is not None]
        assert all(0 <= s <= 1 for s in scores)
        assert event.worst <= event.mean <= event.best
        assert {event.best, event.worst} <= {0.0, *scores} | {e.score for e in events(seen, Improved)}
    assert 0 <= result["winner"]["search_score"] <= 1


def test_where_the_metric_changes_everything_seen_is_ranked_anew(finished):
    folder, *_ = finished
    state = json.loads((folder / "checkpoint.json").read_text())["state"]
    stage = state["stages"]["genetic"]
    by_score = sorted((o[0] for o in state["boards"]["search"]["outcomes"].values() if o[0] is not None), reverse=True)
    assert stage["hall_of_fame"][-1][1] <= by_score[0]
    assert all(0 <= score <= 1 for _, score in [*stage["population"], *stage["hall_of_fame"]])
    assert all(set(o[4]) == {"likelihood"} for o in state["boards"]["search"]["outcomes"].values())


@pytest.mark.parametrize("count", [20, 66, 75, 100])
def test_stopped_before_at_and_after_the_change_and_resumed_it_ends_in_the_same_bytes(tmp_path, finished, count):
    folder, whole, *_ = finished
    assert steep(tmp_path, EARLY, stop=after(count))[0] is None
    result, *_ = steep(tmp_path, EARLY, resume=True)
    assert (tmp_path / "it" / "profile.json").read_bytes() == (folder / "profile.json").read_bytes()
    assert result["winner"] == whole["winner"]


@pytest.mark.parametrize(
    ("early", "fitness", "words"),
    [
        ({"generations": 6}, {}, "stages.0.early.generations: got 6; allowed: at most 5"),
        ({"generations": 0}, {}, "stages.0.early.generations: got 0"),
        ({"generations": 2}, {"metric": "likelihood"}, "stages.0.early.metric: got 'likelihood'; allowed: another"),
        ({"generations": 2}, {"scoring": "generation"}, "stages.0.early: got 'likelihood'; allowed: nothing but with"),
        ({"generations": 2, "metric": "exact"}, {}, "stages.0.early.metric: got 'exact'"),
    ],
)
def test_what_makes_no_sense_is_refused(early, fitness, words):
    data = campaign().to_dict()
    with pytest.raises(CampaignError) as raised:
        parse({**data, "fitness": {**data["fitness"], **fitness}, "stages": [STAGE | {"early": early}]})
    assert words in str(raised.value)
