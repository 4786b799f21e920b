"""A campaign in a world without models: what it leaves behind, and that stopping or shuffling changes nothing."""

import json
from dataclasses import replace

import pytest

from ropewalk import Profile, load_profile
from search.checkpoint import load as load_checkpoint
from search.errors import CampaignError, SearchError
from search.events import (
    BaselineFinished,
    CampaignFailed,
    CampaignFinished,
    CampaignStarted,
    CampaignStopped,
    EvaluationFinished,
    GenerationFinished,
    HeldoutFinished,
    Improved,
)
from search.runner import Runner
from search.storage import Storage
from tests.search.fake import FakeEvaluator, after, events, prepared, run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return folder / "it", *run(folder)


def test_the_folder_holds_all_that_the_contract_names(finished):
    folder, *_ = finished
    names = {path.name for path in folder.iterdir()}
    assert names == {"campaign.yaml", "checkpoint.json", "events.jsonl", "profile.json", "result.json"}


def test_the_profile_on_disk_is_the_winner_and_can_be_loaded(finished):
    folder, result, *_ = finished
    profile = load_profile(folder / "profile.json")
    assert profile.hash == result["winner"]["profile_hash"]
    assert profile.provenance["heldout"]["score"] == result["winner"]["heldout"]
    assert set(profile.provenance["baselines"]) == set(result["baselines"])


def test_the_searched_curve_beats_every_straight_line_and_uniform_factor(finished):
    _, result, *_ = finished
    best = result["winner"]["search_score"]
    assert best >= max(row["search_score"] for row in result["baselines"].values())
    assert best > result["baselines"]["linear"]["search_score"]


def test_every_baseline_is_in_the_report_within_the_budget_of_the_stage(finished):
    _, result, seen, _ = finished
    assert set(result["baselines"]) == {"identity", "linear", "ntk", "dynamic_ntk", "yarn", "ramp"}
    budget = prepared().campaign.budget
    assert all(0 < row["evaluations"] <= budget for row in result["baselines"].values())
    assert {e.name for e in events(seen, BaselineFinished)} == set(result["baselines"]) - {"identity"}


def test_every_row_has_intervals_positions_and_a_guard(finished):
    _, result, *_ = finished
    for row in [result["winner"], *result["baselines"].values()]:
        assert row["heldout"]["low"] <= row["heldout"]["score"] <= row["heldout"]["high"]
        assert row["heldout"]["n"] == 48
        assert [p["position"] for p in row["by_position"]] == list(range(8))
        assert row["guard"]["n"] == 32
        assert row["winner_minus"]["score"] == pytest.approx(
            result["winner"]["heldout"]["score"] - row["heldout"]["score"]
        )


def test_a_profile_that_harms_short_contexts_is_called_harmful(finished):
    _, result, *_ = finished
    for row in [result["winner"], *result["baselines"].values()]:
        loss = result["baselines"]["identity"]["guard"]["score"] - row["guard"]["score"]
        assert row["guard"]["loss"]["score"] == pytest.approx(loss)
        assert row["guard"]["harmful"] == (loss > 0.02)


def test_the_held_out_examples_were_never_asked_for_during_the_search(finished):
    *_, _seen, evaluator = finished
    sets = [request.example_set for request in evaluator.requests]
    first = min(sets.index("heldout"), sets.index("guard"))
    assert set(sets[:first]) == {"search"}
    assert set(sets[first:]) == {"heldout", "guard"}


def test_no_profile_is_evaluated_twice_on_the_same_examples(finished):
    *_, evaluator = finished
    asked = [(Profile.from_dict(r.profile).hash, r.example_set, r.start) for r in evaluator.requests]
    assert len(asked) == len(set(asked))


