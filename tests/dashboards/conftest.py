"""A recorded campaign: the events of a small search that beat the best uniform factor, as the runner emits them."""

from dataclasses import asdict, replace

import pytest

from ropewalk import Frequency, ModelShape, Profile
from search.bezier import even_points, factors_per_layer
from search.events import (
    BaselineFinished,
    CampaignFinished,
    CampaignStarted,
    EvaluationFinished,
    GenerationFinished,
    HeldoutFinished,
    Improved,
    Individual,
)

SHAPE = ModelShape("models/tiny-kv", None, "llama", 8, 4, 2, 24, 10000.0, 256)
CONTROL = (1.0, 2.5, 4.0, 3.0)
FACTORS = tuple(round(float(f), 6) for f in factors_per_layer(even_points(CONTROL), 8))
SWEEP = ((1.0, 0.131), (2.0, 0.3125), (3.0, 0.3021), (4.0, None))
NTK = ((1.0, 0.131), (2.0, 0.7), (4.0, 0.951))


def profile(method, factor, provenance=None):
    frequency = Frequency(method) if factor is None else Frequency(method, factor=factor)
    return Profile("quick", SHAPE, 1024, frequency, provenance=provenance or {})


def generation(number, best, failed=0):
    scores = [best, 0.30 + 0.02 * number, 0.20 + 0.02 * number]
    individuals = [
        Individual(f"{number}{i}", CONTROL[1:3], FACTORS, score, None, "crossover" if number else "seed")
        for i, score in enumerate(scores)
    ]
    individuals += [
        Individual(f"{number}f{i}", (8.0, 8.0), (8.0,) * 8, None, "the metric is nan", "mutation")
        for i in range(failed)
    ]
    evaluations = 5 + 4 * number
    return GenerationFinished(
        stage="genetic",
        generation=number,
        individuals=tuple(individuals),
        best=best,
        mean=0.31 + 0.02 * number,
        std=0.05,
        worst=scores[-1],
        failed=failed,
        evaluations=evaluations,
        tokens=1000 * evaluations,
        best_genome=(CONTROL[1], CONTROL[2]),
        best_factors=FACTORS,
        control_points=tuple((i / 3, y) for i, y in enumerate(CONTROL)),
    )


def row(name, label, method, factor, search, score, minus, evaluations, loss=0.005):
    around = lambda value, half, **more: {"score": value, "low": value - half, "high": value + half, **more}
    return {
        "name": name,
        "label": label,
        "frequency": profile(method, factor).to_dict()["frequency"],
        "profile_hash": profile(method, factor).hash,
        "search_score": search,
        "evaluations": evaluations,
        "heldout": around(score, 0.03, n=576),
        "gain_over_identity": around(score - 0.128, 0.03),
        "winner_minus": around(minus, 0.04),
        "by_position": [
            {"position": p, **around(min(1.0, score + d), 0.06, n=115)} for p, d in ((0, 0.2), (9, -0.1), (18, 0.1))
        ],
        "guard": {**around(0.99 - loss, 0.01, n=144), "loss": around(loss, 0.004), "harmful": loss > 0.02},
    }


def report(**changed):
    return {
        "task": {"task": "kv", "length": 1024, "metric": "exact"},
        "model": "models/tiny-kv",
        "metric": "exact",
        "confidence": 0.95,
        "seed": 71,
        "length": 1019,
        "contexts": 24,
        "n": 576,
        "hash": "ab" * 32,
        "guard": {"task": "kv", "seed": 72, "length": 256, "contexts": 12, "n": 144, "hash": "cd", "tolerance": 0.02},
        "rows": [
            row("winner", "linear, bezier curve of 4 points", "linear", FACTORS, 0.5104, 0.482, 0.0, 12),
            row("identity", "the unchanged model", "native", None, 0.131, 0.128, 0.354, 1),
            row("linear", "linear, best of 4 uniform factors", "linear", 2.0, 0.3125, 0.318, 0.164, 4),
            row("ntk", "ntk, best of 3 uniform factors", "ntk", 4.0, 0.951, 0.968, -0.486, 3, loss=0.03),
        ],
        **changed,
    }


