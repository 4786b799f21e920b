"""From a profile and what was measured of a model to how each of its layers attends."""

from collections.abc import Sequence

import torch

from ropewalk.distance import Distance
from ropewalk.errors import ProfileError
from ropewalk.layer import Layer, pair_regions
from ropewalk.pairs import LayerPairs
from ropewalk.selection import Selection
from ropewalk.shape import ModelShape


def plan_layers(distance: Distance, shape: ModelShape, pairs: Sequence[LayerPairs]) -> tuple[Layer, ...]:
    """How each layer attends.

    Args:
        pairs: how each layer rotates.

    Raises:
        ProfileError: the method does not go with a layer's sliding window, or with how many dimensions it rotates.
    """
    for number, layer in enumerate(pairs):
        if distance.method == "dca" and layer.sliding_window is not None:
            raise ProfileError(
                "distance.method",
                "dca",
                f"a method of one window; layer {number} has a sliding window of {layer.sliding_window} tokens, "
                "which cuts through dca's chunks",
            )
        if layer.rotates and layer.rotary_dim != shape.rotary_dim:
            raise ProfileError(
                "model.rotary_dim", layer.rotary_dim, f"{shape.rotary_dim} in every layer; it is layer {number}"
            )
    regions = pair_regions(distance, shape.rotary_dim // 2)
    plain = pair_regions(Distance(), shape.rotary_dim // 2)
    chosen = None if distance.key_dims is None else torch.tensor(distance.key_dims.bools(shape.rotary_dim // 2))
    if chosen is not None and distance.key_dims.per == "kv_head":
        chosen = chosen.repeat_interleave(shape.num_heads // shape.num_kv_heads, dim=1)
    return tuple(
        Layer(
            regions=regions if layer.rotates else plain,
            rotates=layer.rotates,
            head_dim=shape.head_dim,
            interleaved=layer.interleaved,
            selection=Selection(chosen[number], shape.num_kv_heads, layer.interleaved)
            if chosen is not None and layer.rotates
            else None,
            sliding_window=layer.sliding_window,
            log_length=shape.trained_length if distance.log_n and layer.rotates else None,
        )
        for number, layer in enumerate(pairs)
    )