def test_events_tell_the_story_in_order(finished):
    _, result, seen, _ = finished
    assert isinstance(seen[0], CampaignStarted)
    assert isinstance(seen[-1], CampaignFinished)
    assert seen[-1].result == result
    (report,) = events(seen, HeldoutFinished)
    assert report.report["rows"][0] == result["winner"]
    assert report.report["task"] == prepared().campaign.fitness.model_dump(mode="json")
    assert (report.report["n"], report.report["contexts"]) == (48, 6)
    genetic = [e for e in events(seen, GenerationFinished) if e.stage == "genetic"]
    assert [e.generation for e in genetic] == [0, 1, 2, 3]
    assert all(len(e.individuals) == 8 for e in genetic)
    improved = [e.score for e in events(seen, Improved)]
    assert improved == sorted(improved)
    assert events(seen, EvaluationFinished)[-1].evaluations <= seen[0].planned_evaluations + 20


def test_the_journal_holds_every_event_as_a_line(finished):
    folder, _, seen, _ = finished
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == [type(event).__name__ for event in seen]


@pytest.mark.parametrize("shuffle", [1, 2, 3])
def test_the_order_of_completion_changes_nothing(tmp_path, finished, shuffle):
    folder, *_ = finished
    run(tmp_path, evaluator=FakeEvaluator(shuffle))
    assert (tmp_path / "it" / "profile.json").read_bytes() == (folder / "profile.json").read_bytes()


@pytest.mark.parametrize("count", [0, 5, 30, 60, 100, 150, 260, 300])
def test_stopped_anywhere_and_resumed_it_ends_in_the_same_bytes(tmp_path, finished, count):
    folder, whole, *_ = finished
    result, seen, _ = run(tmp_path, stop=after(count))
    assert result is None
    assert isinstance(seen[-1], CampaignStopped)
    result, seen, _ = run(tmp_path, resume=True)
    assert (tmp_path / "it" / "profile.json").read_bytes() == (folder / "profile.json").read_bytes()
    assert result["winner"] == whole["winner"]
    assert result["baselines"] == whole["baselines"]
    assert result["cost"]["evaluations"] == whole["cost"]["evaluations"]
    lines = [json.loads(line) for line in (tmp_path / "it" / "events.jsonl").read_text().splitlines()]
    told = [(e["stage"], e["generation"]) for e in lines if e["event"] == "GenerationFinished"]
    assert len(told) == len(set(told)) == 8


def test_a_resumed_campaign_does_not_evaluate_finished_generations_again(tmp_path):
    run(tmp_path, stop=after(60))
    first = json.loads((tmp_path / "it" / "checkpoint.json").read_text())["state"]["boards"]["search"]["outcomes"]
    assert first
    *_, evaluator = run(tmp_path, resume=True)
    asked = {Profile.from_dict(r.profile).hash for r in evaluator.requests if r.example_set == "search"}
    assert asked.isdisjoint(first)


def test_a_resumed_campaign_tells_its_finished_generations_again_to_those_who_listen(tmp_path):
    run(tmp_path, stop=after(100))
    _, seen, _ = run(tmp_path, resume=True)
    assert seen[0].resumed
    assert [(e.stage, e.generation) for e in events(seen, GenerationFinished)][:4] == [("genetic", g) for g in range(4)]


def test_resume_without_a_checkpoint_starts_from_the_beginning(tmp_path, finished):
    folder, *_ = finished
    run(tmp_path, resume=True)
    assert (tmp_path / "it" / "profile.json").read_bytes() == (folder / "profile.json").read_bytes()


@pytest.mark.parametrize(("change", "field"), [({"seed": 4}, "campaign of the resumed"), ({}, "model of the resumed")])
def test_a_checkpoint_of_something_else_is_refused(tmp_path, change, field):
    run(tmp_path, stop=after(60))
    other = FakeEvaluator()
    other.fingerprint = "fake-weights" if change else "other weights"
    with pytest.raises(CampaignError, match=field):
        run(tmp_path, resume=True, evaluator=other, **change)


