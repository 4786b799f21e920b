"""The mean of several tasks, each counting alike, as RULER's own tables give it.

Its interval comes from those of the tasks, whose examples are independent of each other (MOVER: Zou and Donner, Stat.
Med. 27, 2008): the distances from each mean to its lower limits are added in squares, and likewise the upper ones. So
an interval that is not symmetric stays so, and a task that was answered all right or all wrong keeps its doubt.
"""

import math
from collections.abc import Sequence
from typing import Any

from search.evaluation import Measured

MEANINGFUL = "exact"  # the one metric that is a share in every task


def means(rows: Sequence[dict[str, Any]], sets: Sequence[Measured]) -> list[dict[str, Any]]:
    """One entry for each profile at each length that several tasks with scores from 0 to 1 were measured at.

    A profile that failed one of them has no mean, since one over the others could not be compared.
    """
    made = []
    for length in dict.fromkeys(one.asked for one in sets):
        tasks = [one.name for one in sets if one.asked == length and one.task.metric == MEANINGFUL]
        there = [row for row in rows if row["asked_length"] == length and row["task"] in tasks]
        if len(tasks) < 2:
            continue
        for name in dict.fromkeys(row["name"] for row in there):
            own = [row for row in there if row["name"] == name]
            if all(row["status"] == "ok" for row in own):
                gains = [row["minus_unchanged"] for row in own]
                made.append(
                    {
                        "name": name,
                        "asked_length": length,
                        "tasks": tasks,
                        "score": pooled([row["score"] for row in own]),
                        "minus_unchanged": None if None in gains else pooled(gains),
                    }
                )
    return made


def pooled(scores: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The mean of independent means with its interval. Each has `score`, `low` and `high`."""
    mean = sum(one["score"] for one in scores) / len(scores)
    below, above = (
        math.sqrt(sum((one["score"] - one[limit]) ** 2 for one in scores)) / len(scores) for limit in ("low", "high")
    )
    return {"score": mean, "low": mean - below, "high": mean + above}
