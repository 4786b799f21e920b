"""Perplexity windows: as long as asked, without overlap between windows or splits, on any text."""

import re

import pytest

from fitness.errors import TaskError
from fitness.perplexity import PerplexityTask
from fitness.prose import builtin_prose
from fitness.scoring import METRICS, Score

SPLITS = ("search", "heldout", "guard", "validation")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "numbers.txt"
    path.write_text(" ".join(f"word{i}." for i in range(12_000)), encoding="utf-8")
    return str(path)


def window(example):
    (question,) = example.questions
    assert (example.context, question.prompt, question.position) == ("", "", None)
    return question.answer


def test_windows_have_exactly_the_length(tokenizer, text):
    for file in (None, text):
        examples = PerplexityTask(length=120, contexts=5, file=file).build(tokenizer, 0, "search")
        assert [len(tokenizer(window(e)).input_ids) for e in examples.examples] == [120] * 5
        assert examples.length == 120


class Counted:
    """A tokenizer that counts the characters it has read."""

    def __init__(self, tokenizer):
        self.tokenizer, self.read = tokenizer, 0

    def __call__(self, text, **settings):
        self.read += len(text)
        return self.tokenizer(text, **settings)

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)


def test_a_window_is_found_in_few_passes_over_its_text(tokenizer):
    counted = Counted(tokenizer)
    examples = PerplexityTask(length=4000, contexts=1).build(counted, 0, "search")
    assert examples.length == 4000
    assert counted.read < 20 * len(window(examples.examples[0]))


def test_windows_are_in_the_text_and_start_with_a_word(tokenizer):
    prose = builtin_prose()
    for example in PerplexityTask(length=60, contexts=6).build(tokenizer, 1, "heldout").examples:
        start = prose.index(window(example))
        assert prose[start - 1].isspace()


def test_windows_of_all_splits_and_lengths_share_no_text(tokenizer, text):
    seen = set()
    for split in SPLITS:
        for example in (
            PerplexityTask(length=200 if split == "guard" else 700, contexts=3, file=text)
            .build(tokenizer, 0, split)
            .examples
        ):
            words = set(re.findall(r"\bword\d+\.", window(example)))
            assert words
            assert not seen & words
            seen |= words


def test_the_same_seed_gives_the_same_windows_and_another_gives_others(tokenizer, text):
    task = PerplexityTask(length=100, contexts=3, file=text)
    assert task.build(tokenizer, 4, "search") == task.build(tokenizer, 4, "search")
    assert task.build(tokenizer, 4, "search").hash != task.build(tokenizer, 5, "search").hash


def test_a_text_too_short_is_refused_with_what_it_can_fill(tokenizer, tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("only a few words " * 40, encoding="utf-8")
    with pytest.raises(
        TaskError, match=r"length: got 300; allowed: at most about \d+ tokens in 2 windows of split heldout"
    ):
        PerplexityTask(length=300, contexts=2, file=str(path)).build(tokenizer, 0, "heldout")


def test_a_missing_or_binary_file_is_refused(tokenizer, tmp_path):
    with pytest.raises(TaskError, match="No such file"):
        PerplexityTask(length=20, file=str(tmp_path / "none.txt")).build(tokenizer, 0, "search")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TaskError, match="UTF-8"):
        PerplexityTask(length=20, file=str(tmp_path / "binary")).build(tokenizer, 0, "search")


def test_moving_a_task_changes_length_and_contexts_only():
    task = PerplexityTask(length=512, contexts=8)
    assert task.at_length(128, 3) == PerplexityTask(length=128, contexts=3)
    assert task.at_length(None) == task


def test_the_fitness_is_minus_the_mean_loss_of_all_tokens():
    scores = [Score("a", "a", None, 0.0, -30.0, 10, None), Score("b", "b", None, 0.0, -10.0, 30, None)]
    assert METRICS["perplexity"](scores) == pytest.approx(-40 / 40)
    assert METRICS["likelihood"](scores) == pytest.approx((-3 - 1 / 3) / 2)
    assert METRICS["exact"](scores) == 0
