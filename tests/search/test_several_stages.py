"""A campaign of several stages, and what its baselines get."""

from itertools import pairwise

from search.events import BaselineFinished, CampaignStopped, GenerationFinished
from tests.search.fake import FakeEvaluator, after, events, prepared, run


def test_several_stages_run_in_turn_and_the_best_of_them_wins(tmp_path):
    stages = [
        {"kind": "genetic", "name": "ntk", "method": "ntk", "population": 8, "generations": 1, "elite": 2},
        {"kind": "genetic", "name": "pi", "method": "linear", "population": 8, "generations": 2, "elite": 2},
    ]
    result, seen, _ = run(tmp_path, stages=stages)
    assert [e.stage for e in events(seen, GenerationFinished)][:5] == ["ntk", "ntk", "pi", "pi", "pi"]
    assert result["winner"]["frequency"]["method"] == "linear"


def two_stages():
    low, high = {"minimum": 1, "maximum": 3, "step": 1}, {"minimum": 1, "maximum": 8, "step": 0.5}
    return [
        {"kind": "genetic", "name": "a", "population": 6, "generations": 1, "elite": 2, "space": low},
        {"kind": "genetic", "name": "b", "population": 8, "generations": 2, "elite": 2, "space": high},
    ]


def test_baselines_of_several_stages_get_the_range_and_the_budget_of_all_of_them(tmp_path):
    result, seen, _ = run(tmp_path, stages=two_stages())
    tables = {e.name: [factor for factor, _ in e.table] for e in events(seen, BaselineFinished)}
    assert tables["linear"] == [1 + 0.5 * i for i in range(15)]
    assert {e.stage for e in events(seen, GenerationFinished)} == {"a", "b", "baseline/ramp-a", "baseline/ramp-b"}
    ramp, winner = result["baselines"]["ramp"], result["winner"]
    best = max(e.best for e in events(seen, GenerationFinished) if e.stage.startswith("baseline/"))
    assert ramp["search_score"] == best
    assert (
        ramp["evaluations"]
        <= winner["evaluations"]
        == (6 + 4) + (8 + 2 * 6)
        == prepared(stages=two_stages()).campaign.budget
    )


def test_several_stages_stopped_in_a_ramp_and_resumed_end_in_the_same_bytes(tmp_path):
    run(tmp_path / "whole", stages=two_stages())
    _, seen, _ = run(tmp_path / "part", stages=two_stages(), stop=after(285))
    assert events(seen, GenerationFinished)[-1].stage.startswith("baseline/ramp")
    assert isinstance(seen[-1], CampaignStopped)
    run(tmp_path / "part", stages=two_stages(), resume=True)
    paths = [tmp_path / name / "it" / "profile.json" for name in ("whole", "part")]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_straight_lines_that_all_fail_do_not_undo_what_the_stages_found(tmp_path):
    def fail(profile):
        factor = profile.frequency.factor
        straight = isinstance(factor, tuple) and len({round(b - a, 3) for a, b in pairwise(factor)}) == 1
        return "no" if straight else None

    result, *_ = run(tmp_path, evaluator=FakeEvaluator(fail=fail))
    assert "ramp" not in result["baselines"]
    assert result["winner"]["search_score"] > result["baselines"]["identity"]["search_score"]
