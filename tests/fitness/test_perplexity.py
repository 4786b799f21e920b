"""Perplexity windows: as long as asked, without overlap between windows or splits, on any text."""

import math
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from pydantic import ValidationError

from fitness.encoding import encode
from fitness.errors import TaskError
from fitness.perplexity import PerplexityTask
from fitness.prose import builtin_prose
from fitness.scoring import METRICS, Score, score_example

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


def words(start, count):
    return " ".join(f"word{i:05}." for i in range(start, start + count))


@pytest.fixture
def books(tmp_path):
    """Twenty text files in a folder, two of them in a folder inside; every word is its own file's."""
    folder = tmp_path / "books"
    (folder / "more").mkdir(parents=True)
    for i in range(20):
        place = folder / "more" if i > 17 else folder
        (place / f"{i:02}.txt").write_text(words(1000 * i, 300), encoding="utf-8")
    (folder / ".hidden").write_text("not a book", encoding="utf-8")
    return folder


@pytest.mark.parametrize(("length", "stride", "windows"), [(64, 16, 5), (100, 1, 3), (33, 31, 4)])
def test_sliding_windows_are_those_of_the_documents_own_tokens(tokenizer, text, length, stride, windows):
    task = PerplexityTask(length=length, contexts=2, file=text, mode="sliding", stride=stride, windows=windows)
    examples = task.build(tokenizer, 3, "heldout")
    assert (examples.length, len(examples.examples), examples.num_contexts) == (length, 2 * windows, 2)
    for start in (0, windows):
        pieces = [e.questions[0].ids for e in examples.examples[start : start + windows]]
        assert {len(read) + len(scored) for read, scored in pieces} == {length}
        assert {read[0] for read, _ in pieces} == {tokenizer.bos_token_id}
        body = [*pieces[0][0][1:], *(i for _, scored in pieces for i in scored)]
        for i, (read, scored) in enumerate(pieces):
            assert [*read[1:], *scored] == body[i * stride : i * stride + length - 1]
        document = tokenizer.decode(body)
        whole = next(c for c in (document, document[1:]) if tokenizer(c).input_ids[1:] == body)
        assert whole.strip() in Path(text).read_text(encoding="utf-8")


def test_the_score_of_a_sliding_window_is_that_of_its_last_tokens_in_a_plain_forward(make_llama, tokenizer, text):
    model = make_llama()
    task = PerplexityTask(length=48, contexts=1, file=text, mode="sliding", stride=10, windows=4)
    for example in task.build(tokenizer, 0, "search").examples:
        read, scored = example.questions[0].ids
        with torch.inference_mode():
            logits = model(torch.tensor([[*read, *scored]])).logits[0].log_softmax(-1)
        expected = sum(float(logits[len(read) - 1 + i, token]) for i, token in enumerate(scored))
        (score,) = score_example(model, tokenizer, example, task.scoring).scores
        assert score.logprob == pytest.approx(expected, abs=1e-3)
        assert score.answer_tokens == 10


def test_a_tokenizer_without_a_sequence_start_slides_over_whole_windows(greedy_tokenizer, text):
    task = PerplexityTask(length=40, contexts=1, file=text, mode="sliding", stride=8, windows=3)
    sizes = {encode(greedy_tokenizer, e).length for e in task.build(greedy_tokenizer, 0, "search").examples}
    assert sizes == {40}


def test_a_stride_has_a_default_and_follows_a_shorter_length():
    assert PerplexityTask(length=4096, mode="sliding").span == 4096 + 7 * 256
    assert PerplexityTask(length=100, mode="sliding", windows=3).span == 100 + 2 * 50
    moved = PerplexityTask(length=1000, mode="sliding", stride=500).at_length(200)
    assert (moved.length, moved.stride, moved.mode) == (200, 100, "sliding")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stride": 8}, "stride: got 8; allowed: nothing with mode: truncated"),
        ({"windows": 8}, "windows: got 8"),
        ({"mode": "sliding", "stride": 99}, "stride: got 99; allowed: below length 100"),
        ({"file": "a", "dataset": {"name": "b"}}, "either file or dataset"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields, words):
    with pytest.raises(ValidationError, match=words):
        PerplexityTask(length=100, **fields)