CAMPAIGN = {
    "schema": "ropewalk/campaign/v1",
    "name": "quick",
    "seed": 7,
    "model": {"id": "models/tiny-kv", "revision": None, "dtype": "float32"},
    "target_length": 1024,
    "fitness": {"task": "kv", "length": 1024, "contexts": 8, "keys": "hex4", "metric": "exact"},
    "heldout": {"contexts": 24},
    "guard": {"length": None, "contexts": 12, "tolerance": 0.02},
    "stages": [
        {
            "kind": "genetic",
            "name": "genetic",
            "method": "linear",
            "space": {"curve": "bezier", "control_points": 4, "minimum": 1.0, "maximum": 8.0, "step": 0.25},
            "population": 4,
            "generations": 2,
        }
    ],
    "baselines": ["identity", "linear", "ntk"],
    "workers": {"kind": "ray", "actors": 2},
    "tracking": {"uri": "http://someone:secret@mlflow.invalid", "experiment": None},
    "storage": "runs",
}


class Recording:
    """The events of one campaign, and of the same one resumed."""

    def __init__(self, campaign_id, folder, **campaign):
        example = lambda seed, length, contexts, n: {
            "task": "kv", "seed": seed, "length": length, "contexts": contexts, "n": n, "hash": f"{seed:064d}"
        }  # fmt: skip
        self.started = CampaignStarted(
            campaign_id=campaign_id,
            campaign={**CAMPAIGN, **campaign},
            folder=str(folder),
            shape=asdict(SHAPE),
            fingerprint="f" * 16,
            examples={
                "search": example(70, 1020, 8, 192),
                "heldout": example(71, 1019, 24, 576),
                "guard": example(72, 256, 12, 144),
            },
            planned_evaluations=20,
            resumed=False,
            completed_evaluations=0,
            versions={"python": "3.11.2", "ropewalk": "0.1.0", "torch": "2.13.0", "code_revision": "c0ffee"},
        )
        self.generations = [generation(0, 0.41), generation(1, 0.41, failed=1), generation(2, 0.5104)]
        self.first = [
            EvaluationFinished("identity", "id", 0.131, None, 1, 1000),
            Improved("identity", profile("native", None).to_dict(), 0.131),
        ]
        self.baselines = [
            BaselineFinished("linear", profile("linear", 2.0).to_dict(), 0.3125, 4, SWEEP),
            BaselineFinished("ntk", profile("ntk", 4.0).to_dict(), 0.951, 3, NTK),
        ]
        self.winner = profile("linear", FACTORS, {"campaign": campaign_id, "search": {"score": 0.5104}})
        self.heldout = HeldoutFinished(report())
        cost = {"evaluations": 19, "tokens": 40000, "seconds": 61.5}
        self.finished = CampaignFinished({"campaign": campaign_id, "cost": cost}, self.winner.to_dict())

    def of_generation(self, number):
        told = self.generations[number]
        evaluations = [
            EvaluationFinished(
                "genetic", f"{number}{back}", 0.3, None, told.evaluations - back, told.tokens - 1000 * back
            )
            for back in (3, 2, 1, 0)
        ]
        return [*evaluations, told, *([Improved("genetic", self.winner.to_dict(), told.best)] if number != 1 else [])]

    @property
    def events(self):
        searched = [event for number in range(3) for event in self.of_generation(number)]
        return [self.started, *self.first, *searched, *self.baselines, self.heldout, self.finished]

    def resumed_after(self, number):
        """What the runner emits when it goes on from the checkpoint of a generation: that and those before, again."""
        told = self.generations[: number + 1]
        start = replace(self.started, resumed=True, completed_evaluations=told[-1].evaluations)
        rest = [event for n in range(number + 1, 3) for event in self.of_generation(n)]
        return [start, *told, *rest, *self.baselines, self.heldout, self.finished]


@pytest.fixture
def recording(tmp_path):
    return Recording("quick", tmp_path / "runs" / "quick")


@pytest.fixture(scope="session")
def make_recording():
    return Recording


@pytest.fixture(scope="session")
def make_report():
    return report
