"""`ray job submit` on a real local cluster: submitted, followed to success, the profile downloaded from MLflow."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ropewalk import load_profile
from search.cli import main

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
TOKEN = secrets.token_hex(32)  # the cluster takes jobs only from those who know it
# A smaller quickstart: the same file, model and workers with a fifth of its work.
SMALLER = [
    "fitness.contexts=2",
    "fitness.questions=8",
    "heldout.contexts=4",
    "guard.contexts=2",
    "stages.0.population=6",
    "stages.0.generations=1",
    "stages.0.space.step=1.0",
    "baselines=[identity, linear]",
]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def environment() -> dict[str, str]:
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "MLFLOW_TRACKING"))}
    return {
        **keep,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_USAGE_STATS_ENABLED": "0",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


@pytest.fixture
def cluster(tmp_path):
    """The URL of the dashboard of a head node on loopback with two CPUs, stopped at the end by its own process id."""
    dashboard, folder = free_port(), Path(tempfile.mkdtemp(prefix="rw"))  # short: Ray puts sockets below it
    command = [
        BIN / "ray",
        "start",
        "--head",
        "--block",
        "--node-ip-address=127.0.0.1",
        f"--port={free_port()}",
        "--dashboard-host=127.0.0.1",
        f"--dashboard-port={dashboard}",
        "--num-cpus=2",
        "--object-store-memory=200000000",
        f"--temp-dir={folder}",
        "--disable-usage-stats",
    ]
    with (tmp_path / "head.log").open("wb") as log:
        head = subprocess.Popen([str(c) for c in command], stdout=log, stderr=subprocess.STDOUT, env=environment())
    try:
        url = f"http://127.0.0.1:{dashboard}"
        _wait_for(f"{url}/api/version", head)
        yield url
    finally:
        head.terminate()
        head.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(url: str, process: subprocess.Popen) -> None:
    for _ in range(120):
        assert process.poll() is None, "the head node ended early"
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except urllib.error.HTTPError as error:
            assert error.code == 401  # it answers, and wants the cluster's token
            return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"{url} did not answer within a minute")


@pytest.mark.timeout(240)
def test_a_submitted_campaign_succeeds_and_its_profile_comes_back_from_mlflow(cluster, tmp_path):
    tracking = f"sqlite:///{tmp_path}/mlflow.db"
    settings = [*SMALLER, f"storage={tmp_path}/runs", f"tracking.uri={tracking}"]
    entrypoint = ["python", "-m", "search", "run", "campaigns/quickstart.yaml", "--resume"]
    for setting in settings:
        entrypoint += ["--set", setting]
    submit = [
        str(BIN / "ray"),
        "job",
        "submit",
        f"--address={cluster}",
        "--submission-id=quickstart",
        "--working-dir=.",
        "--",
        *entrypoint,
    ]
    job = subprocess.run(submit, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=200)
    assert job.returncode == 0, job.stdout[-4000:] + job.stderr[-4000:]
    assert "succeeded" in job.stdout + job.stderr

    output = tmp_path / "winner.json"
    assert main(["download", "quickstart", "-o", str(output), "--tracking-uri", tracking]) == 0
    result = json.loads((tmp_path / "runs" / "quickstart" / "result.json").read_text())
    assert load_profile(output).hash == result["winner"]["profile_hash"]
    assert output.read_bytes() == (tmp_path / "runs" / "quickstart" / "profile.json").read_bytes()
