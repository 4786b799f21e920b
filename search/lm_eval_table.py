"""Scores of lm-evaluation-harness on the terminal: a row per task and metric, a column per profile."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from search.figures import number

PLAIN_WIDTH = 200  # of a file or a pipe, which has no width of its own
LARGE = 1e5


def show(data: dict[str, Any], console: Console | None = None) -> None:
    """Print what `ropewalk lm-eval` measured; standard errors are the harness's own."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(file=console.file, highlight=False, width=PLAIN_WIDTH)
    done = [row for row in data["rows"] if row["status"] == "ok"]
    limit = data["settings"]["limit"]
    title = (
        f"lm-evaluation-harness {data['lm_eval']} on {data['model']['id']}, "
        f"{'all examples' if limit is None else f'the first {limit} examples of each task'}, "
        f"chat template {data['chat_template']}, score ± standard error"
    )
    console.print(Text(title), soft_wrap=True)
    table = Table(box=box.SIMPLE, pad_edge=False)
    for header in ("task", "metric"):
        table.add_column(header, no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    for row in done:
        table.add_column(Text(row["name"]), justify="right", overflow="fold")
    cells = {(_line(score), row["name"]): score for row in done for score in row["scores"]}
    for line in dict.fromkeys(line for line, _ in cells):
        task, metric = line
        numbers = (_cell(cells.get((line, row["name"]))) for row in done)
        table.add_row(*(Text(text) for text in (task, metric, _count(done, task), *numbers)))
    console.print(table)
    for row in data["rows"]:
        if row["status"] == "failed":
            console.print(Text(f"{row['name']} failed: {row['reason']}"), soft_wrap=True)


def _line(score: dict[str, Any]) -> tuple[str, str]:
    how = "" if score["filter"] == "none" else f", {score['filter']}"
    return score["task"], score["metric"] + how


def _count(done: list[dict[str, Any]], task: str) -> str:
    counts = done[0]["lm_eval"].get("n-samples", {}).get(task, {})
    return str(counts.get("effective", ""))


def _cell(score: dict[str, Any] | None) -> str:
    if score is None:
        return "–"
    doubt = "" if score["stderr"] is None else f" ± {_short(score['stderr'])}"
    return _short(score["score"]) + doubt


def _short(value: float) -> str:
    """A perplexity can be of any size."""
    return number(value) if abs(value) < LARGE else f"{value:.3g}"
