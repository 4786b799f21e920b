"""The command line as a user meets it: exit codes, one clear line for bad input, and kill -9 with --resume."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ropewalk import PatchError
from search.checkpoint import save
from search.cli import main
from search.errors import SearchError
from search.storage import Storage
from workers import WorkerError

ROOT = Path(__file__).parents[2]
SMALL = [
    "workers.kind=local",
    "workers.threads=1",
    "fitness.contexts=2",
    "fitness.questions=6",
    "heldout.contexts=3",
    "guard.contexts=2",
    "stages.0.population=6",
    "stages.0.generations=4",
    "stages.0.space.step=1.0",
    "baselines=[identity, linear, ramp]",
]


def arguments(folder, *extra):
    settings = [*SMALL, f"storage={folder}/runs", f"tracking.uri=sqlite:///{folder}/mlflow.db"]
    return ["run", "campaigns/quickstart.yaml", *(a for s in settings for a in ("--set", s)), *extra]


def start(folder, *extra):
    command = [sys.executable, "-m", "search", *arguments(folder, *extra)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(process):
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


def checkpointed(folder, generations):
    """Wait until the checkpoint holds that many generations."""
    path = folder / "runs" / "quickstart" / "checkpoint.json"
    for _ in range(600):
        if path.exists() and len(json.loads(path.read_text())["state"]["history"]) >= generations:
            return
        time.sleep(0.1)
    raise AssertionError("no checkpoint within a minute")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    code, errors = finish(start(folder))
    assert code == 0, errors
    return folder / "runs" / "quickstart"


@pytest.mark.timeout(240)
def test_kill_9_of_the_driver_and_resume_gives_the_byte_identical_winner(tmp_path, undisturbed):
    process = start(tmp_path)
    checkpointed(tmp_path, 2)
    os.kill(process.pid, signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL
    assert not (tmp_path / "runs" / "quickstart" / "result.json").exists()
    code, errors = finish(start(tmp_path, "--resume"))
    assert code == 0, errors
    resumed = tmp_path / "runs" / "quickstart"
    assert (resumed / "profile.json").read_bytes() == (undisturbed / "profile.json").read_bytes()
    ours, theirs = (json.loads((f / "result.json").read_text()) for f in (resumed, undisturbed))
    for key in ("winner", "baselines", "report"):
        assert ours[key] == theirs[key]
    assert ours["cost"]["evaluations"] == theirs["cost"]["evaluations"]


@pytest.mark.timeout(240)
def test_sigterm_stops_with_code_3_and_resume_finishes(tmp_path, undisturbed):
    process = start(tmp_path)
    checkpointed(tmp_path, 1)
    process.send_signal(signal.SIGTERM)
    code, errors = finish(process)
    assert code == 3, errors
    code, errors = finish(start(tmp_path, "--resume"))
    assert code == 0, errors
    assert (tmp_path / "runs/quickstart/profile.json").read_bytes() == (undisturbed / "profile.json").read_bytes()


def test_a_finished_campaign_is_not_run_over(undisturbed, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    folder = undisturbed.parents[1]
    before = (undisturbed / "result.json").read_bytes()
    assert main(arguments(folder)) == 2
    assert "--resume" in capsys.readouterr().err
    assert main(arguments(folder, "--resume")) == 0
    assert "finished before" in capsys.readouterr().err
    assert main(arguments(folder, "--resume", "--set", "seed=9")) == 2
    assert (undisturbed / "result.json").read_bytes() == before


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["stages.0.populatoin=6"], ["stages.0.populatoin", "did you mean population"]),
        (["stages.0.space.maximum=5000"], ["stages.0.space.maximum", "5000", "1000"]),
        (["model.id=models/nowhere"], ["model.id", "models/nowhere"]),
        (["fitness.keys=hex1", "fitness.pairs=80"], ["keys", "hex1"]),
        (["target_length=30"], ["length", "30"]),
        (["fitness.file=nowhere.jsonl"], ["file", "nowhere.jsonl"]),
        (["guard.length=2048"], ["guard.length", "2048", "1024"]),
        (["storage=/proc/nowhere"], ["storage", "/proc/nowhere"]),
        (["tracking.uri=http://127.0.0.1:1"], ["tracking", "http://127.0.0.1:1"]),
    ],
)
def test_bad_input_is_one_line_with_exit_code_2_before_any_worker_starts(
    tmp_path, monkeypatch, capsys, settings, words
):
    def started(*args, **kwargs):
        raise AssertionError("a worker was started")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("search.launch.LocalEvaluator", started)
    monkeypatch.setattr("search.launch.RayEvaluator", started)
    extra = [a for s in settings for a in ("--set", s)]
    assert main(arguments(tmp_path, *extra)) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("ropewalk: error: ")
    for word in words:
        assert word in line
    assert not (tmp_path / "runs" / "quickstart" / "campaign.yaml").exists()


@pytest.mark.parametrize("name", ["", "../elsewhere", "a/b", "x" * 101])
def test_an_id_that_is_no_folder_name_is_refused(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(ROOT)
    assert main(arguments(tmp_path, "--id", name)) == 2
    assert f"--id: got '{name}" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_checkpoint_of_another_campaign_is_refused_before_any_worker_starts(tmp_path, monkeypatch, capsys):
    def started(*args, **kwargs):
        raise AssertionError("a worker was started")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("search.launch.LocalEvaluator", started)
    save(Storage(str(tmp_path / "runs"), "quickstart"), {"campaign": "another"}, {})
    assert main(arguments(tmp_path, "--resume")) == 2
    assert "campaign of the resumed campaign" in capsys.readouterr().err


@pytest.mark.parametrize("error", [SearchError("no candidate"), WorkerError("no worker"), PatchError("no effect")])
def test_a_run_that_cannot_go_on_ends_with_one_line_and_code_1(tmp_path, monkeypatch, capsys, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("search.launch.launch", fail)
    assert main(arguments(tmp_path)) == 1
    assert capsys.readouterr().err == f"ropewalk: error: {error}\n"


def test_a_context_longer_than_the_data_can_fill_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    rows = tmp_path / "rows.jsonl"
    pairs = [[f"{i:04x}", f"{i + 9:04x}"] for i in range(5)]
    rows.write_text(
        "".join(json.dumps({"ordered_kv_records": pairs, "key": "0000", "value": "0009"}) + "\n" for _ in range(40))
    )
    extra = ["--set", f"fitness.file={rows}", "--set", "fitness.keys=uuid", "--set", "fitness.values=uuid"]
    assert main(arguments(tmp_path, *extra)) == 2
    error = capsys.readouterr().err
    assert "length" in error
    assert "1024" in error


@pytest.mark.parametrize("content", ["{", '{"schema": "ropewalk/profile/v9"}'])
def test_a_malformed_profile_is_refused_with_code_2(tmp_path, capsys, content):
    (tmp_path / "p.json").write_text(content)
    assert main(["profile", "check", str(tmp_path / "p.json")]) == 2
    assert "ropewalk: error: " in capsys.readouterr().err


def test_a_profile_is_shown_and_checked_against_its_model(undisturbed, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    path = str(undisturbed / "profile.json")
    assert main(["profile", "show", path]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["num_layers"] == 8
    assert main(["profile", "check", path, "--model", "models/tiny-kv"]) == 0
    assert "fits models/tiny-kv" in capsys.readouterr().out


def test_download_of_an_unknown_campaign_says_where_it_looked(undisturbed, tmp_path, capsys):
    uri = f"sqlite:///{undisturbed.parents[1]}/mlflow.db"
    assert main(["download", "nothing", "-o", str(tmp_path / "p.json"), "--tracking-uri", uri]) == 2
    error = capsys.readouterr().err
    assert "nothing" in error
    assert "quickstart" in error
    assert not (tmp_path / "p.json").exists()
