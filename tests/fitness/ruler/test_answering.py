"""RULER's question answering: documents in the published order of choice, both formats, and broken files."""

import gzip
import json
import re
import sys
from types import SimpleNamespace

import pytest

from fitness.errors import TaskError
from fitness.ruler.passages import hotpotqa, squad
from fitness.splits import SHARES, holds
from fitness.texts import HubData

ARTICLES, PARAGRAPHS, ROWS = 20, 3, 40  # of the small files


def documents(example):
    body = example.context.split("The following are given documents.\n\n")[1]
    numbers, texts = zip(*re.findall(r"Document (\d+):\n(.*?)(?=\n\nDocument \d+:\n|$)", body, re.S), strict=True)
    assert [int(number) for number in numbers] == list(range(1, len(numbers) + 1))
    return texts


def test_the_prompt_is_the_published_one(built):
    (example,) = built("qa_1", 400, contexts=1).examples
    (question,) = example.questions
    instruction = (
        "Answer the question based on the given documents. Only give me the answer and do not output any other words."
    )
    assert example.context.startswith(f"{instruction}\n\nThe following are given documents.\n\nDocument 1:\nThe house ")
    assert re.fullmatch(re.escape(f"\n\n{instruction}\n\nQuestion: Who built ") + r"a\d+p\d\? Answer:", question.prompt)


@pytest.mark.parametrize("length", [330, 500, 1000])
def test_a_squad_question_comes_with_its_paragraph_then_its_article_then_others(built, length):
    for example in built("qa_1", length, contexts=6).examples:
        (question,) = example.questions
        place = re.search(r"a(\d+)p\d", question.prompt)
        texts = documents(example)
        assert sum(place[0] in text for text in texts) == 1
        assert len(set(texts)) == len(texts)
        own = sum(f" a{place[1]}p" in text for text in texts)
        assert own == min(len(texts), PARAGRAPHS)
        assert question.references == (f"Builder {place[0]}", place[0])
        assert question.answer == f" Builder {place[0]}"


def test_gold_documents_stand_anywhere(built):
    places = set()
    for example in built("qa_1", 700, contexts=10).examples:
        place = re.search(r"a\d+p\d", example.questions[0].prompt)[0]
        places.add(next(i for i, text in enumerate(documents(example)) if place in text))
    assert len(places) > 4


def test_a_hotpotqa_question_comes_with_its_ten_paragraphs(built):
    for example in built("qa_2", 900).examples:
        number = re.search(r"What is (\d+)", example.questions[0].prompt)[1]
        texts = documents(example)
        own = [text for text in texts if text.startswith(f"Title {number}.")]
        assert len(own) == 10
        assert len(texts) > 10
        title, sentences = own[0].split("\n")
        assert sentences == f"First of {title[6:]}. Second of {title[6:]}."


def test_questions_and_distractors_are_of_the_split(built):
    for split in SHARES:
        for example in built("qa_1", 600, contexts=2, split=split).examples:
            articles = {int(re.search(r"a(\d+)p", text)[1]) for text in documents(example)}
            assert all(holds(split, article) for article in articles)


def test_distractors_of_all_splits_on_request_and_said_so(built):
    found = built("qa_1", 4000, contexts=2, distractors="all")
    assert all(len(documents(example)) == ARTICLES * PARAGRAPHS for example in found.examples)
    assert "squad: distractors come from the documents of all splits" in found.notes


def test_too_few_documents_for_the_length_are_said(built):
    found = built("qa_1", 4000, contexts=2)
    assert any(re.fullmatch(r"qa_1: the shortest example fills \d+ of 4000 tokens", note) for note in found.notes)


def test_questions_without_an_answer_are_left_out_and_counted(squad_file):
    found = {split: squad(squad_file, None, split, False) for split in SHARES}
    assert sum(len(collection.questions) for collection in found.values()) == ARTICLES * PARAGRAPHS
    assert sum(collection.unanswerable for collection in found.values()) == ARTICLES * PARAGRAPHS
    assert all(question.text.startswith("Who built") for question in found["search"].questions)


