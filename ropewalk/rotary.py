"""Where a model rotates, and with what: finds its rotary module and attention modules, or says why it is not supported.

Nothing here knows an architecture by name. What a model does is read off its modules and, for the layout of cos and
sin, measured by calling the rotary module; so a new architecture works when it behaves as expected and is refused with
the reason when it does not.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from ropewalk.errors import ProfileError
from ropewalk.frequencies import Rotation
from ropewalk.shape import ModelShape
from ropewalk.tables import rotation_table

STATIC_ROPE_TYPES = ("default", "linear", "llama3", "yarn")
_PROBED_POSITIONS = (0, 1, 2, 7, 40)


@dataclass(frozen=True, eq=False)
class RotaryModel:
    """The parts of a model that the patch works on.

    Attributes:
        native: what every layer rotates with in the unpatched model.
        attentions: one attention module per layer, in the order of the layers.
    """

    native: Rotation
    attentions: tuple[nn.Module, ...]


def examine(model: nn.Module, shape: ModelShape) -> RotaryModel:
    """Find what the patch needs in a transformers model.

    Args:
        model: a model with a `config`, on any devices; not changed.
        shape: its shape.

    Raises:
        ProfileError: the model rotates in a way that is not supported; says which.
    """
    rotary = _rotary_module(model)
    rope_type = getattr(rotary, "rope_type", "default")
    allowed = f"rotary types with one fixed table: {', '.join(STATIC_ROPE_TYPES)}"
    if rope_type in ("dynamic", "longrope"):
        allowed += "; this one chooses its table by length and keeps state between calls"
    if rope_type not in STATIC_ROPE_TYPES:
        raise ProfileError("model.rope_type", rope_type, allowed)
    parameters = getattr(getattr(rotary, "config", None), "rope_parameters", None) or {}
    if parameters.get("mrope_section"):
        raise ProfileError("model.mrope_section", parameters["mrope_section"], "positions of one axis, not several")
    inv_freq = rotary.inv_freq
    if inv_freq.is_meta:
        raise ProfileError("model.device", "meta", "a model whose rotary frequencies are loaded")
    if 2 * inv_freq.numel() != shape.head_dim:
        raise ProfileError(
            "model.partial_rotary_factor",
            2 * inv_freq.numel() / shape.head_dim,
            f"1: all {shape.head_dim} dimensions of a head rotated; this model rotates {2 * inv_freq.numel()}",
        )
    # A model cast by `.to(bfloat16)` holds rounded frequencies, and these are what it rotates with.
    native = Rotation(
        inv_freq.detach().to(device="cpu", dtype=torch.float32, copy=True),
        float(getattr(rotary, "attention_scaling", 1.0)),
    )
    _check_layout(rotary, native)
    return RotaryModel(native, attention_modules(model, shape.num_layers))


def attention_modules(model: nn.Module, num_layers: int) -> tuple[nn.Module, ...]:
    """The innermost modules that take `position_embeddings`, in the order of their layers.

    Raises:
        ProfileError: there is not exactly one for each layer.
    """
    takers = [module for module in model.modules() if _takes_position_embeddings(module)]
    innermost = [
        module
        for module in takers
        if not any(_takes_position_embeddings(child) for child in module.modules() if child is not module)
    ]
    if len(innermost) != num_layers:
        raise ProfileError(
            "model.attention",
            f"{len(innermost)} modules that take position_embeddings",
            f"one for each of the {num_layers} layers",
        )
    indices = [getattr(module, "layer_idx", None) for module in innermost]
    if sorted(index for index in indices if isinstance(index, int)) == list(range(num_layers)):
        innermost.sort(key=lambda module: module.layer_idx)
    return tuple(innermost)


def _takes_position_embeddings(module: nn.Module) -> bool:
    # Of the class: accelerate replaces `forward` on the instance by a wrapper with another signature.
    return _names_position_embeddings(type(module).forward)


@cache
def _names_position_embeddings(forward: Callable[..., Any]) -> bool:
    return "position_embeddings" in inspect.signature(forward).parameters


def _rotary_module(model: nn.Module) -> nn.Module:
    """The one module that holds inverse frequencies."""
    found = [module for module in model.modules() if isinstance(getattr(module, "inv_freq", None), torch.Tensor)]
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise ProfileError(
            "model.rotary", f"{len(found)} rotary modules", "one rotary module that serves all layers of a text model"
        )
    by_layer_type = sorted(
        {name for module in model.modules() for name, _ in module.named_buffers(recurse=False) if "inv_freq" in name}
    )
    if by_layer_type:
        raise ProfileError(
            "model.rotary", ", ".join(by_layer_type), "one set of frequencies for all layers, not one per layer type"
        )
    raise ProfileError(
        "model.rotary", type(model).__name__, "a model with a rotary module that holds inverse frequencies (inv_freq)"
    )


def _check_layout(rotary: Any, native: Rotation) -> None:
    """Call the rotary module and compare: cos and sin must repeat the pairs' angles as [all pairs, all pairs]."""
    device = rotary.inv_freq.device
    positions = torch.tensor([_PROBED_POSITIONS], device=device)
    like = torch.zeros(1, len(_PROBED_POSITIONS), 1, device=device, dtype=torch.float32)
    allowed = "cos and sin of the half-split layout, cat(angles, angles)"
    try:
        with torch.no_grad():
            own = rotary(like, positions)
        cos, sin = own
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        raise ProfileError("model.rotary", type(rotary).__name__, f"{allowed}; calling it gave: {error}") from error
    expected = rotation_table(positions, native.inv_freq.to(device), native.attention_scaling, torch.float32)
    for got, wanted in ((cos, expected[0]), (sin, expected[1])):
        if got.shape != wanted.shape or not torch.allclose(got.float(), wanted, rtol=0, atol=1e-4):
            raise ProfileError("model.rotary", type(rotary).__name__, f"{allowed}; this one computes something else")
