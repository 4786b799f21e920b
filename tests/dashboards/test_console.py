"""What a person sees: readable lines in a log, a live bar on a terminal, and an honest table at the end."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from dashboards import ConsoleProgress
from search.events import CampaignFailed, CampaignStopped, HeldoutFinished

PLAIN = """\
Campaign quick: models/tiny-kv · KV retrieval (search) · 1020 tokens · n = 192; 20 evaluations planned
genetic generation 0: best 0.410, mean 0.310 ± 0.050, worst 0.200; 5 of 20 evaluations, 1,000 tokens/s, about 15 s left
genetic generation 1: best 0.410, mean 0.330 ± 0.050, worst 0.220, 1 failed (the metric is nan); 9 of 20 evaluations, \
1,000 tokens/s, about 11 s left
genetic generation 2: best 0.510, mean 0.350 ± 0.050, worst 0.240; 13 of 20 evaluations, 1,000 tokens/s, about 7 s left
baseline/linear: 0.312 at factor 2, best of 4 evaluations; 13 of 20 evaluations, 1,000 tokens/s, about 7 s left
baseline/ntk: 0.951 at factor 4, best of 3 evaluations; 13 of 20 evaluations, 1,000 tokens/s, about 7 s left

Held out: KV retrieval at 1019 tokens, n = 576 questions in 24 contexts, seed 71, 95 % intervals
profile                                   factor               evaluations  search      held out (exact)\
            winner − this   guard at 256
----------------------------------------  -------------------  -----------  ------  --------------------\
  -----------------------  -------------
ntk, best of 3 uniform factors            4                               3   0.951  0.968 [0.938, 0.998]\
  −0.486 [−0.526, −0.446]  0.960 harmful
winner: linear, bezier curve of 4 points  1 to 3.3, per layer            12   0.510  0.482 [0.452, 0.512]\
                                   0.985
linear, best of 4 uniform factors         2                               4   0.312  0.318 [0.288, 0.348]\
  +0.164 [+0.124, +0.204]          0.985
the unchanged model                       –                               1   0.131  0.128 [0.098, 0.158]\
  +0.354 [+0.314, +0.394]          0.985

The winner (linear, bezier curve of 4 points) scores 0.482 [0.452, 0.512] held out.
The best uniform linear factor (2) scores 0.318 [0.288, 0.348]; gain of the winner over it: +0.164 [+0.124, +0.204].
ntk, best of 3 uniform factors scores higher than the winner: 0.968 [0.938, 0.998].
Short-context guard at 256 tokens (n = 144, tolerance 0.02): the winner loses 0.005 [0.001, 0.009] against the \
unchanged model; within the tolerance.
19 evaluations, 40,000 tokens, 62 s on models/tiny-kv.
Winning profile: runs/quick/profile.json
Report: runs/quick/report.html
"""


class Ticks:
    """A clock that goes one second at each evaluation, and stands still otherwise."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def watch(progress, clock, events):
    for event in events:
        clock.now += type(event).__name__ == "EvaluationFinished"
        progress(event)


def plain(events):
    stream, clock = io.StringIO(), Ticks()
    watch(ConsoleProgress(stream, clock=clock), clock, events)
    return stream.getvalue()


@pytest.fixture
def recorded(make_recording):
    return make_recording("quick", "runs/quick")


def test_a_log_gets_one_line_a_generation_and_a_baseline_and_the_table(recorded):
    assert squeezed(plain(recorded.events)) == squeezed(PLAIN)


def squeezed(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_plain_table_is_aligned(recorded):
    lines = plain(recorded.events).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("profile "))
    rule, edges = lines[start + 1], []
    for i, character in enumerate(rule):
        if character == "-" and (i == 0 or rule[i - 1] == " "):
            edges.append(i)
    for line in lines[start : start + 6]:
        assert all(line[e - 1 : e].strip() == "" for e in edges[1:])


