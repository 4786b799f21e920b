"""Figures of a campaign, as pure functions from its events' data to a matplotlib `Figure`.

Object API only (no pyplot): nothing global is changed and no display is needed. Colours are those of Okabe and Ito,
which colour-blind readers can tell apart; lines differ in dash or marker as well. Each title ends with model, task,
length and n.
"""

import html
import io
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dashboards.findings import Caption
from search.events import GenerationFinished

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
GREY = "#808080"
INK = "#1b1f25"  # text and axes
PAGE_COLOURS = {INK: "currentColor", BLUE: "var(--blue)"}  # what `svg` leaves to the page, which may be dark
PAPER = "#ffffff"
SWEEP_STYLES = {
    "linear": (ORANGE, "o"),
    "ntk": (GREEN, "s"),
    "dynamic_ntk": (SKY, "^"),
    "yarn": (PURPLE, "D"),
}
ROW_STYLES = {"winner": (BLUE, "o", "-"), "linear": (ORANGE, "s", "--"), "identity": (GREY, "^", ":")}
ROW_NAMES = {"winner": "after: winner", "linear": "best uniform linear", "identity": "before: unchanged model"}


def fitness(
    generations: Sequence[GenerationFinished], baselines: Mapping[str, float], caption: Caption, metric: str = "score"
) -> "Figure":
    """Best, mean ± standard deviation and worst of each generation; the baselines' scores as horizontal lines."""
    figure, axes = _blank("Fitness per generation", caption, right=0.80)
    x = [g.generation for g in generations]
    mean, std = [g.mean for g in generations], [g.std for g in generations]
    low, high = [m - s for m, s in zip(mean, std, strict=True)], [m + s for m, s in zip(mean, std, strict=True)]
    axes.fill_between(x, low, high, color=SKY, alpha=0.3, linewidth=0, label="mean ± standard deviation")
    axes.plot(x, [g.best for g in generations], color=BLUE, marker="o", markersize=4, label="best")
    axes.plot(x, mean, color=BLUE, linestyle="--", linewidth=1.3, label="mean")
    axes.plot(x, [g.worst for g in generations], color=VERMILION, linestyle=":", label="worst")
    for name, score in baselines.items():
        axes.axhline(score, color=GREY, linestyle=(0, (6, 3)), linewidth=0.9, label=f"_{name}")
    axes.set_xlabel("generation")
    axes.set_ylabel(metric)
    axes.xaxis.get_major_locator().set_params(integer=True)
    _legend(axes, loc="best")
    _margin_labels(axes, [(score, f"{name} {score:.3f}") for name, score in baselines.items()])
    return figure


def curve(
    factors: Sequence[float],
    control_points: Sequence[tuple[float, float]],
    uniform: float | None,
    caption: Caption,
) -> "Figure":
    """The factor of every layer, the Bézier curve it lies on with its control points, the best uniform factor.

    Args:
        factors: one per layer.
        control_points: (layer in [0, 1], factor); empty when the factors do not come from a curve.
        uniform: the best uniform factor of the same method, if one was measured.
    """
    from matplotlib.bezier import BezierSegment

    figure, axes = _blank("Scale per layer", caption)
    last = len(factors) - 1
    if control_points:
        points = [(x * last, y) for x, y in control_points]
        line = BezierSegment(points)([i / 200 for i in range(201)])
        axes.plot(line[:, 0], line[:, 1], color=BLUE, linewidth=1.6, label="Bézier curve")
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            color=VERMILION,
            linestyle=":",
            marker="s",
            markersize=7,
            markerfacecolor="none",
            label="control points",
        )
    axes.plot(range(len(factors)), factors, color=BLUE, marker="o", linestyle="none", label="factor of the layer")
    if uniform is not None:
        axes.axhline(uniform, color=ORANGE, linestyle="--", label=f"best uniform factor, {uniform:g}")
    axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle=(0, (1, 3)), label="1: unchanged")
    axes.set_xlabel("layer")
    axes.set_ylabel("factor")
    axes.xaxis.get_major_locator().set_params(integer=True)
    _legend(axes, loc="best")
    return figure


