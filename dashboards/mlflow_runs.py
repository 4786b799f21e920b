"""The MLflow runs of one campaign: finds or creates them and carries out operations on them, each at most once.

A campaign's run is known by its tags (campaign id and folder), not by an id kept anywhere, so that a campaign resumed
on another machine finds it. Points are compared with the run's own history before they are logged: a step is never
logged twice, neither after a resume nor after a call whose answer was lost.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from dashboards.mlflow_store import restrained
from dashboards.outbox import Artifact, EndRun, Inputs, Metrics, OpenRun, Operation, Params, Tags

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

CAMPAIGN_TAG, FOLDER_TAG, ROLE_TAG = "ropewalk.campaign", "ropewalk.folder", "ropewalk.role"
PARENT = "campaign"  # the key, and the role, of the parent run
PARENT_TAG = "mlflow.parentRunId"
BATCH = 100  # params or tags that MLflow takes in one call
REFUSALS = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "MALFORMED_REQUEST", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"}


class RunMissing(LookupError):
    """An operation belongs to a run that MLflow refused to open."""


def is_refusal(error: Exception) -> bool:
    """Whether MLflow answered and will answer the same again.

    So will an artifact store that this process cannot use: a folder of the server's own, or one whose driver is not
    installed here.
    """
    from mlflow.exceptions import MlflowException

    if isinstance(error, (RunMissing, PermissionError, ImportError)):
        return True
    return isinstance(error, MlflowException) and error.error_code in REFUSALS


def search_all(client: "MlflowClient", experiments: list[str], query: str) -> Iterator["Run"]:
    """Every run that matches, newest first."""
    token = None
    while True:
        page = client.search_runs(
            experiments, query, max_results=1000, order_by=["attributes.start_time DESC"], page_token=token
        )
        yield from page
        token = page.token
        if not token:
            return


def quoted(value: str) -> str:
    """A string of MLflow's filter language. A value with both kinds of quotes cannot be written in it."""
    if "'" not in value:
        return f"'{value}'"
    if '"' in value:
        raise ValueError(f"{value} has both kinds of quotes")
    return f'"{value}"'