def test_a_log_has_no_escape_codes_even_when_colour_is_forced(recorded, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in plain(recorded.events)


def test_a_resumed_campaign_says_so_and_does_not_repeat_its_earlier_generations(recorded):
    lines = plain(recorded.resumed_after(1)).splitlines()
    assert lines[0].endswith("20 evaluations planned, resumed after 9")
    assert [line for line in lines if "generation" in line] == [
        "genetic generation 2: best 0.510, mean 0.350 ± 0.050, worst 0.240; 13 of 20 evaluations, 1,000 tokens/s, "
        "about 7 s left"
    ]


def of_report(recorded, change):
    """The lines after a campaign whose report's uniform linear row was changed."""
    rows = [{**r, **change} if r["name"] == "linear" else r for r in recorded.heldout.report["rows"]]
    report = {**recorded.heldout.report, "rows": rows}
    return plain([recorded.started, HeldoutFinished(report), recorded.finished])


def test_a_gain_whose_interval_contains_0_is_not_called_one(recorded):
    text = of_report(recorded, {"winner_minus": {"score": 0.01, "low": -0.02, "high": 0.04}})
    assert "difference of the winner from it: +0.010 [−0.020, +0.040]" in text
    assert "contains 0: these examples do not show that the layer-wise scale is better" in text
    assert "gain of the winner" not in text


def test_a_winner_that_is_worse_than_one_factor_is_said_to_be(recorded):
    text = of_report(recorded, {"winner_minus": {"score": -0.05, "low": -0.08, "high": -0.02}})
    assert "On held-out examples the layer-wise scale is worse than one factor for all layers." in text


def test_a_report_without_the_uniform_baseline_claims_no_gain(recorded):
    rows = [r for r in recorded.heldout.report["rows"] if r["name"] != "linear"]
    text = plain([recorded.started, HeldoutFinished({**recorded.heldout.report, "rows": rows}), recorded.finished])
    assert "no gain over it can be told" in text


def test_a_harmful_winner_is_said_to_be(recorded):
    rows = [dict(r) for r in recorded.heldout.report["rows"]]
    rows[0]["guard"] = {**rows[0]["guard"], "harmful": True, "loss": {"score": 0.2, "low": 0.1, "high": 0.3}}
    text = plain([recorded.started, HeldoutFinished({**recorded.heldout.report, "rows": rows}), recorded.finished])
    assert "the winner loses 0.200 [0.100, 0.300] against the unchanged model; HARMFUL to short contexts." in text


def test_a_profile_that_failed_held_out_is_in_the_table_with_its_reason_below(recorded):
    rows = list(recorded.heldout.report["rows"])
    rows[3] = {k: rows[3][k] for k in ("name", "label", "frequency", "search_score", "evaluations")}
    rows[3]["failed"] = "out of memory"
    text = plain([recorded.started, HeldoutFinished({**recorded.heldout.report, "rows": rows}), recorded.finished])
    assert "ntk, best of 3 uniform factors failed on the held-out examples: out of memory." in text


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (CampaignStopped("asked to; --resume continues it"), "Stopped: asked to; --resume continues it"),
        (CampaignFailed("OSError: disk full"), "Failed: OSError: disk full"),
    ],
)
def test_an_early_end_is_one_line(recorded, event, line):
    assert plain([recorded.started, event]).splitlines()[-1] == line


def terminal(events, width=130):
    clock = Ticks()
    console = Console(file=io.StringIO(), force_terminal=True, width=width, record=True, color_system=None)
    progress = ConsoleProgress(console=console, clock=clock)
    watch(progress, clock, events)
    return progress, console


def test_on_a_terminal_the_bar_shows_best_mean_speed_and_time_left(recorded):
    progress, console = terminal(recorded.events[:8])
    console.print(progress._progress.get_renderable())
    shown = console.export_text()
    progress(CampaignStopped("enough"))
    for part in ("5/20", "best 0.410", "mean 0.310", "1,000 tokens/s", "15 s left"):
        assert part in shown


def test_on_a_terminal_the_table_keeps_its_numbers_whole_on_110_columns_or_more(recorded):
    for width in (110, 160):
        _, console = terminal(recorded.events, width)
        shown = console.export_text()
        for part in ("0.482 [0.452, 0.512]", "+0.164 [+0.124, +0.204]", "Winning profile: runs/quick/profile.json"):
            assert part in shown


def test_on_a_narrow_terminal_every_profile_keeps_its_name(recorded):
    rows = [
        {**r, "accuracy": r["heldout"], "winner_minus_accuracy": r["winner_minus"]}
        for r in recorded.heldout.report["rows"]
    ]
    for metric in ("exact", "likelihood"):
        told = HeldoutFinished({**recorded.heldout.report, "metric": metric, "rows": rows})
        for width in (80, 100, 120):
            _, console = terminal([recorded.started, told, recorded.finished], width)
            shown = console.export_text()
            table = shown[shown.index("Held out") : shown.index("The winner (")]
            for name in ("the unchanged model", "winner: linear,", "ntk, best of 3"):
                assert name in table, (metric, width)


def test_a_resumed_campaign_goes_on_from_the_best_of_its_earlier_generations(recorded):
    told = [replace(g, best=best) for g, best in zip(recorded.generations, (0.0, -1.0, -1.0), strict=True)]
    start = replace(recorded.started, resumed=True, completed_evaluations=told[1].evaluations)
    progress, _ = terminal([start, *told[:2]])
    assert progress._best == 0.0
    progress(CampaignStopped("enough"))


def test_text_of_a_campaign_is_never_read_as_markup(recorded):
    events = [recorded.started, replace(recorded.generations[0], stage="[red]x[/blue]"), CampaignStopped("[bold]")]
    assert "[red]x[/blue] generation 0" in plain(events)
    assert "Stopped: [bold]" in terminal(events)[1].export_text()
