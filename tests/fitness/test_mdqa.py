"""Multi-document question answering: official prompts and positions, distractors that hold no answer, lengths met."""

import gzip
import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from fitness.encoding import encode, split, token_ids
from fitness.errors import TaskError
from fitness.examples import Example
from fitness.mdqa import NOT_COMPARABLE, MDQATask, published_positions
from fitness.mdqa_rows import read_qa
from fitness.metrics import normalised
from fitness.modes import modes
from fitness.scoring import score_example

OFFICIAL = Path(__file__).parents[3] / "shared/data/nq-open-oracle.jsonl.gz"
SPLITS = ("search", "heldout", "guard", "validation")


def line(i, documents=1, gold=0, **changed):
    """A row of the official form. Every third shares its gold document with the next; rows i and i + 10 an answer."""
    about = i - i % 3 if i % 3 < 2 else i
    texts = [f"It was by number {n} of row {i} that nothing was won." for n in range(1, documents)]
    ctxs = [{"title": f"Side {n}", "text": t, "hasanswer": False, "isgold": False} for n, t in enumerate(texts)]
    text = f"In the year {1000 + about} the prize went to Name{about % 10}, of Place{about}."
    ctxs.insert(gold, {"title": f"Prize {about}", "text": text, "hasanswer": True, "isgold": True})
    row = {"question": f"who won prize {i}", "answers": [f"the name{about % 10}!", f"Nobody {i}"], "ctxs": ctxs}
    return json.dumps({**row, "nq_annotated_gold": {}, **changed})


@pytest.fixture
def oracle(written):
    return written([line(i) for i in range(40)], "oracle.jsonl")


@pytest.fixture
def retrieved(tmp_path):
    path = tmp_path / "nq-open-20_total_documents_gold_at_4.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(line(i, 20, 4) for i in range(20)).encode()))
    return str(path)


def documents_in(context):
    return re.findall(r"Document \[(\d+)\]\(Title: (.*?)\) (.*)", context)


def test_positions_are_the_published_ones():
    assert published_positions(10) == (0, 4, 9)
    assert published_positions(20) == (0, 4, 9, 14, 19)
    assert published_positions(30) == (0, 4, 9, 14, 19, 24, 29)
    assert [published_positions(n) for n in (1, 2, 4, 6)] == [(0,), (0, 1), (0, 3), (0, 4, 5)]


def test_a_prompt_is_the_official_one(retrieved, tokenizer):
    [example] = MDQATask(file=retrieved, documents=3, positions=(1,), contexts=1).build(tokenizer, 3, "search").examples
    row = next(row for row in read_qa(retrieved) if row.id == example.id)
    [question] = example.questions
    assert example.context + question.prompt == (
        "Write a high-quality answer for the given question using only the provided search results (some of which "
        "might be irrelevant).\n\n"
        f"Document [1](Title: {row.others[0].title}) {row.others[0].text}\n"
        f"Document [2](Title: {row.gold.title}) {row.gold.text}\n"
        f"Document [3](Title: {row.others[1].title}) {row.others[1].text}\n\n"
        f"Question: {row.question}\nAnswer:"
    )
    assert (question.references, question.answer) == (row.answers, " " + row.answers[0])
    assert (question.metric, question.budget, question.position) == ("mdqa", 100, 1)


def test_query_first_asks_before_the_documents_too(retrieved, tokenizer):
    task = MDQATask(file=retrieved, documents=2, contexts=1, query_first=True)
    for example in task.build(tokenizer, 0, "guard").examples:
        asked = example.questions[0].prompt.removesuffix("\nAnswer:")
        assert f"irrelevant).\n\n{asked}\n\nDocument [1]" in example.context


def test_a_closed_book_has_no_documents_and_no_instruction(oracle, tokenizer):
    examples = MDQATask(file=oracle, documents=0, contexts=5).build(tokenizer, 0, "search")
    for example in examples.examples:
        [question] = example.questions
        assert example.context == ""
        assert re.fullmatch(r"Question: who won prize \d+\nAnswer:", question.prompt)
        assert question.position is None
    assert examples.notes == ()


def test_the_gold_document_moves_and_the_others_keep_their_order(retrieved, tokenizer):
    examples = MDQATask(file=retrieved, documents=20, contexts=4).build(tokenizer, 1, "search").examples
    assert [e.questions[0].position for e in examples] == [0, 4, 9, 14, 19] * 4
    rows = {row.id: row for row in read_qa(retrieved)}
    for example in examples:
        row, found = rows[example.id], documents_in(example.context)
        assert [number for number, _, _ in found] == [str(i) for i in range(1, 21)]
        texts = [text for _, _, text in found]
        assert texts.index(row.gold.text) == example.questions[0].position
        assert [text for text in texts if text != row.gold.text] == [d.text for d in row.others]


