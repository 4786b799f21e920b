"""What is gathered from the events: the winner belongs to the stage that found it, and no password is kept."""

from dataclasses import replace

from dashboards.record import Record
from search.events import CampaignFailed, HeldoutFinished


def test_of_stages_that_found_the_same_factors_the_one_with_the_winners_method_found_it(recording, make_report):
    stage = recording.started.campaign["stages"][0]
    stages = [{**stage, "name": "genetic"}, {**stage, "name": "second", "method": "ntk"}]
    report = make_report()
    report["rows"][0]["frequency"] = {**report["rows"][0]["frequency"], "method": "ntk"}
    record = Record()
    for event in (
        replace(recording.started, campaign={**recording.started.campaign, "stages": stages}),
        *recording.generations,
        *(replace(g, stage="second") for g in recording.generations),
        HeldoutFinished(report),
    ):
        record.add(event)
    assert record.winning_stage == "second"


def test_a_reason_is_kept_without_the_password_of_a_uri_in_it(recording):
    record = Record()
    record.add(recording.started)
    record.add(CampaignFailed("OSError: no answer from s3://key:secret@bucket"))
    assert record.reason == "OSError: no answer from s3://***@bucket"
