"""`ropewalk lm-eval`: what the harness measures is the patched model. Skipped in parts where it is not installed."""

import importlib.metadata
import io
import json
import math
from pathlib import Path

import pytest
import torch
from rich.console import Console

from ropewalk import apply_profile
from search import harness
from search.cli import main
from search.harness import scores
from search.lm_eval_table import show
from search.profile_argument import read
from tests.workers.tiny import save_model
from workers import ModelSpec
from workers.loading import load_model

TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{text}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list: [{{metric: {metric}, aggregation: {aggregation}, higher_is_better: true}}]
metadata: {{version: 1}}
"""


FOLDER = Path(__file__).parents[2] / "models/tiny-kv"
TARGET = 512


@pytest.fixture(scope="module")
def rows():
    """JSON-like pairs, of more tokens than the 256 that tiny-kv was trained on, and a value that stands among them."""
    found = []
    for row in range(5):
        pairs = [
            (f"{(row * 7919 + i * 104729) % 65536:04x}", f"{(row + i * i * 31337) % 65536:04x}") for i in range(60)
        ]
        text = "{" + ",\n ".join(f'"{key}": "{value}"' for key, value in pairs) + '}\n\nKey: "'
        key, value = pairs[row * 4]
        found.append({"text": f'{text}{key}"\nCorresponding value: "', "answer": value})
    return found


@pytest.fixture(scope="module")
def tasks(tmp_path_factory, rows):
    place = tmp_path_factory.mktemp("tasks")
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = {"rows": place / "rows.jsonl"}
    likelihood = {"kind": "loglikelihood", "metric": "perplexity", "aggregation": "perplexity"}
    generation = {"kind": "generate_until", "metric": "exact_match", "aggregation": "mean"}
    (place / "copy.yaml").write_text(TASK.format(name="local_copy", **likelihood, **named))
    more = "generation_kwargs: {max_gen_toks: 3, do_sample: false, until: []}\n"
    (place / "write.yaml").write_text(TASK.format(name="local_write", **generation, **named) + more)
    return place


@pytest.fixture
def run(tasks, tmp_path, capsys):
    def command(*extra, names="local_copy"):
        arguments = ["--model", str(FOLDER), "--tasks", names, "--include", str(tasks), "--output", str(tmp_path / "o")]
        code = main(["lm-eval", *arguments, "--target-length", str(TARGET), *extra])
        file = tmp_path / "o/lm-eval.json"
        captured = capsys.readouterr()
        return code, json.loads(file.read_text()) if file.exists() else None, captured.out, captured.err

    return command


def perplexity(loaded, text, rows, target_length):
    """Of the answers under a profile, by the library alone."""
    profile = read(text, loaded.shape, target_length).build()
    found = []
    for row in rows:
        prompt, whole = (loaded.tokenizer(t).input_ids for t in (row["text"], row["text"] + row["answer"]))
        with apply_profile(loaded.model, profile), torch.inference_mode():
            logits = loaded.model(torch.tensor([whole])).logits[0].log_softmax(-1)
        found.append(sum(logits[i - 1, whole[i]].item() for i in range(len(prompt), len(whole))))
    return math.exp(-sum(found) / len(found))


@pytest.mark.parametrize("profile", ["linear:factor=2", "self_extend:window=64,group_size=8"])
def test_the_harness_measures_what_the_patched_model_gives_beyond_the_trained_length(run, rows, profile):
    pytest.importorskip("lm_eval")
    code, data, out, err = run("--profile", profile)
    assert code == 0, err
    loaded = load_model(ModelSpec(id=str(FOLDER)))
    assert all(len(loaded.tokenizer(row["text"]).input_ids) > loaded.shape.trained_length for row in rows)
    plain, patched = (row["scores"][0]["score"] for row in data["rows"])
    assert patched == pytest.approx(perplexity(loaded, profile, rows, TARGET), rel=1e-4)
    assert plain == pytest.approx(perplexity(loaded, "linear:factor=1", rows, TARGET), rel=1e-4)
    assert plain != pytest.approx(patched, rel=1e-3)
    assert (data["max_length"], data["chat_template"]) == (TARGET, "off")
    assert "local_copy" in out


def test_several_tasks_and_generation_and_a_limit(run):
    pytest.importorskip("lm_eval")
    code, data, out, err = run("--profile", "yarn", "--limit", "2", "--batch", "2", names="local_copy,local_write")
    assert code == 0, err
    assert [(s["task"], s["metric"]) for s in data["rows"][1]["scores"]] == [
        ("local_copy", "perplexity"),
        ("local_write", "exact_match"),
    ]
    assert data["rows"][1]["lm_eval"]["n-samples"]["local_copy"]["effective"] == 2
    assert "the first 2 examples" in out


def test_what_is_on_file_is_not_run_again_and_a_profile_that_does_not_fit_fails_alone(run, monkeypatch):
    pytest.importorskip("lm_eval")
    _, first, _, _ = run("--profile", "yarn")
    original, seen = harness.Harness.measure, []

    def counted(self, loaded, profile, max_length, **how):
        seen.append(profile.name)
        return original(self, loaded, profile, max_length, **how)

    monkeypatch.setattr(harness.Harness, "measure", counted)
    code, again, out, err = run("--profile", "yarn", "--profile", "rerope:window=4096", "--profile", "ntk:factor=3")
    assert code == 1
    assert seen == ["ntk"]
    assert again["rows"][:2] == first["rows"]
    assert [row["status"] for row in again["rows"]] == ["ok", "ok", "failed", "ok"]
    assert "rerope:window=4096 failed" in out
    assert "on file" in err


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--tasks", "local_cop"], ["--tasks", "did you mean local_copy"]),
        (["--include", "/nowhere"], ["--include", "/nowhere"]),
    ],
)
def test_what_the_harness_does_not_know_is_refused_before_the_model_is_loaded(run, monkeypatch, extra, words):
    pytest.importorskip("lm_eval")
    monkeypatch.setattr("workers.loading.load_model", lambda spec: pytest.fail("the model was loaded"))
    code, _, _, err = run(*extra)
    assert code == 2
    assert all(word in err for word in words)


def test_a_tokenizer_without_an_end_is_refused_before_the_model_is_loaded(run, tmp_path, monkeypatch):
    pytest.importorskip("lm_eval")
    monkeypatch.setattr("workers.loading.load_model", lambda spec: pytest.fail("the model was loaded"))
    code, _, _, err = run("--model", str(save_model(tmp_path / "tiny")))
    assert code == 2
    assert "end-of-sequence" in err


def test_a_chat_template_that_is_not_there_is_refused_before_the_model_is_loaded(run, monkeypatch):
    pytest.importorskip("lm_eval")
    monkeypatch.setattr("workers.loading.load_model", lambda spec: pytest.fail("the model was loaded"))
    code, _, _, err = run("--chat-template", "on")
    assert code == 2
    assert "--chat-template" in err
    assert "no chat template" in err


def test_without_the_extra_one_line_says_how_to_install_it(run, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(harness, "version", missing)
    code, data, _, err = run()
    assert (code, data) == (2, None)
    (line,) = err.strip().splitlines()
    assert "pip install 'ropewalk[lm-eval]'" in line


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--limit", "0"], ["--limit", "0"]),
        (["--batch", "0"], ["--batch", "0"]),
        (["--shots", "-1"], ["--shots", "-1"]),
        (["--max-length", "1"], ["--max-length", "1"]),
        (["--threads", "0"], ["--threads", "0"]),
        (["--tasks", ","], ["--tasks", "at least one"]),
        (["--metadata", "[4]"], ["--metadata", "a JSON object"]),
        (["--metadata", "{"], ["--metadata", "a JSON object"]),
        (["--profile", "yarn", "--profile", "yarn"], ["--profile", "once"]),
        (["--output", "/proc/nowhere"], ["--output", "/proc/nowhere"]),
    ],
)
def test_a_wrong_option_is_one_line_with_code_2(run, extra, words):
    code, _, _, err = run(*extra)
    assert code == 2
    (line,) = err.strip().splitlines()
    assert all(word in line for word in words)


RESULTS = {
    "results": {
        "niah": {"alias": "niah", "4096,none": -1, "8192,none": 0.5, "8192_stderr,none": "N/A", "sample_len": 3},
        "copy": {"alias": "copy", "acc,none": 0.25, "acc_stderr,none": 0.1, "acc,strict": 0.0, "name": "x"},
    },
    "n-samples": {"niah": {"original": 5, "effective": 3}},
}


def test_scores_are_read_from_the_harness_s_results_without_lengths_that_were_not_asked_for():
    assert scores(RESULTS) == [
        {"task": "niah", "metric": "8192", "filter": "none", "score": 0.5, "stderr": None},
        {"task": "copy", "metric": "acc", "filter": "none", "score": 0.25, "stderr": 0.1},
        {"task": "copy", "metric": "acc", "filter": "strict", "score": 0.0, "stderr": None},
    ]


def test_the_table_has_a_row_for_each_metric_and_a_column_for_each_profile():
    done = {"status": "ok", "scores": scores(RESULTS), "lm_eval": RESULTS}
    large = {"task": "niah", "metric": "perplexity", "filter": "none", "score": 3.1e22, "stderr": None}
    rows = [
        {"name": "unchanged model", **done},
        {"name": "yarn", **done, "scores": [large]},
        {"name": "rerope", "status": "failed", "reason": "window"},
    ]
    data = {
        "lm_eval": "0.4",
        "model": {"id": "tiny"},
        "settings": {"limit": None},
        "chat_template": "off",
        "rows": rows,
    }
    console = Console(file=io.StringIO(), width=120, force_terminal=True, no_color=True, highlight=False)
    show(data, console)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["copy", "acc", "0.250", "±", "0.100", "–"] in lines
    assert ["niah", "8192", "3", "0.500", "–"] in lines
    assert ["niah", "perplexity", "3", "–", "3.1e+22"] in lines
    assert ["rerope", "failed:", "window"] in lines