def test_their_number_is_in_the_notes(built):
    assert "squad: 24 questions without an answer left out, as published" in built("qa_1", 400).notes


def test_more_examples_than_questions_are_refused_with_their_number(built):
    with pytest.raises(
        TaskError, match="contexts: got 25; allowed: at most 24, the questions in split search of squad"
    ):
        built("qa_1", 400, contexts=25)


class Rows(list):
    column_names = ("title", "context", "question", "answers", "answer")


@pytest.fixture
def on_the_hub(monkeypatch):
    def put(rows):
        monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=lambda *a, **k: Rows(rows)))
        return HubData(name="someone/data", split="validation")

    return put


@pytest.mark.parametrize("split", SHARES)
def test_squad_on_the_hub_gives_the_same_as_its_file(on_the_hub, squad_file, squad_data, split):
    rows = [
        {
            "title": article["title"],
            "context": paragraph["context"],
            "question": qa["question"],
            "answers": {"text": [answer["text"] for answer in qa["answers"]], "answer_start": []},
        }
        for article in squad_data["data"]
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]
    assert squad(None, on_the_hub(rows), split, False) == squad(squad_file, None, split, False)


@pytest.mark.parametrize("split", SHARES)
def test_hotpotqa_on_the_hub_gives_the_same_as_its_file(on_the_hub, hotpot_file, hotpot_data, split):
    rows = [
        {**row, "context": {"title": [t for t, _ in row["context"]], "sentences": [s for _, s in row["context"]]}}
        for row in hotpot_data
    ]
    found = hotpotqa(None, on_the_hub(rows), split, False)
    assert found == hotpotqa(hotpot_file, None, split, False)
    assert len(found.questions) == ROWS * SHARES[split] // 10


@pytest.mark.parametrize(
    ("kind", "path", "message"),
    [
        ("squad", ("data",), "a list `data`"),
        ("squad", ("data", 3, "paragraphs"), "data 3'; allowed: an entry with a list `paragraphs`"),
        ("squad", ("data", 1, "paragraphs", 2, "context"), "data 1'; allowed: an entry with a text `context`"),
        ("squad", ("data", 0, "paragraphs", 1, "qas"), "data 0, paragraph 1'; allowed: an entry with a list `qas`"),
        ("squad", ("data", 0, "paragraphs", 1, "qas", 0, "question"), "paragraph 1, .*a text `question`"),
        ("squad", ("data", 0, "paragraphs", 1, "qas", 0, "answers", 1, "text"), "paragraph 1, .*a text `text`"),
        ("hotpotqa", (2, "context"), "row 2'; allowed: an entry with context as pairs of a title and its sentences"),
        ("hotpotqa", (4, "context", 3, 1), "row 4'; allowed: an entry with context as pairs"),
        ("hotpotqa", (1, "answer"), "row 1'; allowed: an entry with a text `answer`"),
    ],
)
def test_a_missing_field_is_refused_with_its_place(built, tmp_path, squad_data, hotpot_data, kind, path, message):
    data = {"squad": squad_data, "hotpotqa": hotpot_data}[kind]
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(TaskError, match=message) as refused:
        built({"squad": "qa_1", "hotpotqa": "qa_2"}[kind], 900, **{kind: str(file)})
    assert str(file) in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"data": [\n{"title": 1,\n', "wrong.json, line 3'; allowed: SQuAD's JSON"),
        (gzip.compress(b'{"data": []}', mtime=0)[:20], "SQuAD's whole JSON file"),
        (b"\xff\xfe{}", "SQuAD's whole JSON file"),
        (b'{"data": []}', "at most 0, the questions in split search of squad"),
        (None, "SQuAD's JSON file, readable"),
    ],
    ids=["cut off", "cut off gzip", "no text", "empty", "missing"],
)
def test_a_broken_empty_or_missing_file_is_refused(built, tmp_path, content, message):
    file = tmp_path / "wrong.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TaskError, match=message):
        built("qa_1", 900, squad=str(file))
