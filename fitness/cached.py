"""Forward passes over a cache, with logits only where they are needed, for any causal model of transformers."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from ropewalk.interface import cache_argument


def new_cache(model: Any) -> DynamicCache:
    return DynamicCache(config=model.config)


def is_plain(cache: DynamicCache) -> bool:
    """Whether every layer keeps all positions, so that masks span them all and the newest can be cut off again."""
    return bool(cache.layers) and all(type(layer) is DynamicLayer for layer in cache.layers)


def forward(
    model: Any,
    cache: DynamicCache,
    ids: Sequence[int],
    *,
    keep: torch.Tensor | int = 1,
    positions: Sequence[int] | None = None,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Run `ids` behind what is cached, add them to the cache, and return logits of shape [kept, vocabulary].

    Args:
        keep: the last so many tokens, or the indices of the tokens whose logits to compute.
        positions: of each id; None continues from the cache.
        mask: 4D, [1, 1, ids, cached + ids]; None is causal.
    """
    if positions is None:
        start = cache.get_seq_length()
        positions = range(start, start + len(ids))
    output = model(
        input_ids=torch.tensor([list(ids)], device=model.device),
        position_ids=torch.tensor([list(positions)], device=model.device),
        attention_mask=mask,
        use_cache=True,
        logits_to_keep=keep,
        **{cache_argument(model): cache},
    )
    return output.logits[0]


def prefill(model: Any, ids: Sequence[int], chunk: int | None) -> DynamicCache:
    """A cache of `ids`, run in passes of `chunk` tokens, or in one."""
    cache = new_cache(model)
    size = chunk or max(len(ids), 1)
    for start in range(0, len(ids), size):
        forward(model, cache, ids[start : start + size])
    return cache


def fork(cache: DynamicCache) -> DynamicCache:
    """A copy to run one question on, where the cache cannot be cut back."""
    return copy.deepcopy(cache)
