"""Where a model rotates, and with what: finds its rotary module and attention modules, or says why it is not supported.

Nothing here knows an architecture by name. What a model does is read off its modules and, for the layout of cos and
sin, measured by calling the rotary module; so a new architecture works when it behaves as expected and is refused with
the reason when it does not.

Two rotary types of transformers change with the length reached and keep state between calls. Under a profile they do
not: `longrope` has a table for short and one for long contexts, and the profile's target length chooses one of them
for every forward; the growing base of `dynamic` follows the total length of a forward or the one that is pinned.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ropewalk.errors import ProfileError
from ropewalk.frequencies import Growth, Rotation, Setting
from ropewalk.shape import ModelShape, layer_parameters
from ropewalk.tables import LAYOUTS, rotation_table

ROPE_TYPES = ("default", "linear", "llama3", "yarn", "dynamic", "longrope")
_PROBED_POSITIONS = (0, 1, 2, 7, 40)


@dataclass(frozen=True, eq=False)
class LayerRotary:
    """What a layer of the unpatched model rotates with; one object for all layers that rotate alike.

    Attributes:
        native: up to `length` where there is one, else at every length.
        rope_theta: base of the layer's frequencies.
        layout: of cos and sin, a key of `ropewalk.tables.LAYOUTS`.
        length: tokens from which on the model itself rotates otherwise; `None` where it never does.
        beyond: what a longrope model rotates with beyond `length`.
        growth: of a dynamic model.
    """

    native: Rotation
    rope_theta: float
    layout: str
    length: int | None = None
    beyond: Rotation | None = None
    growth: Growth | None = None

    def setting(self, shape: ModelShape, target_length: int) -> Setting:
        """What the formulas refer to when the target is `target_length` tokens."""
        chosen = self.beyond if self.beyond is not None and target_length > self.length else self.native
        return Setting(
            native=chosen,
            rope_theta=self.rope_theta,
            trained_length=shape.trained_length,
            target_length=target_length,
            growth=self.growth,
            steady=self.length is None,
            layout=self.layout,
        )


@dataclass(frozen=True, eq=False)
class RotaryModel:
    """The parts of a model that the patch works on.

    Attributes:
        layers: what each layer rotates with.
        attentions: one attention module per layer, in the order of the layers.
    """

    layers: tuple[LayerRotary, ...]
    attentions: tuple[nn.Module, ...]

    @property
    def natives(self) -> tuple[Rotation, ...]:
        """One per layer: what the unpatched model rotates with within its original length."""
        return tuple(layer.native for layer in self.layers)

    def settings(self, shape: ModelShape, target_length: int) -> tuple[Setting, ...]:
        """One per layer, for `RotaryTables`; layers that rotate alike share one object."""
        made = {id(layer): layer.setting(shape, target_length) for layer in self.layers}
        return tuple(made[id(layer)] for layer in self.layers)


def examine(model: nn.Module, shape: ModelShape) -> RotaryModel:
    """Find what the patch needs in a transformers model.

    Args:
        model: a model with a `config`, on any devices; weights and config are not changed.
        shape: its shape.

    Raises:
        ProfileError: the model rotates in a way that is not supported; says which.
    """
    config = model.config.get_text_config()
    _refuse_several_axes(config)
    module, layer_types = _rotary_module(model)
    attentions = attention_modules(model, shape.num_layers)
    for attention in attentions:
        if getattr(attention, "kv_lora_rank", None):
            raise ProfileError(
                "model.attention",
                f"{type(attention).__name__} with latent keys (kv_lora_rank {attention.kv_lora_rank})",
                "attention whose cache holds keys; latent attention rotates a part that all heads share",
            )
    if not layer_types:
        return RotaryModel((_layer_rotary(module, None, shape, config),) * shape.num_layers, attentions)
    types_of_layers = getattr(config, "layer_types", None) or ()
    if len(types_of_layers) != shape.num_layers or not set(types_of_layers) <= set(layer_types):
        raise ProfileError(
            "model.layer_types",
            ", ".join(map(str, types_of_layers)) or None,
            f"one of {', '.join(layer_types)} for each of the {shape.num_layers} layers",
        )
    by_type = {kind: _layer_rotary(module, kind, shape, config) for kind in dict.fromkeys(types_of_layers)}
    return RotaryModel(tuple(by_type[kind] for kind in types_of_layers), attentions)


def _refuse_several_axes(config: Any) -> None:
    parameters = layer_parameters(config, None)
    for values in (parameters, *(value for value in parameters.values() if isinstance(value, dict))):
        if values.get("mrope_section"):
            raise ProfileError("model.mrope_section", values["mrope_section"], "positions of one axis, not several")


def _layer_rotary(module: Any, layer_type: str | None, shape: ModelShape, config: Any) -> LayerRotary:
    """What the layers of one type rotate with (`None`: of all types), checked by calling the rotary module."""
    prefix = "" if layer_type is None else f"{layer_type}_"
    rope_type = getattr(module, "rope_type", "default")
    if isinstance(rope_type, dict):
        rope_type = rope_type.get(layer_type)
    if rope_type not in ROPE_TYPES:
        raise ProfileError("model.rope_type", rope_type, f"a rotary type of these: {', '.join(ROPE_TYPES)}")
    if getattr(module, "mrope_section", None):
        raise ProfileError("model.mrope_section", list(module.mrope_section), "positions of one axis, not several")
    inv_freq = getattr(module, f"{prefix}inv_freq")
    if inv_freq.is_meta:
        raise ProfileError("model.device", "meta", "a model whose rotary frequencies are loaded")
    if 2 * inv_freq.numel() != shape.rotary_dim:
        raise ProfileError(
            "model.rotary_dim",
            2 * inv_freq.numel(),
            f"{shape.rotary_dim} rotated dimensions of a head, as the config says",
        )
    scaling = float(getattr(module, f"{prefix}attention_scaling", 1.0))
    parameters = layer_parameters(config, layer_type)
    length, beyond, growth = None, None, None
    if rope_type == "dynamic":
        length = config.max_position_embeddings
        growth = Growth(float(parameters["factor"]), length)
    elif rope_type == "longrope":
        length = parameters["original_max_position_embeddings"]
        long_inv_freq, _ = ROPE_INIT_FUNCTIONS["longrope"](config, "cpu", seq_len=length + 1, layer_type=layer_type)
        beyond = Rotation(long_inv_freq.to(inv_freq.dtype).float(), scaling)
    if length is not None:
        # The module's current frequencies are those of the last call.
        inv_freq = getattr(module, f"{prefix}original_inv_freq", inv_freq)
    # A model cast by `.to(bfloat16)` holds rounded frequencies, and these are what it rotates with.
    native = Rotation(inv_freq.detach().to(device="cpu", dtype=torch.float32, copy=True), scaling)
    if beyond is not None:
        _measured_layout(module, layer_type, beyond, [length + position for position in _PROBED_POSITIONS])
    within = [position for position in _PROBED_POSITIONS if length is None or position < length - 1]
    layout = _measured_layout(module, layer_type, native, within)
    rope_theta = shape.rope_theta if layer_type is None else float(parameters["rope_theta"])
    return LayerRotary(native, rope_theta, layout, length, beyond, growth)


def attention_modules(model: nn.Module, num_layers: int) -> tuple[nn.Module, ...]:
    """The innermost modules that take `position_embeddings`, in the order of their layers.

    Raises:
        ProfileError: there is not exactly one for each layer, or one is a part of a larger attention.
    """
    takers = [module for module in model.modules() if _takes_position_embeddings(module)]
    within = {id(module): [child for child in module.modules() if child is not module] for module in takers}
    innermost = [module for module in takers if not any(id(child) in within for child in within[id(module)])]
    for module in innermost:
        around = [outer for outer in takers if any(child is module for child in within[id(outer)])]
        if len(around) > 1:
            raise ProfileError(
                "model.attention",
                f"{type(module).__name__} inside {type(around[-1]).__name__}",
                "attention that rotates queries and keys once, in one module right below the layer",
            )
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


def _rotary_module(model: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """The one module that holds inverse frequencies, and the layer types it holds them for (none: one set for all)."""
    found = [(module, types) for module in model.modules() if (types := _frequency_sets(module)) is not None]
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise ProfileError(
            "model.rotary", f"{len(found)} rotary modules", "one rotary module that serves all layers of a text model"
        )
    raise ProfileError(
        "model.rotary", type(model).__name__, "a model with a rotary module that holds inverse frequencies (inv_freq)"
    )


def _frequency_sets(module: nn.Module) -> tuple[str, ...] | None:
    """Layer types that a module has frequencies of; empty when it has one set, `None` when it has none."""
    if isinstance(getattr(module, "inv_freq", None), torch.Tensor):
        return ()
    ending = "_inv_freq"
    names = [name.removesuffix(ending) for name, _ in module.named_buffers(recurse=False) if name.endswith(ending)]
    return tuple(name for name in names if not name.endswith("original")) or None


def _measured_layout(module: Any, layer_type: str | None, rotation: Rotation, positions: list[int]) -> str:
    """Call the rotary module and find the layout in which its cos and sin are those of the rotation."""
    device = next(iter(module.buffers())).device
    position_ids = torch.tensor([positions], device=device)
    like = torch.zeros(1, len(positions), 1, device=device, dtype=torch.float32)
    arguments = (like, position_ids) if layer_type is None else (like, position_ids, layer_type)
    allowed = f"cos and sin of the pairs' angles, laid out as {', '.join(LAYOUTS)}"
    try:
        with torch.no_grad():
            own = module(*arguments)
        cos, sin = own
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        raise ProfileError("model.rotary", type(module).__name__, f"{allowed}; calling it gave: {error}") from error
    inv_freq = rotation.inv_freq.to(device)
    for layout in LAYOUTS:
        expected = rotation_table(position_ids, inv_freq, rotation.attention_scaling, torch.float32, layout)
        if all(
            got.shape == wanted.shape and torch.allclose(got.float(), wanted, rtol=0, atol=1e-4)
            for got, wanted in zip((cos, sin), expected, strict=True)
        ):
            return layout
    raise ProfileError("model.rotary", type(module).__name__, f"{allowed}; this one computes something else")
