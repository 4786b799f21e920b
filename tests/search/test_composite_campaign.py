"""A campaign on several tasks: prepared on the real tokenizer, run, and reported part by part."""

import math
from pathlib import Path

import pytest

from dashboards.findings import sentences, table
from dashboards.record import Record
from dashboards.report import page
from fitness.scoring import Score
from search.campaign import parse
from search.errors import CampaignError
from search.preparation import prepare
from search.runner import Runner
from search.storage import Storage
from tests.search.fake import FakeEvaluator

ROOT = Path(__file__).parents[2]
KV = {"task": "kv", "keys": "hex4", "values": "hex4", "contexts": 2, "questions": 4}


def campaign(guard=None, **fitness):
    parts = [
        {"of": KV, "weight": 3, "lengths": [200, 400]},
        {"of": {"task": "perplexity", "contexts": 2}, "name": "prose", "scale": [-6, -1]},
    ]
    return parse(
        {
            "name": "both",
            "model": {"id": str(ROOT / "models/tiny-kv")},
            "target_length": 400,
            "fitness": {"task": "composite", "parts": parts, **fitness},
            "heldout": {"contexts": 3},
            "guard": {"contexts": 3, **(guard or {})},
            "stages": [{"kind": "genetic", "population": 5, "generations": 1, "elite": 2}],
            "baselines": ["identity", "linear"],
        }
    )


class Evaluator(FakeEvaluator):
    """Answers better, and finds prose likelier, the nearer the factors are to the ideal."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def _scores(self, profile, request):
        made = []
        good = 1 / (1 + abs(math.log(mean(profile) / 2)))
        for example in self.sets[request.example_set].slice(request.start, request.stop):
            assert request.scoring == "teacher_forcing"
            for i, question in enumerate(example.questions):
                right = float(i < good * len(example.questions))
                made.append(Score(question.id, example.id, question.position, right, -40 * (1 - good), 10, None))
        return tuple(made)


def mean(profile):
    factor = profile.frequency.factor or 1.0
    return sum(factor) / len(factor) if isinstance(factor, tuple) else factor


@pytest.fixture(scope="module", params=[False, True], ids=["reported", "enforced"])
def finished(request, tmp_path_factory):
    prepared = prepare(campaign(guard={"enforce": request.param, "length": 100}))
    evaluator, record = Evaluator(prepared.shape), Record()
    storage = Storage(str(tmp_path_factory.mktemp("both")), "it")
    result = Runner(prepared, "it", storage, [record.add]).run(evaluator, resume=False)
    return prepared, evaluator, record, result


def test_each_set_holds_the_parts_at_the_lengths_that_it_asks_for(finished):
    prepared, *_ = finished
    names = {
        name: {e.id.split("/")[0] for e in s.examples} for name, s in prepared.sets.items() if name != "feasibility"
    }
    assert names["search"] == names["heldout"] == {"kv@200", "kv@400", "prose@400"}
    assert names["guard"] == {"kv@100", "prose@100"}
    assert prepared.sets["heldout"].num_contexts == 9


def test_every_score_is_between_0_and_1_and_is_the_mean_of_its_parts(finished):
    *_, result = finished
    for row in [result["winner"], *result["baselines"].values()]:
        assert 0 <= row["heldout"]["low"] <= row["heldout"]["score"] <= row["heldout"]["high"] <= 1
        parts = row["parts"]
        assert {p["part"]: p["share"] for p in parts} == pytest.approx(
            {"kv@200": 0.375, "kv@400": 0.375, "prose@400": 0.25}
        )
        whole = sum(p["share"] * p["normalised"]["score"] for p in parts)
        assert row["heldout"]["score"] == pytest.approx(whole)
        prose = parts[2]
        assert prose["metric"] == "perplexity"
        assert prose["normalised"]["score"] == pytest.approx(min(max((prose["score"] + 6) / 5, 0), 1))
        assert row["by_position"] == []
    assert result["winner"]["search_score"] > result["baselines"]["identity"]["search_score"]


def test_the_report_in_words_and_in_html_shows_the_parts(finished):
    prepared, _, record, _ = finished
    report = record.report
    headers, rows = table(report)
    assert all(len(row) == len(headers) for row in rows)
    text = " ".join(sentences(report))
    assert ("The guard was enforced" in text) == prepared.campaign.guard.enforce
    html = page(record)
    assert "composite of kv, prose" in html
    for name in ("kv@200", "kv@400", "prose@400"):
        assert name in html


def test_a_part_longer_than_the_target_length_is_refused():
    with pytest.raises(CampaignError, match=r"fitness.parts.0.lengths: got 900; allowed: at most 400"):
        campaign(parts=[{"of": KV, "lengths": [200, 900]}])


def test_a_misspelt_field_of_a_part_is_refused_with_the_nearest():
    with pytest.raises(CampaignError, match=r"fitness.parts.0.of.context: .*did you mean contexts"):
        campaign(parts=[{"of": {"task": "kv", "context": 2}}])
    with pytest.raises(CampaignError, match=r"fitness.parts.0.wieght: .*did you mean weight"):
        campaign(parts=[{"of": KV, "wieght": 2}])
