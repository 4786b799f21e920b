"""What the held-out report says, in words and as a table: the one wording of console, HTML report and MLflow note.

Honest on purpose: a gain whose interval contains 0 is not called a gain, a baseline that beats the winner is named, and
every number carries its interval and what it was measured on.
"""

import math
from dataclasses import dataclass
from typing import Any

from search.events import CampaignStarted

UNIFORM = "linear"  # the baseline that the campaigns of all methods have in common
ROW_ORDER = ("identity", "linear", "winner")  # what is compared position by position
TASK_NAMES = {"kv": "KV retrieval", "perplexity": "perplexity"}
METRIC_NAMES = {
    "exact": "exact answers (share)",
    "likelihood": "log-likelihood per answer token",
    "perplexity": "log-likelihood per token",
    "composite": "composite score (0 to 1)",
}

LOGARITHMS = {"perplexity": METRIC_NAMES["perplexity"]}  # what is shown is not what the metric is called


@dataclass(frozen=True)
class Caption:
    """What a figure's numbers were measured on. `n` counts scored questions."""

    model: str
    task: str
    length: int | None
    n: int | None

    def __str__(self) -> str:
        length = None if self.length is None else f"{self.length} tokens"
        return " · ".join(p for p in (self.model, self.task, length, None if self.n is None else f"n = {self.n}") if p)


def model_name(started: CampaignStarted) -> str:
    """The model's id, without the folder it happens to lie in on this machine."""
    name = str(started.campaign["model"]["id"]).removeprefix("./").rstrip("/")
    return name.rsplit("/", 1)[-1] if name.startswith(("/", "~", "..")) else name


def task_name(task: dict[str, Any]) -> str:
    if task["task"] == "composite":
        return f"composite of {', '.join(part['name'] for part in task['parts'])}"
    return TASK_NAMES.get(task["task"], task["task"])


def search_caption(started: CampaignStarted) -> Caption:
    """Of figures drawn from the search's own examples."""
    examples = started.examples.get("search", {})
    return Caption(
        model_name(started),
        task_name(started.campaign["fitness"]) + " (search)",
        examples.get("length"),
        examples.get("n"),
    )


def heldout_caption(started: CampaignStarted, report: dict[str, Any]) -> Caption:
    return Caption(model_name(started), task_name(report["task"]) + " (held out)", report["length"], report["n"])


def row(report: dict[str, Any], name: str) -> dict[str, Any] | None:
    return next((r for r in report["rows"] if r["name"] == name), None)


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}".replace("-", "−")


def signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def interval(value: dict[str, Any] | None) -> str:
    return "–" if value is None else f"{number(value['score'])} [{number(value['low'])}, {number(value['high'])}]"


def signed_interval(value: dict[str, Any] | None) -> str:
    return "–" if value is None else f"{signed(value['score'])} [{signed(value['low'])}, {signed(value['high'])}]"


def factor_text(frequency: dict[str, Any]) -> str:
    """`2.5`, or the range of a factor per layer to three digits."""
    factor = frequency.get("factor")
    if factor is None:
        return "–"
    if isinstance(factor, (int, float)):
        return f"{factor:g}"
    low, high = min(factor), max(factor)
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}, per layer"


def title(report: dict[str, Any]) -> str:
    return (
        f"Held out: {task_name(report['task'])} at {report['length']} tokens, n = {report['n']} questions in "
        f"{report['contexts']} contexts, seed {report['seed']}, {report['confidence']:.0%} intervals".replace("%", " %")
    )


