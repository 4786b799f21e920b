"""Nothing is lost, doubled or put out of order while MLflow is away."""

import logging

import pytest

from dashboards.outbox import Artifact, EndRun, Metrics, Outbox


class Link:
    """A server that can be away, and that refuses some operations for good."""

    def __init__(self):
        self.away, self.refuses, self.taken, self.attempts = False, (), [], 0

    def __call__(self, operation):
        self.attempts += 1
        if self.away:
            raise ConnectionError("connection refused")
        if operation in self.refuses:
            raise ValueError("a tag is too long")
        self.taken.append(operation)


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def link():
    return Link()


@pytest.fixture
def outbox(link, now):
    return Outbox(link, lambda error: isinstance(error, ValueError), "http://host", clock=lambda: now[0])


def point(step):
    return Metrics("campaign", (("best", 0.5),), step, 0)


def test_what_is_put_arrives_at_once_and_in_order(outbox, link):
    outbox.put(point(0), point(1))
    outbox.put(point(2))
    assert link.taken == [point(0), point(1), point(2)]


def test_what_could_not_be_delivered_arrives_first_when_the_server_is_back(outbox, link, now):
    outbox.put(point(0))
    link.away = True
    outbox.put(point(1))
    outbox.put(point(2))
    link.away = False
    now[0] += 60
    outbox.put(point(3))
    assert link.taken == [point(i) for i in range(4)]


def test_one_warning_for_one_outage_however_long(outbox, link, now, caplog):
    link.away = True
    for step in range(5):
        outbox.put(point(step))
        now[0] += 100
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert [r.getMessage() for r in warnings] == [
        "MLflow at http://host does not answer; the campaign goes on and keeps its records: connection refused"
    ]


def test_attempts_are_spaced_out_while_the_server_is_away(outbox, link, now):
    link.away = True
    for step in range(600):
        outbox.put(point(step))
        now[0] += 0.5
    assert link.attempts <= 12  # 1, 2, 4, 8, 16, 32, then every 60 seconds
    link.away = False
    outbox.close()
    assert link.taken == [point(i) for i in range(600)]


def test_an_operation_that_is_refused_for_good_does_not_hold_up_the_next(outbox, link, caplog):
    link.refuses = (point(1),)
    outbox.put(point(0), point(1), point(2))
    assert link.taken == [point(0), point(2)]
    assert outbox.refused == [(point(1), "a tag is too long")]
    assert "refuses campaign: metrics best at step 1: a tag is too long" in caplog.text


def test_the_end_tells_what_was_not_delivered(outbox, link, caplog):
    link.away = True
    outbox.put(point(7), Artifact("campaign", "profile.json", b"{}"), EndRun("campaign", "FINISHED"))
    outbox.close()
    last = caplog.records[-1].getMessage()
    assert last == (
        "MLflow at http://host did not take 3 of the campaign's records: campaign: metrics best at step 7; "
        "campaign: artifact profile.json; campaign: status FINISHED"
    )


def test_an_end_with_everything_delivered_is_silent(outbox, caplog):
    outbox.put(point(0))
    outbox.close()
    assert caplog.records == []


def test_a_password_in_an_error_is_not_told(outbox, link, caplog):
    def down(_):
        raise ConnectionError("API request to http://someone:secret@host/api failed")

    outbox.deliver = down
    outbox.put(point(0))
    assert "http://***@host/api" in caplog.text
    assert "secret" not in caplog.text


def test_a_refusal_is_told_once_for_each_reason(outbox, link, caplog):
    link.refuses = [point(0), point(1)]
    outbox.put(point(0), point(1))
    assert len(outbox.refused) == 2
    assert len([r for r in caplog.records if "refuses" in r.message]) == 1
