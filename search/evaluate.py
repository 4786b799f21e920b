"""Measuring the rows of an evaluation, one profile on one set of examples after the other, on a model loaded once.

A row that fails is a result like any other: the profile does not fit the model, the patch cannot be made, memory runs
out, or the model gives no numbers. The rows after it are measured all the same.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from fitness.scoring import METRICS
from ropewalk import Profile, ProfileError
from search.evaluation import UNCHANGED, Measured, Prepared, row_key
from search.evaluation_rows import Row, RowStore
from search.profile_argument import ProfileArgument
from search.scoreboard import Interrupted, Outcome
from workers.errors import first_line
from workers.evaluator import Evaluator
from workers.messages import Request


@dataclass(frozen=True)
class Result:
    """What one profile scored on one task at one length, or why it failed.

    Attributes:
        profile: None where it does not fit the model.
        row: what was measured; None where it failed.
        file: of the row, seen from the output folder; None where nothing is kept.
        reused: the row was on file.
    """

    name: str
    measured: Measured
    profile: Profile | None
    outcome: Outcome
    row: Row | None = None
    file: str | None = None
    reused: bool = False

    @property
    def unchanged(self) -> bool:
        return self.name == UNCHANGED


def measure(
    prepared: Prepared,
    evaluator: Evaluator,
    store: RowStore,
    *,
    stop: Callable[[], bool] = lambda: False,
    tell: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Every profile on every set of examples, set by set and then in the order that the profiles were given.

    Args:
        stop: asked between examples.
        tell: gets each result when it is there.

    Raises:
        Interrupted: asked to stop; finished rows are in the store.
    """
    results = []
    for measured in prepared.sets:
        evaluator.register(measured.examples.hash, measured.examples)
        for argument in prepared.profiles:
            results.append(_result(prepared, evaluator, store, measured, argument, stop))
            tell(results[-1])
    return results


def _result(
    prepared: Prepared,
    evaluator: Evaluator,
    store: RowStore,
    measured: Measured,
    argument: ProfileArgument,
    stop: Callable[[], bool],
) -> Result:
    try:
        profile = argument.build()
    except ProfileError as error:
        return Result(argument.text, measured, None, Outcome(None, f"does not fit the model: {error}"))
    key = row_key(evaluator.fingerprint, profile, measured.examples, measured.task.scoring)
    row, reason = store.load(key), None
    reused = row is not None
    if row is None:
        row, reason = _measured(evaluator, measured, profile, stop)
    if row is None:
        return Result(argument.text, measured, profile, Outcome(None, reason))
    if not reused:
        about = {
            "model": prepared.request.model.model_dump(mode="json"),
            "fingerprint": evaluator.fingerprint,
            "profile": profile.to_dict(),
            "profile_hash": profile.hash,
            "task": measured.task.model_dump(mode="json"),
            "examples": measured.to_dict(),
        }
        store.save(key, row, about)
    score = float(METRICS[measured.task.metric](row.scores))
    if not math.isfinite(score):
        return Result(argument.text, measured, profile, Outcome(None, f"the metric is {score}"))
    return Result(argument.text, measured, profile, Outcome(score, None, row.scores), row, store.name(key), reused)


def _measured(
    evaluator: Evaluator, measured: Measured, profile: Profile, stop: Callable[[], bool]
) -> tuple[Row | None, str | None]:
    """A row, or the reason why there is none; the first example that fails ends it."""
    begin = time.perf_counter()
    data, examples = profile.to_dict(), measured.examples
    requests = [
        Request(str(i), data, examples.hash, i, i + 1, measured.task.scoring) for i in range(len(examples.examples))
    ]
    pieces = {}
    if stop():
        raise Interrupted
    try:
        for result in evaluator.evaluate(requests):
            if result.status == "failed":
                return None, result.reason
            pieces[int(result.request_id)] = result
            if stop():
                raise Interrupted
    except RuntimeError as error:  # a patch that cannot be made, or a kernel that does not take what it is given
        return None, f"{type(error).__name__}: {first_line(error)}"
    ordered = [pieces[i] for i in sorted(pieces)]
    scores = tuple(score for result in ordered for score in result.scores)
    return Row(scores, sum(result.tokens for result in ordered), time.perf_counter() - begin), None
