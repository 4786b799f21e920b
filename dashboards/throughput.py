"""How fast a campaign goes: tokens a second and the time left, from the totals that its events carry."""

import time
from collections import deque
from collections.abc import Callable

WINDOW = 30.0  # seconds looked back for tokens a second


class Throughput:
    """Rates over the evaluations of this process; those completed before a resume took no time here.

    Args:
        completed: evaluations that were done before this process began.
        planned: evaluations of the whole campaign.
    """

    def __init__(self, completed: int, planned: int, clock: Callable[[], float] = time.monotonic):
        self.clock, self.planned = clock, planned
        self.begun, self.completed, self.evaluations = clock(), completed, completed
        self._samples: deque[tuple[float, int]] = deque()
        if completed == 0:
            self._samples.append((self.begun, 0))

    def add(self, evaluations: int, tokens: int) -> None:
        """Take the totals after an evaluation; totals that do not rise (a replayed event) are left out."""
        if evaluations <= self.evaluations:
            return
        self.evaluations = evaluations
        now = self.clock()
        self._samples.append((now, tokens))
        while len(self._samples) > 2 and now - self._samples[1][0] > WINDOW:
            self._samples.popleft()

    @property
    def tokens_per_second(self) -> float | None:
        if len(self._samples) < 2:
            return None
        (start, before), (end, after) = self._samples[0], self._samples[-1]
        return (after - before) / (end - start) if end > start else None

    @property
    def seconds_left(self) -> float | None:
        done = self.evaluations - self.completed
        if done == 0:
            return None
        return max(0, self.planned - self.evaluations) * (self.clock() - self.begun) / done


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 20 min`."""
    seconds = round(seconds)
    if seconds < 100:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