def by_position(rows: Sequence[Mapping[str, Any]], caption: Caption, metric: str = "score", confidence: float = 0.95):
    """Held-out score by position of the gold pair, before and after, with intervals: the U-curve.

    Args:
        rows: of the held-out report; identity, linear and winner are drawn.
    """
    figure, axes = _blank(f"Score by gold position, {confidence:.0%} intervals".replace("%", " %"), caption)
    drawn = [r for name in ROW_STYLES for r in rows if r["name"] == name and r.get("by_position")]
    positions = sorted({p["position"] for r in drawn for p in r["by_position"]})
    gap = min((b - a for a, b in pairwise(positions)), default=1)
    for i, row in enumerate(drawn):
        colour, marker, dash = ROW_STYLES[row["name"]]
        points = sorted(row["by_position"], key=lambda p: p["position"])
        shift = (i - (len(drawn) - 1) / 2) * 0.08 * gap  # so that intervals do not hide each other
        axes.errorbar(
            [p["position"] + shift for p in points],
            [p["score"] for p in points],
            yerr=[
                [max(0.0, p["score"] - p["low"]) for p in points],
                [max(0.0, p["high"] - p["score"]) for p in points],
            ],
            color=colour,
            marker=marker,
            markersize=5,
            linestyle=dash,
            linewidth=1.5,
            elinewidth=1,
            capsize=3,
            label=ROW_NAMES[row["name"]],
        )
    axes.set_xlabel("position of the gold pair in its context")
    axes.set_ylabel(metric)
    if len(positions) <= 12:
        axes.set_xticks(positions)
    _legend(axes, loc="best")
    return figure


def sweeps(
    tables: Mapping[str, Sequence[tuple[float, float | None]]],
    winner: float | None,
    caption: Caption,
    metric: str = "score",
) -> "Figure":
    """Score of one factor for all layers, per frequency method; each method's best is ringed; the winner as a line.

    Args:
        tables: method to (factor, score); a score of None (the candidate failed) is a cross on the lower edge.
        winner: search score of the layer-wise winner.
    """
    figure, axes = _blank("One factor for all layers", caption)
    for name, table in tables.items():
        colour, marker = SWEEP_STYLES.get(name, (VERMILION, "v"))
        scored = sorted((f, s) for f, s in table if s is not None)
        x, y = [f for f, _ in scored], [s for _, s in scored]
        axes.plot(x, y, color=colour, marker=marker, markersize=4, linewidth=1.4, label=name)
        if scored:
            best = max(scored, key=lambda point: point[1])
            axes.plot(*best, color=colour, marker="o", markersize=11, fillstyle="none", linestyle="none", label="_best")
        failed = [f for f, s in table if s is None]
        if failed:
            axes.plot(
                failed,
                [0.02] * len(failed),
                color=colour,
                marker="x",
                linestyle="none",
                transform=axes.get_xaxis_transform(),
                label=f"{name}: failed",
            )
    if winner is not None:
        axes.axhline(winner, color=BLUE, linestyle="--", label=f"winner, per layer: {winner:.3f}")
    axes.set_xlabel("factor")
    axes.set_ylabel(metric)
    _legend(axes, loc="best")
    return figure


def png(figure: "Figure") -> bytes:
    """The figure on white paper, legible on a dark page too."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, facecolor=PAPER)
    return buffer.getvalue()


def svg(figure: "Figure", label: str) -> str:
    """The figure as an inline `<svg>` without background, for a page that sets its text colour and `--blue`.

    Args:
        label: what a screen reader says.
    """
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # the same in every figure, and nothing refers to them
    for colour, of_page in PAGE_COLOURS.items():
        text = text.replace(colour.lower(), of_page)
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1)


def _blank(title: str, caption: Caption, right: float = 0.97) -> tuple["Figure", "Axes"]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.6), facecolor=PAPER)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.09, 0.13, right - 0.09, 0.71), facecolor="none")
    figure.text(0.09, 0.935, title, color=INK, fontsize=13, fontweight="bold")
    figure.text(0.09, 0.88, str(caption), color=INK, fontsize=9, parse_math=False)  # a model's name may hold $
    axes.grid(color=GREY, alpha=0.25, linewidth=0.7)
    axes.tick_params(colors=INK)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(INK)
    for side, spine in axes.spines.items():
        spine.set_color(INK)
        spine.set_visible(side in ("left", "bottom"))
    return figure, axes


def _legend(axes: "Axes", loc: str) -> None:
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc=loc, fontsize=9, frameon=False, labelcolor=INK)


def _margin_labels(axes: "Axes", labels: Sequence[tuple[float, str]]) -> None:
    """Names of horizontal lines right of the axes, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    apart, previous = (high - low) * 0.055, float("-inf")
    for y, text in sorted(labels):
        previous = max(y, previous + apart)
        axes.annotate(
            text,
            (1.0, y),
            xytext=(1.02, previous),
            xycoords=("axes fraction", "data"),
            textcoords=("axes fraction", "data"),
            fontsize=8.5,
            color=INK,
            va="center",
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.6},
            annotation_clip=False,
        )
