"""`ropewalk lm-eval`: tasks of lm-evaluation-harness under profiles, beside the unchanged model.

Exit codes: 0 done, 1 a profile failed, 2 bad input or the extra is not installed (nothing was loaded), 3 stopped.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from search import model_options

SCHEMA = "ropewalk/lm-eval/v1"
EXAMPLE = """\
example:
  ropewalk lm-eval --model models/tiny-kv --tasks lambada_openai,hellaswag --limit 100 --profile yarn:factor=4
needs the extra: pip install 'ropewalk[lm-eval]'
"""


def add(commands: Any) -> None:
    """Add `lm-eval` to the commands of a parser."""
    parser = commands.add_parser(
        "lm-eval",
        help="run tasks of lm-evaluation-harness on a patched model",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True, metavar="ID", help="Hub id, folder, or package:NAME")
    parser.add_argument("--profile", action="append", default=[], metavar="P", help="as in evaluate; repeatable")
    parser.add_argument("--tasks", required=True, metavar="A,B", help="tasks, groups or tags of lm-evaluation-harness")
    parser.add_argument("--include", type=Path, metavar="FOLDER", help="with more task files")
    parser.add_argument("--limit", type=int, metavar="N", help="examples of each task (default: all)")
    parser.add_argument("--shots", type=int, metavar="N", help="examples in the prompt (default: each task's own)")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="sequences at once (default: 1)")
    parser.add_argument(
        "--target-length", type=int, metavar="N", help="that profiles without one are for (default: the trained length)"
    )
    parser.add_argument(
        "--max-length", type=int, metavar="N", help="tokens that an input may have (default: the longest target)"
    )
    parser.add_argument("--metadata", metavar="JSON", help="for the tasks, as '{\"max_seq_lengths\": [4096]}'")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, metavar="N", help="torch threads")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="lm-eval.json; resumable")
    model_options.add(parser)
    parser.set_defaults(command=_run)


def _run(args: argparse.Namespace) -> int:
    import torch

    from fitness.chat import chosen
    from fitness.errors import TaskError
    from ropewalk import PatchError, Profile, ProfileError
    from ropewalk.files import write_atomically
    from search.errors import CampaignError
    from search.evaluation import UNCHANGED
    from search.harness import Harness, scores
    from search.lm_eval_table import show
    from search.profile_argument import ProfileArgument, read
    from search.provenance import versions
    from workers.evaluation import self_check
    from workers.loading import load_model, load_tokenizer, read_shape

    settings = _settings(args)
    harness = Harness(settings)
    spec = model_options.spec(args)
    shape = read_shape(spec)
    target = args.target_length or shape.trained_length
    given = [read(text, shape, target) for text in args.profile]
    arguments = [ProfileArgument(UNCHANGED, lambda: Profile.identity(shape, target)), *given]
    built = [_built(argument) for argument in arguments]
    # one length for all: an input that is cut for one profile and not for another could not be compared
    length = settings.max_length or max(one.target_length for one in built if isinstance(one, Profile))
    tokenizer = load_tokenizer(spec)
    if tokenizer.eos_token_id is None:
        raise CampaignError("--model", spec.id, "a tokenizer with an end-of-sequence token, as the harness needs")
    try:
        chat = chosen(spec.chat_template, spec.called, tokenizer) is not None
    except TaskError as error:
        raise CampaignError("--chat-template", error.value, error.allowed) from error
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    try:
        loaded = load_model(spec)
        self_check(loaded)
    except PatchError as error:
        print(f"ropewalk: error: {error}", file=sys.stderr)
        return 1
    rows = []
    for argument, profile in zip(arguments, built, strict=True):
        row: dict[str, Any] = {"name": argument.text, "status": "failed", "profile": None}
        rows.append(row)
        try:
            if isinstance(profile, ProfileError):
                raise profile
            row["profile"], row["profile_hash"] = profile.to_dict(), profile.hash
            key = _key(loaded.fingerprint, profile, length, chat, settings, harness.version)
            found = _kept(args.output, key)
            reused = found is not None
            if found is None:
                found = harness.measure(loaded, profile, length, chat=chat)
                if args.output is not None:
                    write_atomically(_place(args.output, key), _json({"key": key, **found}))
        except (ProfileError, RuntimeError) as error:  # RuntimeError: a patch, memory, or a kernel
            row["reason"] = f"{type(error).__name__}: {' '.join(str(error).split())}"
            print(f"{argument.text}: failed: {row['reason']}", file=sys.stderr)
            continue
        row |= {"status": "ok", "scores": scores(found), "lm_eval": found}
        print(f"{argument.text}: done{' (on file)' if reused else ''}", file=sys.stderr)
    data = {
        "schema": SCHEMA,
        "model": {**spec.model_dump(mode="json"), "fingerprint": loaded.fingerprint, "shape": shape.to_dict()},
        "settings": settings.to_dict(),
        "target_length": target,
        "max_length": length,
        "chat_template": "on" if chat else "off",
        "lm_eval": harness.version,
        "versions": versions(),
        "rows": rows,
    }
    if args.output is not None:
        write_atomically(args.output / "lm-eval.json", _json(data))
    show(data)
    return 1 if any(row["status"] == "failed" for row in rows) else 0


def _settings(args: argparse.Namespace) -> Any:
    from search.errors import CampaignError
    from search.harness import Settings

    for name, least in (("limit", 1), ("shots", 0), ("batch", 1), ("max_length", 2), ("target_length", 2)):
        value = getattr(args, name)
        if value is not None and value < least:
            raise CampaignError(f"--{name.replace('_', '-')}", value, f"a whole number of at least {least}")
    if args.threads is not None and args.threads < 1:
        raise CampaignError("--threads", args.threads, "a whole number of at least 1")
    tasks = tuple(filter(None, (piece.strip() for piece in args.tasks.split(","))))
    if not tasks:
        raise CampaignError("--tasks", args.tasks, "at least one task")
    for text in args.profile:
        if args.profile.count(text) > 1:
            raise CampaignError("--profile", text, "each profile once")
    if args.output is not None:
        try:
            args.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            allowed = f"a folder that can be written ({error.strerror})"
            raise CampaignError("--output", str(args.output), allowed) from error
    return Settings(
        tasks,
        include=args.include,
        limit=args.limit,
        shots=args.shots,
        batch=args.batch,
        max_length=args.max_length,
        metadata=_metadata(args.metadata),
        seed=args.seed,
    )


def _metadata(text: str | None) -> dict[str, Any] | None:
    from search.errors import CampaignError

    if text is None:
        return None
    try:
        data = json.loads(text)
    except ValueError as error:
        raise CampaignError("--metadata", text, f"a JSON object ({error})") from error
    if not isinstance(data, dict):
        raise CampaignError("--metadata", text, "a JSON object")
    return data


def _built(argument: Any) -> Any:
    """The profile, or why it does not fit the model."""
    from ropewalk import ProfileError

    try:
        return argument.build()
    except ProfileError as error:
        return error


def _key(fingerprint: str, profile: Any, length: int, chat: bool, settings: Any, version: str) -> str:
    """The same exactly when running again would give the same."""
    parts = [fingerprint, profile.hash, str(length), str(chat), version, json.dumps(settings.to_dict())]
    return hashlib.sha256("/".join(parts).encode()).hexdigest()


def _place(output: Path, key: str) -> Path:
    return output / f"lm-eval-{key[:16]}.json"


def _kept(output: Path | None, key: str) -> dict[str, Any] | None:
    """What was measured before; None where there is nothing, or a damaged file."""
    if output is None:
        return None
    try:
        data = json.loads(_place(output, key).read_text(encoding="utf-8"))
        return data if data.pop("key") == key and "results" in data else None
    except (OSError, ValueError, KeyError, AttributeError):
        return None


def _json(data: Any) -> str:
    """The harness leaves functions and numpy numbers in its results."""
    return json.dumps(data, indent=2, ensure_ascii=False, default=_plain) + "\n"


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)
