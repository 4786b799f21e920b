"""The command line. Exit codes: 0 done, 2 bad input or impossible request, 3 stopped and resumable, 1 anything else."""

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ropewalk import __version__
from ropewalk.errors import FieldError
from search import evaluate_command, lm_eval_command, profile_commands

DONE, FAILED, BAD_INPUT, STOPPED = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    try:
        return args.command(args)
    except FieldError as error:
        print(f"ropewalk: error: {error}", file=sys.stderr)
        return BAD_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ropewalk", description="Search for RoPE profiles and take them home.")
    parser.add_argument("--version", action="version", version=f"ropewalk {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run a campaign")
    run.add_argument("campaign", type=Path, metavar="CAMPAIGN.yaml")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a field, dotted key")
    run.add_argument("--id", help="name of the campaign's folder (default: the campaign's name)")
    run.add_argument("--resume", action="store_true", help="go on from the checkpoint if there is one; always safe")
    run.set_defaults(command=_run)

    download = commands.add_parser("download", help="fetch the winning profile of a campaign from MLflow")
    download.add_argument("what", metavar="ID", help="campaign id or MLflow run id")
    download.add_argument("-o", "--output", type=Path, default=Path("profile.json"), metavar="FILE")
    download.add_argument("--tracking-uri", help="default: MLFLOW_TRACKING_URI, else mlflow.db in this folder")
    download.set_defaults(command=_download)

    evaluate_command.add(commands, _stop_on_signals)
    lm_eval_command.add(commands)
    profile_commands.add(commands)
    return parser


def _run(args: argparse.Namespace) -> int:
    from ropewalk import PatchError
    from search.campaign import load
    from search.errors import SearchError
    from search.launch import launch
    from search.scoreboard import Interrupted
    from workers import CapacityError, WorkerError

    campaign = load(args.campaign, args.set)
    try:
        with _stop_on_signals() as stop:
            launch(campaign, campaign.name if args.id is None else args.id, resume=args.resume, stop=stop)
    except CapacityError as error:
        print(f"ropewalk: error: {error}", file=sys.stderr)
        return BAD_INPUT
    except (SearchError, WorkerError, PatchError) as error:
        print(f"ropewalk: error: {error}", file=sys.stderr)
        return FAILED
    except Interrupted:
        return STOPPED
    return DONE


@contextmanager
def _stop_on_signals() -> Iterator[Callable[[], bool]]:
    """Turns the first SIGINT or SIGTERM into a request to stop at the next result; the second one acts as usual."""
    asked = False
    before = {}

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        asked = True
        print("ropewalk: stopping at the next result; once more to stop at once", file=sys.stderr)
        signal.signal(number, before[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _download(args: argparse.Namespace) -> int:
    from dashboards.download import download_profile

    profile = download_profile(args.what, args.output, args.tracking_uri)
    print(f"{args.output}: profile {profile.name} for {profile.model.id}, {profile.target_length} tokens")
    return DONE
