"""The HTML report: one file, nothing fetched, every number with what it was measured on."""

import logging
import re
from dataclasses import replace
from html.parser import HTMLParser

import fsspec
import pytest

from dashboards import HtmlReport
from search.events import CampaignFailed, CampaignStopped, HeldoutFinished

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Checks that elements close in order; gathers text and whatever refers to something."""

    def __init__(self, source):
        super().__init__()
        self.open, self.text, self.references, self.tags = [], [], [], []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.references += [v for k, v in attributes if k in ("src", "href", "xlink:href", "srcset", "data", "action")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.references += [v for k, v in attributes if k in ("src", "href", "xlink:href")]

    def handle_data(self, data):
        self.text.append(data)


def write(folder, events):
    report = HtmlReport(str(folder))
    for event in events:
        report(event)
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def source(recording, tmp_path):
    return write(tmp_path / "campaign", recording.events)


def test_nothing_is_fetched_and_nothing_runs(source):
    page = Page(source)
    assert all(reference.startswith("#") for reference in page.references)
    assert not {"script", "link", "iframe", "img"} & set(page.tags)
    assert not re.search(r"url\((?!\"?#)", source)
    assert "@import" not in source
    assert page.tags.count("svg") == 4


def test_summary_comes_first_then_evidence_then_how_to_repeat(source):
    said = source.index("gain of the winner over it: +0.164 [+0.124, +0.204]")
    assert said < source.index("<h2>Evidence</h2>") < source.index("<svg") < source.index("<h2>To repeat it</h2>")


def test_the_numbers_are_there_with_task_length_n_seed_and_intervals(source):
    text = " ".join(Page(source).text)
    for part in (
        "Held out: KV retrieval at 1019 tokens, n = 576 questions in 24 contexts, seed 71, 95 % intervals",
        "0.482 [0.452, 0.512]",
        "0.318 [0.288, 0.348]",
        "−0.486 [−0.526, −0.446]",
        "0.682 [0.622, 0.742]",
        "ntk, best of 3 uniform factors scores higher than the winner",
        "19 evaluations, 40,000 tokens, 62 s",
    ):
        assert part in text


def test_all_that_repeats_the_campaign_is_there_but_no_password(source):
    text = " ".join(Page(source).text)
    for part in ("ropewalk run campaign.yaml --id quick", "control_points: 4", "c0ffee", "torch", "2.13.0", "seed 70"):
        assert part in text
    assert '"method": "linear"' in text
    assert "secret" not in source


def test_no_password_of_the_folder_is_there(recording, tmp_path):
    events = [replace(recording.started, folder="s3://key:secret@bucket/quick"), *recording.events[1:]]
    source = write(tmp_path / "campaign", events)
    assert "s3://***@bucket/quick" in source
    assert "secret" not in source


def test_it_follows_the_readers_choice_of_light_or_dark(source):
    assert "prefers-color-scheme: dark" in source
    assert "currentColor" in source
    assert "#1b1f25" not in source.split("</style>")[1]


def test_everything_from_the_campaign_is_escaped(recording, tmp_path):
    evil = "<script>alert(1)</script>"
    rows = [{**r, "label": evil} for r in recording.heldout.report["rows"]]
    events = [
        replace(recording.started, campaign_id=evil, campaign={**recording.started.campaign, "name": evil}),
        *recording.events[1:-2],
        HeldoutFinished({**recording.heldout.report, "rows": rows}),
        recording.finished,
    ]
    source = write(tmp_path / "evil", events)
    assert "<script" not in source
    assert "&lt;script&gt;" in source
    Page(source)


@pytest.mark.parametrize("event", [CampaignStopped("asked to"), CampaignFailed("no memory")])
def test_a_campaign_that_ends_early_gets_a_report_of_what_there_is(recording, tmp_path, event):
    source = write(tmp_path / "early", [*recording.events[:9], event])
    text = " ".join(Page(source).text)
    assert event.reason in text
    assert "has not come to its held-out report" in text
    assert source.count("<svg") == 2


def test_the_report_of_a_resumed_campaign_is_that_of_an_undisturbed_one(recording, tmp_path):
    undisturbed = write(tmp_path / "a", recording.events)
    resumed = write(tmp_path / "b", recording.resumed_after(1))
    strip = lambda text: re.sub(r'(id|href|clip-path)="[^"]*"', "", text)
    assert strip(resumed) == strip(undisturbed)


def test_the_folder_may_be_any_fsspec_url(recording):
    report = HtmlReport("memory://runs/quick")
    for event in recording.events:
        report(event)
    with fsspec.open("memory://runs/quick/report.html") as file:
        assert file.read().startswith(b"<!doctype html>")


def test_the_file_is_replaced_whole(recording, tmp_path):
    write(tmp_path / "twice", recording.events)
    write(tmp_path / "twice", recording.events)
    assert [p.name for p in (tmp_path / "twice").iterdir()] == ["report.html"]


def test_a_folder_that_cannot_be_written_does_not_end_the_campaign(recording, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    report = HtmlReport(tmp_path / "file" / "campaign")
    for event in recording.events:
        report(event)
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert "report.html" in caplog.text
