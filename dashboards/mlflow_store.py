"""Where a campaign is tracked: which MLflow, whether it answers, which experiment.

By default MLflow's own default, made explicit: MLFLOW_TRACKING_URI, else a SQLite file `mlflow.db` in the working
directory, with its artifacts beside it at an absolute place, so that `mlflow ui` finds both from any directory.
"""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.errors import FieldError

if TYPE_CHECKING:
    from mlflow import MlflowClient

DATABASE = "mlflow.db"
KIND = "custom_model_development"  # opens in MLflow's view of runs and metrics, not in that of prompts and traces
SQLITE = "sqlite:///"
RESTRAINT = {
    # MLflow's own defaults (7 retries, 120 s) would hold the search up for minutes at each call to a dead server
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # two lines for each run that ends on a server
}
_log = logging.getLogger(__name__)
_NOISY = ("alembic", "mlflow.store.db.utils")  # dozens of lines when the default database is created


class TrackingError(FieldError):
    """MLflow cannot be used as asked; raised before any costly work."""


def resolve_uri(uri: str | None) -> str:
    """The tracking URI that is meant when none, or this one, is given."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{Path.cwd() / DATABASE}"


def redacted(uri: str) -> str:
    """A URI, or a text with URIs in it, without user names and passwords, fit for messages and artifacts.

    A password may itself hold `/` and `@`; where that is unclear, rather too much is left out.
    """
    return re.sub(r"""(?<=://)(?:[^\s'"]*:[^\s'"]*|[^/@\s]+)@""", "***@", uri)


def database_file(uri: str) -> Path | None:
    """The file behind a SQLite URI, absolute; None for any other store."""
    if not uri.startswith(SQLITE):
        return None
    path = uri.removeprefix(SQLITE).partition("?")[0]
    return None if path in ("", ":memory:") else Path(path).absolute()


@contextmanager
def restrained() -> Iterator[None]:
    """Short waits and no bars for MLflow calls inside; what the user has set in the environment is kept."""
    changed = {key: value for key, value in RESTRAINT.items() if key not in os.environ}
    os.environ.update(changed)
    try:
        yield
    finally:
        for key in changed:
            os.environ.pop(key, None)


def connect(uri: str) -> "MlflowClient":
    """A client whose store has answered once.

    Raises:
        TrackingError: no MLflow answers there.
    """
    from mlflow import MlflowClient

    database = database_file(uri)
    try:
        with restrained(), _quiet():
            if database is not None and not database.exists():
                _create(database)
            client = MlflowClient(tracking_uri=uri)
            client.search_experiments(max_results=1)
    except Exception as error:  # whatever the store's driver raises, it means the same to the user
        reason = " ".join(str(error).split())[:300]
        raise TrackingError("tracking.uri", redacted(uri), f"an MLflow that answers ({redacted(reason)})") from error
    return client


def _create(database: Path) -> None:
    """Make MLflow's SQLite file: whole or not at all, and without a flush to the disk after each of its migrations.

    Those flushes make up most of the time that MLflow takes for it (on a slow disk 5 of 6 seconds).
    """
    import sqlite3

    from mlflow import MlflowClient
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def unflushed(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF")

    database.parent.mkdir(parents=True, exist_ok=True)
    beside = database.with_name(f".{database.name}.{os.getpid()}.new")
    event.listen(Engine, "connect", unflushed)
    try:
        MlflowClient(tracking_uri=f"{SQLITE}{beside}").search_experiments(max_results=1)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        try:
            os.link(beside, database)
        except FileExistsError:  # another process was first, and its database has the same tables
            _log.debug("%s was made by another process meanwhile", database)
        except OSError:  # a file system without hard links
            beside.replace(database)
    finally:
        event.remove(Engine, "connect", unflushed)
        beside.unlink(missing_ok=True)


def open_experiment(client: "MlflowClient", uri: str, name: str) -> str:
    """The id of the experiment, created when it is not there.

    Raises:
        TrackingError: it was deleted, or MLflow refuses the name.
    """
    from mlflow.exceptions import MlflowException

    try:
        found = client.get_experiment_by_name(name)
        if found is None:
            try:
                return client.create_experiment(name, _artifact_location(uri, name), {"mlflow.experimentKind": KIND})
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                found = client.get_experiment_by_name(name)  # another campaign created it in between
    except MlflowException as error:
        reason = " ".join(str(error).split())[:300]
        raise TrackingError(
            "tracking.experiment", name, f"an experiment MLflow accepts ({redacted(reason)})"
        ) from error
    if found.lifecycle_stage != "active":
        raise TrackingError(
            "tracking.experiment", name, "an experiment that is not deleted; restore it or name another"
        )
    return found.experiment_id


def _artifact_location(uri: str, name: str) -> str | None:
    """Beside the database for SQLite; None leaves it to the server."""
    database = database_file(uri)
    if database is None:
        return None
    return (database.parent / "mlartifacts" / re.sub(r"[^A-Za-z0-9._-]+", "-", name)).as_uri()


@contextmanager
def _quiet() -> Iterator[None]:
    levels = {name: logging.getLogger(name).level for name in _NOISY}
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
