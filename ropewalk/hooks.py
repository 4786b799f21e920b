"""The hooks that make each layer rotate as the profile says, and the handle that takes them away again.

The model computes `position_embeddings` once and passes it by keyword to the attention of every layer. A forward
pre-hook there replaces it for that layer. Model code and weights stay as they are, and so does `position_ids`, which
flash attention reads to detect packed sequences.

For a distance method the layer gets cos = 1 and sin = 0, so that queries and keys come to the attention function
unrotated, and a view of the cache that rotates keys on their way into it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers import Cache

from ropewalk.attention import Call
from ropewalk.errors import PatchError, ProfileError
from ropewalk.fields import integer
from ropewalk.forwards import Forwards
from ropewalk.interface import IMPLEMENTATION, KEYWORD, CacheView, PrivateConfigs
from ropewalk.layer import Layer
from ropewalk.profile import Profile
from ropewalk.rotate import KeptTables, Rotator
from ropewalk.rotated import RotatedLayer
from ropewalk.tables import RotaryTables

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_TAG = "_ropewalk_profile"


@dataclass(eq=False)
class LayerHook:
    """Forward pre-hook of one layer's attention.

    Attributes:
        tag: what a KV cache is marked with that is filled under the profile; `None` for the identity.
    """

    tables: RotaryTables
    layer: int
    tag: str | None

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        own, position_ids = kwargs.get("position_embeddings"), kwargs.get("position_ids")
        if own is None or position_ids is None:
            missing = "position_embeddings" if own is None else "position_ids"
            raise PatchError(
                f"layer {self.layer}: {type(module).__name__} was called without the keyword {missing}; "
                "this version of transformers may pass it in another way"
            )
        for cache in (*args, *kwargs.values()):
            if isinstance(cache, Cache):
                self._check_tag(cache, getattr(module, "layer_idx", self.layer))
        return self._patched(module, args, kwargs, own, position_ids)

    def _check_tag(self, cache: Cache, layer: int) -> None:
        """A cache belongs to the profile it was filled under."""
        tag = self._tag()
        if getattr(cache, _TAG, None) == tag:
            return
        if int(cache.get_seq_length(layer)) > 0:
            raise PatchError(
                "the KV cache was filled under another profile or none, or for another total length; "
                "start a new one after applying, removing or changing"
            )
        setattr(cache, _TAG, tag)

    def _tag(self) -> str | None:
        return self.tag

    def _patched(
        self,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        own: tuple[torch.Tensor, torch.Tensor],
        position_ids: torch.Tensor,
    ) -> Arguments | None:
        """The arguments that the module gets in place of its own; `None` leaves them."""
        table = self.tables.for_layer(self.layer, own[0], position_ids)
        return None if table is None else (args, {**kwargs, "position_embeddings": table})


@dataclass(eq=False)
class DistanceHook(LayerHook):
    """Forward pre-hook of one layer's attention under a distance method.

    Attributes:
        plan: how the layer attends.
        forwards, kept: shared by the layers of a model.
        backend: of `ropewalk.kernels`.
    """

    plan: Layer
    forwards: Forwards
    kept: KeptTables
    backend: str

    def _tag(self) -> str | None:
        # Keys in the cache are turned on, which takes that they were all rotated by one table.
        return f"{self.tag} {self.tables.total_length}" if self.tables.depends_on_length else self.tag

    @torch.compiler.disable
    def _patched(
        self,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        own: tuple[torch.Tensor, torch.Tensor],
        position_ids: torch.Tensor,
    ) -> Arguments:
        if module.config._attn_implementation != IMPLEMENTATION:
            raise PatchError(
                f"layer {self.layer}: the attention implementation was set to {module.config._attn_implementation} "
                "while a distance method is applied; set it before applying, or choose apply_profile's backend"
            )
        inv_freq, attention_scaling = self.tables.rotation(self.layer, own[0], position_ids)
        self.plan = self.plan.on(inv_freq.device)
        if not self.plan.rotates:
            inv_freq = inv_freq[:0]
        dtype = torch.promote_types(own[0].dtype, torch.float32)
        rotator = Rotator(inv_freq, attention_scaling, dtype, self.kept)
        forward = self.forwards.of(own[0])
        call = Call(RotatedLayer(self.plan, rotator), position_ids, forward, self.backend)
        args = tuple(CacheView(item, call) if isinstance(item, Cache) else item for item in args)
        kwargs = {name: CacheView(item, call) if isinstance(item, Cache) else item for name, item in kwargs.items()}
        return args, {**kwargs, "position_embeddings": forward.identity(own), KEYWORD: call}


class Handle:
    """An applied profile. A context manager: leaving it removes the profile.

    Attributes:
        profile: what is applied.
    """

    def __init__(
        self,
        model: nn.Module,
        profile: Profile,
        tables: RotaryTables,
        attentions: Sequence[nn.Module],
        layers: Sequence[Layer] | None = None,
        backend: str = "auto",
    ) -> None:
        self.profile = profile
        self._tables = tables
        self._fixed_length = None if layers is None else profile.target_length
        if layers is not None:
            tables.total_length = self._fixed_length
        identity = layers is None and profile.frequency.method == "native"
        tag = None if identity else profile.hash
        forwards, kept = Forwards(), KeptTables()
        self._removable: list[RemovableHandle] = []
        self._configs = PrivateConfigs()
        try:
            for layer, module in enumerate(attentions):
                if layers is None:
                    hook = LayerHook(tables, layer, tag)
                else:
                    hook = DistanceHook(tables, layer, tag, layers[layer], forwards, kept, backend)
                self._removable.append(module.register_forward_pre_hook(hook, with_kwargs=True))
            if layers is not None:
                self._configs.put(model, attentions)
            # Compiled code has no guard on hooks: what was compiled without them would go on without them.
            torch.compiler.reset()
        except BaseException:
            self.remove()
            raise

    @property
    def active(self) -> bool:
        """Whether the profile is still applied."""
        return bool(self._removable)

    @property
    def total_length(self) -> int | None:
        """Total length T in tokens that dynamic_ntk takes its table for, and any method that keeps the rotation of a
        model whose own config is of type `dynamic`; other methods do not depend on it.

        `None`, the default, takes the largest position of each forward + 1. With a KV cache, keys of earlier forwards
        keep the table they were rotated with, as with transformers' own `dynamic`; set the length that will be reached
        beforehand to have one table throughout. With a distance method, which turns cached keys on, there is always
        one: the default is the profile's target length.
        """
        return self._tables.total_length

    @total_length.setter
    def total_length(self, value: int | None) -> None:
        self._tables.total_length = self._fixed_length if value is None else integer("total_length", value, 1)

    def remove(self) -> None:
        """Take the profile off the model; a second call does nothing."""
        if not self._removable:
            return
        for removable in self._removable:
            removable.remove()
        self._removable = []
        self._configs.restore()
        torch.compiler.reset()

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
