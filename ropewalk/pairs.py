"""Which dimensions of queries and keys each layer rotates, measured on the model at hand.

An attention module is called with cos = 1, sin = 0 and with a table of generic angles; what its attention function is
given in the two calls tells whether it rotates, how its pairs lie, and how many dimensions take part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ropewalk.errors import ProfileError
from ropewalk.probing import Arrived, Table, arrived, before_each, input_device, own_table, undisturbed
from ropewalk.twin import twin

_TOKENS = 5
_LAYER_TYPES = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class LayerPairs:
    """How the attention of one layer rotates.

    Attributes:
        rotates: whether it does; a layer that ignores cos and sin does not (NoPE).
        interleaved: whether pair j is dimensions (2j, 2j + 1); else it is (j, j + rotary_dim/2).
        rotary_dim: dimensions that are rotated, the first ones of each head; 0 when it does not rotate.
        sliding_window: W when the layer sees distances below W alone.
    """

    rotates: bool
    interleaved: bool
    rotary_dim: int
    sliding_window: int | None


def attention_pairs(model: nn.Module, attentions: Sequence[nn.Module]) -> tuple[LayerPairs, ...]:
    """Measure how each layer rotates queries and keys, by one forward over five tokens.

    Works wherever a forward does (spread over devices, offloaded by accelerate, in training mode). A model on the meta
    device holds no numbers to measure, so a small one with its features is made on the CPU and measured in its place.

    Args:
        model: a transformers model; as it was afterwards, and torch's random state too.
        attentions: its attention modules, one per layer, that take `position_embeddings`.

    Raises:
        ProfileError: `model.rotation`: a layer rotates in another way; `model.attention`: a layer does not attend
            through transformers' `AttentionInterface`, not causally, or through a mask of another kind.
    """
    for module in attentions:
        _check_kind(module)
    model, attentions = twin(model, attentions)
    found: dict[int, LayerPairs] = {}

    def measure(layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found[layer] = _measure(module, args, kwargs, layer)

    with undisturbed(model), before_each(attentions, measure):
        model(input_ids=_ids(model), use_cache=False)
    for layer, module in enumerate(attentions):
        if layer not in found:
            raise ProfileError(
                "model.attention", f"{type(module).__name__} of layer {layer}", "modules that every forward calls"
            )
    return tuple(found[layer] for layer in range(len(attentions)))


def _ids(model: nn.Module) -> torch.Tensor:
    vocabulary = model.get_input_embeddings().weight.shape[0]
    return (torch.arange(1, _TOKENS + 1)[None] % vocabulary).to(input_device(model))


def _check_kind(module: nn.Module) -> None:
    kind = _layer_type(module)
    if kind is not None and kind not in _LAYER_TYPES:
        raise ProfileError("model.attention", kind, f"layers of type {' or '.join(_LAYER_TYPES)}")
    if getattr(module, "is_causal", True) is False:
        raise ProfileError("model.attention", f"{type(module).__name__} in both directions", "causal attention")


def _layer_type(module: nn.Module) -> str | None:
    kinds, layer = getattr(getattr(module, "config", None), "layer_types", None), getattr(module, "layer_idx", None)
    return kinds[layer] if kinds and isinstance(layer, int) and layer < len(kinds) else None


def _measure(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], layer: int) -> LayerPairs:
    cos, sin = own_table(module, kwargs)
    still = arrived(module, args, kwargs, (torch.ones_like(cos), torch.zeros_like(sin)))
    table, angles = known_table(cos, sin)
    turned = arrived(module, args, kwargs, table)
    window = _sliding_window(module, turned)
    _check_mask(module, turned.mask, (*args, kwargs.get("attention_mask")))
    for tensor in (still.query, still.key):
        if not torch.isfinite(tensor).all():
            raise ProfileError("model.attention", f"queries or keys of layer {layer} not finite", "finite weights")
    if torch.equal(still.query, turned.query) and torch.equal(still.key, turned.key):
        return LayerPairs(False, False, 0, window)
    dim, head_dim = 2 * angles[0].shape[-1], still.query.shape[-1]
    for interleaved in (False, True):
        if dim <= head_dim and all(
            _close(after, _rotated(before, angles, interleaved))
            for before, after in ((still.query, turned.query), (still.key, turned.key))
        ):
            return LayerPairs(True, interleaved, dim, window)
    raise ProfileError(
        "model.rotation",
        f"{type(module).__name__} of layer {layer}, head_dim {head_dim}, {dim} rotated",
        "queries and keys whose first dimensions are rotated last of all, in pairs (j, j + J) or (2j, 2j + 1)",
    )


def _check_mask(module: nn.Module, mask: Any, given: tuple[Any, ...]) -> None:
    """Refuse a module that makes a mask of its own, which says more than causality, window and padding."""
    for tensor in given:
        if mask is tensor or (torch.is_tensor(mask) and torch.is_tensor(tensor) and _equal(mask, tensor)):
            return
    if mask is not None:
        raise ProfileError("model.attention", f"{type(module).__name__} with a mask of its own", "the model's mask")


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in value, on whatever devices and of whatever types."""
    return a.shape == b.shape and torch.equal(a.cpu().double(), b.cpu().double())


