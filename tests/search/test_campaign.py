"""The campaign file: what is accepted, what is refused and with which words."""

from pathlib import Path

import pytest
import yaml

from fitness.tasks import TASKS
from search.campaign import load, parse
from search.errors import CampaignError

ROOT = Path(__file__).parents[2]
GOOD = {
    "name": "x",
    "model": {"id": "models/tiny-kv"},
    "target_length": 1024,
    "fitness": {"task": "kv"},
    "stages": [{"kind": "genetic"}],
}


@pytest.mark.parametrize("path", sorted((ROOT / "campaigns").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_campaign_of_the_repository_is_valid(path):
    assert load(path).name == path.stem


def test_a_resolved_campaign_reads_back_as_itself(tmp_path):
    campaign = parse(GOOD)
    (tmp_path / "c.yaml").write_text(campaign.to_yaml())
    assert load(tmp_path / "c.yaml") == campaign


def test_fitness_takes_the_target_length_unless_told_otherwise():
    assert parse(GOOD).fitness.length == 1024
    assert parse({**GOOD, "fitness": {"task": "kv", "length": 500}}).fitness.length == 500
    assert parse({**GOOD, "fitness": {"task": "kv", "pairs": 10}}).fitness.length is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stagse": []}, ["stagse", "did you mean stages"]),
        ({"fitness": {"task": "kv", "context": 3}}, ["fitness.context", "did you mean contexts"]),
        (
            {"stages": [{"kind": "genetic", "space": {"maximun": 4}}]},
            ["stages.0.space.maximun", "did you mean maximum"],
        ),
        ({"stages": [{"kind": "genetic", "popullation": 4}]}, ["stages.0.popullation", "did you mean population"]),
        ({"model": {"id": "x", "dytpe": "float32"}}, ["model.dytpe", "did you mean dtype"]),
        ({"workers": {"actor": 3}}, ["workers.actor", "did you mean actors"]),
        ({"target_length": "long"}, ["target_length", "'long'", "integer"]),
        ({"target_length": 0}, ["target_length", "0", "greater than or equal to 2"]),
        ({"name": "a/b"}, ["name", "a/b"]),
        ({"stages": []}, ["stages", "at least 1"]),
        ({"stages": [{"kind": "annealing"}]}, ["stages.0.kind", "annealing", "genetic"]),
        ({"stages": [{"name": "a"}, {"name": "a"}]}, ["different names"]),
        ({"stages": [{"space": {"maximum": 2000}}]}, ["stages.0.space.maximum", "2000", "1000"]),
        (
            {"stages": [{"space": {"minimum": 4, "maximum": 2}}]},
            ["stages.0.space", "maximum 2.0 must be above minimum 4.0"],
        ),
        ({"stages": [{"space": {"minimum": 2, "maximum": 4}}]}, ["stages.0", "excludes factor 1", "seeds"]),
        ({"fitness": {"task": "kv", "length": 4096}}, ["fitness.length", "4096", "target_length 1024"]),
        ({"baselines": ["ntkk"]}, ["baselines.0", "ntkk"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"kv": 3}, ["kv: got 3", "known fields are schema"]),
        ({"fitness": {"task": "kv", "kv": 3}}, ["fitness.kv: got 3", "known fields are task, length, pairs"]),
        ({"fitness": {"task": "kv", "perplexity": 3}}, ["fitness.perplexity: got 3", "pairs"]),
        ({"fitness": {"task": "perplexity", "pairs": 3}}, ["fitness.pairs: got 3", "known fields are task, length"]),
        ({"fitness": {"contexts": 3}}, ["fitness.task: got nothing", ", ".join(TASKS)]),
        ({"fitness": {"task": "chess"}}, ["fitness.task: got 'chess'", ", ".join(TASKS)]),
        ({"fitness": {"task": "kv", "questions": "few"}}, ["fitness.questions: got 'few'", "integer", "'all'"]),
        ({"fitness": {"task": "kv", "length": 9, "pairs": 3}}, ["fitness.length, pairs: got {", "exactly one"]),
        ({"model": {"id": "x", "device_map": 3}}, ["model.device_map: got 3", "string or", "dictionary"]),
        ({"target_lenght": 9}, ["target_lenght", "did you mean target_length"]),
        ({"baselines": ["linear", "linear"]}, ["baselines: got ['linear', 'linear']", "each name once"]),
        ({"stages": [{"name": "heldout"}]}, ["stages: got 'heldout'", "any name but"]),
    ],
)
def test_bad_input_names_field_value_and_what_is_allowed(change, words):
    with pytest.raises(CampaignError) as raised:
        parse({**GOOD, **change})
    for word in words:
        assert word in str(raised.value)