def test_files_of_every_gold_position_give_the_same_examples(written, retrieved, tokenizer):
    moved = written([line(i, 20, 19) for i in range(20)], "gold_at_19.jsonl")
    built = [
        MDQATask(file=file, documents=10, contexts=4).build(tokenizer, 5, "heldout") for file in (retrieved, moved)
    ]
    assert built[0].hash == built[1].hash
    assert built[0].notes == ()


def check_distractors(file, tokenizer, documents, contexts, split):
    examples = MDQATask(file=file, documents=documents, contexts=contexts, questions=1).build(tokenizer, 2, split)
    rows = {row.id: row for row in read_qa(file)}
    for example in examples.examples:
        texts = [f"{title} {text}" for _, title, text in documents_in(example.context)]
        assert len(set(texts)) == documents
        holding = [
            t for t in texts if any(normalised(a) in normalised(t) for a in rows[example.id].answers if normalised(a))
        ]
        assert set(holding) == {f"{rows[example.id].gold.title} {rows[example.id].gold.text}"}
    assert examples.notes == (NOT_COMPARABLE,)


def test_distractors_of_the_oracle_file_hold_no_answer_and_are_marked_as_not_comparable(oracle, tokenizer):
    check_distractors(oracle, tokenizer, 4, 6, "search")


@pytest.mark.skipif(not OFFICIAL.exists(), reason="the official oracle file is not at hand")
def test_distractors_of_the_official_oracle_file_hold_no_answer(tokenizer):
    check_distractors(str(OFFICIAL), tokenizer, 20, 3, "guard")


def test_the_oracle_alone_needs_no_mark(oracle, tokenizer):
    assert MDQATask(file=oracle, documents=1, contexts=3).build(tokenizer, 0, "search").notes == ()


def test_splits_share_neither_questions_nor_documents_whatever_their_seeds(oracle, tokenizer):
    seen = set()
    for seed, name in enumerate(SPLITS):
        task = MDQATask(file=oracle, documents=2, contexts=2)
        for example in task.build(tokenizer, seed, name).examples:
            found = {text for _, _, text in documents_in(example.context)} | {example.questions[0].prompt}
            assert not seen & {(other, item) for other in SPLITS if other != name for item in found}
            seen |= {(name, item) for item in found}


def test_more_documents_are_the_same_and_others_behind_them(oracle, tokenizer):
    def texts(documents):
        task = MDQATask(file=oracle, documents=documents, positions=(0,), contexts=2)
        return [documents_in(e.context) for e in task.build(tokenizer, 9, "search").examples]

    for few, more in zip(texts(3), texts(5), strict=True):
        assert more[:3] == few


@pytest.mark.parametrize("scoring", ["generation", "teacher_forcing"])
@pytest.mark.parametrize("length", [300, 437, 600])
def test_a_length_is_filled_to_a_document_and_never_exceeded(retrieved, tokenizer, length, scoring):
    metric = "exact" if scoring == "generation" else "likelihood"
    task = MDQATask(file=retrieved, length=length, contexts=4, scoring=scoring, metric=metric, budget=80)
    built = task.build(tokenizer, 0, "search")
    sizes = []
    for example in built.examples:
        [question] = example.questions
        head, tail = split(tokenizer, example.context, question.prompt, question.answer)
        sizes.append(len(head) + (80 if scoring == "generation" else len(tail)))
        assert encode(tokenizer, example).length == sizes[-1]
    assert built.length == max(sizes) <= length
    count = len(documents_in(built.examples[0].context))
    more = MDQATask(file=retrieved, documents=count + 1, contexts=4, scoring=scoring, metric=metric, budget=80)
    assert more.build(tokenizer, 0, "search").length > length


def test_a_length_that_holds_no_document_or_more_than_there_are_is_refused(retrieved, oracle, tokenizer):
    with pytest.raises(TaskError, match=r"length: got 130; allowed: at least \d+ tokens, which one document"):
        MDQATask(file=retrieved, length=130, contexts=3).build(tokenizer, 0, "search")
    for file in (retrieved, oracle):
        with pytest.raises(TaskError, match=r"length: got 90000; allowed: at most (\d+) tokens") as caught:
            MDQATask(file=file, length=90000, contexts=3).build(tokenizer, 0, "search")
        filled = int(re.search(r"at most (\d+)", str(caught.value))[1])
        assert MDQATask(file=file, length=filled, contexts=3).build(tokenizer, 0, "search").length <= filled