def _sliding_window(module: nn.Module, arrived: Arrived) -> int | None:
    if "sliding_window" in arrived.options:
        window = arrived.options["sliding_window"]
    else:  # such a layer is limited by its mask alone
        full = _layer_type(module) == "full_attention" or getattr(module.config, "use_sliding_window", True) is False
        window = None if full else getattr(module.config, "sliding_window", None)
    return None if window is None else int(window)


def known_table(cos: torch.Tensor, sin: torch.Tensor) -> tuple[Table, Table]:
    """A table of generic angles in the layout of a model's own.

    Args:
        cos, sin: the model's own for at least two positions, [..., tokens, width].

    Returns:
        cos and sin like the model's, and the cos and sin of every pair they stand for, float64 [tokens, pairs] on CPU.
    """
    tokens, width = cos.shape[-2:]
    half = width // 2
    halves = all(torch.equal(own[..., :half], own[..., half:]) for own in (cos, sin) if width % 2 == 0)
    neighbours = all(torch.equal(own[..., 0::2], own[..., 1::2]) for own in (cos, sin) if width % 2 == 0)
    repeated = width % 2 == 0 and (halves or neighbours)
    pairs = half if repeated else width
    angles = 0.3 + 1.1 * torch.arange(tokens, dtype=torch.float64)[:, None] + 0.37 * torch.arange(pairs)
    table, exact = [], []
    for own, values in ((cos, angles.cos()), (sin, angles.sin())):
        values = values.to(own.dtype)
        exact.append(values.double())
        if repeated:
            values = torch.cat((values, values), -1) if halves else values.repeat_interleave(2, -1)
        table.append(values.to(own.device).expand(own.shape).contiguous())
    return (table[0], table[1]), (exact[0], exact[1])


def _rotated(x: torch.Tensor, angles: Table, interleaved: bool) -> torch.Tensor:
    """x [batch, heads, tokens, head_dim] with its first dimensions rotated, float64 on the CPU."""
    cos, sin = angles
    pairs = cos.shape[-1]
    rotated = x.double().cpu().clone()
    if interleaved:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    else:
        first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    a, b = rotated[..., first].clone(), rotated[..., second].clone()
    rotated[..., first], rotated[..., second] = a * cos - b * sin, b * cos + a * sin
    return rotated


def _close(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether two tensors agree to the rounding of the first, relative to the largest dimension of each head."""
    if got.shape != wanted.shape:
        return False
    tolerance = max(8 * torch.finfo(got.dtype).eps, 1e-5)
    largest = wanted.abs().amax(-1, keepdim=True)
    return bool(((got.double().cpu() - wanted).abs() <= tolerance * largest).all())
