"""Which figures a campaign has data for: the same ones in MLflow and in the HTML report."""

from typing import TYPE_CHECKING

from dashboards import figures
from dashboards.findings import METRIC_NAMES, heldout_caption, search_caption
from dashboards.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def drawn(record: Record) -> dict[str, "Figure"]:
    """Every figure that the campaign has data for, by name, in the order in which they are best read."""
    started, report = record.started, record.report
    metric = METRIC_NAMES.get(started.campaign["fitness"]["metric"], "score")
    caption, result = search_caption(started), {}
    stage = record.winning_stage
    if factors := record.winner_factors():
        best = None if stage is None else record.best_generation(stage)
        points = () if best is None else best.control_points
        result["curve"] = figures.curve(factors, points, _uniform(record, stage), caption)
    if report is not None and any(r.get("by_position") for r in report["rows"]):
        result["by_position"] = figures.by_position(
            report["rows"], heldout_caption(started, report), metric, report["confidence"]
        )
    for name in record.stages:
        key = "fitness" if len(record.stages) == 1 else f"fitness_{name}"
        result[key] = figures.fitness(record.of_stage(name), record.baseline_scores(), caption, metric)
    tables = {name: b.table for name, b in record.baselines.items() if b.table}
    if tables:
        winner = None if stage is None else record.best_generation(stage).best
        result["sweeps"] = figures.sweeps(tables, winner, caption, metric)
    return result


def _uniform(record: Record, stage: str | None) -> float | None:
    """The best uniform factor of the method that the stage searched, if that baseline was run."""
    method = next((s["method"] for s in record.started.campaign["stages"] if s["name"] == stage), None)
    baseline = record.baselines.get(method)
    return None if baseline is None else baseline.profile["frequency"]["factor"]
