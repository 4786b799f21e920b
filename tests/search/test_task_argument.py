"""What `--task` may say: one task, a family of them, a file, or all."""

from typing import Literal

import pytest
from pydantic import BaseModel

from search import task_argument
from search.errors import CampaignError
from search.task_argument import TASKS, read


class Family(BaseModel):
    task: Literal["family"] = "family"
    name: Literal["first", "second", "third"]
    mode: Literal["plain", "hard"] = "plain"
    length: int | None = None


@pytest.fixture(autouse=True)
def family(monkeypatch):
    monkeypatch.setattr(task_argument, "TASKS", {**TASKS, "family": Family})


def test_a_family_stands_for_each_of_its_names_with_the_same_fields():
    found = read(["family:mode=hard"])
    assert [one.name for one in found] == ["family first", "family second", "family third"]
    assert [one.fields for one in found] == [
        {"task": "family", "mode": "hard", "name": name} for name in ("first", "second", "third")
    ]


def test_one_of_a_family_is_called_by_its_name():
    (one,) = read(["family:name=second"])
    assert (one.name, one.fields) == ("family second", {"task": "family", "name": "second"})


def test_two_of_one_name_are_numbered_and_the_others_are_not():
    assert [one.name for one in read(["kv:pairs=4", "family:name=first", "kv:pairs=5"])] == [
        "kv 1",
        "family first",
        "kv 3",
    ]


def test_the_same_task_twice_is_refused():
    with pytest.raises(CampaignError, match="each task once"):
        read(["family", "family:name=third"])


def test_all_holds_every_family_and_gives_each_task_the_fields_that_were_written():
    found = read(["all:contexts=3"])
    assert {one.fields["task"] for one in found} == {*TASKS, "family"}
    assert all(one.optional and one.fields["contexts"] == 3 for one in found)


def test_a_section_that_says_no_size_is_at_the_target_length(tmp_path):
    file = tmp_path / "t.yaml"
    file.write_text("target_length: 64\ntasks: [{task: kv}, {task: kv, pairs: 3}, {task: mdqa, file: f, documents: 0}]")
    assert [one.fields.get("length") for one in read([str(file)])] == [64, None, None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tasks: 3", "a section `fitness`"),
        ("tasks: []", "a section `fitness`"),
        ("tasks: [3]", "a list `tasks` of sections"),
        ("[", "valid YAML"),
        ("- task: kv", "a section `fitness`"),
    ],
)
def test_a_file_without_tasks_is_refused(tmp_path, text, words):
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(CampaignError, match=r"t\.yaml") as error:
        read([str(tmp_path / "t.yaml")])
    assert words in str(error.value)
