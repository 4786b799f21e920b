"""What is checked before any worker starts: the example sets and where their errors point."""

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from fitness.errors import TaskError
from fitness.examples import Example, ExampleSet, Question
from fitness.mdqa import MDQATask
from ropewalk import ModelShape
from search import preparation
from search.errors import CampaignError
from tests.search.fake import SHAPE, campaign

TINY_KV = Path(__file__).parents[2] / "models/tiny-kv"


class Task:
    """Builds windows of a text without a context, as perplexity does, or fails in one split."""

    def __init__(self, same=False, fail=None, field="length"):
        self.same, self.fail, self.field, self.length = same, fail, field, 1024

    def at_length(self, length, contexts=None):
        made = Task(self.same, self.fail, self.field)
        made.length = length
        return made

    def build(self, tokenizer, seed, split):
        if split == self.fail:
            raise TaskError(self.field, self.length, "something else")
        answer = "the same" if self.same else f"text of {split}"
        return ExampleSet("t", split, seed, 9, (Example(split, "", (Question(f"{split}/0", "", answer, (), None),)),))


@pytest.fixture
def prepare(monkeypatch):
    def make(task, target_length=1024, trained_length=256, tokenizer=None):
        monkeypatch.setattr(preparation, "load_tokenizer", lambda spec: tokenizer)
        shape = ModelShape(**{**SHAPE.to_dict(), "trained_length": trained_length})
        monkeypatch.setattr(preparation, "read_shape", lambda spec: shape)
        return preparation.prepare(campaign(target_length=target_length).model_copy(update={"fitness": task}))

    return make


def test_sets_without_contexts_are_told_apart_by_their_texts(prepare):
    assert set(prepare(Task()).sets) == {"search", "heldout", "guard"}
    with pytest.raises(CampaignError, match="search and heldout share a context"):
        prepare(Task(same=True))


def test_questions_without_a_context_may_have_the_same_answer(prepare, tmp_path):
    document = {"title": "t", "isgold": True}
    lines = [
        {"question": f"in which year was {i}", "answers": ["1912"], "ctxs": [{**document, "text": f"{i} was in 1912"}]}
        for i in range(40)
    ]
    file = tmp_path / "oracle.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    task = MDQATask(file=str(file), documents=0, contexts=3)
    sets = prepare(task, tokenizer=AutoTokenizer.from_pretrained(TINY_KV)).sets
    assert {q.answer for made in sets.values() for e in made.examples for q in e.questions} == {" 1912"}


@pytest.mark.parametrize(
    ("split", "field", "named"),
    [
        ("search", "length", "fitness.length: got 1024"),
        ("heldout", "length", "fitness.length: got 1024"),
        ("heldout", "contexts", "heldout.contexts: got 1024"),
        ("guard", "length", "guard.length: got 256"),
        ("guard", "contexts", "guard.contexts: got 256"),
        ("guard", "keys", "fitness.keys: got 256"),
    ],
)
def test_an_error_names_the_field_that_the_value_comes_from(prepare, split, field, named):
    with pytest.raises(CampaignError, match=named):
        prepare(Task(fail=split, field=field))


@pytest.mark.parametrize(("target", "trained", "length"), [(1024, 256, 256), (1024, 2048, 256), (4096, 256, 256)])
def test_the_guard_is_at_a_quarter_of_the_target_length_but_not_above_the_trained_length(
    prepare, target, trained, length
):
    assert prepare(Task(), target, trained).guard_length == length
