"""Where a campaign is tracked: what is never told, and which errors of MLflow stay."""

import pytest
from mlflow.environment_variables import MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT
from mlflow.exceptions import MlflowException

from dashboards.mlflow_runs import CampaignRuns, is_refusal
from dashboards.mlflow_store import redacted, restrained
from dashboards.outbox import EndRun, OpenRun, Outbox, Params


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ("http://someone:secret@host:5000", "http://***@host:5000"),
        ("https://secret@host/path", "https://***@host/path"),
        ("postgresql://someone:sec/ret@host/db", "postgresql://***@host/db"),
        ("postgresql://someone:se@cret@host/db", "postgresql://***@host/db"),
        (
            "request to http://a:secret@host/api failed: 'http://b:secret@host'",
            "request to http://***@host/api failed: 'http://***@host'",
        ),
    ],
)
def test_user_name_and_password_are_left_out_of_a_uri_wherever_it_stands(told, left):
    assert redacted(told) == left


@pytest.mark.parametrize("told", ["http://host:5000/a/b", "sqlite:////home/me@work/mlflow.db", "models/tiny-kv", "a@b"])
def test_a_text_without_a_password_stays_as_it_is(told):
    assert redacted(told) == told


def test_the_end_of_a_run_on_a_server_is_not_told_on_standard_output():
    with restrained():
        assert MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT.get()


@pytest.mark.parametrize(
    ("error", "stays"),
    [
        (PermissionError(13, "Permission denied: '/mlartifacts'"), True),  # a folder of the server's own
        (ModuleNotFoundError("No module named 'boto3'"), True),
        (ConnectionError("connection refused"), False),
        (TimeoutError("no answer"), False),
        (MlflowException("API request failed"), False),
    ],
)
def test_an_artifact_store_that_cannot_be_used_does_not_hold_up_what_comes_behind(error, stays):
    assert is_refusal(error) == stays


class RefusesRuns:
    """A client of an MLflow that takes no new run, and ends those it has."""

    def __init__(self):
        self.ended = []

    def search_runs(self, *_, **__):
        raise MlflowException.invalid_parameter_value("no such experiment")

    def set_terminated(self, run_id, status):
        self.ended.append((run_id, status))


def test_what_belongs_to_a_run_that_was_refused_does_not_hold_up_what_comes_behind():
    client = RefusesRuns()
    runs = CampaignRuns(client, "1", "quick", "runs/quick", resumed=False)
    runs.ids["campaign"] = "f00"
    outbox = Outbox(runs, is_refusal, "http://host")
    child = [OpenRun("stage/a", "a", ()), Params("stage/a", (("k", "v"),)), EndRun("stage/a", "FINISHED")]
    outbox.put(*child, EndRun("campaign", "FINISHED"))
    assert client.ended == [("f00", "FINISHED")]
    assert not outbox.waiting
    assert [operation for operation, _ in outbox.refused] == child
