"""The results of an evaluation as plain data: intervals, paired differences, positions, and the same as CSV.

All profiles answer the same questions, so differences against the unchanged model are paired: a bootstrap interval over
contexts for each, and the p-value of a sign-flip test. The p-values of the whole table, all tasks, lengths and
profiles together, are corrected by Holm's procedure; an interval that excludes 0 is not corrected.
"""

import csv
import io
import json
import math
from collections.abc import Sequence
from typing import Any

from fitness.significance import holm, sign_flip
from fitness.statistics import values, weights
from search.evaluate import Result
from search.evaluation import Prepared
from search.evaluation_means import means
from search.heldout import CONFIDENCE, difference, mean, positions
from search.provenance import versions
from search.seeds import derive

SCHEMA = "ropewalk/evaluation/v2"
COLUMNS = (
    *("task", "name", "length", "contexts", "n", "status", "reason", "metric", "score", "low", "high"),
    *("minus_unchanged", "minus_low", "minus_high", "p", "p_holm", "accuracy", "accuracy_low", "accuracy_high"),
    *("frequency", "distance", "tokens", "seconds", "profile_hash", "scores"),
)


def report(prepared: Prepared, fingerprint: str, results: Sequence[Result]) -> dict[str, Any]:
    """The content of `result.json`; rows in the order of `results`."""
    asked = prepared.request
    seed = derive(asked.seed, "bootstrap")
    unchanged = {id(r.measured): r for r in results if r.unchanged}
    rows = [_row(result, unchanged[id(result.measured)], seed) for result in results]
    compared = [row["minus_unchanged"] for row in rows if row.get("minus_unchanged") is not None]
    for entry, p in zip(compared, holm([entry["p"] for entry in compared]), strict=True):
        entry["p_holm"] = p
    return {
        "schema": SCHEMA,
        "model": {**asked.model.model_dump(mode="json"), "fingerprint": fingerprint, "shape": prepared.shape.to_dict()},
        "tasks": [task.model_dump(mode="json") for task in asked.tasks],
        "left_out": prepared.left_out,
        "seed": asked.seed,
        "target_length": prepared.target_length,
        "confidence": CONFIDENCE,
        "test": "two-sided sign-flip test over contexts of the paired difference against the unchanged model",
        "correction": f"Holm, over the {len(compared)} comparisons of this table",
        "sets": [measured.to_dict() for measured in prepared.sets],
        "rows": rows,
        "means": means(rows, prepared.sets),
        "versions": versions(),
    }


def _row(result: Result, unchanged: Result, seed: int) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "task": result.measured.name,
        "name": result.name,
        "metric": result.measured.task.metric,
        "asked_length": result.measured.asked,
        "length": result.measured.examples.length,
        "examples": result.measured.examples.hash,
        "status": "failed" if result.outcome.score is None else "ok",
        "reason": result.outcome.reason,
        "profile": None if result.profile is None else result.profile.to_dict(),
        "profile_hash": None if result.profile is None else result.profile.hash,
    }
    if result.outcome.score is None:
        return entry
    metric = result.measured.task.metric
    score = mean(result.outcome, metric, seed)
    entry |= {"score": score, "accuracy": mean(result.outcome, "exact", seed)}
    if metric == "perplexity":
        entry["perplexity"] = {
            "score": math.exp(-score["score"]),
            "low": math.exp(-score["high"]),
            "high": math.exp(-score["low"]),
        }
    entry["minus_unchanged"] = None if result.unchanged else _against(result, unchanged, metric, seed)
    return entry | {
        "by_position": positions(result.outcome, metric, seed),
        "tokens": result.row.tokens,
        "seconds": round(result.row.seconds, 3),
        "scores": result.file,
    }


def _against(result: Result, unchanged: Result, metric: str, seed: int) -> dict[str, Any] | None:
    """The paired difference with its interval and p-value; None where the unchanged model failed."""
    gain = difference(result.outcome, unchanged.outcome, metric, seed)
    if gain is None:
        return None
    ours, theirs = (values(r.outcome.scores, metric) for r in (result, unchanged))
    contexts = [score.example_id for score in result.outcome.scores]
    counted = weights(result.outcome.scores, metric)
    return {**gain, "p": sign_flip(ours, theirs, contexts, seed=seed, weights=counted)}


def as_csv(data: dict[str, Any]) -> str:
    """One line per task, length and profile."""
    sets = {(made["task"], made["hash"]): made for made in data["sets"]}
    written = io.StringIO()
    table = csv.DictWriter(written, COLUMNS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for row in data["rows"]:
        gain, accuracy, profile = (row.get(name) or {} for name in ("minus_unchanged", "accuracy", "profile"))
        line = {**row, **sets[row["task"], row["examples"]], **(row.get("score") or {"score": None})}
        line |= {"minus_unchanged": gain.get("score"), "minus_low": gain.get("low"), "minus_high": gain.get("high")}
        line |= {"p": gain.get("p"), "p_holm": gain.get("p_holm")}
        line |= {"accuracy": accuracy.get("score")}
        line |= {"accuracy_low": accuracy.get("low"), "accuracy_high": accuracy.get("high")}
        line |= {axis: json.dumps(profile[axis]) if profile else None for axis in ("frequency", "distance")}
        table.writerow(line)
    return written.getvalue()
