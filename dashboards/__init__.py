"""Listeners of a campaign's event stream: MLflow, the terminal, the HTML report; and the way back, `download_profile`.

Importing this package imports neither MLflow nor matplotlib: they take seconds, and `ropewalk --help` needs neither.
Each name below is loaded from its module when it is first used.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "ConsoleProgress": "console",
    "DownloadError": "download",
    "HtmlReport": "report",
    "MlflowTracker": "mlflow_tracker",
    "TrackingError": "mlflow_store",
    "download_profile": "download",
}
__all__ = [
    "ConsoleProgress",
    "DownloadError",
    "HtmlReport",
    "MlflowTracker",
    "TrackingError",
    "download_profile",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
