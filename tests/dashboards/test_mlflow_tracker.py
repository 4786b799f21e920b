"""A campaign read back from MLflow's own client, from a SQLite file as a newcomer gets it."""

import csv
import io
import json
from dataclasses import replace

import mlflow
import pandas
import pytest
import yaml
from mlflow import MlflowClient

from dashboards import MlflowTracker, TrackingError, download_profile
from dashboards.mlflow_runs import PARENT_TAG
from dashboards.outbox import Inputs
from ropewalk import Profile
from search.events import CampaignFailed, CampaignStopped, HeldoutFinished


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('tracking')}/mlflow.db"


@pytest.fixture(scope="module")
def client(uri, finished):
    return MlflowClient(tracking_uri=uri)


@pytest.fixture(scope="module")
def finished(uri, make_recording, tmp_path_factory):
    """A tracker that has seen a whole campaign, beside a run that the user has active meanwhile."""
    recording = make_recording("quick", tmp_path_factory.mktemp("runs") / "quick")
    tracker = MlflowTracker(uri)
    tell(tracker, recording.events)
    return tracker, recording


def tell(listener, events):
    for event in events:
        listener(event)


def parents(client, campaign):
    experiments = [e.experiment_id for e in client.search_experiments()]
    runs = client.search_runs(experiments, f"tags.`ropewalk.campaign` = '{campaign}'")
    return [run for run in runs if PARENT_TAG not in run.data.tags]


def children(client, parent):
    runs = client.search_runs([parent.info.experiment_id], f"tags.`{PARENT_TAG}` = '{parent.info.run_id}'")
    return {run.info.run_name: run for run in runs}


def history(client, run, metric):
    return [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, metric)]


def text(client, run, path, tmp_path):
    with open(client.download_artifacts(run.info.run_id, path, str(tmp_path)), encoding="utf-8") as file:  # noqa: PTH123
        return file.read()


def test_a_campaign_is_one_finished_run_named_after_it_in_the_experiment_of_its_model(client, finished):
    (run,) = parents(client, "quick")
    assert run.info.run_id == finished[0].run_id
    assert (run.info.run_name, run.info.status) == ("quick", "FINISHED")
    assert client.get_experiment(run.info.experiment_id).name == "ropewalk/models/tiny-kv"
    tags = run.data.tags
    assert tags["ropewalk.version"] == "0.1.0"
    assert tags["ropewalk.code_revision"] == "c0ffee"
    assert tags["ropewalk.model"] == "models/tiny-kv"
    assert tags["ropewalk.status"] == "finished"
    assert finished[0].undelivered == ()


def test_the_example_sets_are_data_sets_named_by_their_hash(client, finished):
    tracker, recording = finished
    (run,) = parents(client, "quick")
    listed = {d.dataset.name: d for d in run.inputs.dataset_inputs}
    examples = recording.events[0].examples
    assert set(listed) == {f"{e['task']} ({name})" for name, e in examples.items()}
    for name, made in examples.items():
        used = listed[f"{made['task']} ({name})"]
        assert used.dataset.digest == made["hash"][:36]
        assert json.loads(used.dataset.profile) == made
        assert {tag.key: tag.value for tag in used.tags} == {"mlflow.data.context": name}
    for name, used in listed.items():
        tracker.runs(Inputs("campaign", name, name, used.dataset.digest, "{}"))  # as after an answer that was lost
    (again,) = parents(client, "quick")
    assert len(again.inputs.dataset_inputs) == len(examples)


def test_every_generation_is_a_point_at_its_step_in_campaign_and_stage(client, finished):
    (run,) = parents(client, "quick")
    stage = children(client, run)["genetic"]
    for of in (run, stage):
        assert history(client, of, "best") == [(0, 0.41), (1, 0.41), (2, 0.5104)]
        assert history(client, of, "failed") == [(0, 0.0), (1, 1.0), (2, 0.0)]
        assert history(client, of, "tokens") == [(0, 5000.0), (1, 9000.0), (2, 13000.0)]
        assert [step for step, _ in history(client, of, "tokens_per_second")] == [0, 1, 2]


def test_winner_and_baselines_are_child_runs_with_the_same_params_and_metrics(client, finished):
    (run,) = parents(client, "quick")
    kids = children(client, run)
    assert set(kids) == {"genetic", "identity", "linear", "ntk"}
    assert {kid.info.status for kid in kids.values()} == {"FINISHED"}
    assert kids["linear"].data.params["factor"] == "2.0"
    assert kids["ntk"].data.params["method"] == "ntk"
    assert json.loads(kids["genetic"].data.params["factor"]) == list(finished[1].winner.frequency.factor)
    for name, score, loss in (("genetic", 0.482, 0.005), ("linear", 0.318, 0.005), ("ntk", 0.968, 0.03)):
        metrics = kids[name].data.metrics
        assert metrics["heldout_score"] == pytest.approx(score)
        assert metrics["heldout_low"] == pytest.approx(score - 0.03)
        assert metrics["heldout_high"] == pytest.approx(score + 0.03)
        assert metrics["guard_loss"] == pytest.approx(loss)
        assert "search_score" in metrics


