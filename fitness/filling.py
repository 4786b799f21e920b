"""Filling a prompt to a length: as many units (words, lines, documents) as fit, counted exactly, tokenised rarely.

Tokens depend on the whole text, so only the whole text says how long a prompt is. But they are nearly the sum of its
pieces' tokens, which are counted once per distinct piece. So the number of units comes from that sum, corrected by the
ratio that was found for the prompts before, and the whole prompt is tokenised to verify it: once or twice per example
instead of once per guess.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fitness.encoding import longest, token_ids
from fitness.errors import TaskError
from fitness.examples import Example

REMEMBERED = 4_000_000  # characters of pieces
SEAM = 4  # tokens that an answer behind its prompt may have more than alone


class PieceCounts:
    """Tokens of each piece on its own, counted once; forgotten when the remembered ones have too many characters."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.known: dict[str, int] = {}
        self.characters = 0

    def __call__(self, pieces: Sequence[str]) -> list[int]:
        """Tokens of the pieces, in their order."""
        if self.characters > REMEMBERED:
            self.known, self.characters = {}, 0
        known = self.known
        new = [piece for piece in dict.fromkeys(pieces) if piece not in known]
        if new:
            ids = self.tokenizer(new, add_special_tokens=False, verbose=False).input_ids
            known.update(zip(new, map(len, ids), strict=True))
            self.characters += sum(map(len, new))
        return [known[piece] for piece in pieces]


@dataclass(frozen=True)
class Draft:
    """An example that is still free in its number of units.

    Attributes:
        build: the example with so many units. Several questions must not depend on the number.
        estimate: tokens of such an example without its budget, up to a constant factor; rising.
        fewest, most: numbers of units that make sense.
        unit: what the units are called in an error.
    """

    build: Callable[[int], Example]
    estimate: Callable[[int], float]
    fewest: int
    most: int
    unit: str


@dataclass(frozen=True)
class Filled:
    """An example, its length in tokens with answer or budget, and its number of units."""

    example: Example
    length: int
    count: int


@dataclass
class Filler:
    """Finds how many units fit, for the prompts of one example set.

    Attributes:
        length: tokens that context, prompt and answer (or the budget of a generation, if it is more) may take.
        counts: for the estimates that tasks make of their units.
    """

    tokenizer: Any
    length: int
    counts: PieceCounts = field(init=False)
    ratio: float = field(default=1.0, init=False)  # true tokens per estimated one, of the prompt before
    tail: int = field(default=0, init=False)  # tokens of its answer or budget

    def __post_init__(self) -> None:
        self.counts = PieceCounts(self.tokenizer)

    def fill(self, draft: Draft) -> Filled:
        """The example with the most units that fit. One unit more would not fit, by the corrected estimate.

        Raises:
            TaskError: the fewest units do not fit.
        """
        build, estimate, fewest, most = draft.build, draft.estimate, draft.fewest, draft.most
        low, high = None, most + 1  # known to fit, known not to fit
        best: Filled | None = None
        count = self._guess(estimate, fewest, most)
        while True:
            example = build(count)
            size, head = self._measure(example)
            self.tail = size - head
            self.ratio = head / max(estimate(count), 1)
            if size <= self.length:
                low, best = count, Filled(example, size, count)
            elif count == fewest:
                raise TaskError("length", self.length, f"at least {size} tokens, which {fewest} {draft.unit} need")
            else:
                high = count
            guess = self._guess(estimate, fewest, most)
            if low is not None and (guess <= low or high - low == 1):
                return best
            count = max(min(guess, high - 1), fewest if low is None else low + 1)

    def _guess(self, estimate: Callable[[int], float], fewest: int, most: int) -> int:
        """The most units of which the corrected estimate fits, at least `fewest`."""
        room = self.length - self.tail
        low, high = fewest, most + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if estimate(middle) * self.ratio <= room else (low, middle)
        return low

    def _measure(self, example: Example) -> tuple[int, int]:
        """Tokens of the example as scoring will count them, and of its prompt alone.

        An answer shorter than its budget cannot change the sum, so it is not tokenised with the whole prompt.
        """
        question = example.questions[0]
        if len(example.questions) == 1 and question.budget is not None:
            answer = sum(self.counts((question.answer,)))
            if answer + SEAM <= question.budget:
                head = len(token_ids(self.tokenizer, example.context + question.prompt))
                return head + question.budget, head
        size = longest(self.tokenizer, example)
        tail = max(max(sum(self.counts((q.answer,))), q.budget or 0) for q in example.questions)
        return size, max(size - tail, 1)
