"""What is drawn is what was measured, and each figure says on what."""

import sys
from itertools import pairwise
from subprocess import run

import pytest
from matplotlib.figure import Figure

from dashboards import figures
from dashboards.findings import Caption
from dashboards.gallery import drawn
from dashboards.record import Record

CAPTION = Caption("models/tiny-kv", "KV retrieval", 1020, 192)


def line(figure, label):
    (found,) = [item for item in figure.axes[0].lines if item.get_label() == label]
    return found


def points(figure, label):
    return [tuple(p) for p in line(figure, label).get_xydata().tolist()]


def texts(figure):
    return [t.get_text() for t in figure.texts]


def test_fitness_draws_best_mean_worst_spread_and_baselines(recording):
    figure = figures.fitness(recording.generations, {"linear": 0.3125, "identity": 0.131}, CAPTION)
    assert points(figure, "best") == [(0, 0.41), (1, 0.41), (2, 0.5104)]
    assert points(figure, "mean") == [(0, 0.31), (1, 0.33), (2, pytest.approx(0.35))]
    assert points(figure, "worst") == [(0, 0.20), (1, 0.22), (2, pytest.approx(0.24))]
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (pytest.approx(0.26), pytest.approx(0.40))
    assert [y for _, y in points(figure, "_linear")] == [0.3125, 0.3125]
    assert {t.get_text() for t in figure.axes[0].texts} == {"linear 0.312", "identity 0.131"}


def test_labels_of_baselines_with_the_same_score_do_not_overlap(recording):
    figure = figures.fitness(recording.generations, {"linear": 0.3125, "yarn": 0.3125, "ramp": 0.3126}, CAPTION)
    low, high = figure.axes[0].get_ylim()
    heights = sorted(t.xyann[1] for t in figure.axes[0].texts)
    assert all(b - a >= 0.05 * (high - low) for a, b in pairwise(heights))


def test_curve_draws_control_points_factors_and_a_bezier_line_through_the_factors(recording):
    told = recording.generations[2]
    figure = figures.curve(told.best_factors, told.control_points, 2.0, CAPTION)
    assert points(figure, "control points") == [(pytest.approx(x * 7), y) for x, y in told.control_points]
    assert points(figure, "factor of the layer") == [(i, f) for i, f in enumerate(told.best_factors)]
    drawn_line = line(figure, "Bézier curve").get_xydata()
    for layer, factor in enumerate(told.best_factors):
        nearest = abs(drawn_line[:, 0] - layer).argmin()
        assert drawn_line[nearest, 1] == pytest.approx(factor, abs=0.02)
    assert line(figure, "best uniform factor, 2").get_ydata()[0] == 2.0


def test_curve_without_control_points_draws_the_factors_alone(recording):
    figure = figures.curve([1.0, 2.0, 3.0], (), None, CAPTION)
    assert points(figure, "factor of the layer") == [(0, 1.0), (1, 2.0), (2, 3.0)]
    assert not [item for item in figure.axes[0].lines if "zier" in item.get_label()]


def test_by_position_draws_winner_linear_and_identity_with_their_intervals(make_report):
    rows = make_report()["rows"]
    axes = figures.by_position(rows, CAPTION).axes[0]
    assert [c.get_label() for c in axes.containers] == [
        "after: winner",
        "best uniform linear",
        "before: unchanged model",
    ]
    for container, name in zip(axes.containers, ("winner", "linear", "identity"), strict=True):
        measured = next(r for r in rows if r["name"] == name)["by_position"]
        data, _, (bars,) = container.lines
        assert list(data.get_ydata()) == [p["score"] for p in measured]
        ends = [tuple(segment[:, 1]) for segment in bars.get_segments()]
        assert ends == [(pytest.approx(p["low"]), pytest.approx(p["high"])) for p in measured]
    assert list(axes.get_xticks()) == [0, 9, 18]


def test_sweeps_draw_scores_ring_the_best_and_mark_what_failed(make_recording, tmp_path):
    tables = {b.name: b.table for b in make_recording("q", tmp_path).baselines}
    figure = figures.sweeps(tables, 0.5104, CAPTION)
    assert points(figure, "linear") == [(1.0, 0.131), (2.0, 0.3125), (3.0, 0.3021)]
    assert points(figure, "ntk") == list(tables["ntk"])
    rings = [item.get_xydata().tolist()[0] for item in figure.axes[0].lines if item.get_label() == "_best"]
    assert rings == [[2.0, 0.3125], [4.0, 0.951]]
    assert list(line(figure, "linear: failed").get_xdata()) == [4.0]
    assert line(figure, "winner, per layer: 0.510").get_ydata()[0] == 0.5104


def test_every_figure_says_model_task_length_and_n(recording):
    record = Record()
    for event in recording.events:
        record.add(event)
    result = drawn(record)
    assert list(result) == ["curve", "by_position", "fitness", "sweeps"]
    for name, figure in result.items():
        length, n, part = (1019, 576, "held out") if name == "by_position" else (1020, 192, "search")
        assert texts(figure)[1] == f"models/tiny-kv · KV retrieval ({part}) · {length} tokens · n = {n}"


def test_the_uniform_factor_beside_a_curve_is_that_of_the_curves_own_method(recording):
    record = Record()
    for event in recording.events:
        record.add(event)
    record.started.campaign["stages"] = [{**record.started.campaign["stages"][0], "method": "ntk"}]
    record.report["rows"][0]["frequency"]["method"] = "ntk"
    assert line(drawn(record)["curve"], "best uniform factor, 4").get_ydata()[0] == 4.0


def test_a_figure_is_png_on_white_and_svg_in_the_colours_of_its_page():
    figure = figures.curve([1.0, 2.0], (), None, CAPTION)
    assert isinstance(figure, Figure)
    assert figures.png(figure).startswith(b"\x89PNG")
    text = figures.svg(figure, 'a "label"')
    assert text.startswith('<svg role="img" aria-label="a &quot;label&quot;"')
    assert "currentColor" in text
    assert figures.INK not in text
    assert "http" not in text


def test_importing_dashboards_and_their_listeners_loads_neither_mlflow_nor_matplotlib():
    code = (
        "import sys, dashboards, dashboards.console, dashboards.download, dashboards.mlflow_tracker, dashboards.report;"
        "print([m for m in ('mlflow', 'matplotlib', 'pandas') if m in sys.modules])"
    )
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_model_name_is_never_read_as_mathematics():
    figure = figures.curve((1.0, 2.0), (), None, Caption("a$\\frac{$b", "KV retrieval", 1020, 192))
    assert figures.png(figure)