def test_the_campaigns_run_has_scalars_to_compare_and_the_gain(client, finished):
    (run,) = parents(client, "quick")
    assert run.data.params["stages.genetic.population"] == "4"
    assert run.data.params["stages.genetic.space.maximum"] == "8.0"
    assert run.data.params["seed"] == "7"
    assert run.data.metrics["baseline/linear"] == 0.3125
    assert run.data.metrics["gain_over_best_linear_low"] == pytest.approx(0.124)
    assert run.data.metrics["cost_seconds"] == 61.5


def test_a_value_too_long_for_a_param_is_whole_in_the_campaign_file_and_absent_from_params(
    uri, client, make_recording, tmp_path
):
    long = "x" * 600
    recording = make_recording("long", tmp_path / "long", note=long)
    tracker = MlflowTracker(uri)
    tell(tracker, [recording.started, CampaignStopped("enough")])
    run = client.get_run(tracker.run_id)
    assert "note" not in run.data.params
    assert yaml.safe_load(text(client, run, "campaign.yaml", tmp_path))["note"] == long


def test_no_password_of_a_uri_reaches_the_run(client, finished, tmp_path):
    (run,) = parents(client, "quick")
    assert "secret" not in text(client, run, "campaign.yaml", tmp_path)
    assert not [k for k, v in {**run.data.params, **run.data.tags}.items() if "secret" in v]


def test_no_password_of_the_folder_or_of_an_error_reaches_the_run(uri, client, make_recording, tmp_path):
    started = replace(make_recording("private", tmp_path).started, folder="s3://key:secret@bucket/private")
    tracker = MlflowTracker(uri)
    tell(tracker, [started, CampaignFailed("OSError: s3://key:secret@bucket/private is full")])
    tags = client.get_run(tracker.run_id).data.tags
    assert tags["ropewalk.folder"] == "s3://***@bucket/private"
    assert tags["ropewalk.reason"] == "OSError: s3://***@bucket/private is full"
    assert not [value for value in tags.values() if "secret" in value]


def test_a_figure_that_cannot_be_drawn_leaves_no_run_running(uri, client, make_recording, tmp_path, monkeypatch):
    def broken(_):
        raise ValueError("no such font")

    monkeypatch.setattr("dashboards.mlflow_tracker.drawn", broken)
    recording = make_recording("undrawn", tmp_path / "undrawn")
    tracker = MlflowTracker(uri)
    tell(tracker, [recording.started, recording.generations[0]])
    with pytest.raises(ValueError, match="no such font"):
        tracker(CampaignStopped("enough"))
    run = client.get_run(tracker.run_id)
    assert {run.info.status, *(kid.info.status for kid in children(client, run).values())} == {"KILLED"}


def test_artifacts_hold_the_evidence(client, finished, tmp_path):
    (run,) = parents(client, "quick")
    listed = {f.path for folder in (None, "figures", "heldout") for f in client.list_artifacts(run.info.run_id, folder)}
    figures = {f"figures/{name}.png" for name in ("fitness", "curve", "by_position", "sweeps")}
    assert {
        "profile.json",
        "campaign.yaml",
        "result.json",
        "heldout/report.json",
        "heldout/table.csv",
        *figures,
    } <= listed
    assert json.loads(text(client, run, "heldout/report.json", tmp_path)) == finished[1].heldout.report
    for name in ("linear", "ntk"):
        rows = list(csv.DictReader(io.StringIO(text(client, run, f"sweeps/{name}.csv", tmp_path))))
        assert [float(r["factor"]) for r in rows] == [1.0, 2.0, *([3.0] if name == "linear" else []), 4.0]


def test_each_generation_has_a_table_of_all_its_individuals(client, finished, tmp_path):
    (run,) = parents(client, "quick")
    paths = [f.path for f in client.list_artifacts(run.info.run_id, "individuals/genetic")]
    assert paths == [f"individuals/genetic/generation_000{i}.csv" for i in range(3)]
    rows = list(csv.DictReader(io.StringIO(text(client, run, paths[1], tmp_path))))
    assert [r["score"] for r in rows] == ["0.41", "0.32", "0.22", ""]
    assert rows[-1]["reason"] == "the metric is nan"
    assert float(rows[0]["layer_3"]) == finished[1].generations[1].best_factors[3]


