"""Profiles of every distance method for a model, and what they are compared with."""

import inspect
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import Cache, DynamicCache

from ropewalk import Distance, Frequency, ModelShape, Profile, apply_profile
from tests.ropewalk.literal import LiteralModel
from tests.ropewalk.small_models import INTERLEAVED, KINDS, ROTATES, TRAINED, build

METHODS: dict[str, dict[str, Any]] = {
    "rerope": {"method": "rerope", "window": 7},
    "rerope log_n": {"method": "rerope", "window": 7, "log_n": True},
    "leaky_rerope": {"method": "leaky_rerope", "window": 9, "slope": 3.5},
    "self_extend": {"method": "self_extend", "window": 10, "group_size": 4},
    "dca": {"method": "dca", "chunk_size": 24, "local_size": 7},
    "dpe": {"method": "dpe", "window": 11, "scale_factors": [1.0, 2.5, 4.0, 3.0]},
    "dpe query heads": {"method": "dpe", "window": 11, "scale_factors": [2.0, 5.0], "key_dims": "query_head"},
    "dpe key heads": {"method": "dpe", "window": 11, "scale_factors": [2.0, 5.0], "key_dims": "kv_head"},
}
"""Fields by a name; `key_dims` is drawn for the model. No factor divides its window."""

SLIDING = [kind for kind, parts in KINDS.items() if "sliding_window" in parts[2]]
WINDOWED = [method for method in METHODS if method != "dca"]
"""Methods that a sliding window can be honoured under."""
KIND_AND_METHOD = [(kind, method) for kind in KINDS for method in METHODS if kind not in SLIDING or method != "dca"]

ROUNDING = 2e-5
"""Of the largest logit, what float32 may lose in two layers: some five times what the plain models lose."""


def shape_of(model: nn.Module) -> ModelShape:
    return ModelShape.from_config(model.config)


def key_dims(shape: ModelShape, per: str, top_k: int, seed: int = 0) -> dict[str, Any]:
    """Random key dimensions, others in each head, as in a profile file."""
    rng, pairs = random.Random(seed), shape.rotary_dim // 2
    heads = shape.num_heads if per == "query_head" else shape.num_kv_heads
    digits = -(-pairs // 4)

    def draw() -> str:
        chosen = rng.sample(range(pairs), top_k)
        return f"{sum(1 << (4 * digits - 1 - pair) for pair in chosen):0{digits}x}"

    return {"per": per, "top_k": top_k, "mask": [[draw() for _ in range(heads)] for _ in range(shape.num_layers)]}


class Case:
    """A model, a profile for it, and the definition of what the two compute together.

    Attributes:
        model: float32, not patched.
        fields: the distance axis as in a profile file.
        profile: the profile.
        literal: the reference.
    """

    def __init__(
        self,
        method: str | dict[str, Any],
        kind: str = "gqa",
        *,
        frequency: Frequency | None = None,
        inv_freqs: list[torch.Tensor] | None = None,
        scalings: list[float] | None = None,
        seed: int = 0,
        target_length: int = 128,
        **config: Any,
    ) -> None:
        self.model = build(kind, seed=seed, **config)
        shape = shape_of(self.model)
        self.fields = dict(METHODS[method] if isinstance(method, str) else method)
        if isinstance(self.fields.get("key_dims"), str):
            self.fields["key_dims"] = key_dims(shape, self.fields["key_dims"], shape.rotary_dim // 3, seed)
        distance = Distance.from_dict(self.fields)
        self.profile = Profile("case", shape, target_length, frequency or Frequency("native"), distance)
        self.literal = LiteralModel(
            self.model,
            self.fields,
            inv_freqs=inv_freqs,
            scalings=scalings,
            trained_length=TRAINED,
            interleaved=kind in INTERLEAVED,
            rotates=ROTATES.get(kind),
        )

    def patched(self, **options: Any) -> Any:
        """The profile applied, without the self-check, which has tests of its own."""
        return apply_profile(self.model, self.profile, **{"check": False, **options})


def run(model: nn.Module, ids: torch.Tensor, cache: Cache | None = None, **options: Any) -> torch.Tensor:
    """Logits without autograd, over a cache when one is given."""
    if cache is not None:
        name = "past_key_values" if "past_key_values" in inspect.signature(model.forward).parameters else "cache"
        options |= {name: cache, "use_cache": True}
    with torch.no_grad():
        return model(input_ids=ids, **options).logits


def off(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference of two logits in units of the largest expected logit."""
    return ((got.double() - expected.double()).abs().max() / expected.double().abs().max()).item()


def in_pieces(
    model: nn.Module, ids: torch.Tensor, sizes: Sequence[int], cache: Cache | None = None, **options: Any
) -> torch.Tensor:
    """Logits of passes of these sizes over one cache; the last size is repeated to the end."""
    cache = DynamicCache(config=model.config) if cache is None else cache
    parts, start, sizes = [], 0, list(sizes)
    while start < ids.shape[1]:
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        parts.append(run(model, ids[:, start : start + size], cache, **options))
        start += size
    return torch.cat(parts, 1)
