"""`ropewalk evaluate`: profiles on held-out examples, side by side with the unchanged model.

Exit codes: 0 every row was measured, 1 a row failed, 2 bad input (nothing was loaded), 3 stopped and resumable.
"""

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from search import model_options

EXAMPLES = """\
a profile is a .json file, a published name (`ropewalk profile list`), or written out:
  yarn    self-extend:window=64,group_size=8    linear:factor=4    dpe:window=64,scale_factors=[8,8,8,8]
  yarn:factor=4+rerope:window=64                both axes
a task is its name with its fields, or a YAML file with a section `fitness`, as a campaign's:
  kv:keys=hex4,values=hex4,answer=opened,questions=24    perplexity:file=book.txt    campaigns/quickstart.yaml
several: --task again, a YAML file with a list `tasks`, a family (ruler is all of RULER's), or all
"""

Stop = Callable[[], AbstractContextManager[Callable[[], bool]]]


def add(commands: Any, stop_on_signals: Stop) -> None:
    """Add `evaluate` to the commands of a parser."""
    parser = commands.add_parser(
        "evaluate",
        help="compare profiles on held-out examples",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True, metavar="ID", help="Hub id, folder, or package:NAME")
    parser.add_argument("--profile", action="append", default=[], metavar="P", help="a profile, see below; repeatable")
    parser.add_argument("--task", action="append", required=True, metavar="T", help="a task, see below; repeatable")
    parser.add_argument(
        "--length", action="append", default=[], metavar="N", help="tokens; repeatable, or several with commas"
    )
    parser.add_argument("--contexts", type=int, metavar="K", help="contexts at each length (default: the task's)")
    parser.add_argument(
        "--target-length", type=int, metavar="N", help="that profiles without one are for (default: longest --length)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the examples (default: 0)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="result.json, result.csv, rows; resumable")
    parser.add_argument("--threads", type=int, metavar="N", help="torch threads")
    parser.add_argument("--chunk", type=int, metavar="N", help="tokens of a context per forward pass (default: all)")
    model_options.add(parser)
    parser.set_defaults(command=lambda args: _evaluate(args, stop_on_signals))


def _evaluate(args: argparse.Namespace, stop_on_signals: Stop) -> int:
    from transformers.utils.logging import disable_progress_bar

    from fitness.store import ExampleStore
    from ropewalk import PatchError
    from ropewalk.files import write_atomically
    from search import evaluation, evaluation_table
    from search.errors import CampaignError
    from search.evaluate import measure
    from search.evaluation_report import as_csv, report
    from search.evaluation_rows import RowStore
    from search.scoreboard import Interrupted
    from workers.evaluator import LocalEvaluator
    from workers.source import cache_folder

    for flag in ("threads", "chunk"):
        value = getattr(args, flag)
        if value is not None and value < 1:
            raise CampaignError(f"--{flag}", value, "a whole number of at least 1")
    disable_progress_bar()
    asked = evaluation.request(
        model_options.fields(args),
        args.task,
        profiles=args.profile,
        lengths=_lengths(args.length),
        contexts=args.contexts,
        target_length=args.target_length,
        seed=args.seed,
    )
    store = RowStore(args.output)
    prepared = evaluation.prepare(asked, tell=_built, store=ExampleStore(cache_folder() / "examples"))
    try:
        with (
            stop_on_signals() as stop,
            LocalEvaluator(prepared.request.model, threads=args.threads, chunk=args.chunk) as evaluator,
        ):
            results = measure(
                prepared, evaluator, store, stop=stop, tell=_progress(len(prepared.sets) * len(prepared.profiles))
            )
            fingerprint = evaluator.fingerprint
    except (PatchError, OSError) as error:  # OSError: a row that cannot be written
        print(f"ropewalk: error: {error}", file=sys.stderr)
        return 1
    except (Interrupted, KeyboardInterrupt):  # the second Ctrl-C; a row is written whole or not at all
        kept = "" if args.output is None else f"; the same command goes on from the rows in {args.output}"
        print(f"ropewalk: stopped{kept}", file=sys.stderr)
        return 3
    data = report(prepared, fingerprint, results)
    if args.output is not None:
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_atomically(args.output / "result.json", text)
        write_atomically(args.output / "result.csv", as_csv(data))
    evaluation_table.show(data)
    return 1 if any(row["status"] == "failed" for row in data["rows"]) else 0


def _lengths(texts: list[str]) -> list[int]:
    """`4096` and `4096,8192` alike."""
    from search.errors import CampaignError

    pieces = [piece for text in texts for piece in text.split(",")]
    for piece in pieces:
        if not (piece.isascii() and piece.strip().isdecimal()):
            raise CampaignError("--length", piece, "whole numbers of tokens, with commas between several")
    return [int(piece) for piece in pieces]


def _built(measured: Any, seconds: float) -> None:
    examples = measured.examples
    size = f"{examples.num_questions} questions in {examples.num_contexts} contexts of up to {examples.length} tokens"
    print(f"{measured.name}: {size}, built in {seconds:.1f} s", file=sys.stderr)


def _progress(rows: int) -> Callable[[Any], None]:
    """One line on standard error for each of so many rows, so that standard output is the table alone."""
    seen = 0

    def tell(result: Any) -> None:
        nonlocal seen
        seen += 1
        score = f"failed: {result.outcome.reason}" if result.outcome.score is None else f"{result.outcome.score:.3f}"
        took = "" if result.row is None else " (on file)" if result.reused else f" ({result.row.seconds:.1f} s)"
        where = f"{result.measured.name} at {result.measured.examples.length} tokens"
        print(f"[{seen}/{rows}] {where}, {result.name}: {score}{took}", file=sys.stderr)

    return tell
