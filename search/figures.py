"""Numbers as a person reads them in a table: with their interval, a true minus, and a star where they are a finding."""

from typing import Any

LEVEL = 0.05
SCORES = {
    "exact": "exact answers",
    "likelihood": "log-likelihood per answer token",
    "perplexity": "log-likelihood per token",
}


def score_name(metric: str, scoring: str) -> str:
    """What a score is; of generated outputs a task's own metric, which can be a share of an answer."""
    return "score of outputs" if (metric, scoring) == ("exact", "generation") else SCORES.get(metric, metric)


def interval(value: dict[str, Any] | None, *, signed: bool = False) -> str:
    """`0.335 [0.297, 0.375]`; a dash where there is none."""
    if value is None:
        return "–"
    low, high = (number(value[name], signed=signed) for name in ("low", "high"))
    return f"{number(value['score'], signed=signed)} [{low}, {high}]"


def number(value: float, *, signed: bool = False, digits: int = 3) -> str:
    """So many decimals with a true minus; no sign for what rounds to zero."""
    text = f"{value:{'+' if signed else ''}.{digits}f}"
    return f"{0:.{digits}f}" if float(text) == 0 else text.replace("-", "−")


def p_value(gain: dict[str, Any] | None) -> str:
    """The corrected p-value, starred where it is a finding."""
    if gain is None:
        return "–"
    p = gain["p_holm"]
    return f"{'<0.001' if p < 0.001 else f'{p:.3f}'}{' *' if p <= LEVEL else '  '}"
