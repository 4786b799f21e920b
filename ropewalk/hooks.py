"""The hooks that give each layer its own cos and sin, and the handle that takes them away again.

The model computes `position_embeddings` once and passes it by keyword to the attention of every layer. A forward
pre-hook there replaces it for that layer. Model code and weights stay as they are, and so does `position_ids`, which
flash attention reads to detect packed sequences.
"""

from types import TracebackType
from typing import Any

from torch import nn

from ropewalk.errors import PatchError, ProfileError
from ropewalk.fields import integer
from ropewalk.profile import Profile
from ropewalk.tables import RotaryTables


class LayerHook:
    """Forward pre-hook of one layer's attention."""

    def __init__(self, tables: RotaryTables, layer: int) -> None:
        self.tables = tables
        self.layer = layer

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        own, position_ids = kwargs.get("position_embeddings"), kwargs.get("position_ids")
        if own is None or position_ids is None:
            missing = "position_embeddings" if own is None else "position_ids"
            raise PatchError(
                f"layer {self.layer}: {type(module).__name__} was called without the keyword {missing}; "
                "this version of transformers may pass it in another way"
            )
        table = self.tables.for_layer(self.layer, own[0], position_ids)
        return None if table is None else (args, {**kwargs, "position_embeddings": table})


class Handle:
    """An applied profile. A context manager: leaving it removes the profile.

    Attributes:
        profile: what is applied.
    """

    def __init__(self, profile: Profile, tables: RotaryTables, attentions: tuple[nn.Module, ...]) -> None:
        self.profile = profile
        self._tables = tables
        self._removable = [
            module.register_forward_pre_hook(LayerHook(tables, layer), with_kwargs=True)
            for layer, module in enumerate(attentions)
        ]

    @property
    def active(self) -> bool:
        """Whether the profile is still applied."""
        return bool(self._removable)

    @property
    def total_length(self) -> int | None:
        """Total length T in tokens that dynamic_ntk takes its table for; other methods do not depend on it.

        `None`, the default, takes the largest position of each forward + 1. With a KV cache, keys of earlier forwards
        keep the table they were rotated with, as with transformers' own `dynamic`; set the length that will be reached
        beforehand to have one table throughout.
        """
        return self._tables.total_length

    @total_length.setter
    def total_length(self, value: int | None) -> None:
        self._tables.total_length = None if value is None else integer("total_length", value, 1)

    def remove(self) -> None:
        """Take the profile off the model; a second call does nothing."""
        for removable in self._removable:
            removable.remove()
        self._removable = []

    def __enter__(self) -> "Handle":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def refuse_patched(model: nn.Module) -> None:
    """Raise `ProfileError` when a profile is applied to the model or to a part of it.

    Looks for the hooks themselves, so that a deep copy of a patched model is recognised as patched too.
    """
    for module in model.modules():
        if any(isinstance(hook, LayerHook) for hook in module._forward_pre_hooks.values()):
            raise ProfileError(
                "model",
                type(model).__name__,
                "a model that no profile is applied to; call remove() on its handle first",
            )