def test_the_documents_of_a_folder_are_dealt_out_whole(tokenizer, books):
    seen = {}
    for split, count in zip(SPLITS, (8, 6, 4, 2), strict=True):
        examples = PerplexityTask(length=60, contexts=count, file=str(books)).build(tokenizer, 0, split)
        assert examples.num_contexts == count
        seen[split] = {int(re.search(r"word(\d{5})\.", window(e)).group(1)) // 1000 for e in examples.examples}
    assert sum(map(len, seen.values())) == len(set().union(*seen.values())) == 20
    with pytest.raises(TaskError, match="contexts: got 9; allowed: at most 8, the documents of"):
        PerplexityTask(length=60, contexts=9, file=str(books)).build(tokenizer, 0, "search")


def test_a_document_too_short_is_an_error_unless_it_may_be_skipped_which_is_counted(tokenizer, books):
    (books / "00.txt").write_text("a few words", encoding="utf-8")
    task = PerplexityTask(length=60, contexts=7, file=str(books))
    with pytest.raises(TaskError, match=r"length: got 60; allowed: at most \d+ tokens, all that .*00\.txt can fill"):
        task.model_copy(update={"contexts": 8}).build(tokenizer, 0, "search")
    skipping = task.model_copy(update={"skip_short": True, "contexts": 8})
    with pytest.raises(TaskError, match=r"at most 7, the documents of .*, 1 more being too short"):
        skipping.build(tokenizer, 0, "search")
    few = skipping.model_copy(update={"contexts": 4})
    notes = {few.build(tokenizer, seed, "search").notes for seed in range(8)}
    assert notes == {(), ("1 documents of fewer than 60 tokens were skipped",)}


def test_an_empty_file_and_an_empty_folder_are_refused(tokenizer, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match="at least one document"):
        PerplexityTask(length=20, file=str(tmp_path / "empty")).build(tokenizer, 0, "search")
    (tmp_path / "empty.txt").write_text(" \n", encoding="utf-8")
    with pytest.raises(TaskError, match="some text"):
        PerplexityTask(length=20, file=str(tmp_path / "empty.txt")).build(tokenizer, 0, "search")


class Rows:
    """A data set of the Hub as the package `datasets` gives it."""

    column_names = ("title", "text")

    def __init__(self, texts):
        self.texts = texts

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return {"title": str(index), "text": self.texts[index]}


@pytest.fixture
def hub(monkeypatch):
    """The package `datasets`, replaced by one that knows a single data set."""
    module = ModuleType("datasets")

    def load_dataset(name, config, *, split, revision):
        if (name, split) != ("some/books", "test"):
            raise FileNotFoundError(f"no {name} on the Hub")
        return Rows([words(1000 * i, 300) for i in range(20)])

    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)


def test_a_data_set_of_the_hub_is_a_folder_of_documents(hub, tokenizer, books):
    from_hub = PerplexityTask(length=60, contexts=3, dataset={"name": "some/books"}).build(tokenizer, 5, "guard")
    texts = {window(e) for e in from_hub.examples}
    assert len(texts) == 3
    assert texts == {
        window(e) for e in PerplexityTask(length=60, contexts=3, file=str(books)).build(tokenizer, 5, "guard").examples
    }


def test_a_data_set_that_cannot_be_had_is_refused(hub, tokenizer, monkeypatch):
    def build(**dataset):
        return PerplexityTask(length=60, dataset=dataset).build(tokenizer, 0, "search")

    with pytest.raises(TaskError, match=r"dataset: got 'other/books, split test'.*no other/books on the Hub"):
        build(name="other/books")
    with pytest.raises(TaskError, match=r"dataset.field: got 'body'; allowed: one of title, text"):
        build(name="some/books", field="body")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(TaskError, match=r"dataset: got 'some/books'.*pip install datasets"):
        build(name="some/books")


def test_perplexity_of_uniform_guesses_is_the_size_of_the_vocabulary(make_llama, tokenizer, text):
    model = make_llama()
    with torch.no_grad():
        model.lm_head.weight.zero_()
    for mode in ("truncated", "sliding"):
        examples = PerplexityTask(length=40, contexts=2, file=text, mode=mode).build(tokenizer, 0, "search").examples
        scores = [s for e in examples for s in score_example(model, tokenizer, e, "teacher_forcing").scores]
        assert math.exp(-METRICS["perplexity"](scores)) == pytest.approx(len(tokenizer), rel=1e-4)