def test_at_length_keeps_the_task_and_asks_at_as_many_places(retrieved, tokenizer):
    task = MDQATask(file=retrieved, documents=20, contexts=4, positions=(0, 10, 19))
    short = task.at_length(400, 2)
    assert (short.length, short.documents, short.contexts, short.questions) == (400, None, 2, 3)
    built = short.build(tokenizer, 0, "guard")
    assert built.length <= 400
    assert built.num_contexts == 2
    assert task.at_length(None) == task
    closed = MDQATask(file=retrieved, documents=0)
    assert closed.at_length(50, 3) == MDQATask(file=retrieved, documents=0, contexts=3)


def test_an_answer_in_the_first_line_counts_and_likelihood_is_that_of_the_first_answer(make_llama, tokenizer, oracle):
    [example] = MDQATask(file=oracle, documents=1, contexts=1, budget=5).build(tokenizer, 0, "search").examples
    [score] = score_example(make_llama(), tokenizer, example, "generation").scores
    assert len(token_ids(tokenizer, score.output)) <= 7
    task = MDQATask(file=oracle, documents=1, contexts=1, metric="likelihood")
    assert task.scoring == "teacher_forcing"
    [example] = task.build(tokenizer, 0, "search").examples
    [score] = score_example(make_llama(), tokenizer, example, task.scoring).scores
    assert score.logprob < 0
    assert isinstance(example, Example)
    assert example.questions[0].budget is None


def test_free_answers_allow_no_exact_by_teacher_forcing():
    assert modes(MDQATask) == (
        ("generation", "exact"),
        ("teacher_forcing", "likelihood"),
        ("teacher_forcing", "perplexity"),
    )
    with pytest.raises(ValidationError, match="likelihood, perplexity with scoring: teacher_forcing"):
        MDQATask(file="f", documents=3, scoring="teacher_forcing")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "exactly one of length and documents"),
        ({"documents": 3, "length": 5}, "exactly one of length and documents"),
        ({"documents": 3, "positions": (0, 3)}, "0 to 2: a context holds 3"),
        ({"documents": 3, "positions": (1, 1)}, "each position once"),
        ({"documents": 3, "questions": 4}, "at most 3, the documents of a context"),
        ({"documents": 3, "questions": 2, "positions": (1,)}, "either questions or positions"),
        ({"documents": 0, "query_first": True}, "at least 1 with positions"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields, says):
    with pytest.raises(ValidationError, match=says):
        MDQATask(file="f", **fields)


def test_more_contexts_or_documents_than_there_are_is_refused(retrieved, tokenizer):
    with pytest.raises(TaskError, match=r"contexts: got 99; allowed: at most \d+, the rows of .* in split guard"):
        MDQATask(file=retrieved, documents=3, contexts=99).build(tokenizer, 0, "guard")
    with pytest.raises(TaskError, match=r"documents: got 21; allowed: at most 20"):
        MDQATask(file=retrieved, documents=21, contexts=2).build(tokenizer, 0, "guard")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"question": " "}, "question is not a text"),
        ({"answers": []}, "answers is not a list of texts"),
        ({"answers": [" "]}, "answers is not a list of texts"),
        ({"ctxs": "none"}, "ctxs is not a list"),
        ({"ctxs": [{"title": "t", "text": "x"}]}, "not a document with title, text and isgold"),
        ({"ctxs": [{"title": "t", "text": "x", "isgold": False}]}, "0 documents of ctxs are gold"),
    ],
)
def test_a_garbled_line_is_refused_with_file_and_line(written, tokenizer, changed, says):
    file = written([line(i, **(changed if i == 6 else {})) for i in range(20)])
    with pytest.raises(TaskError, match=rf"rows\.jsonl, line 7'.*{says}"):
        MDQATask(file=file, documents=2, contexts=2).build(tokenizer, 0, "search")


def test_a_missing_field_missing_file_or_key_value_file_is_refused(written, official_lines, tokenizer):
    with pytest.raises(TaskError, match=r"rows\.jsonl, line 1'.*question, answers and ctxs \(question is missing"):
        MDQATask(file=written(official_lines), documents=2).build(tokenizer, 0, "search")
    with pytest.raises(TaskError, match=r"nowhere\.jsonl'.*No such file"):
        MDQATask(file="nowhere.jsonl", documents=2).build(tokenizer, 0, "search")