def test_the_heldout_table_has_the_form_and_the_mark_of_a_table_that_mlflow_shows(client, finished, tmp_path):
    (run,) = parents(client, "quick")
    assert json.loads(run.data.tags["mlflow.loggedArtifacts"]) == [{"path": "heldout/table.json", "type": "table"}]
    data = json.loads(text(client, run, "heldout/table.json", tmp_path))
    frame = pandas.DataFrame(**data)
    assert list(frame["profile"])[1] == "winner: linear, bezier curve of 4 points"
    assert list(frame["held out (exact)"])[1] == "0.482 [0.452, 0.512]"


def test_the_note_says_what_was_gained_with_its_interval_and_what_does_better(client, finished):
    (run,) = parents(client, "quick")
    said = run.data.tags["mlflow.note.content"]
    assert "gain of the winner over it: +0.164 [+0.124, +0.204]" in said
    assert "ntk, best of 3 uniform factors scores higher than the winner" in said
    assert "19 evaluations, 40,000 tokens, 62 s" in said


def test_the_users_own_active_run_is_left_alone(uri, client, make_recording, tmp_path):
    mlflow.set_tracking_uri(uri)
    try:
        with mlflow.start_run(run_name="mine") as mine:
            tracker = MlflowTracker(uri)
            tell(tracker, make_recording("beside", tmp_path / "beside").events)
            assert mlflow.active_run().info.run_id == mine.info.run_id
        assert tracker.run_id != mine.info.run_id
        assert client.get_run(mine.info.run_id).data.metrics == {}
    finally:
        mlflow.set_tracking_uri(None)


@pytest.mark.parametrize("generation", [0, 1])
def test_a_resumed_campaign_goes_on_in_the_same_run_and_doubles_no_point(
    uri, client, make_recording, tmp_path, generation
):
    campaign = f"resumed-{generation}"
    recording = make_recording(campaign, tmp_path / campaign)
    last = recording.generations[generation]
    killed = MlflowTracker(uri)  # says nothing at its end
    tell(killed, recording.events[: recording.events.index(last) + 1])
    assert client.get_run(killed.run_id).info.status == "RUNNING"

    resumed = MlflowTracker(uri)
    tell(resumed, recording.resumed_after(generation))
    (run,) = parents(client, campaign)
    assert (run.info.run_id, run.info.status) == (killed.run_id, "FINISHED")
    assert set(children(client, run)) == {"genetic", "identity", "linear", "ntk"}
    for of in (run, children(client, run)["genetic"]):
        for metric in ("best", "mean", "std", "worst", "failed", "evaluations", "tokens", "tokens_per_second"):
            assert [step for step, _ in history(client, of, metric)] == [0, 1, 2], metric


def test_a_campaign_finished_twice_is_still_one_run_with_each_point_once(uri, client, make_recording, tmp_path):
    recording = make_recording("again", tmp_path / "again")
    tell(MlflowTracker(uri), recording.events)
    tell(MlflowTracker(uri), recording.resumed_after(2))
    (run,) = parents(client, "again")
    assert history(client, run, "heldout_score") == [(0, 0.482)]
    assert history(client, run, "best") == [(0, 0.41), (1, 0.41), (2, 0.5104)]
    assert run.data.tags["ropewalk.reason"] == ""


def test_points_that_never_arrived_before_a_kill_are_logged_after_the_resume(uri, client, make_recording, tmp_path):
    recording = make_recording("gap", tmp_path / "gap")
    tell(MlflowTracker(uri), recording.events[:1])
    tell(MlflowTracker(uri), recording.resumed_after(1))
    (run,) = parents(client, "gap")
    assert history(client, run, "best") == [(0, 0.41), (1, 0.41), (2, 0.5104)]
    assert [step for step, _ in history(client, run, "tokens_per_second")] == [2]  # the others' speed is not known


def test_a_fresh_start_is_a_new_run_and_closes_the_one_a_killed_process_left_running(
    uri, client, make_recording, tmp_path
):
    recording = make_recording("fresh", tmp_path / "fresh")
    dead, alive = MlflowTracker(uri), MlflowTracker(uri)
    tell(dead, recording.events[:7])
    tell(alive, recording.events)
    assert client.get_run(dead.run_id).info.status == "KILLED"
    assert client.get_run(alive.run_id).info.status == "FINISHED"
    assert dead.run_id != alive.run_id


def test_the_same_name_in_another_folder_is_another_campaign(uri, client, make_recording, tmp_path):
    first, second = MlflowTracker(uri), MlflowTracker(uri)
    tell(first, make_recording("twin", tmp_path / "a").events[:4])
    tell(second, [replace(make_recording("twin", tmp_path / "b").started, resumed=True)])
    assert first.run_id != second.run_id
    assert client.get_run(first.run_id).info.status == "RUNNING"


