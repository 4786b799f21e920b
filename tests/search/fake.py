"""A world without models: an evaluator whose scores are a pure function of the factors, and a campaign for it.

Question q of context c counts when the factors lie near enough to an ideal curve; how near is drawn per question, so
scores are graded, noisy between example sets and the same for everyone who asks.
"""

import random
from collections.abc import Iterator, Sequence

from fitness.examples import Example, ExampleSet, Question
from fitness.scoring import Score
from ropewalk import ModelShape, Profile
from search.campaign import parse
from search.journal import Journal
from search.preparation import Prepared
from search.runner import Runner
from search.scoreboard import Interrupted
from search.seeds import derive
from search.storage import Storage
from workers.messages import Request, Result

SHAPE = ModelShape(
    id="fake",
    revision=None,
    model_type="llama",
    num_layers=6,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    rope_theta=10000.0,
    trained_length=256,
)
IDEAL = (1.0, 3.0, 5.0, 5.0, 3.0, 1.0)  # a hump: no straight line comes near


def campaign(**changes):
    data = {
        "name": "fake",
        "seed": 3,
        "model": {"id": "fake"},
        "target_length": 1024,
        "fitness": {"task": "kv", "contexts": 3, "questions": 8, "keys": "hex4", "values": "hex4"},
        "heldout": {"contexts": 6},
        "guard": {"contexts": 4},
        "stages": [{"kind": "genetic", "population": 8, "generations": 3, "elite": 2}],
        "workers": {"kind": "local"},
    }
    return parse({**data, **changes})


def examples(name: str, contexts: int, questions: int = 8) -> ExampleSet:
    made = tuple(
        Example(
            f"{name}-{c}",
            f"context {name} {c}",
            tuple(Question(f"{name}-{c}-{q}", "?", " a", ("a",), q) for q in range(questions)),
        )
        for c in range(contexts)
    )
    return ExampleSet("kv", name, derive(3, name), 1024, made)


def prepared(**changes) -> Prepared:
    made = campaign(**changes)
    sets = {"search": examples("search", 3), "heldout": examples("heldout", 6), "guard": examples("guard", 4)}
    return Prepared(made, SHAPE, sets, 256)


def quality(profile: Profile) -> float:
    """From 0 to 1: how near the factors are to the ideal curve; other methods are a little worse at their best."""
    frequency = profile.frequency
    factor = frequency.factor if frequency.factor is not None else 1.0
    factors = factor if isinstance(factor, tuple) else (factor,) * SHAPE.num_layers
    distance = sum(abs(f - i) for f, i in zip(factors, IDEAL, strict=True)) / SHAPE.num_layers
    return (
        max(0.0, 1 - distance / 4)
        * {"native": 1, "linear": 1, "ntk": 0.9, "dynamic_ntk": 0.8, "yarn": 0.7}[frequency.method]
    )


class FakeEvaluator:
    """Results in an order that `shuffle` draws; `fail` says which profiles fail, and why."""

    shape, fingerprint = SHAPE, "fake-weights"

    def __init__(self, shuffle: int = 0, fail=lambda profile: None):
        self.sets: dict[str, ExampleSet] = {}
        self.order, self.fail = random.Random(shuffle), fail
        self.requests: list[Request] = []

    def register(self, name: str, examples: ExampleSet) -> None:
        self.sets[name] = examples

    def evaluate(self, requests: Sequence[Request]) -> Iterator[Result]:
        self.requests.extend(requests)
        requests = list(requests)
        self.order.shuffle(requests)
        for request in requests:
            profile = Profile.from_dict(request.profile)
            reason = self.fail(profile)
            scores = () if reason else self._scores(profile, request)
            status = "failed" if reason else "ok"
            yield Result(request.id, status, reason, scores, 100, 0.01, 0, "fake")

    def _scores(self, profile: Profile, request: Request) -> tuple[Score, ...]:
        scores = []
        for example in self.sets[request.example_set].slice(request.start, request.stop):
            for question in example.questions:
                need = random.Random(question.id).random()
                right = float(quality(profile) > need)
                scores.append(Score(question.id, example.id, question.position, right, -need, 1, None))
        return tuple(scores)

    def close(self) -> None:
        pass


def run(folder, *, resume=False, evaluator=None, stop=lambda: False, listeners=(), **changes):
    storage = Storage(str(folder), "it")
    seen = []
    evaluator = evaluator or FakeEvaluator()
    runner = Runner(prepared(**changes), "it", storage, [Journal(storage), seen.append, *listeners], stop)
    try:
        result = runner.run(evaluator, resume=resume)
    except Interrupted:
        result = None
    return result, seen, evaluator


def events(seen, kind):
    return [event for event in seen if isinstance(event, kind)]


def after(count):
    """A stop that is asked for after `count` results."""
    asked = iter(range(1_000_000))
    return lambda: next(asked) >= count
