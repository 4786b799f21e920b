"""An evaluation on the terminal: one table per length, the unchanged model first."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

LEVEL = 0.05
PLAIN_WIDTH = 200  # of a file or a pipe, which has no width of its own
PARTS = 5
SCORES = {
    "exact": "exact answers",
    "likelihood": "log-likelihood per answer token",
    "perplexity": "log-likelihood per token",
}


def show(data: dict[str, Any], console: Console | None = None) -> None:
    """Print the report that `search.evaluation_report.report` makes."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(file=console.file, highlight=False, width=PLAIN_WIDTH)
    for length in data["lengths"]:
        _say(console, title(data, length))
        console.print(_table(data, length))
    for reason in dict.fromkeys((row["name"], row["reason"]) for row in data["rows"] if row["status"] == "failed"):
        _say(console, "{} failed: {}".format(*reason))
    if any(row.get("minus_unchanged") for row in data["rows"]):
        _say(console, f"p: {data['test']}. Correction: {data['correction']}; * marks p of at most {LEVEL:g}.")


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)


def title(data: dict[str, Any], length: dict[str, Any]) -> str:
    """What a table's numbers were measured on."""
    return (
        f"Held out: {data['task']['task']} at {length['length']} tokens on {data['model']['id']}, n = {length['n']} "
        f"questions in {length['contexts']} contexts, seed {length['seed']}, {data['confidence']:.0%} intervals"
    )


def _table(data: dict[str, Any], length: dict[str, Any]) -> Table:
    rows = [row for row in data["rows"] if row["examples"] == length["hash"]]
    places = any(row.get("by_position") for row in rows)
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("profile", overflow="fold")
    table.add_column(SCORES.get(data["metric"], data["metric"]), justify="right")
    if data["metric"] == "perplexity":
        table.add_column("perplexity", justify="right")
    table.add_column("− unchanged", justify="right")
    table.add_column("p (Holm)", justify="right")
    if places:
        table.add_column("by place, first to last", justify="right")
    table.add_column("seconds", justify="right")
    for row in rows:
        if row["status"] == "failed":
            table.add_row(Text(row["name"]), Text("failed", style="red"))
            continue
        gain = row["minus_unchanged"]
        cells = [row["name"], interval(row["score"])]
        if data["metric"] == "perplexity":
            cells.append(interval(row["perplexity"]))
        cells += [interval(gain, signed=True), p_value(gain)]
        if places:
            cells.append(_by_place(row["by_position"]))
        table.add_row(*(Text(cell) for cell in [*cells, f"{row['seconds']:.1f}"]))
    return table


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


def _by_place(positions: list[dict[str, Any]]) -> str:
    """Means over equal parts of the context, weighted by questions; of each position where there are few."""
    count = min(PARTS, len(positions))
    shown = []
    for part in range(count):
        inside = positions[part * len(positions) // count : (part + 1) * len(positions) // count]
        asked = sum(place["n"] for place in inside)
        shown.append(number(sum(place["score"] * place["n"] for place in inside) / asked, digits=2))
    return " ".join(shown)
