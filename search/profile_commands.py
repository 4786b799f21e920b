"""`ropewalk profile list`, `show` and `check`: published profiles and profile files, without a model's weights."""

import argparse
import json
import sys
from typing import Any

from ropewalk import ModelShape, Profile, ProfileError, load_profile
from ropewalk.published import PUBLISHED, Published, provenance, resolve_length
from search import profile_argument
from search.errors import CampaignError

WIDTH = 220


def add(commands: Any) -> None:
    """Add `profile` to the commands of a parser."""
    profile = commands.add_parser("profile", help="list, show or check profiles").add_subparsers(
        required=True, metavar="ACTION"
    )
    listed = profile.add_parser("list", help="the published profiles with their sources")
    listed.set_defaults(command=_list)

    show = profile.add_parser("show", help="print what a profile does and where it comes from")
    _what(show, "Hub id or folder of the model to make a published profile for; prints a whole profile file")
    show.set_defaults(command=_show)

    check = profile.add_parser("check", help="validate a profile, and that it fits a model when one is named")
    _what(check, "Hub id or folder of the model it should fit")
    check.set_defaults(command=_check)


def _what(parser: argparse.ArgumentParser, model: str) -> None:
    parser.add_argument("profile", metavar="NAME_OR_FILE", help="a .json file, a published name, or name:field=value,…")
    parser.add_argument("--model", help=model)
    parser.add_argument(
        "--target-length",
        type=int,
        metavar="N",
        help="tokens, of all but a file (default: those a published profile is for, where its source names them)",
    )


def _list(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_edge=False, pad_edge=False)
    for header in ("name", "method", "settings", "made for", "source", "what it is"):
        table.add_column(header, overflow="fold", no_wrap=header == "name")
    for name, known in PUBLISHED.items():
        cells = (name, known.method, _settings(known), _made_for(known), known.source, known.description)
        table.add_row(*(Text(cell) for cell in cells))
    terminal = Console(highlight=False)
    # a file or a pipe has no width of its own, and folded lines would be hard to search
    console = terminal if terminal.is_terminal else Console(highlight=False, width=WIDTH)
    console.print(table)
    for note in dict.fromkeys(known.note for known in PUBLISHED.values() if known.note):
        names = ", ".join(name for name, known in PUBLISHED.items() if known.note == note)
        console.print(Text(f"{names}: {note}"), soft_wrap=True)
    return 0


def _settings(known: Published) -> str:
    """One line: `window 1024, group_size 32`."""
    settings = {name: value for name, value in known.settings().items() if name != "method"}
    return ", ".join(f"{name} {_value(value)}" for name, value in settings.items())


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(f"{item:g}" for item in value)
    return value if isinstance(value, str) else f"{value:g}"


def _made_for(known: Published) -> str:
    return known.made_for.name if known.made_for else "any"


def _show(args: argparse.Namespace) -> int:
    if profile_argument.is_file(args.profile):
        data = load_profile(args.profile).to_dict()
    elif args.model is None and args.profile in PUBLISHED:
        known = PUBLISHED[args.profile]
        data = {
            **provenance(args.profile, {}),
            "made_for": _made_for(known),
            "target_length": known.target_length
            if args.target_length is None
            else resolve_length(args.profile, args.target_length),
            "distance" if known.distance else "frequency": known.settings(),
        }
        print("settings; --model makes a profile file of them", file=sys.stderr)
    else:
        data = _made(args).to_dict()
    print(json.dumps(data, indent=2, ensure_ascii=False))
    return 0


def _check(args: argparse.Namespace) -> int:
    if profile_argument.is_file(args.profile):
        profile = load_profile(args.profile)
        if args.model is not None:
            profile.check_fits(_shape(args))
    else:
        profile = _made(args)
    fits = f"; fits {args.model}" if args.model is not None else ""
    distance = "" if profile.distance.method == "none" else f" with {profile.distance.method}"
    print(f"{args.profile}: valid, {profile.frequency.method}{distance}, {profile.model.num_layers} layers{fits}")
    return 0


def _made(args: argparse.Namespace) -> Profile:
    """The profile that the name stands for on the model."""
    profile_argument.check_names(args.profile)
    if args.model is None:
        raise CampaignError("--model", None, f"the model to make {args.profile} for; only a file does without")
    shape = _shape(args)
    try:
        return profile_argument.read(args.profile, shape, args.target_length).build()
    except ProfileError as error:
        if error.field == "target_length":
            raise CampaignError("--target-length", error.value, error.allowed) from error
        raise


def _shape(args: argparse.Namespace) -> ModelShape:
    from workers.loading import read_shape
    from workers.spec import ModelSpec

    return read_shape(ModelSpec(id=args.model))
