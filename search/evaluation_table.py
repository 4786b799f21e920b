"""An evaluation on the terminal: one table per length, the unchanged model first."""

import math
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

LEVEL = 0.05
PLAIN_WIDTH = 200  # of a file or a pipe, which has no width of its own
NAME_WIDTH = 24  # that a profile's name takes at least, folded
PARTS = 5
PLACES, SECONDS = "by place, first to last", "seconds"
LEAST_NEEDED = (SECONDS, PLACES)  # they are in result.json as well
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
        console.print(_table(data, length, console.width))
    for reason in dict.fromkeys((row["name"], row["reason"]) for row in data["rows"] if row["status"] == "failed"):
        _say(console, "{} failed: {}".format(*reason))
    if any(row.get("minus_unchanged") for row in data["rows"]):
        _say(console, f"p: {data['test']}. Correction: {data['correction']}; * marks p of at most {LEVEL:g}.")
        if warning := too_few(data):
            _say(console, warning)


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)


def too_few(data: dict[str, Any]) -> str | None:
    """Said where so few contexts cannot give a corrected p-value that is a finding, whatever the profiles do."""
    compared = sum(row.get("minus_unchanged") is not None for row in data["rows"])
    needed = math.ceil(math.log2(2 * compared / LEVEL))  # the smallest p of n contexts is 2/2^n
    most = max(length["contexts"] for length in data["lengths"])
    if not 1 < most < needed:  # questions are the units where there is one context
        return None
    return f"{most} contexts are too few for any finding among {compared} comparisons: --contexts {needed} or more."


def title(data: dict[str, Any], length: dict[str, Any]) -> str:
    """What a table's numbers were measured on."""
    return (
        f"Held out: {data['task']['task']} at {length['length']} tokens on {data['model']['id']}, n = {length['n']} "
        f"questions in {length['contexts']} contexts, seed {length['seed']}, {data['confidence']:.0%} intervals"
    )


def _table(data: dict[str, Any], length: dict[str, Any], width: int) -> Table:
    """As many columns as the width holds; names are folded before numbers, which are never."""
    rows = [row for row in data["rows"] if row["examples"] == length["hash"]]
    columns = _columns(data["metric"], rows)
    names = max(len(name) for name in columns["profile"].values())
    for spare in LEAST_NEEDED:
        if min(names, NAME_WIDTH) + sum(map(_needed, list(columns.items())[1:])) > width:
            columns.pop(spare, None)
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("profile", overflow="fold")
    for header in list(columns)[1:]:
        table.add_column(header, justify="right", no_wrap=True)
    for i, row in enumerate(rows):
        cells = [column.get(i, "") for column in columns.values()]
        table.add_row(*(Text(cell) for cell in cells), style="red" if row["status"] == "failed" else None)
    return table


def _needed(column: tuple[str, dict[int, str]]) -> int:
    header, cells = column
    return max(len(text) for text in (header, *cells.values())) + 2


def _columns(metric: str, rows: list[dict[str, Any]]) -> dict[str, dict[int, str]]:
    """Cells by column and row; a failed row has its name and that it failed."""
    score = SCORES.get(metric, metric)
    done = {i: row for i, row in enumerate(rows) if row["status"] == "ok"}
    columns = {"profile": {i: row["name"] for i, row in enumerate(rows)}}
    columns[score] = {i: interval(row["score"]) if i in done else "failed" for i, row in enumerate(rows)}
    if metric == "perplexity":
        columns["perplexity"] = {i: interval(row["perplexity"]) for i, row in done.items()}
    columns["− unchanged"] = {i: interval(row["minus_unchanged"], signed=True) for i, row in done.items()}
    columns["p (Holm)"] = {i: p_value(row["minus_unchanged"]) for i, row in done.items()}
    if any(row["by_position"] for row in done.values()):
        columns[PLACES] = {i: _by_place(row["by_position"]) for i, row in done.items()}
    columns[SECONDS] = {i: f"{row['seconds']:.1f}" for i, row in done.items()}
    return columns


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