class CampaignRuns:
    """The parent run of a campaign and its children, by key.

    Args:
        folder: of the campaign; with the id it tells this campaign from another of the same name.
        resumed: the campaign goes on in the run that it has; a campaign that starts afresh gets a new one.
    """

    def __init__(self, client: "MlflowClient", experiment: str, campaign_id: str, folder: str, resumed: bool):
        self.client, self.experiment, self.campaign_id, self.folder = client, experiment, campaign_id, folder
        self.ids: dict[str, str] = {}
        self._steps: dict[tuple[str, str], set[int]] = {}
        self._params: dict[str, set[str]] = {}
        self.resumed = resumed

    def open_parent(self, tags: dict[str, str]) -> None:
        """Find the campaign's run and set it running again, or create it.

        Runs left `RUNNING` by a process that was killed before a fresh start are closed as killed.
        """
        query = f"tags.`{CAMPAIGN_TAG}` = {quoted(self.campaign_id)} and tags.`{ROLE_TAG}` = '{PARENT}'"
        earlier = [
            run
            for run in search_all(self.client, [self.experiment], query)
            if run.data.tags.get(FOLDER_TAG) == self.folder
        ]
        if self.resumed and earlier:
            run_id = earlier[0].info.run_id
            self.client.update_run(run_id, status="RUNNING")
            for key, value in tags.items():
                self.client.set_tag(run_id, key, value)
            self.ids[PARENT] = run_id
            return
        for run in earlier:
            self._close_abandoned(run)
        identity = {
            CAMPAIGN_TAG: self.campaign_id,
            FOLDER_TAG: self.folder,
            ROLE_TAG: PARENT,
        }
        run = self.client.create_run(self.experiment, run_name=self.campaign_id, tags={**tags, **identity})
        self.ids[PARENT] = run.info.run_id

    def __call__(self, operation: Operation) -> None:
        """Carry out one operation; harmless to repeat."""
        with restrained():
            try:
                self._carry_out(operation)
            except Exception:
                self._forget(operation.run)  # the call may have arrived all the same: ask MLflow before the next one
                raise

    def _carry_out(self, operation: Operation) -> None:
        match operation:
            case OpenRun(run, name, tags):
                self._open_child(run, name, dict(tags))
            case Params(run, values):
                self._log_params(self._id(run), dict(values))
            case Metrics(run, values, step, time):
                self._log_metrics(self._id(run), dict(values), step, time)
            case Tags(run, values):
                self._log_tags(self._id(run), dict(values))
            case Artifact(run, path, data):
                self._log_artifact(self._id(run), path, data)
            case Inputs(run):
                self._log_inputs(self._id(run), operation)
            case EndRun(run, status):
                self.client.set_terminated(self._id(run), status)

    def _id(self, key: str) -> str:
        if key not in self.ids:
            raise RunMissing(f"the run {key} was not opened")
        return self.ids[key]

    def _open_child(self, key: str, name: str, tags: dict[str, str]) -> None:
        parent = self.ids[PARENT]
        query = f"tags.`{PARENT_TAG}` = '{parent}' and tags.`{ROLE_TAG}` = {quoted(key)}"
        for run in search_all(self.client, [self.experiment], query):
            self.ids[key] = run.info.run_id
            if run.info.status != "RUNNING":
                self.client.update_run(run.info.run_id, status="RUNNING")
            return
        tags = {**tags, PARENT_TAG: parent, ROLE_TAG: key, CAMPAIGN_TAG: self.campaign_id}
        self.ids[key] = self.client.create_run(self.experiment, run_name=name, tags=tags).info.run_id

    def _log_metrics(self, run_id: str, values: dict[str, float], step: int, time: int) -> None:
        from mlflow.entities import Metric

        for key in values:
            if (run_id, key) not in self._steps:
                self._steps[run_id, key] = {m.step for m in self.client.get_metric_history(run_id, key)}
        new = [Metric(k, v, time, step) for k, v in values.items() if step not in self._steps[run_id, k]]
        if new:
            self.client.log_batch(run_id, metrics=new)
            for metric in new:
                self._steps[run_id, metric.key].add(step)

    def _log_params(self, run_id: str, values: dict[str, str]) -> None:
        """Params cannot change in MLflow: of a resumed campaign those of its first start stay."""
        from mlflow.entities import Param

        if run_id not in self._params:
            self._params[run_id] = set(self.client.get_run(run_id).data.params)
        new = [Param(k, v) for k, v in values.items() if k not in self._params[run_id]]
        for i in range(0, len(new), BATCH):
            self.client.log_batch(run_id, params=new[i : i + BATCH])
        self._params[run_id].update(values)

    def _log_tags(self, run_id: str, values: dict[str, str]) -> None:
        from mlflow.entities import RunTag

        tags = [RunTag(k, v) for k, v in values.items()]
        for i in range(0, len(tags), BATCH):
            self.client.log_batch(run_id, tags=tags[i : i + BATCH])

    def _log_artifact(self, run_id: str, path: str, data: bytes) -> None:
        place = PurePosixPath(path)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / place.name
            file.write_bytes(data)
            within = None if place.parent == PurePosixPath(".") else str(place.parent)
            self.client.log_artifact(run_id, str(file), within)

    def _log_inputs(self, run_id: str, used: Inputs) -> None:
        """One example set as a data set of MLflow; the same one is not listed twice."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        listed = self.client.get_run(run_id).inputs.dataset_inputs
        if any((d.dataset.name, d.dataset.digest) == (used.name, used.digest) for d in listed):
            return
        made = Dataset(used.name, used.digest, source_type="ropewalk", source=used.facts, profile=used.facts)
        tag = InputTag("mlflow.data.context", used.context)
        self.client.log_inputs(run_id, datasets=[DatasetInput(made, [tag])])

    def _close_abandoned(self, run: "Run") -> None:
        children = search_all(self.client, [self.experiment], f"tags.`{PARENT_TAG}` = '{run.info.run_id}'")
        for dead in [run, *children]:
            if dead.info.status == "RUNNING":
                self.client.set_tag(dead.info.run_id, "ropewalk.reason", "its process ended without a word")
                self.client.set_terminated(dead.info.run_id, "KILLED")

    def _forget(self, run: str) -> None:
        run_id = self.ids.get(run)
        self._params.pop(run_id, None)
        for key in [k for k in self._steps if k[0] == run_id]:
            del self._steps[key]
