"""Scores of the questions of one example under one model.

Teacher forcing (`forcing.py`) answers with one forward pass what greedy decoding answers with one per token: greedy
decoding yields exactly the gold answer if and only if every answer token is the argmax given the gold tokens before
it. Generation (`generation.py`) is for answers whose wording is free.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fitness.encoding import EncodedExample, encode
from fitness.errors import TaskError
from fitness.examples import Example
from fitness.forcing import forced
from fitness.generation import generated
from fitness.metrics import METRICS as OUTPUT_METRICS


@dataclass(frozen=True)
class Score:
    """What one question scored.

    Attributes:
        exact: teacher forcing: 1.0 if every answer token is the argmax, else 0.0. Generation: what the question's
            metric gives for the output, 0 to 1.
        logprob: sum over the answer tokens of the natural logarithm of their probability; None in generation.
        output: the generated text; None in teacher forcing.
    """

    question_id: str
    example_id: str
    position: int | None
    exact: float
    logprob: float | None
    answer_tokens: int
    output: str | None


@dataclass(frozen=True)
class ExampleScores:
    """Scores in the order of the questions, and the tokens that really went through the model."""

    scores: tuple[Score, ...]
    tokens: int


def score_example(
    model: Any, tokenizer: Any, example: Example, scoring: str, *, chunk: int | None = None, handle: Any = None
) -> ExampleScores:
    """Score all questions of an example.

    Args:
        model: a causal language model of transformers, patched or not.
        scoring: a name in `SCORINGS`.
        chunk: tokens of the context per forward pass; None runs it in one.
        handle: of the profile patched onto the model. A dynamic_ntk profile's angles depend on the total length, which
            is pinned to the example's longest prompt with its answer, so that all questions of a context and every way
            of cutting it into passes see the same angles.

    Raises:
        NonFiniteError: a logit that matters is NaN or infinite.
        TaskError: the scoring is not known.
    """
    if scoring not in SCORINGS:
        raise TaskError("scoring", scoring, ", ".join(SCORINGS))
    encoded = encode(tokenizer, example)
    with _pinned(handle, encoded.length):
        return SCORINGS[scoring](model, tokenizer, example, encoded, chunk)


def _teacher_forcing(
    model: Any, tokenizer: Any, example: Example, encoded: EncodedExample, chunk: int | None
) -> ExampleScores:
    outcomes, tokens = forced(model, encoded, chunk)
    scores = tuple(
        Score(q.id, example.id, q.position, float(outcome.exact), outcome.logprob, len(e.answer), None)
        for q, e, outcome in zip(example.questions, encoded.questions, outcomes, strict=True)
    )
    return ExampleScores(scores, tokens)


def _generation(
    model: Any, tokenizer: Any, example: Example, encoded: EncodedExample, chunk: int | None
) -> ExampleScores:
    outputs, tokens = generated(model, tokenizer, encoded, chunk)
    scores = tuple(
        Score(q.id, example.id, q.position, OUTPUT_METRICS[q.metric](output, q.references), None, len(e.answer), output)
        for q, e, output in zip(example.questions, encoded.questions, outputs, strict=True)
    )
    return ExampleScores(scores, tokens)


@contextmanager
def _pinned(handle: Any, length: int) -> Iterator[None]:
    if handle is None:
        yield
        return
    before, handle.total_length = handle.total_length, length
    try:
        yield
    finally:
        handle.total_length = before


SCORINGS: dict[str, Callable[..., ExampleScores]] = {
    "teacher_forcing": _teacher_forcing,
    "exact": _teacher_forcing,  # names of what is read off it
    "perplexity": _teacher_forcing,
    "generation": _generation,
}


def exact(score: Score) -> float:
    return score.exact


def likelihood(score: Score) -> float:
    """Mean log-likelihood per answer token.

    Raises:
        TaskError: the score comes from generation, which gives none.
    """
    if score.logprob is None:
        raise TaskError("scoring", "generation", "teacher_forcing: generation gives no likelihood")
    return score.logprob / score.answer_tokens


# What a metric gives for one question; the intervals of `statistics` resample these.
VALUES: dict[str, Callable[[Score], float]] = {"exact": exact, "likelihood": likelihood, "perplexity": likelihood}

TOKEN_WEIGHTED = ("perplexity",)  # metrics in which a question counts by its answer's tokens


def _mean(value: Callable[[Score], float]) -> Callable[[Sequence[Score]], float]:
    return lambda scores: sum(map(value, scores)) / len(scores)


def mean_token_likelihood(scores: Sequence[Score]) -> float:
    """Minus the mean negative log-likelihood per token over all windows; exp of its negative is the perplexity."""
    return sum(likelihood(s) * s.answer_tokens for s in scores) / sum(s.answer_tokens for s in scores)


METRICS: dict[str, Callable[[Sequence[Score]], float]] = {  # larger is better, all of them
    "exact": _mean(exact),
    "likelihood": _mean(likelihood),
    "perplexity": mean_token_likelihood,
}
