"""Token ids of an example, the same for building, teacher forcing and generation.

Text is tokenised jointly, never in pieces that are then glued, because merges cross the seams: in most vocabularies
the `}` that ends the data and the line breaks of the question are one token. What the questions of a context share is
therefore found in the ids, not in the text.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from fitness.errors import TaskError
from fitness.examples import Example

CACHED_TOKENS = 4_000_000


@dataclass(frozen=True)
class EncodedQuestion:
    """Ids of one question: `prompt` is what follows the example's shared ids (never empty), `answer` follows it.

    `budget` is that of the question: the most tokens a generation may take, if the task sets it.
    """

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    budget: int | None = None

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.answer)

    @property
    def reach(self) -> int:
        """Tokens that the question may take: its prompt with the gold answer, or with the budget if that is more."""
        return len(self.prompt) + max(len(self.answer), self.budget or 0)


@dataclass(frozen=True)
class EncodedExample:
    """Ids of all questions of an example, those that all prompts have in common only once.

    `shared` leaves out at least the last id of every prompt, so that scoring a question always starts with a forward
    pass of its own, which gives the logits of the first answer token.
    """

    shared: tuple[int, ...]
    questions: tuple[EncodedQuestion, ...]

    @property
    def length(self) -> int:
        """Tokens of the longest prompt with its answer, or with its budget if that is more."""
        return len(self.shared) + max(question.reach for question in self.questions)


def token_ids(tokenizer: Any, text: str) -> list[int]:
    """Ids as the tokenizer gives them by default, less what it appends: a sequence end would cut prompt from answer.

    Not verbose: that a text is longer than the model was trained for is the point here, not worth a warning.
    """
    ids = list(tokenizer(text, verbose=False).input_ids)
    end = tokenizer.eos_token_id
    while len(ids) > 1 and ids[-1] == end and not text.endswith(tokenizer.eos_token):
        ids.pop()
    return ids


def split(tokenizer: Any, context: str, prompt: str, answer: str) -> tuple[list[int], list[int]]:
    """Prompt ids and answer ids of one question.

    Prompt ids are those of context + prompt. Answer ids are the rest of the joint ids of context + prompt + answer
    where these continue the prompt ids; where a merge crosses the seam they are the answer's own ids, since a model
    that is given the prompt ids can only continue from them.

    Without any prompt (perplexity) the sequence start stands for it; a tokenizer that adds none leaves the first
    token of the answer unscored, as its condition.

    Raises:
        TaskError: nothing is left to score.
    """
    head = token_ids(tokenizer, context + prompt)
    joint = token_ids(tokenizer, context + prompt + answer)
    head = head or joint[:1]
    if joint[: len(head)] == head:
        tail = joint[len(head) :]
    else:
        tail = list(tokenizer(answer, add_special_tokens=False, verbose=False).input_ids)
    if not tail:
        raise TaskError("answer", answer, "a text of at least one token more than its condition")
    return head, tail


def encode(tokenizer: Any, example: Example) -> EncodedExample:
    """Ids of all questions of an example; remembered, because a search scores the same examples for every candidate."""
    known = _CACHES.setdefault(tokenizer, _Cache())
    encoded = known.get(example)
    if encoded is None:
        pairs = [q.ids or split(tokenizer, example.context, q.prompt, q.answer) for q in example.questions]
        prompts = [head for head, _ in pairs]
        shared = min(_agreement(prompts), min(map(len, prompts)) - 1)
        questions = tuple(
            EncodedQuestion(tuple(head[shared:]), tuple(tail), question.budget)
            for (head, tail), question in zip(pairs, example.questions, strict=True)
        )
        encoded = EncodedExample(tuple(prompts[0][:shared]), questions)
        known.put(example, encoded)
    return encoded


def longest(tokenizer: Any, example: Example) -> int:
    """Tokens of the example's longest context + prompt + answer (or budget), without tokenising the context for each
    question.

    The questions of a context differ only behind it, so the longest is the one whose own part is longest in tokens.
    """
    question = example.questions[0]
    if len(example.questions) > 1:
        sizes = list(map(len, tokenizer([q.prompt + q.answer for q in example.questions]).input_ids))
        if any(q.budget for q in example.questions):
            heads = map(len, tokenizer([q.prompt for q in example.questions]).input_ids)
            sizes = [max(s, h + (q.budget or 0)) for s, h, q in zip(sizes, heads, example.questions, strict=True)]
        question = example.questions[sizes.index(max(sizes))]
    head = example.context + question.prompt
    if question.budget is None:
        return len(token_ids(tokenizer, head + question.answer))
    budgeted = len(token_ids(tokenizer, head)) + question.budget
    if 2 * len(tokenizer(question.answer, verbose=False).input_ids) <= question.budget:  # whatever merges at the seam
        return budgeted
    return max(budgeted, len(token_ids(tokenizer, head + question.answer)))


def _agreement(lists: Sequence[Sequence[int]]) -> int:
    """How many items all lists start with alike; the least and the greatest of them differ first."""
    pairs = enumerate(zip(min(lists), max(lists), strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(map(len, lists)))


class _Cache:
    """Encoded examples of one tokenizer, the least recently used dropped first; bounded by the ids it holds."""

    def __init__(self) -> None:
        self.entries: OrderedDict[Example, EncodedExample] = OrderedDict()
        self.tokens = 0

    def get(self, example: Example) -> EncodedExample | None:
        encoded = self.entries.get(example)
        if encoded is not None:
            self.entries.move_to_end(example)
        return encoded

    def put(self, example: Example, encoded: EncodedExample) -> None:
        self.entries[example] = encoded
        self.tokens += _size(encoded)
        while self.tokens > CACHED_TOKENS and len(self.entries) > 1:
            self.tokens -= _size(self.entries.popitem(last=False)[1])


def _size(encoded: EncodedExample) -> int:
    return len(encoded.shared) + sum(question.length for question in encoded.questions)


_CACHES: "WeakKeyDictionary[Any, _Cache]" = WeakKeyDictionary()
