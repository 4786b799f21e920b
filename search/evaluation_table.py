"""An evaluation on the terminal: one table per length, the unchanged model first.

Of one task with a row per profile; of several tasks with a row per task and a column per profile, as many side by side
as the terminal holds.
"""

import math
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from search import evaluation_matrix
from search.figures import LEVEL, interval, number, p_value, score_name

PLAIN_WIDTH = 200  # of a file or a pipe, which has no width of its own
NAME_WIDTH = 24  # that a profile's name takes at least, folded
PARTS = 5
PLACES, SECONDS = "by place, first to last", "seconds"
LEAST_NEEDED = (SECONDS, PLACES)  # they are in result.json as well


def show(data: dict[str, Any], console: Console | None = None) -> None:
    """Print the report that `search.evaluation_report.report` makes."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(file=console.file, highlight=False, width=PLAIN_WIDTH)
    several = len({made["task"] for made in data["sets"]}) > 1
    if several:
        evaluation_matrix.show(data, lambda line: _say(console, line), console)
    else:
        for made in data["sets"]:
            _say(console, title(data, made))
            console.print(_table(data, made, console.width))
    for name, needs in data["left_out"].items():
        _say(console, f"{name} left out: it needs {needs}")
    for note in dict.fromkeys(note for made in data["sets"] for note in made["notes"]):
        named = dict.fromkeys(made["task"] for made in data["sets"] if note in made["notes"])
        _say(console, f"{', '.join(named)}: {note}")
    for failed in dict.fromkeys(_failure(row, several) for row in data["rows"] if row["status"] == "failed"):
        _say(console, failed)
    if any(row.get("minus_unchanged") for row in data["rows"]):
        _say(console, f"p: {data['test']}. Correction: {data['correction']}; * marks p of at most {LEVEL:g}.")
        if warning := too_few(data):
            _say(console, warning)


def _failure(row: dict[str, Any], several: bool) -> str:
    which = f" on {row['task']}" if several else ""
    return f"{row['name']} failed{which}: {row['reason']}"


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)


def too_few(data: dict[str, Any]) -> str | None:
    """Said where so few contexts cannot give a corrected p-value that is a finding, whatever the profiles do."""
    compared = sum(row.get("minus_unchanged") is not None for row in data["rows"])
    needed = math.ceil(math.log2(2 * compared / LEVEL))  # the smallest p of n contexts is 2/2^n
    most = max(made["contexts"] for made in data["sets"])
    if not 1 < most < needed:  # questions are the units where there is one context
        return None
    return f"{most} contexts are too few for any finding among {compared} comparisons: --contexts {needed} or more."


def title(data: dict[str, Any], made: dict[str, Any]) -> str:
    """What a table's numbers were measured on."""
    return (
        f"Held out: {made['task']} at {made['length']} tokens on {data['model']['id']}, n = {made['n']} "
        f"questions in {made['contexts']} contexts, seed {made['seed']}, {data['confidence']:.0%} intervals"
    )


def _table(data: dict[str, Any], made: dict[str, Any], width: int) -> Table:
    """As many columns as the width holds; names are folded before numbers, which are never."""
    rows = [row for row in data["rows"] if row["examples"] == made["hash"]]
    columns = _columns(made, rows)
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


def _columns(made: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, dict[int, str]]:
    """Cells by column and row; a failed row has its name and that it failed."""
    metric = made["metric"]
    score = score_name(metric, made["scoring"])
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


def _by_place(positions: list[dict[str, Any]]) -> str:
    """Means over equal parts of the context, weighted by questions; of each position where there are few."""
    count = min(PARTS, len(positions))
    shown = []
    for part in range(count):
        inside = positions[part * len(positions) // count : (part + 1) * len(positions) // count]
        asked = sum(place["n"] for place in inside)
        shown.append(number(sum(place["score"] * place["n"] for place in inside) / asked, digits=2))
    return " ".join(shown)
