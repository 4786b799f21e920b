"""The way home of a profile: by campaign or run, validated, whole, or a reason why not."""

import json
import time
from dataclasses import replace

import pytest

from dashboards import DownloadError, MlflowTracker, TrackingError, download_profile
from search.events import CampaignFinished, CampaignStopped


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('tracking')}/mlflow.db"


def track(uri, events):
    tracker = MlflowTracker(uri)
    for event in events:
        tracker(event)
    return tracker.run_id


def short(recording):
    """Start and end, which is all that a download needs."""
    return [recording.started, recording.finished]


def test_an_id_that_nothing_has_names_where_was_searched_and_what_is_known(uri, recording, make_recording, tmp_path):
    MlflowTracker(uri)
    with pytest.raises(DownloadError, match=r"ID: got 'quik'; allowed: .* in sqlite:.*, which knows no campaign"):
        download_profile("quik", tmp_path / "p.json", uri)
    track(uri, short(recording))
    track(uri, short(make_recording("other", tmp_path)))
    with pytest.raises(DownloadError, match=r"which knows other, quick$"):
        download_profile("quik", tmp_path / "p.json", uri)
    assert not (tmp_path / "p.json").exists()


def test_of_several_runs_of_a_campaign_the_newest_finished_one_is_taken(uri, make_recording, tmp_path):
    first, second, third = (make_recording("many", tmp_path / str(i)) for i in range(3))
    second.finished = CampaignFinished(second.finished.result, replace(second.winner, target_length=512).to_dict())
    for recording in (first, second):
        track(uri, short(recording))
        time.sleep(0.01)
    track(uri, [third.started, CampaignStopped("enough")])
    assert download_profile("many", tmp_path / "p.json", uri).target_length == 512


def test_a_campaign_that_is_not_finished_names_its_runs_and_a_run_id_gives_the_best_so_far(
    uri, make_recording, tmp_path
):
    recording = make_recording("unfinished", tmp_path)
    run_id = track(uri, recording.events[:9])
    with pytest.raises(DownloadError, match=rf"a finished campaign.*{run_id} \(RUNNING\)"):
        download_profile("unfinished", tmp_path / "p.json", uri)
    assert download_profile(run_id, tmp_path / "p.json", uri) == recording.winner


def test_a_run_without_a_profile_says_so(uri, make_recording, tmp_path):
    run_id = track(uri, [make_recording("empty", tmp_path).started])
    with pytest.raises(DownloadError, match=r"this one has none \(yet\)"):
        download_profile(run_id, tmp_path / "p.json", uri)


def test_a_profile_that_is_not_valid_is_refused_and_the_file_there_stays(uri, make_recording, tmp_path):
    recording = make_recording("bad", tmp_path)
    bad = {**recording.winner.to_dict(), "target_length": -1}
    run_id = track(uri, [recording.started, replace(recording.finished, profile=bad)])
    kept = tmp_path / "p.json"
    kept.write_text("kept")
    with pytest.raises(DownloadError, match=rf"{run_id}.*target_length"):
        download_profile("bad", kept, uri)
    assert kept.read_text() == "kept"


def test_the_file_is_what_profile_save_writes_in_a_folder_that_is_made(uri, make_recording, tmp_path):
    recording = make_recording("saved", tmp_path)
    track(uri, short(recording))
    output = tmp_path / "new" / "folder" / "p.json"
    download_profile("saved", output, uri)
    recording.winner.save(tmp_path / "direct.json")
    assert output.read_bytes() == (tmp_path / "direct.json").read_bytes()
    assert [p.name for p in output.parent.iterdir()] == ["p.json"]
    assert json.loads(output.read_text())["frequency"]["method"] == "linear"


def test_an_output_that_cannot_be_written_is_an_error_naming_it(uri, make_recording, tmp_path):
    track(uri, short(make_recording("nowhere", tmp_path)))
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match=r"output: got .*p\.json"):
        download_profile("nowhere", tmp_path / "file" / "p.json", uri)


def test_a_database_that_is_not_there_is_not_made_by_looking_into_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(DownloadError, match=r"tracking URI: got 'sqlite:.*mlflow\.db'; .* there is no file"):
        download_profile("quick", tmp_path / "p.json")
    assert list(tmp_path.iterdir()) == []


def test_by_default_a_profile_is_searched_where_campaigns_are_tracked(recording, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    track(None, short(recording))
    assert {p.name for p in tmp_path.iterdir()} == {"mlflow.db", "mlartifacts"}
    assert download_profile("quick", tmp_path / "p.json") == recording.winner


def test_the_environments_tracking_uri_comes_before_the_default(monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(TrackingError, match=r"http://127\.0\.0\.1:9"):
        download_profile("quick", tmp_path / "p.json")


def test_registry_names_are_refused_with_the_reason(uri, tmp_path):
    with pytest.raises(DownloadError, match="no profile is in the model registry yet"):
        download_profile("models:/quick@champion", tmp_path / "p.json", uri)
