"""Sources of RULER's questions in their own formats, small, and sets of any task at a length."""

import gzip
import json

import pytest

from fitness.ruler import RulerTask

ARTICLES, PARAGRAPHS, ROWS = 20, 3, 40


@pytest.fixture
def squad_data():
    """Articles of three paragraphs with two questions each, the second of them without an answer."""

    def paragraph(article, number):
        place = f"a{article}p{number}"
        qas = [
            {
                "question": f"Who built {place}?",
                "id": place,
                "is_impossible": False,
                "answers": [
                    {"text": f"Builder {place}", "answer_start": 0},
                    {"text": place, "answer_start": 0},
                ],
            },
            {"question": f"Who burnt {place}?", "id": f"{place}x", "is_impossible": True, "answers": []},
        ]
        return {"context": f"The house {place} was built by Builder {place} long ago.", "qas": qas}

    titles = range(ARTICLES)
    data = [{"title": f"T{a}", "paragraphs": [paragraph(a, n) for n in range(PARAGRAPHS)]} for a in titles]
    return {"version": "v2.0", "data": data}


@pytest.fixture
def hotpot_data():
    """Questions with ten paragraphs each."""
    rows = []
    for i in range(ROWS):
        context = [[f"Title {i}.{n}", [f"First of {i}.{n}.", f" Second of {i}.{n}."]] for n in range(10)]
        rows.append({"_id": str(i), "question": f"What is {i}?", "answer": f"thing {i}", "context": context})
    return rows


@pytest.fixture
def squad_file(tmp_path, squad_data):
    path = tmp_path / "dev-v2.0.json"
    path.write_text(json.dumps(squad_data), encoding="utf-8")
    return str(path)


@pytest.fixture
def hotpot_file(tmp_path, hotpot_data):
    path = tmp_path / "hotpot.json.gz"
    path.write_bytes(gzip.compress(json.dumps(hotpot_data).encode()))
    return str(path)


@pytest.fixture
def built(bpe, squad_file, hotpot_file):
    """Build a task by name."""

    def build(name, length=700, contexts=4, seed=0, split="search", tokenizer=bpe, **fields):
        sources = {"squad": squad_file, "hotpotqa": hotpot_file}
        task = RulerTask(name=name, length=length, contexts=contexts, **{**sources, **fields})
        return task.build(tokenizer, seed, split)

    return build
