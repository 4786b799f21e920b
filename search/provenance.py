"""Which code a campaign ran on."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("ropewalk", "torch", "transformers", "ray", "deap", "mlflow")


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that decide a result, and the git revision of a checkout."""
    return {
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
        "code_revision": code_revision(),
    }


def code_revision() -> str | None:
    """The commit of this checkout, with `+changes` when tracked files differ from it; None outside a git checkout."""
    folder = Path(__file__).parent.parent
    if not (folder / ".git").exists():
        return None
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):  # git is not installed, or refuses the folder's owner
        return None
    return f"{commit}+changes" if changed else commit


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
