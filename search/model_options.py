"""How to load the model and to ask it, as options that commands share."""

import argparse
from typing import Any

NAMES = ("revision", "gguf_file", "dtype", "device_map", "attn_implementation", "trust_remote_code", "chat_template")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command."""
    model = parser.add_argument_group("how to load and ask the model")
    model.add_argument("--revision")
    model.add_argument("--gguf-file", metavar="FILE")
    model.add_argument("--dtype", metavar="NAME", help="auto, float32, bfloat16 or float16 (default: auto)")
    model.add_argument("--device-map", metavar="MAP", help="cpu, cuda:1, auto, … (default: the first GPU, or the CPU)")
    model.add_argument("--attn-implementation", metavar="NAME")
    model.add_argument("--trust-remote-code", action="store_true", default=None)
    model.add_argument(
        "--chat-template",
        choices=("auto", "on", "off"),
        help="ask in a turn of the model's chat template (default: auto, on for instruct models)",
    )


def fields(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of `ModelSpec` that were given."""
    return {"id": args.model, **{name: value for name in NAMES if (value := getattr(args, name)) is not None}}


def spec(args: argparse.Namespace) -> Any:
    """The model as a `ModelSpec`.

    Raises:
        CampaignError: an option's value is not allowed.
    """
    from pydantic import ValidationError

    from search.complaints import explain
    from search.errors import CampaignError
    from workers.spec import ModelSpec

    try:
        return ModelSpec.model_validate(fields(args))
    except ValidationError as error:
        found = explain(error, ModelSpec)
        flag = "--model" if found.field == "id" else "--" + found.field.replace("_", "-")
        raise CampaignError(flag, found.value, found.allowed) from error
