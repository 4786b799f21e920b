"""A real `mlflow server`: a campaign on it, one that dies and comes back, and one that is not there."""

import logging
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from mlflow import MlflowClient

from dashboards import MlflowTracker, TrackingError, download_profile

STARTUP = 200  # seconds; ten on an idle machine


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """`mlflow server` on a loopback port over a SQLite file, one worker, ended by process group."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process = None

    def start(self):
        arguments = ["--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        arguments += ["--backend-store-uri", f"sqlite:///{self.folder}/server.db"]
        arguments += ["--artifacts-destination", str(self.folder / "artifacts")]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *arguments],
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
                env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            )
        deadline = time.monotonic() + STARTUP
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=1):
                    return
            except (urllib.error.URLError, OSError):
                assert self.process.poll() is None, (self.folder / "server.log").read_text()
                time.sleep(0.1)
        raise TimeoutError((self.folder / "server.log").read_text())

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    MlflowTracker(f"sqlite:///{tmp_path}/server.db")  # the database is made faster here than by the server
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.mark.slow
def test_a_server_that_dies_midway_costs_the_campaign_nothing_and_gets_every_point_once_when_it_is_back(
    server, recording, tmp_path, caplog
):
    tracker = MlflowTracker(server.uri)
    before, rest = recording.events[:8], recording.events[8:]
    for event in before:
        tracker(event)
    server.kill()
    for event in rest[:-1]:
        tracker(event)
    assert len([r for r in caplog.records if "does not answer" in r.getMessage()]) == 1
    assert len(tracker.undelivered) > 10
    server.start()
    tracker(rest[-1])

    assert tracker.undelivered == ()
    client = MlflowClient(tracking_uri=server.uri)
    run = client.get_run(tracker.run_id)
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(tracker.run_id, "best")
    assert [(m.step, m.value) for m in history] == [(0, 0.41), (1, 0.41), (2, 0.5104)]
    times = [m.timestamp for m in history]
    assert times == sorted(times)
    assert download_profile("quick", tmp_path / "out" / "profile.json", server.uri) == recording.winner


def test_a_server_that_stays_away_is_told_at_the_end_and_the_campaign_still_ends_well(recording, tmp_path, caplog):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    tracker = MlflowTracker(uri)
    for event in recording.events[:8]:
        tracker(event)
    (tmp_path / "mlflow.db").rename(tmp_path / "elsewhere.db")
    (tmp_path / "mlflow.db").mkdir()
    tracker.client._tracking_client.store.engine.dispose()
    for event in recording.events[8:]:
        tracker(event)
    assert "did not take" in caplog.records[-1].getMessage()
    assert "and " in caplog.records[-1].getMessage()
    assert len(tracker.undelivered) > 10
    assert [r.levelno for r in caplog.records if r.name.startswith("dashboards")] == [logging.WARNING] * 2


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("http://someone:secret@127.0.0.1:{port}", "http://\\*\\*\\*@127.0.0.1:{port}"),
        ("sqlite:////dev/null/mlflow.db", "sqlite:////dev/null/mlflow.db"),
        ("nonsense://x", "nonsense://x"),
        ("./somewhere", "./somewhere"),
    ],
)
def test_no_mlflow_at_the_uri_is_one_clear_error_before_the_campaign(uri, says):
    port = free_port()
    began = time.monotonic()
    with pytest.raises(TrackingError, match=r"^tracking\.uri: got '" + says.format(port=port)) as raised:
        MlflowTracker(uri.format(port=port))
    assert time.monotonic() - began < 10
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)
