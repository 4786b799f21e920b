"""A campaign on the terminal: a live bar on a terminal, plain lines elsewhere; at the end the held-out table.

Written to standard error by default, so that standard output stays for results.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from dashboards.findings import factor_text, model_name, number, search_caption, sentences, table, title
from dashboards.mlflow_store import redacted
from dashboards.record import BASELINE, Record
from dashboards.throughput import Throughput, duration
from search.events import (
    BaselineFinished,
    CampaignFailed,
    CampaignFinished,
    CampaignStarted,
    CampaignStopped,
    EvaluationFinished,
    Event,
    GenerationFinished,
)

AWAY_FROM_SEARCH = {"heldout": "held-out examples", "guard": "short-context guard"}
NAME_WIDTH = 20  # that a profile's name takes at least, wrapped
LEAST_NEEDED = (2, 1, 3)  # evaluations, factor, search: they are in the report as well


class ConsoleProgress:
    """A listener that shows a campaign to the person who runs it.

    Args:
        stream: where to write; standard error by default. Live if it is a terminal.
        console: a rich console to use instead of one on `stream`.
        clock: seconds; for tests.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        stream = stream or sys.stderr
        self.console = console or Console(file=stream, force_terminal=stream.isatty(), highlight=False)
        self.live = self.console.is_terminal
        self.clock = clock
        self.record = Record()
        self.throughput: Throughput | None = None
        self._progress: Progress | None = None
        self._task: Any = None
        self._best = self._mean = None
        self._measuring: str | None = None

    def __call__(self, event: Event) -> None:
        self.record.add(event)
        match event:
            case CampaignStarted():
                self._start(event)
            case EvaluationFinished():
                self._evaluation(event)
            case GenerationFinished():
                self._generation(event)
            case BaselineFinished():
                self._baseline(event)
            case CampaignFinished():
                self._finish(event)
            case CampaignStopped():
                self._end(f"Stopped: {self.record.reason}")
            case CampaignFailed():
                self._end(f"Failed: {self.record.reason}")

    def _say(self, line: str) -> None:
        """One line whatever the width; above the bar when there is one."""
        self.console.print(Text(line), soft_wrap=True)

    def _start(self, event: CampaignStarted) -> None:
        self.throughput = Throughput(event.completed_evaluations, event.planned_evaluations, self.clock)
        again = f", resumed after {event.completed_evaluations}" if event.resumed else ""
        self._say(
            f"Campaign {event.campaign_id}: {search_caption(event)}; "
            f"{event.planned_evaluations} evaluations planned{again}"
        )
        if self.live:
            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[facts]}", markup=False),
                console=self.console,
                transient=True,
            )
            self._task = self._progress.add_task(
                "search", total=event.planned_evaluations, completed=event.completed_evaluations, facts=""
            )
            self._progress.start()

    def _evaluation(self, event: EvaluationFinished) -> None:
        if event.stage in AWAY_FROM_SEARCH:
            if self._measuring != event.stage:
                self._measuring = event.stage
                self._update(f"measuring: {AWAY_FROM_SEARCH[event.stage]}")
            return
        self.throughput.add(event.evaluations, event.tokens)
        if event.score is not None and (self._best is None or event.score > self._best):
            self._best = event.score
        self._update(event.stage)

    def _generation(self, event: GenerationFinished) -> None:
        self._best, self._mean = max(event.best, event.best if self._best is None else self._best), event.mean
        if event.evaluations <= self.record.started.completed_evaluations:
            return  # told again after a resume: known to whoever watched
        self._update(event.stage)
        failed = ""
        if event.failed > event.infeasible:
            reasons = Counter(i.reason for i in event.individuals if i.reason and not i.infeasible).most_common(1)
            failed = f", {event.failed - event.infeasible} failed" + (f" ({reasons[0][0]})" if reasons else "")
        if event.infeasible:
            failed += f", {event.infeasible} infeasible"
        self._say(
            f"{event.stage} generation {event.generation}: best {number(event.best)}, mean {number(event.mean)} "
            f"± {number(event.std)}, worst {number(event.worst)}{failed}; {self._position()}"
        )

    def _baseline(self, event: BaselineFinished) -> None:
        factor = factor_text(event.profile["frequency"])
        at = "" if factor == "–" else f" at factor {factor}"
        many = "1 evaluation" if event.evaluations == 1 else f"{event.evaluations} evaluations"
        self._say(f"{BASELINE}{event.name}: {number(event.score)}{at}, best of {many}; {self._position()}")

    def _position(self) -> str:
        t = self.throughput
        parts = [f"{t.evaluations} of {t.planned} evaluations"]
        if t.tokens_per_second is not None:
            parts.append(f"{t.tokens_per_second:,.0f} tokens/s")
        if t.seconds_left is not None:
            parts.append(f"about {duration(t.seconds_left)} left")
        return ", ".join(parts)

    def _update(self, description: str) -> None:
        if self._progress is None:
            return
        t = self.throughput
        facts = [f"best {number(self._best)}", f"mean {number(self._mean)}"]
        if t.tokens_per_second is not None:
            facts.append(f"{t.tokens_per_second:,.0f} tokens/s")
        if t.seconds_left is not None:
            facts.append(f"{duration(t.seconds_left)} left")
        self._progress.update(
            self._task, description=description, completed=min(t.evaluations, t.planned), facts=" · ".join(facts)
        )

    def _finish(self, event: CampaignFinished) -> None:
        self._close_bar()
        if self.record.report is not None:
            self._held_out(self.record.report)
        cost, folder = event.result["cost"], redacted(self.record.started.folder)
        self._say(
            f"{cost['evaluations']} evaluations, {cost['tokens']:,} tokens, {duration(cost['seconds'])} "
            f"on {model_name(self.record.started)}."
        )
        self._say(f"Winning profile: {folder}/profile.json")
        self._say(f"Report: {folder}/report.html")

    def _held_out(self, report: dict[str, Any]) -> None:
        headers, rows = table(report)
        self._say("")
        self._say(title(report))
        if self.live:
            shown, whole = columns(headers, rows, self.console.width)
            drawn = Table(*(headers[i] for i in shown), show_edge=False)
            drawn.columns[0].min_width = NAME_WIDTH
            for i, column in zip(shown, drawn.columns, strict=True):  # names wrap first, numbers only if they must
                if i >= 2:
                    column.justify, column.no_wrap = "right", whole
            for cells in rows:
                drawn.add_row(*(Text(cells[i]) for i in shown), style="bold" if cells[0].startswith("winner") else None)
            self.console.print(drawn)
        else:
            for line in aligned(headers, rows):
                self._say(line)
        self._say("")
        for sentence in sentences(report):
            self._say(sentence)

    def _end(self, line: str) -> None:
        self._close_bar()
        self._say(line)

    def _close_bar(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def columns(headers: tuple[str, ...], rows: list[tuple[str, ...]], width: int) -> tuple[list[int], bool]:
    """Which columns a terminal of this width shows, the least needed left out first, and whether these fit."""
    shown = list(range(len(headers)))
    needed = [max(len(line[i]) for line in (headers, *rows)) + 3 for i in shown]  # a cell is padded and has an edge
    needed[0] = NAME_WIDTH + 3
    for i in LEAST_NEEDED:
        if sum(needed[j] for j in shown) > width:
            shown.remove(i)
    return shown, sum(needed[j] for j in shown) <= width


def aligned(headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """A table as lines of plain text: the first two columns to the left, numbers to the right."""
    widths = [max(len(line[i]) for line in (headers, *rows)) for i in range(len(headers))]

    def joined(cells: tuple[str, ...]) -> str:
        padded = (c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
        return "  ".join(padded).rstrip()

    return [joined(headers), "  ".join("-" * w for w in widths), *map(joined, rows)]
