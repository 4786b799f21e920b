"""The winning profile of a campaign, from MLflow to a file."""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.mlflow_runs import CAMPAIGN_TAG, PARENT, PARENT_TAG, ROLE_TAG, search_all
from dashboards.mlflow_store import connect, database_file, redacted, resolve_uri, restrained
from ropewalk import Profile, ProfileError, load_profile
from ropewalk.errors import FieldError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PROFILE = "profile.json"
SHOWN = 20  # known campaigns that an error names


class DownloadError(FieldError):
    """There is no such profile, or it is not a valid one; nothing was written."""


def download_profile(what: str, output: Path, uri: str | None = None) -> Profile:
    """Fetch, validate and write a winning profile; an existing file is replaced whole or not at all.

    Args:
        what: a campaign's id (of several runs the newest finished one is taken), or the id of an MLflow run, which may
            still be running or stopped: then it is the best profile so far.
        output: the file to write.
        uri: of MLflow; by default where campaigns are tracked by default.

    Raises:
        DownloadError: nothing matches, or what is there is not a valid profile.
        TrackingError: no MLflow answers.
    """
    if what.startswith("models:/"):
        raise DownloadError("ID", what, "a campaign id or an MLflow run id (no profile is in the model registry yet)")
    uri = resolve_uri(uri)
    database = database_file(uri)
    if database is not None and not database.exists():  # connecting would create it
        raise DownloadError("tracking URI", redacted(uri), f"an existing database; there is no file {database}")
    client = connect(uri)
    with restrained(), tempfile.TemporaryDirectory() as folder:
        run = _find(client, what, redacted(uri))
        profile = _fetch(client, run, Path(folder))
    output = Path(output)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        profile.save(output)
    except OSError as error:
        raise DownloadError("output", str(output), f"a file that can be written ({error})") from error
    return profile


def _find(client: "MlflowClient", what: str, where: str) -> "Run":
    if re.fullmatch(r"[0-9a-f]{32}", what) and (run := _run_of_id(client, what)) is not None:
        return run
    campaigns = _campaigns(client)
    matches = [r for r in campaigns if r.data.tags[CAMPAIGN_TAG] == what]
    finished = [r for r in matches if r.info.status == "FINISHED"]
    if finished:
        return max(finished, key=lambda r: r.info.end_time or 0)
    if matches:
        runs = ", ".join(f"{r.info.run_id} ({r.info.status})" for r in matches)
        raise DownloadError(
            "ID", what, f"a finished campaign; for the best profile so far give one of its run ids: {runs}"
        )
    raise DownloadError("ID", what, f"a campaign id or run id in {where}, which knows {_known(campaigns)}")


def _run_of_id(client: "MlflowClient", run_id: str) -> "Run | None":
    """The campaign's run with this id, or that of its child; None when there is none."""
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    parent = run.data.tags.get(PARENT_TAG)
    return run if parent is None else client.get_run(parent)


def _campaigns(client: "MlflowClient") -> list["Run"]:
    experiments, token = [], None
    while True:
        page = client.search_experiments(page_token=token)
        experiments += [e.experiment_id for e in page]
        token = page.token
        if not token:
            break
    runs = search_all(client, experiments, f"tags.`{ROLE_TAG}` = '{PARENT}'") if experiments else ()
    return [run for run in runs if CAMPAIGN_TAG in run.data.tags]


def _known(campaigns: Sequence["Run"]) -> str:
    names = list(dict.fromkeys(r.data.tags[CAMPAIGN_TAG] for r in campaigns))
    if not names:
        return "no campaign"
    return ", ".join(names[:SHOWN]) + ("" if len(names) <= SHOWN else f" and {len(names) - SHOWN} more")


def _fetch(client: "MlflowClient", run: "Run", folder: Path) -> Profile:
    run_id = run.info.run_id
    if PROFILE not in [file.path for file in client.list_artifacts(run_id)]:
        raise DownloadError("ID", run_id, f"a run with the artifact {PROFILE}; this one has none (yet)")
    path = client.download_artifacts(run_id, PROFILE, str(folder))
    try:
        return load_profile(path)
    except ProfileError as error:
        raise DownloadError("ID", run_id, f"a run whose {PROFILE} is a valid profile ({error})") from error