def test_a_missing_field_is_named():
    with pytest.raises(CampaignError, match=r"model.*required"):
        parse({k: v for k, v in GOOD.items() if k != "model"})


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("seed=7", ("seed",), 7),
        ("stages.0.population=9", ("stages", 0, "population"), 9),
        ("stages.0.space.maximum=4.5", ("stages", 0, "space", "maximum"), 4.5),
        ("baselines=[identity, linear]", ("baselines",), ["identity", "linear"]),
        ("tracking.uri=sqlite:///x.db", ("tracking", "uri"), "sqlite:///x.db"),
    ],
)
def test_set_changes_a_field_by_its_dotted_key(tmp_path, override, path, value):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(GOOD))
    found = load(tmp_path / "c.yaml", [override]).to_dict()
    for step in path:
        found = found[step]
    assert found == value


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("seed", ["--set", "key=value"]),
        ("stages.4.population=9", ["stages.4.population", "index from 0 to 0"]),
        ("seed.x=1", ["seed.x", "a field inside a section"]),
        ("seed=[", ["seed", "YAML"]),
        ("seed=2026-99-99", ["seed", "YAML"]),
        ("stages.².population=9", ["stages.²", "index from 0 to 0"]),
        ("workers..actors=3", ["workers..actors=3", "key=value"]),
        ("stages.0.populatoin=9", ["populatoin", "did you mean population"]),
    ],
)
def test_a_wrong_override_is_refused(tmp_path, override, words):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(GOOD | {"seed": 1}))
    with pytest.raises(CampaignError) as raised:
        load(tmp_path / "c.yaml", [override])
    for word in words:
        assert word in str(raised.value)


def test_set_creates_a_section_that_is_missing_or_empty(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(GOOD | {"workers": None, "stages": [None]}))
    campaign = load(path, ["workers.actors=3", "tracking.experiment=e", "stages.0.space.maximum=3"])
    assert (campaign.workers.actors, campaign.tracking.experiment, campaign.stages[0].space.maximum) == (3, "e", 3)


def test_set_changes_one_of_two_sections_that_an_alias_shares(tmp_path):
    path = tmp_path / "c.yaml"
    stages = "[{name: a, space: &shared {maximum: 4}}, {name: b, space: *shared}]"
    path.write_text(yaml.safe_dump({k: v for k, v in GOOD.items() if k != "stages"}) + f"stages: {stages}\n")
    campaign = load(path, ["stages.0.space.maximum=3"])
    assert [stage.space.maximum for stage in campaign.stages] == [3, 4]


def test_the_budget_is_that_of_all_stages_together():
    stages = [{"name": "a", "population": 6, "generations": 1}, {"name": "b", "population": 8, "generations": 2}]
    assert parse({**GOOD, "stages": stages}).budget == (6 + 3) + (8 + 2 * 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: 2026-99-99", ["valid YAML"]), ("a: [", ["valid YAML"]), ("- 1", ["a mapping"]), (None, ["readable"])],
)
def test_a_file_that_is_missing_or_no_mapping_is_refused(tmp_path, text, words):
    path = tmp_path / "c.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CampaignError) as raised:
        load(path)
    for word in words:
        assert word in str(raised.value)


def test_the_hash_covers_what_decides_the_result_and_not_where_it_runs():
    base = parse(GOOD)
    assert parse({**GOOD, "workers": {"actors": 7}, "storage": "elsewhere"}).hash == base.hash
    assert parse({**GOOD, "seed": 1}).hash != base.hash
