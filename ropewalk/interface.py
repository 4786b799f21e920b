"""The seams to transformers: its attention and mask registries, the configs that name them, and the KV cache.

While a distance method is applied, the modules of a model hold a private copy of their config that names `ropewalk` as
the attention implementation. Other models with the same config are not affected.
"""

import inspect
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, Cache
from transformers.masking_utils import causal_mask_function, prepare_padding_mask, sdpa_mask, sliding_window_overlay

from ropewalk.attention import Call
from ropewalk.errors import PatchError
from ropewalk.kernels import Scores

IMPLEMENTATION = "ropewalk"
KEYWORD = "ropewalk"
_OFFSETS = "_ropewalk_offsets"


@torch.compiler.disable
def attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    ropewalk: Call | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention function of transformers' `AttentionInterface`; the call comes from the hook of the layer.

    Returns:
        Output [batch, tokens, heads, D], and no weights.
    """
    name = type(module).__name__
    if ropewalk is None:
        raise PatchError(f"{name} names ropewalk's attention, but no profile is applied to it")
    if dropout:
        raise PatchError(f"{name} asks for attention dropout {dropout}, which distance methods do not have")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    # Under autocast the projections give a lower precision, which queries and keys lose again by their cos and sin.
    query, key = query.to(value.dtype), key.to(value.dtype)
    with _without_autocast(query.device.type):
        out = ropewalk.attend(query, key, value, attention_mask, Scores(scale, softcap), s_aux)
    return out.transpose(1, 2).contiguous(), None


def _without_autocast(device: str) -> AbstractContextManager:
    casts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if casts else nullcontext()


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | torch.Tensor = 0,
    kv_offset: int = 0,
    mask_function: Any = causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    local_size: int | None = None,
    **kwargs: Any,
) -> torch.Tensor | None:
    """Mask function of transformers' `AttentionMaskInterface`.

    Returns:
        For causal attention, sliding windows included, what padding there is: truth values [batch, keys], or `None`;
        anything else as truth values [batch, 1, queries, keys].
    """
    if mask_function is not causal_mask_function and not _slides(mask_function):
        kwargs["allow_is_causal_skip"] = False
        return sdpa_mask(
            batch_size,
            q_length,
            kv_length,
            q_offset,
            kv_offset,
            mask_function,
            attention_mask,
            local_size,
            **kwargs,
        )
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is None:
        return None
    padding = padding[:, kv_offset : kv_offset + kv_length] if padding.shape[1] != kv_length else padding
    # Places of a static cache that are not written yet are no padding; the number of tokens tells them.
    written = min(int(q_offset) + q_length - kv_offset, kv_length)
    return None if bool(padding[:, :written].all()) else padding


def _slides(mask_function: Any) -> bool:
    """Whether a mask function is causal attention within a sliding window and nothing else.

    Read off what it is put together from. One that is made in another way is not recognised, and works as a mask of any
    form does.
    """
    cells = [cell.cell_contents for cell in getattr(mask_function, "__closure__", None) or ()]
    parts = cells[0] if len(cells) == 1 and isinstance(cells[0], tuple) else ()
    others = [part for part in parts if part is not causal_mask_function]
    return len(parts) == 2 and len(others) == 1 and others[0].__qualname__ == _WINDOW


_WINDOW = sliding_window_overlay(1).__qualname__
AttentionInterface.register(IMPLEMENTATION, attention)
AttentionMaskInterface.register(IMPLEMENTATION, mask)


def cache_argument(model: nn.Module) -> str:
    """The keyword under which this model takes its cache; code from the Hub may still use the older one."""
    return "past_key_values" if "past_key_values" in inspect.signature(model.forward).parameters else "cache"


class CacheView:
    """A KV cache as the attention of one layer sees it: keys go in rotated, everything else is the cache itself."""

    def __init__(self, cache: Cache, call: Call) -> None:
        self._cache = cache
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    @torch.compiler.disable
    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotate the new keys, cache them, and return all keys and values."""
        past = int(self._cache.get_seq_length(layer_idx))
        offsets = vars(self._cache).setdefault(_OFFSETS, set())
        stored = self._call.store(key_states, past, offsets).to(value_states.dtype)
        return self._cache.update(stored, value_states, layer_idx, *args, **kwargs)


class PrivateConfigs:
    """Private copies of the configs of a model's attention modules, in every module that holds one of them."""

    def __init__(self) -> None:
        self._replaced: list[tuple[nn.Module, Any]] = []
        self._copies: dict[int, tuple[Any, Any]] = {}

    def put(self, model: nn.Module, attentions: Iterable[nn.Module]) -> None:
        """Put copies that name ropewalk's attention in the place of the configs."""
        for module in attentions:
            config = module.config
            if id(config) not in self._copies:
                private = copy(config)
                private._attn_implementation_internal = IMPLEMENTATION
                self._copies[id(config)] = (config, private)
        for module in model.modules():
            known = self._copies.get(id(vars(module).get("config")))
            if known is not None:
                self._replaced.append((module, known[0]))
                module.config = known[1]

    def restore(self) -> None:
        """Give every module its config back, with what was changed meanwhile."""
        for config, private in self._copies.values():
            if private._attn_implementation_internal == IMPLEMENTATION:
                private._attn_implementation_internal = config._attn_implementation_internal
            vars(config).update(vars(private))
        for module, config in self._replaced:
            module.config = config
        self._replaced, self._copies = [], {}
