"""`ropewalk evaluate` on a tiny model: what it measures, what it keeps, what fails one row and what refuses all."""

import csv
import json
import math
import shutil

import pytest
import torch

from fitness.ruler import NAMES
from fitness.significance import holm
from fitness.splits import stretch
from fitness.tasks import TASKS
from ropewalk import Frequency, PatchError, Profile
from search.cli import main
from search.errors import CampaignError
from search.evaluation import prepare, request
from search.seeds import derive
from tests.workers.tiny import save_model
from workers import ModelSpec
from workers.evaluator import LocalEvaluator
from workers.loading import load_tokenizer, read_shape


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text(" ".join("abcdefghijklmnop"[(i * i + i // 7) % 16] for i in range(6000)))
    return path


@pytest.fixture
def run(folder, book, tmp_path, capsys):
    """run(*profiles, extra=(), task=...) -> exit code, result.json or None, standard output, standard error."""

    def command(*profiles, extra=("--length", "32", "--length", "96"), task=f"perplexity:file={book}", output="out"):
        chosen = [argument for profile in profiles for argument in ("--profile", profile)]
        place = tmp_path / output
        arguments = ["--model", str(folder), "--task", task, "--contexts", "4", "--output", str(place)]
        code = main(["evaluate", *arguments, *chosen, *extra])
        captured = capsys.readouterr()
        file = place / "result.json"
        return code, json.loads(file.read_text()) if file.exists() else None, captured.out, captured.err

    return command


def loads(monkeypatch):
    """Counts the examples that are evaluated, in a list that grows."""
    seen = []
    original = LocalEvaluator.evaluate

    def counted(self, requests):
        for result in original(self, requests):
            seen.append(result)
            yield result

    monkeypatch.setattr(LocalEvaluator, "evaluate", counted)
    return seen


def test_every_profile_is_measured_at_every_length_beside_the_unchanged_model(run):
    code, data, out, _ = run("linear:factor=2", "yarn")
    assert code == 0
    assert [(row["name"], row["length"], row["status"]) for row in data["rows"]] == [
        (name, length, "ok") for length in (32, 96) for name in ("unchanged model", "linear:factor=2", "yarn")
    ]
    assert data["target_length"] == 96
    assert data["rows"][-1]["profile"]["frequency"]["factor"] == 1.5
    assert data["sets"][0]["split"] == "heldout"
    for row in data["rows"]:
        assert row["score"]["low"] <= row["score"]["score"] <= row["score"]["high"]
        assert row["score"]["n"] == 4
        assert row["perplexity"]["score"] == pytest.approx(math.exp(-row["score"]["score"]))
        assert row["name"] in out
    assert "32 tokens" in out
    assert "96 tokens" in out


def test_all_methods_stand_in_one_table(run):
    profiles = [
        "linear:factor=2",
        "ntk",
        "dynamic-ntk",
        "yarn",
        "self_extend:window=8,group_size=4",
        "rerope:window=8,log_n=true",
        "leaky-rerope:window=8",
        "dca",
        "dpe:window=8,scale_factors=[2, 4]",
        "yarn:factor=2+self_extend:window=8,group_size=2",
    ]
    code, data, _, err = run(*profiles, extra=("--length", "96"))
    assert code == 0, err
    assert [row["name"] for row in data["rows"]] == ["unchanged model", *profiles]
    hashes = {row["profile_hash"] for row in data["rows"]}
    scores = {row["score"]["score"] for row in data["rows"]}
    assert len(hashes) == len(scores) == len(data["rows"])


def test_differences_are_paired_and_corrected_over_the_whole_table(run):
    _, data, _, _ = run("linear:factor=2", "linear:factor=8")
    changed = [row for row in data["rows"] if row["name"] != "unchanged model"]
    for row in changed:
        plain = next(r for r in data["rows"] if r["length"] == row["length"] and r["name"] == "unchanged model")
        gain = row["minus_unchanged"]
        assert gain["score"] == pytest.approx(row["score"]["score"] - plain["score"]["score"])
        assert gain["low"] <= gain["score"] <= gain["high"]
    adjusted = holm([row["minus_unchanged"]["p"] for row in changed])
    assert [row["minus_unchanged"]["p_holm"] for row in changed] == adjusted
    assert "4 comparisons" in data["correction"]
    assert all(row["minus_unchanged"] is None for row in data["rows"] if row["name"] == "unchanged model")


def test_each_rows_scores_are_on_file_and_are_those_of_its_mean(run, tmp_path):
    _, data, _, _ = run("linear:factor=2")
    for row in data["rows"]:
        kept = json.loads((tmp_path / "out" / row["scores"]).read_text())
        assert kept["profile_hash"] == row["profile_hash"]
        scores = [score["logprob"] / score["answer_tokens"] for score in kept["scores"]]
        assert sum(scores) / len(scores) == pytest.approx(row["score"]["score"])


def test_examples_are_none_that_a_campaign_of_the_same_seed_searches_on(folder):
    asked = request({"id": str(folder)}, ["kv:keys=hex2,values=hex2"], lengths=[60], contexts=8)
    (measured,) = prepare(asked).sets
    tokenizer = load_tokenizer(asked.request.model)
    evaluated = {example.context for example in measured.examples.examples}
    for split in ("search", "heldout", "guard"):
        others = measured.task.build(tokenizer, derive(asked.request.seed, split), split)
        assert evaluated.isdisjoint(example.context for example in others.examples)


def test_windows_of_a_text_are_of_its_held_out_part(folder, book):
    asked = request({"id": str(folder)}, [f"perplexity:file={book}"], lengths=[32, 64], contexts=4)
    text = book.read_text()
    start, stop = stretch("heldout", len(text))
    for measured in prepare(asked).sets:
        for example in measured.examples.examples:
            assert example.questions[0].answer in text[start:stop]


def test_the_csv_has_a_line_for_each_row(run, tmp_path):
    _, data, _, _ = run("linear:factor=2", "rerope")
    with (tmp_path / "out" / "result.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["name"], line["length"], line["status"]) for line in lines] == [
        (row["name"], str(row["length"]), row["status"]) for row in data["rows"]
    ]
    assert float(lines[1]["minus_unchanged"]) == data["rows"][1]["minus_unchanged"]["score"]
    assert json.loads(lines[1]["frequency"]) == {"method": "linear", "factor": 2.0}
    assert "1024" in lines[2]["reason"]
    assert lines[2]["score"] == ""


def test_positions_are_reported_where_the_task_has_them(run):
    code, data, out, _ = run("linear:factor=2", task="kv:keys=hex2,values=hex1,pairs=6,questions=3", extra=())
    assert code == 0
    assert [place["position"] for place in data["rows"][0]["by_position"]] == [0, 2, 5]
    assert "first to last" in out


def test_the_task_of_a_campaign_can_be_named(run, tmp_path, book):
    campaign = tmp_path / "campaign.yaml"
    campaign.write_text(f"target_length: 48\nfitness: {{task: perplexity, file: {book}, contexts: 9}}\n")
    code, data, _, _ = run(task=str(campaign), extra=())
    assert code == 0
    assert data["tasks"][0]["length"] == 48
    assert data["rows"][0]["score"]["n"] == 4


KV = "kv:keys=hex2,values=hex1,questions=3"


def test_several_tasks_at_several_lengths_stand_in_one_table_per_length(run, book):
    code, data, out, err = run("linear:factor=2", extra=("--length", "40,60", "--task", KV, "--task", KV + ",seed_=1"))
    assert code == 2
    tasks = ("--task", KV, "--task", "kv:keys=hex1,values=hex2,answer=bare")
    code, data, out, err = run("linear:factor=2", extra=("--length", "40,60", *tasks))
    assert code == 0, err
    names = ["perplexity", "kv 2", "kv 3"]
    assert [(row["asked_length"], row["task"], row["name"]) for row in data["rows"]] == [
        (length, task, name) for length in (40, 60) for task in names for name in ("unchanged model", "linear:factor=2")
    ]
    assert len({row["examples"] for row in data["rows"]}) == 6
    assert "6 comparisons" in data["correction"]
    assert "3 tasks at 40 tokens" in out
    assert "mean of 2 tasks" in out
    assert "[12/12] kv 3 at" in err


def test_the_mean_of_tasks_is_of_those_with_scores_from_0_to_1_alone(run):
    tasks = ("--task", KV, "--task", "kv:keys=hex1,values=hex2,answer=bare")
    _, data, _, _ = run("linear:factor=2", extra=("--length", "60", *tasks))
    assert [(mean["name"], mean["tasks"]) for mean in data["means"]] == [
        (name, ["kv 2", "kv 3"]) for name in ("unchanged model", "linear:factor=2")
    ]
    for mean in data["means"]:
        scores = [row["score"] for row in data["rows"] if row["name"] == mean["name"] and row["task"] in mean["tasks"]]
        assert mean["score"]["score"] == pytest.approx(sum(score["score"] for score in scores) / 2)


def test_a_file_can_list_the_tasks(run, tmp_path, book):
    listed = tmp_path / "tasks.yaml"
    listed.write_text(f"""
target_length: 48
tasks:
  - {{task: perplexity, file: {book}}}
  - {{task: kv, pairs: 4, keys: hex2, values: hex1}}
""")
    code, data, _, err = run(task=str(listed), extra=())
    assert code == 0, err
    assert [(made["task"], made["asked_length"]) for made in data["sets"]] == [("perplexity", 48), ("kv", None)]


def test_all_is_every_task_that_needs_no_data_and_says_what_it_leaves_out(folder):
    asked = request({"id": str(folder)}, ["all"], lengths=[2048])
    names = {argument.fields["task"] for argument in asked.arguments}
    assert {"kv", "perplexity"} <= names
    assert "file" in asked.left_out["mdqa"]
    assert names | {argument.split()[0] for argument in asked.left_out} == set(TASKS)


def test_a_family_leaves_out_at_a_length_what_does_not_fit_it():
    model = {"id": "models/tiny-kv"}
    prepared = prepare(request(model, ["ruler"], lengths=[1024, 2048], contexts=1))
    made = {(measured.name, measured.asked) for measured in prepared.sets}
    assert ("ruler vt", 2048) in made and ("ruler vt", 1024) not in made and ("ruler niah_single_1", 1024) in made
    assert "tokens" in prepared.left_out["ruler vt at 1024 tokens"]
    with pytest.raises(CampaignError, match="a length that some task can fill"):
        prepare(request(model, ["ruler"], lengths=[20], contexts=1))
    with pytest.raises(CampaignError, match="at least"):
        prepare(request(model, ["ruler:name=vt"], lengths=[1024], contexts=1))


def test_a_family_leaves_out_what_needs_data_and_alone_it_is_refused(folder):
    asked = request({"id": str(folder)}, ["ruler"], lengths=[2048], contexts=2)
    names = [f"ruler {name}" for name in NAMES]
    assert [argument.name for argument in asked.arguments] == [name for name in names if "qa" not in name]
    assert list(asked.left_out) == ["ruler qa_1", "ruler qa_2"]
    with pytest.raises(CampaignError, match="squad"):
        request({"id": str(folder)}, ["ruler:name=qa_1"], lengths=[2048])
    full = request({"id": str(folder)}, ["ruler:squad=s.json,hotpotqa=h.json"], lengths=[2048])
    assert [argument.name for argument in full.arguments] == names


def test_what_is_on_file_is_not_measured_again(run, monkeypatch):
    _, first, _, _ = run("linear:factor=2")
    seen = loads(monkeypatch)
    _, again, _, err = run("linear:factor=2")
    assert seen == []
    assert again == first
    assert "on file" in err
    _, more, _, _ = run("linear:factor=2", "linear:factor=3")
    assert len(seen) == 2 * 4
    assert [row["score"] for row in more["rows"] if row["name"] == "linear:factor=2"] == [
        row["score"] for row in first["rows"] if row["name"] == "linear:factor=2"
    ]


@pytest.mark.parametrize(
    "extra", [("--seed", "1", "--length", "32"), ("--length", "33"), ("--length", "32", "--dtype", "bfloat16")]
)
def test_other_examples_or_another_way_of_loading_are_measured_anew(run, monkeypatch, extra):
    run(extra=("--length", "32"))
    seen = loads(monkeypatch)
    run(extra=extra)
    assert len(seen) == 4


def test_a_damaged_row_is_measured_again(run, tmp_path, monkeypatch):
    _, data, _, _ = run(extra=("--length", "32"))
    (tmp_path / "out" / data["rows"][0]["scores"]).write_text('{"schema": ')
    seen = loads(monkeypatch)
    assert run(extra=("--length", "32"))[0] == 0
    assert len(seen) == 4


def test_an_interrupted_run_keeps_its_finished_rows(run, tmp_path, monkeypatch):
    original = LocalEvaluator.evaluate

    def torn(self, requests):
        for i, result in enumerate(original(self, requests)):
            if requests[0].profile["frequency"]["method"] == "linear" and i == 2:
                raise KeyboardInterrupt
            yield result

    monkeypatch.setattr(LocalEvaluator, "evaluate", torn)
    assert run("linear:factor=2", extra=("--length", "32"))[0] == 3
    assert len(list((tmp_path / "out" / "rows").glob("*.json"))) == 1
    assert not (tmp_path / "out" / "result.json").exists()
    monkeypatch.setattr(LocalEvaluator, "evaluate", original)
    seen = loads(monkeypatch)
    assert run("linear:factor=2", extra=("--length", "32"))[0] == 0
    assert len(seen) == 4


def test_a_second_interrupt_ends_with_code_3_and_no_traceback(run, monkeypatch):
    from search import evaluate

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluate, "measure", interrupted)
    code, data, _, err = run(extra=("--length", "32"))
    assert (code, data) == (3, None)
    assert "goes on from the rows" in err


def test_a_request_to_stop_ends_with_code_3(run, monkeypatch):
    from search import evaluate

    original = evaluate.measure
    monkeypatch.setattr(evaluate, "measure", lambda *a, **k: original(*a, **{**k, "stop": lambda: True}))
    code, data, _, err = run(extra=("--length", "32"))
    assert (code, data) == (3, None)
    assert "goes on from the rows" in err


def test_a_profile_that_does_not_fit_fails_its_row_alone(run, tmp_path, folder):
    shape = read_shape(ModelSpec(id=str(folder)))
    other = type(shape).from_dict({**shape.to_dict(), "num_layers": 5})
    Profile("other", other, 128, Frequency("linear", factor=2)).save(tmp_path / "other.json")
    code, data, out, _ = run("self-extend", "dpe-llama-3-8b", str(tmp_path / "other.json"), "linear:factor=2")
    assert code == 1
    assert [row["status"] for row in data["rows"][:5]] == ["ok", "failed", "failed", "failed", "ok"]
    reasons = [row["reason"] for row in data["rows"][1:4]]
    for words, reason in zip((("1024", "64"), ("32", "2"), ("5", "2")), reasons, strict=True):
        assert all(word in reason for word in words)
    assert "failed" in out
    assert reasons[0] in out


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("out of memory"), PatchError("no such kernel"), RuntimeError("bad stride")]
)
def test_a_row_that_fails_while_it_is_measured_says_why_and_is_tried_again(run, monkeypatch, error):
    from workers import evaluation

    original = evaluation.score_example

    def failing(*args, handle, **kwargs):
        if handle.profile.frequency.method == "yarn":
            raise error
        return original(*args, handle=handle, **kwargs)

    monkeypatch.setattr(evaluation, "score_example", failing)
    code, data, _, _ = run("yarn", "linear:factor=2", extra=("--length", "32"))
    assert code == 1
    assert [row["status"] for row in data["rows"]] == ["ok", "failed", "ok"]
    assert str(error) in data["rows"][1]["reason"]
    monkeypatch.undo()
    code, data, _, _ = run("yarn", "linear:factor=2", extra=("--length", "32"))
    assert code == 0


def test_logits_that_are_no_numbers_fail_the_row(run, monkeypatch):
    made = LocalEvaluator.__init__

    def without_numbers(self, *args, **kwargs):
        made(self, *args, **kwargs)
        self._loaded.model.lm_head.weight.data.fill_(math.nan)

    monkeypatch.setattr(LocalEvaluator, "__init__", without_numbers)
    code, data, _, _ = run("linear:factor=2", extra=("--length", "32"))
    assert code == 1
    assert all("NonFiniteError" in row["reason"] for row in data["rows"])
    assert all("minus_unchanged" not in row for row in data["rows"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["--profile", "yarm"], ["did you mean yarn"]),
        (["--profile", "linear:factor=0"], ["frequency.factor", "0.1"]),
        (["--profile", "nowhere.json"], ["nowhere.json"]),
        (["--profile", "yarn", "--profile", "yarn"], ["--profile", "once"]),
        (["--task", "kw"], ["--task", "kw", "or one of ", " kv, "]),
        (["--task", "kv:answer=open"], ["--task.answer", "opened"]),
        (["--task", "kv:anser=opened"], ["--task.anser", "did you mean answer"]),
        (["--task", "kv:keys"], ["--task", "field=value"]),
        (["--task", "nowhere.yaml"], ["--task", "nowhere.yaml"]),
        (["--task", "perplexity:file=nowhere.txt"], ["nowhere.txt"]),
        (["--length", "0"], ["--length", "0"]),
        (["--length", "32", "--length", "32"], ["--length", "once"]),
        (["--length", "32,x"], ["--length", "'x'"]),
        (["--task", "kv:pairs=4", "--task", "kv:pairs=4"], ["--task", "once"]),
        (["--task", "perplexity", "--task", "kv:questions=0"], ["--task.questions of kv", "0"]),
        (["--task", "all", "--length", ""], ["--length", "''"]),
        (["--length", "900000"], ["--length", "900000"]),
        (["--contexts", "0"], ["--contexts", "0"]),
        (["--seed", "-1"], ["--seed", "-1"]),
        (["--target-length", "1"], ["--target-length", "1"]),
        (["--threads", "0"], ["--threads", "0"]),
        (["--chunk", "0"], ["--chunk", "0"]),
        (["--dtype", "int8"], ["error: --dtype", "int8"]),
        (["--model", "./nowhere"], ["model.id", "nowhere"]),
        (["--output", "/proc/nowhere"], ["--output", "/proc/nowhere"]),
    ],
)
def test_bad_input_is_one_line_with_code_2_before_the_model_is_loaded(
    folder, book, monkeypatch, capsys, changes, words
):
    def loaded(*args, **kwargs):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("workers.evaluator.load_model", loaded)
    defaults = {"--model": str(folder), "--task": f"perplexity:file={book}", "--length": "32", "--contexts": "4"}
    arguments = [a for name, value in defaults.items() if name not in changes for a in (name, value)]
    assert main(["evaluate", *arguments, *changes]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("ropewalk: error: ")
    for word in words:
        assert word in line


def test_without_an_output_folder_nothing_is_written(folder, book, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    task = f"perplexity:file={book}"
    assert main(["evaluate", "--model", str(folder), "--task", task, "--length", "32", "--contexts", "2"]) == 0
    assert "unchanged model" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_a_chat_template_is_refused_one(capsys):
    arguments = ["--model", "models/tiny-kv", "--task", "kv:pairs=4", "--chat-template", "on"]
    assert main(["evaluate", *arguments]) == 2
    words = "--chat-template: got 'on'; allowed: off: this model's tokenizer has no chat template"
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "setting", "used"),
    [("tiny-kv-instruct", "auto", "on"), ("tiny-kv", "auto", "off"), ("tiny-kv", "on", "on")],
)
def test_the_chat_template_is_used_for_instruct_models_and_recorded(tmp_path, capsys, name, setting, used):
    folder = shutil.copytree("models/tiny-kv", tmp_path / name)
    template = "{% for m in messages %}Q: {{ m.content }}{% endfor %}{% if add_generation_prompt %}\nA: {% endif %}"
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    task = "kv:keys=hex4,values=hex4,questions=3"
    options = ["--length", "200", "--contexts", "2", "--chat-template", setting, "--output", str(tmp_path / "out")]
    assert main(["evaluate", "--model", str(folder), "--task", task, *options]) == 0
    capsys.readouterr()
    (made,) = json.loads((tmp_path / "out/result.json").read_text())["sets"]
    assert made["chat_template"] == used
    assert made["length"] <= 200
    assert ("asked under the model's chat template" in made["notes"]) == (used == "on")


def test_a_composite_is_evaluated_part_by_part(tmp_path, capsys):
    kv = "{task: kv, keys: hex4, values: hex4, questions: 3}"
    text = f"fitness: {{task: composite, length: 200, parts: [{{of: {kv}}}, {{of: {{task: perplexity}}, weight: 2}}]}}"
    (tmp_path / "both.yaml").write_text(text, encoding="utf-8")
    options = ["--contexts", "2", "--output", str(tmp_path / "out")]
    assert main(["evaluate", "--model", "models/tiny-kv", "--task", str(tmp_path / "both.yaml"), *options]) == 0
    capsys.readouterr()
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert [(made["task"], made["asked_length"]) for made in result["sets"]] == [("kv", 200), ("perplexity", 200)]
    (tmp_path / "both.yaml").write_text(text.replace("weight: 2", "weight: -2"), encoding="utf-8")
    assert main(["evaluate", "--model", "models/tiny-kv", "--task", str(tmp_path / "both.yaml"), *options]) == 2
    assert "--task.parts.1.weight: got -2" in capsys.readouterr().err
