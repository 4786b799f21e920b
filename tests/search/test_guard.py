"""A campaign whose guard is enforced: harmful candidates are infeasible, and everybody is told so."""

import json
from dataclasses import replace

import pytest

from ropewalk import Profile
from search.errors import SearchError
from search.events import BaselineFinished, EvaluationFinished, GenerationFinished
from search.preparation import Prepared
from search.runner import Runner
from search.scoreboard import Interrupted
from search.storage import Storage
from tests.search.fake import IDEAL, SHAPE, FakeEvaluator, after, campaign, events, examples

LIMIT = 2.5  # the largest factor that does no harm to short contexts in this world


def largest(profile: Profile) -> float:
    factor = profile.frequency.factor
    return max(factor) if isinstance(factor, tuple) else factor or 1.0


class Fragile(FakeEvaluator):
    """Short contexts are answered right but for factors above LIMIT, which cost a tenth for every 1 above it."""

    def _scores(self, profile, request):
        found = super()._scores(profile, request)
        if request.example_set not in ("guard", "feasibility"):
            return found

        return tuple(replace(s, exact=1.0 - max(0.0, largest(profile) - LIMIT) / 10) for s in found)


def prepared(**changes) -> Prepared:
    made = campaign(guard={"contexts": 4, "tolerance": 0.02, "enforce": True}, **changes)
    sets = {"search": examples("search", 3), "heldout": examples("heldout", 6), "guard": examples("guard", 4)}
    return Prepared(made, SHAPE, {**sets, "feasibility": examples("feasibility", 4)}, 256)


def run(folder, *, evaluator=None, resume=False, stop=lambda: False, **changes):
    seen, evaluator = [], evaluator or Fragile()
    runner = Runner(prepared(**changes), "it", Storage(str(folder), "it"), [seen.append], stop)
    try:
        return runner.run(evaluator, resume=resume), seen, evaluator
    except Interrupted:
        return None, seen, evaluator


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    return folder / "it", *run(folder)


def test_no_infeasible_candidate_wins_breeds_or_is_scored_at_length(guarded):
    _, result, seen, evaluator = guarded
    assert max(IDEAL) > LIMIT  # so the guard stands in the way
    assert all(f <= LIMIT + 0.2 for f in result["winner"]["frequency"]["factor"])
    refused = {e.profile_hash for e in events(seen, EvaluationFinished) if e.infeasible}
    assert refused
    scored = {Profile.from_dict(r.profile).hash for r in evaluator.requests if r.example_set == "search"}
    assert refused.isdisjoint(scored)
    for event in events(seen, GenerationFinished):
        assert max(event.best_factors) <= LIMIT + 0.2


def test_an_infeasible_candidate_says_what_it_loses_in_the_event_and_in_its_generation(guarded):
    _, _, seen, _ = guarded
    told = {e.profile_hash: e for e in events(seen, EvaluationFinished)}
    counted = 0
    for event in events(seen, GenerationFinished):
        assert event.infeasible == sum(i.infeasible for i in event.individuals)
        counted += event.infeasible
        for one in event.individuals:
            loss = max(0.0, max(one.factors) - LIMIT) / 10
            assert one.infeasible == told[one.hash].infeasible == (loss > 0.02 + 1e-9)
            if one.infeasible:
                assert one.score is None
                assert one.reason == told[one.hash].reason
                assert f"infeasible: loses {loss:.3f} of exact at 1024 tokens" in one.reason
                assert "tolerance 0.02" in one.reason
    assert counted > 0


def test_the_checkpoint_the_journal_and_the_report_count_them(guarded):
    folder, result, seen, _ = guarded
    outcomes = json.loads((folder / "checkpoint.json").read_text())["state"]["boards"]["search"]["outcomes"]
    infeasible = [o for o in outcomes.values() if o[3]]
    assert infeasible
    assert all(score is None and reason.startswith("infeasible") for score, reason, *_ in infeasible)
    guard = result["report"]["guard"]
    assert guard["enforced"] is True
    assert (guard["candidates"], guard["infeasible"]) == (len(outcomes), len(infeasible))
    told = events(seen, EvaluationFinished)
    assert len({e.profile_hash for e in told if e.infeasible}) == len(infeasible)


def test_baselines_keep_to_the_guard_too(guarded):
    _, result, seen, _ = guarded
    for event in events(seen, BaselineFinished):
        for factor, score in event.table:
            assert (score is None) == (factor - LIMIT > 0.2 + 1e-9)
    assert result["baselines"]["linear"]["frequency"]["factor"] <= LIMIT + 0.2


def test_the_report_measures_harm_on_other_examples_than_the_search_did(guarded):
    _, result, _, evaluator = guarded
    on_guard = {Profile.from_dict(r.profile).hash for r in evaluator.requests if r.example_set == "guard"}
    reported = {result["winner"]["profile_hash"], *(row["profile_hash"] for row in result["baselines"].values())}
    assert on_guard == reported
    assert not any(row["guard"]["harmful"] for row in [result["winner"], *result["baselines"].values()])


@pytest.mark.parametrize("count", [3, 40, 90, 200])
def test_stopped_and_resumed_it_ends_in_the_same_bytes(tmp_path, guarded, count):
    folder, whole, *_ = guarded
    result, *_ = run(tmp_path, stop=after(count))
    assert result is None
    result, *_ = run(tmp_path, resume=True)
    assert (tmp_path / "it" / "profile.json").read_bytes() == (folder / "profile.json").read_bytes()
    assert result["report"] == whole["report"]


def test_a_baseline_without_a_feasible_factor_is_missing_with_the_reason(tmp_path):
    class OnlyCurves(Fragile):
        def _scores(self, profile, request):
            found = super()._scores(profile, request)
            if request.example_set == "feasibility" and profile.frequency.method == "yarn":
                return tuple(replace(s, exact=0.0) for s in found)
            return found

    result, *_ = run(tmp_path, evaluator=OnlyCurves(), baselines=["identity", "linear", "yarn"])
    assert "yarn" not in result["baselines"]
    tried = result["report"]["without"]["yarn"]
    assert tried.split(" of ")[0] == tried.split(" of ")[1].split()[0]
    assert tried.endswith("factors are infeasible")
    assert set(result["report"]["without"]) == {"yarn"}


def test_a_model_that_fails_on_short_contexts_unchanged_ends_the_campaign(tmp_path):
    class Broken(Fragile):
        def evaluate(self, requests):

            for result in super().evaluate(requests):
                where = next(r.example_set for r in requests if r.id == result.request_id)
                failed = replace(result, status="failed", reason="broken", scores=())
                yield failed if where == "feasibility" else result

    with pytest.raises(SearchError, match="the guard cannot be measured: the unchanged model fails there: broken"):
        run(tmp_path, evaluator=Broken())


def test_where_the_guard_is_not_enforced_harm_is_reported_and_nothing_is_refused(tmp_path):
    made = prepared()
    relaxed = campaign(guard={"contexts": 4, "tolerance": 0.02})
    sets = {name: s for name, s in made.sets.items() if name != "feasibility"}
    seen = []
    runner = Runner(Prepared(relaxed, SHAPE, sets, 256), "it", Storage(str(tmp_path), "it"), [seen.append])
    result = runner.run(Fragile(), resume=False)
    assert result["winner"]["guard"]["harmful"]
    assert result["report"]["guard"]["enforced"] is False
    assert result["report"]["guard"]["infeasible"] == 0
    assert not any(e.infeasible for e in events(seen, EvaluationFinished))