def table(report: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows of the held-out table, best held-out score first."""
    guard = report["guard"]
    exact_too = _smooth(report)
    headers = (
        "profile",
        "factor",
        "evaluations",
        "search",
        f"held out ({LOGARITHMS.get(report['metric'], report['metric'])})",
        "winner − this",
        *(("exact answers", "winner − this, exact") if exact_too else ()),
        f"guard at {guard['length']}",
    )
    scored = sorted((r for r in report["rows"] if "failed" not in r), key=lambda r: -r["heldout"]["score"])
    rows = [
        (
            ("winner: " if r["name"] == "winner" else "") + r["label"],
            factor_text(r["frequency"]),
            str(r["evaluations"]),
            number(r["search_score"]),
            interval(r["heldout"]),
            "" if r["name"] == "winner" else signed_interval(r["winner_minus"]),
            *(_exact_cells(r) if exact_too else ()),
            number(r["guard"]["score"]) + (" harmful" if r["guard"]["harmful"] else ""),
        )
        for r in scored
    ]
    rows += [
        (
            r["label"],
            factor_text(r["frequency"]),
            str(r["evaluations"]),
            number(r["search_score"]),
            "failed",
            *[""] * (len(headers) - 5),
        )
        for r in report["rows"]
        if "failed" in r
    ]
    return headers, rows


def _smooth(report: dict[str, Any]) -> bool:
    """Whether the search went by the likelihood of answers: a slope to follow; what counts is the right answer."""
    of_answers = report.get("task", {}).get("task") != "perplexity"
    return report["metric"] == "likelihood" or (report["metric"] == "perplexity" and of_answers)


def _exact_cells(r: dict[str, Any]) -> tuple[str, str]:
    return interval(r["accuracy"]), "" if r["name"] == "winner" else signed_interval(r["winner_minus_accuracy"])


def uniform(report: dict[str, Any]) -> dict[str, Any] | None:
    """The baseline that the winner has to beat: the best uniform factor of its own method, else of linear."""
    winner = row(report, "winner")
    own = None if winner is None else row(report, winner["frequency"]["method"])
    return own or row(report, UNIFORM)


def gain(report: dict[str, Any]) -> dict[str, Any] | None:
    """Winner minus best uniform linear factor, paired: score, low, high. None when one of them was not scored."""
    linear = row(report, UNIFORM)
    return None if linear is None else linear.get("winner_minus")


def sentences(report: dict[str, Any]) -> list[str]:
    """What the numbers say, most important first."""
    winner = row(report, "winner")
    if winner is None or "failed" in winner:
        reason = "it is not in the report" if winner is None else winner["failed"]
        return [f"The winner has no held-out score: {reason}."]
    said = [f"The winner ({winner['label']}) scores {interval(winner['heldout'])} held out.", *_against_uniform(report)]
    compared = uniform(report)
    for r in report["rows"]:
        over = r.get("winner_minus")
        if r["name"] != "winner" and r is not compared and over is not None and over["high"] < 0:
            said.append(f"{r['label']} scores higher than the winner: {interval(r['heldout'])}.")
    said += _exact_answers(report, winner) + _perplexities(report, winner)
    said += [f"{r['label']} failed on the held-out examples: {r['failed']}." for r in report["rows"] if "failed" in r]
    said += [f"{name} is not in the table: {reason}." for name, reason in report.get("without", {}).items()]
    said += [f"About these examples: {note}." for note in report.get("notes", ())]
    return [*said, guard_sentence(report, winner), *_refused(report["guard"])]


def _refused(guard: dict[str, Any]) -> list[str]:
    """For a campaign whose guard is enforced: how many candidates it cost."""
    if not guard.get("enforced"):
        return []
    return [
        f"The guard was enforced: {guard['infeasible']} of {guard['candidates']} candidates were infeasible, losing "
        f"more than {guard['tolerance']:g} on short contexts, and got no score."
    ]


def _against_uniform(report: dict[str, Any]) -> list[str]:
    best_one = uniform(report)
    name = f"The best uniform {UNIFORM if best_one is None else best_one['name']} factor"
    won = None if best_one is None else best_one.get("winner_minus")
    if won is None:
        return [f"{name} has no held-out score in this campaign, so no gain over it can be told."]
    best = f"{name} ({factor_text(best_one['frequency'])}) scores {interval(best_one['heldout'])}"
    if won["low"] > 0:
        return [f"{best}; gain of the winner over it: {signed_interval(won)}."]
    if won["high"] < 0:
        return [
            f"{best}; difference of the winner from it: {signed_interval(won)}.",
            "On held-out examples the layer-wise scale is worse than one factor for all layers.",
        ]
    return [
        f"{best}; difference of the winner from it: {signed_interval(won)}.",
        "The interval of that difference contains 0: these examples do not show that the layer-wise scale is better "
        "than one factor for all layers.",
    ]


def _exact_answers(report: dict[str, Any], winner: dict[str, Any]) -> list[str]:
    """For a campaign that searched by likelihood: what became of the answers."""
    best_one = uniform(report)
    if not _smooth(report) or best_one is None or "failed" in best_one:
        return []
    difference = best_one["winner_minus_accuracy"]
    shown = "" if difference["low"] > 0 or difference["high"] < 0 else "; the interval contains 0"
    return [
        f"Exact answers: winner {interval(winner['accuracy'])}, best uniform {best_one['name']} factor "
        f"{interval(best_one['accuracy'])}, difference {signed_interval(difference)}{shown}."
    ]


def _perplexities(report: dict[str, Any], winner: dict[str, Any]) -> list[str]:
    """For a campaign on perplexity, whose scores are log-likelihoods per token: exp of minus the score."""
    if report["metric"] != "perplexity":
        return []
    named = (("winner", winner), ("unchanged model", row(report, "identity")), ("best uniform factor", uniform(report)))
    parts = []
    for name, r in named:
        if r is not None and "failed" not in r:
            score, low, high = (math.exp(-r["heldout"][bound]) for bound in ("score", "high", "low"))
            parts.append(f"{name} {number(score)} [{number(low)}, {number(high)}]")
    return [f"Perplexity: {', '.join(parts)}."]


def guard_sentence(report: dict[str, Any], winner: dict[str, Any]) -> str:
    guard, short = report["guard"], winner["guard"]
    where = f"at {guard['length']} tokens (n = {short['n']}, tolerance {guard['tolerance']:g})"
    if short["loss"] is None:
        return f"Short-context guard {where}: the unchanged model failed there, so harm cannot be judged."
    verdict = "HARMFUL to short contexts" if short["harmful"] else "within the tolerance"
    loss = interval(short["loss"])
    return f"Short-context guard {where}: the winner loses {loss} against the unchanged model; {verdict}."
