"""Several tasks in one table per length: a row per task and a column per profile, and their mean at the bottom."""

from collections.abc import Callable
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from search.figures import LEVEL, interval, score_name

CELL = 24  # columns of `−0.335 [−0.397, −0.275] *`, which no line break may cut
GAP = 3  # between two columns


def show(data: dict[str, Any], say: Callable[[str], None], console: Console) -> None:
    """Print the tables of a report with several tasks; `say` prints a line."""
    for length in dict.fromkeys(made["asked_length"] for made in data["sets"]):
        sets = [made for made in data["sets"] if made["asked_length"] == length]
        rows = {(row["task"], row["name"]): row for row in data["rows"] if row["asked_length"] == length}
        means = {mean["name"]: mean for mean in data["means"] if mean["asked_length"] == length}
        say(_title(data, length, sets))
        first, *others = dict.fromkeys(row["name"] for row in rows.values())
        room = max((console.width - _left(sets)) // (CELL + GAP) - 1, 1)
        for start in range(0, max(len(others), 1), room):
            console.print(_table([first, *others[start : start + room]], sets, rows, means))


def _title(data: dict[str, Any], length: int | None, sets: list[dict[str, Any]]) -> str:
    size = "at their own sizes" if length is None else f"at {length} tokens"
    return (
        f"Held out: {len(sets)} tasks {size} on {data['model']['id']}, seed {data['seed']}, "
        f"{data['confidence']:.0%} intervals"
    )


def _left(sets: list[dict[str, Any]]) -> int:
    """Width of the columns that say what was measured."""
    widths = (
        max(len(made["task"]) for made in [*sets, {"task": _mean(len(sets))}]),
        max(len(score_name(made["metric"], made["scoring"])) for made in sets),
        max(len(str(made["length"])) for made in [*sets, {"length": "tokens"}]),
        max(len(str(made["n"])) for made in sets),
    )
    return sum(width + GAP for width in widths)


def _mean(count: int) -> str:
    return f"mean of {count} tasks"


def _table(
    names: list[str],
    sets: list[dict[str, Any]],
    rows: dict[tuple[str, str], dict[str, Any]],
    means: dict[str, dict[str, Any]],
) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for header in ("task", "score"):
        table.add_column(header, no_wrap=True)
    for header in ("tokens", "n"):
        table.add_column(header, justify="right", no_wrap=True)
    for name in names:
        table.add_column(Text(name), justify="right", overflow="fold", min_width=CELL)
    for made in sets:
        what = (made["task"], score_name(made["metric"], made["scoring"]), str(made["length"]), str(made["n"]))
        table.add_row(*(Text(cell) for cell in (*what, *(_cell(rows[made["task"], name]) for name in names))))
    if means:
        count = len(next(iter(means.values()))["tasks"])
        scores = (interval(means[name]["score"]) + "  " if name in means else "–" for name in names)
        table.add_section()
        table.add_row(Text(_mean(count)), Text("of 0 to 1"), "", "", *(Text(cell) for cell in scores))
    return table


def _cell(row: dict[str, Any]) -> str:
    if row["status"] == "failed":
        return "failed"
    gain = row["minus_unchanged"]
    return interval(row["score"]) + (" *" if gain is not None and gain["p_holm"] <= LEVEL else "  ")
