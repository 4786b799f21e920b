"""Keeps what MLflow has not taken yet, in order, so that a tracking server's outage never costs a campaign anything.

Everything sent is a plain-data operation on one of the campaign's runs; delivering one twice has the effect of once.
The queue is in memory and ends with the process.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from dashboards.mlflow_store import redacted

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds between attempts while MLflow is away
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenRun:
    """A child run of the campaign's run, unless there is one of this key already. `run` is a key, not MLflow's id."""

    run: str
    name: str
    tags: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Params:
    run: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Metrics:
    """`time` in milliseconds since the epoch is when the event came, however late it is delivered."""

    run: str
    values: tuple[tuple[str, float], ...]
    step: int
    time: int


@dataclass(frozen=True)
class Tags:
    run: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Artifact:
    run: str
    path: str
    data: bytes


@dataclass(frozen=True)
class Inputs:
    """A data set that the run used: its name, what it was used for, a digest of its content, and facts about it."""

    run: str
    name: str
    context: str
    digest: str
    facts: str


@dataclass(frozen=True)
class EndRun:
    run: str
    status: str


Operation = OpenRun | Params | Metrics | Tags | Artifact | Inputs | EndRun


def describe(operation: Operation) -> str:
    match operation:
        case Metrics(run, values, step):
            return f"{run}: metrics {', '.join(k for k, _ in values)} at step {step}"
        case Artifact(run, path):
            return f"{run}: artifact {path}"
        case Inputs(run, name):
            return f"{run}: data set {name}"
        case EndRun(run, status):
            return f"{run}: status {status}"
        case OpenRun(run):
            return f"{run}: the run itself"
        case Params(run) | Tags(run):
            return f"{run}: {type(operation).__name__.lower()}"


class Outbox:
    """Delivers operations in the order in which they were put in.

    Args:
        deliver: sends one; must be harmless to repeat. Whatever it raises means "not delivered".
        permanent: tells whether an error of `deliver` will stay (MLflow refuses the operation); such an operation is
            given up and told, so that it does not hold up those behind it.
        where: for messages.
    """

    def __init__(
        self,
        deliver: Callable[[Operation], None],
        permanent: Callable[[Exception], bool],
        where: str,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.deliver, self.permanent, self.where, self.clock = deliver, permanent, where, clock
        self.waiting: deque[Operation] = deque()
        self.refused: list[tuple[Operation, str]] = []
        self._wait, self._next_attempt, self._warned = FIRST_WAIT, 0.0, False

    def put(self, *operations: Operation) -> None:
        self.waiting.extend(operations)
        self.flush()

    def flush(self, now: bool = False) -> None:
        """Deliver what waits. After a failure attempts are spaced out, unless `now` asks for one."""
        if not self.waiting or (not now and self.clock() < self._next_attempt):
            return
        while self.waiting:
            operation = self.waiting[0]
            try:
                self.deliver(operation)
            except (
                Exception
            ) as error:  # the border to MLflow, its drivers and the network: nothing there may end a search
                reason = redacted(" ".join(str(error).split()))[:300]
                if not self.permanent(error):
                    self._put_off(reason)
                    return
                if reason not in {told for _, told in self.refused}:  # an artifact store refuses every artifact
                    _log.warning("MLflow at %s refuses %s: %s", self.where, describe(operation), reason)
                self.refused.append((operation, reason))
            else:
                self._recovered()
            self.waiting.popleft()

    def close(self) -> None:
        """A last attempt; then what could not be delivered is told."""
        self.flush(now=True)
        lost = [describe(op) for op in self.waiting] + [f"{describe(op)} (refused)" for op, _ in self.refused]
        if lost:
            shown = "; ".join(lost[:8]) + ("" if len(lost) <= 8 else f"; and {len(lost) - 8} more")
            _log.warning("MLflow at %s did not take %d of the campaign's records: %s", self.where, len(lost), shown)

    def _put_off(self, reason: str) -> None:
        self._next_attempt = self.clock() + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)
        if not self._warned:
            _log.warning(
                "MLflow at %s does not answer; the campaign goes on and keeps its records: %s", self.where, reason
            )
            self._warned = True

    def _recovered(self) -> None:
        if self._warned:
            _log.warning("MLflow at %s answers again; %d records are delivered", self.where, len(self.waiting))
        self._wait, self._next_attempt, self._warned = FIRST_WAIT, 0.0, False