def test_a_damaged_checkpoint_is_refused_and_left_as_it_is(tmp_path):
    run(tmp_path, stop=after(60))
    path = tmp_path / "it" / "checkpoint.json"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CampaignError, match="a whole checkpoint file"):
        load_checkpoint(Storage(str(tmp_path), "it"), {})
    with pytest.raises(CampaignError, match="a whole checkpoint file"):
        run(tmp_path, resume=True)


def test_failed_candidates_have_a_reason_and_no_score(tmp_path):
    def fail(profile):
        return "NonFiniteError: logits are NaN" if profile.frequency.method == "yarn" else None

    result, seen, _ = run(tmp_path, evaluator=FakeEvaluator(fail=fail))
    assert "yarn" not in result["baselines"]
    failed = [e for e in events(seen, EvaluationFinished) if e.score is None]
    assert failed
    assert all("NaN" in e.reason for e in failed)


def test_a_model_that_fails_unchanged_ends_the_campaign_with_the_reason(tmp_path):
    with pytest.raises(SearchError, match="unchanged, it fails: broken"):
        run(tmp_path, evaluator=FakeEvaluator(fail=lambda profile: "broken"))
    lines = (tmp_path / "it" / "events.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["event"] == CampaignFailed.__name__


def test_where_nothing_beats_the_unchanged_model_the_winner_is_the_unchanged_model(tmp_path):
    def fail(profile):
        return None if profile.frequency.method == "native" else "no"

    with pytest.raises(SearchError, match="stage genetic: every candidate of the first generation failed: no"):
        run(tmp_path, evaluator=FakeEvaluator(fail=fail))
    result, *_ = run(
        tmp_path / "two",
        stages=[
            {
                "kind": "genetic",
                "population": 4,
                "generations": 1,
                "elite": 1,
                "tournament": 2,
                "space": {"minimum": 30, "maximum": 40, "step": 1},
                "seeds": [],
            }
        ],
        baselines=["identity"],
    )
    assert result["winner"]["frequency"]["method"] == "native"
    assert "nothing better was found" in result["winner"]["label"]


def test_the_winner_does_not_differ_from_itself(finished, tmp_path):
    _, result, *_ = finished
    nothing = {"score": 0.0, "low": 0.0, "high": 0.0}
    assert result["winner"]["winner_minus"] == result["winner"]["winner_minus_accuracy"] == nothing
    assert result["baselines"]["identity"]["gain_over_identity"] == nothing
    assert result["baselines"]["identity"]["guard"]["loss"] == nothing


def test_a_campaign_killed_while_its_end_is_told_tells_it_again_on_resume(tmp_path, finished):
    folder, whole, *_ = finished

    def dies(event):
        if isinstance(event, CampaignFinished):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, listeners=[dies])
    assert not (tmp_path / "it" / "result.json").exists()
    result, seen, evaluator = run(tmp_path, resume=True)
    assert isinstance(seen[-1], CampaignFinished)
    assert evaluator.requests == []
    assert result["winner"] == whole["winner"]
    assert (tmp_path / "it" / "profile.json").read_bytes() == (folder / "profile.json").read_bytes()


def test_an_interrupt_at_once_is_told_as_a_stop(tmp_path):
    def impatient():
        raise KeyboardInterrupt

    storage, seen = Storage(str(tmp_path), "it"), []
    with pytest.raises(KeyboardInterrupt):
        Runner(prepared(), "it", storage, [seen.append], impatient).run(FakeEvaluator(), resume=False)
    assert isinstance(seen[-1], CampaignStopped)


def test_contexts_are_counted_by_what_was_drawn_and_not_by_their_variants():
    made = prepared()
    variants = tuple(replace(e, context=f"{e.context} {i}") for e in made.sets["heldout"].examples for i in range(3))
    sets = {**made.sets, "heldout": replace(made.sets["heldout"], examples=variants)}
    described = replace(made, sets=sets).describe_sets()["heldout"]
    assert (described["contexts"], described["n"]) == (6, 144)
