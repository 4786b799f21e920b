"""How a question may be scored, and what may be read off it.

- teacher_forcing, metric `exact`: whether greedy decoding would give the gold answer, in one forward pass.
- teacher_forcing, metric `likelihood` or `perplexity`: how probable the gold answer is. Smooth, so that a search sees
  a slope where hardly any answer is right yet; not what a user cares about in the end.
- generation, metric `exact`: what the model writes, by the question's own metric. For answers whose wording is free.

Which of them a task allows is part of its definition: its fields `metric` and `scoring`, this table, and the pairs of
both that the task itself refuses (`refused`), as of teacher forcing and `exact` where an answer has many wordings.
"""

from collections.abc import Sequence
from typing import Any, get_args

from fitness.errors import TaskError

METRICS_OF = {"teacher_forcing": ("exact", "likelihood", "perplexity"), "generation": ("exact",)}


def check_metric(scoring: str, metric: str, refused: Sequence[tuple[str, str]] = ()) -> None:
    """Raises TaskError for a metric that the scoring cannot give (generation: no likelihood) or that is refused."""
    allowed = [m for m in METRICS_OF[scoring] if (scoring, m) not in refused]
    if metric not in allowed:
        why = ", which gives no likelihood" if scoring == "generation" else ""
        raise TaskError("metric", metric, f"{', '.join(allowed) or 'nothing'} with scoring: {scoring}{why}")


def scored_as_it_can_be(data: Any) -> Any:
    """Fields of a task that generates by default: a metric that generation cannot give takes teacher forcing."""
    if isinstance(data, dict) and data.get("metric", "exact") != "exact" and "scoring" not in data:
        return {**data, "scoring": "teacher_forcing"}
    return data


def modes(kind: Any) -> tuple[tuple[str, str], ...]:
    """Pairs of scoring and metric that a kind of task allows, its default first."""
    scorings, metrics = (get_args(kind.model_fields[name].annotation) for name in ("scoring", "metric"))
    refused = getattr(kind, "refused", ())
    pairs = [(s, m) for s in scorings for m in metrics if m in METRICS_OF[s] and (s, m) not in refused]
    default = tuple(kind.model_fields[name].default for name in ("scoring", "metric"))
    return tuple(sorted(pairs, key=lambda pair: pair != default))