@pytest.mark.parametrize(
    ("event", "status"), [(CampaignStopped("asked to"), "KILLED"), (CampaignFailed("no memory"), "FAILED")]
)
def test_a_campaign_that_ends_early_says_so_with_its_reason(uri, client, make_recording, tmp_path, event, status):
    campaign = f"early-{status.lower()}"
    tracker = MlflowTracker(uri)
    recording = make_recording(campaign, tmp_path / campaign)
    tell(tracker, [*recording.events[:8], event])
    run = client.get_run(tracker.run_id)
    assert run.info.status == status
    assert run.data.tags["ropewalk.reason"] == event.reason
    assert {kid.info.status for kid in children(client, run).values()} == {status}
    assert "figures" in {f.path for f in client.list_artifacts(tracker.run_id)}


def test_a_campaign_of_two_stages_keeps_their_generations_apart(uri, client, make_recording, tmp_path):
    recording = make_recording("stages", tmp_path / "stages")
    stages = [{**recording.started.campaign["stages"][0], "name": name} for name in ("genetic", "second")]
    started = replace(recording.started, campaign={**recording.started.campaign, "stages": stages})
    tracker = MlflowTracker(uri)
    second = [replace(g, stage="second", best=g.best + 0.1) for g in recording.generations]
    tell(tracker, [started, *recording.generations, *second, CampaignStopped("enough")])
    run = client.get_run(tracker.run_id)
    assert [v for _, v in history(client, run, "genetic/best")] == [0.41, 0.41, 0.5104]
    assert [v for _, v in history(client, run, "second/best")] == pytest.approx([0.51, 0.51, 0.6104])
    assert [step for step, _ in history(client, children(client, run)["second"], "best")] == [0, 1, 2]


def test_a_campaign_that_found_nothing_better_than_the_unchanged_model_is_tracked_as_such(
    uri, client, make_recording, make_report, tmp_path
):
    recording = make_recording("nothing", tmp_path / "nothing")
    report = make_report()
    identity = report["rows"][1]
    report["rows"][0] = {**identity, "name": "winner", "label": "the unchanged model: nothing better was found"}
    tracker = MlflowTracker(uri)
    tell(tracker, [*recording.events[:-2], HeldoutFinished(report), recording.finished])
    run = client.get_run(tracker.run_id)
    assert run.data.params["winner.method"] == "native"
    assert run.data.metrics["heldout_score"] == identity["heldout"]["score"]
    assert "heldout_score" not in children(client, run)["genetic"].data.metrics
    figures = [f.path for f in client.list_artifacts(tracker.run_id, "figures")]
    assert figures == [f"figures/{name}.png" for name in ("by_position", "fitness", "sweeps")]


def test_a_winner_that_failed_held_out_leaves_its_search_score_and_the_reason(
    uri, client, make_recording, make_report, tmp_path
):
    recording = make_recording("winner-failed", tmp_path / "winner-failed")
    report = make_report()
    for r in report["rows"]:
        r["winner_minus"] = None
    kept = ("name", "label", "frequency", "search_score", "evaluations")
    report["rows"][0] = {**{k: report["rows"][0][k] for k in kept}, "failed": "out of memory"}
    tracker = MlflowTracker(uri)
    tell(tracker, [*recording.events[:-2], HeldoutFinished(report), recording.finished])
    run = client.get_run(tracker.run_id)
    assert run.data.metrics["search_score"] == 0.5104
    assert "heldout_score" not in run.data.metrics
    assert "The winner has no held-out score: out of memory." in run.data.tags["mlflow.note.content"]


def test_a_value_that_is_not_finite_never_becomes_a_point(uri, client, make_recording, tmp_path):
    recording = make_recording("nan", tmp_path / "nan")
    tracker = MlflowTracker(uri)
    tell(tracker, [recording.started, replace(recording.generations[0], std=float("nan")), CampaignStopped("enough")])
    run = client.get_run(tracker.run_id)
    assert "std" not in run.data.metrics
    assert run.data.metrics["best"] == 0.41


def test_the_winner_comes_back_from_mlflow_as_it_was(uri, finished, tmp_path):
    profile = download_profile("quick", tmp_path / "profile.json", uri)
    assert profile == finished[1].winner
    assert Profile.from_dict(json.loads((tmp_path / "profile.json").read_text())) == finished[1].winner


def test_an_experiment_that_was_deleted_is_refused_before_the_campaign(uri, client):
    client.delete_experiment(client.create_experiment("gone"))
    with pytest.raises(TrackingError, match=r"tracking\.experiment: got 'gone'"):
        MlflowTracker(uri, "gone")
