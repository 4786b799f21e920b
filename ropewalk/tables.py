"""The cos and sin that each layer gets in one forward, computed when a layer asks and shared while others need it.

Layers with equal frequencies form a group. A group's table is computed by its first layer, kept for the forward it
belongs to and dropped by its last layer, so that a forward holds few tables at a time and none outlives it.

A forward is known by the cos that the model itself computes for it, a new tensor each time. So forwards of several
threads on one model do not meet, and neither do the local and global layers of a model that computes one for each.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ropewalk.axes import Frequency
from ropewalk.errors import PatchError
from ropewalk.frequencies import LENGTH_DEPENDENT, METHODS, Rotation, Setting

Table = tuple[torch.Tensor, torch.Tensor]

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "halves": lambda columns: torch.cat((columns, columns), dim=-1),
    "neighbours": lambda columns: torch.repeat_interleave(columns, 2, dim=-1),
    "once": lambda columns: columns,
}
"""From one column per pair to the columns of cos and sin as a model wants them: all pairs and all pairs again (Llama),
each pair twice (Cohere), or as they are (gpt-oss)."""


def rotation_table(
    position_ids: torch.Tensor,
    inv_freq: torch.Tensor,
    attention_scaling: float,
    dtype: torch.dtype,
    layout: str = "halves",
) -> Table:
    """cos and sin of positions.

    Angles are float32: in bfloat16 neighbouring positions above 256 would be one.

    Args:
        position_ids: integers [batch, tokens].
        inv_freq: float32 [d/2] on the same device.
        layout: a key of `LAYOUTS`.

    Returns:
        cos and sin, each [batch, tokens, d], or [batch, tokens, d/2] in the layout `once`, in `dtype`.
    """
    angles = position_ids[..., None].float() * inv_freq
    cos, sin = angles.cos(), angles.sin()
    if attention_scaling != 1.0:
        cos, sin = cos * attention_scaling, sin * attention_scaling
    lay_out = LAYOUTS[layout]
    return lay_out(cos.to(dtype)), lay_out(sin.to(dtype))


@dataclass(eq=False)
class _Forward:
    """What is known of one forward."""

    own_cos: weakref.ref
    total_length: int | None = None
    tables: dict[int, Table] = field(default_factory=dict)


class RotaryTables:
    """Tables of a profile's frequency axis for the layers of one model.

    Safe to use from several threads, each with forwards of its own; can be copied and pickled with a patched model.

    Args:
        frequency: method and factors; its lists fit the number of layers.
        settings: one per layer. Layers that are to share tables have the same object.

    Attributes:
        total_length: T where the rotation depends on it; `None` takes the largest position of each forward + 1.
    """

    def __init__(self, frequency: Frequency, settings: Sequence[Setting]) -> None:
        self.total_length: int | None = None
        self._formula = METHODS[frequency.method]
        self._groups: list[tuple[Setting, dict[str, Any]]] = []
        self._group_of: list[int] = []
        for layer, setting in enumerate(settings):
            group = (setting, frequency.for_layer(layer))
            if group not in self._groups:
                self._groups.append(group)
            self._group_of.append(self._groups.index(group))
        self._last_layer = {group: layer for layer, group in enumerate(self._group_of)}
        self._fixed: list[Rotation | None] = [
            None
            if frequency.method in LENGTH_DEPENDENT or (setting.growth is not None and self._refers_to_native)
            else self._formula(setting, **fields)
            for setting, fields in self._groups
        ]
        self._of_length: dict[int, tuple[int, Rotation]] = {}
        self._on_device: dict[tuple[int, torch.device], tuple[Rotation, torch.Tensor]] = {}
        self._forwards: dict[int, _Forward] = {}

    def __getstate__(self) -> dict[str, Any]:
        # What belongs to forwards in progress or to devices is not part of a copy.
        return {**self.__dict__, "_of_length": {}, "_on_device": {}, "_forwards": {}}

    @property
    def depends_on_length(self) -> bool:
        """Whether some layer rotates otherwise when the total length is another."""
        return None in self._fixed

    @property
    def _refers_to_native(self) -> bool:
        return self._formula in (METHODS["native"], METHODS["linear"])

    def for_layer(self, layer: int, own_cos: torch.Tensor, position_ids: torch.Tensor) -> Table | None:
        """The table of a layer, or `None` where its rotation is the model's own.

        Args:
            own_cos: the model's cos [batch, tokens, columns] of this forward; gives device and dtype.
            position_ids: integers [batch, tokens].

        Raises:
            PatchError: positions and cos do not belong together.
        """
        group = self._group_of[layer]
        setting, _ = self._groups[group]
        fixed = self._fixed[group]
        if fixed is not None and setting.steady and fixed.equals(setting.native):
            return None
        forward = self._of(own_cos)
        table = forward.tables.get(group)
        if table is None:
            rotation = self._rotation(group, forward, position_ids)
            if setting.steady and rotation.equals(setting.native):
                return None
            columns = setting.dim // 2 if setting.layout == "once" else setting.dim
            if own_cos.shape[:-1] != position_ids.shape or own_cos.shape[-1] != columns:
                raise PatchError(
                    f"layer {layer}: cos has shape {tuple(own_cos.shape)}, position_ids {tuple(position_ids.shape)}; "
                    f"expected [batch, tokens, {columns}] and [batch, tokens]"
                )
            device = own_cos.device
            inv_freq = self._inv_freq(group, rotation, device)
            table = rotation_table(
                position_ids.to(device), inv_freq, rotation.attention_scaling, own_cos.dtype, setting.layout
            )
            forward.tables[group] = table
        if layer == self._last_layer[group]:
            forward.tables.pop(group, None)
        return table

    def rotation(self, layer: int, own_cos: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, float]:
        """What a layer rotates with in one forward, its own rotation included.

        Args:
            own_cos: the model's cos of this forward; gives the device.
            position_ids: integers [batch, tokens].

        Returns:
            Inverse frequencies float32 [d/2], and the number that multiplies cos and sin.
        """
        group = self._group_of[layer]
        rotation = self._fixed[group] or self._rotation(group, self._of(own_cos), position_ids)
        return self._inv_freq(group, rotation, own_cos.device), rotation.attention_scaling

    def _of(self, own_cos: torch.Tensor) -> _Forward:
        """The forward that a cos belongs to."""
        key = id(own_cos)
        forward = self._forwards.get(key)
        if forward is None or forward.own_cos() is not own_cos:
            forwards = self._forwards

            def end(reference: weakref.ref) -> None:
                """A forward is over, completed or not: its tables go."""
                known = forwards.get(key)
                if known is not None and known.own_cos is reference:
                    del forwards[key]

            forward = forwards[key] = _Forward(weakref.ref(own_cos, end))
        return forward

    def _rotation(self, group: int, forward: _Forward, position_ids: torch.Tensor) -> Rotation:
        fixed = self._fixed[group]
        if fixed is not None:
            return fixed
        if forward.total_length is None:
            forward.total_length = self.total_length or int(position_ids.max()) + 1
        length, rotation = self._of_length.get(group, (None, None))
        if length != forward.total_length:
            setting, fields = self._groups[group]
            rotation = self._formula(replace(setting, total_length=forward.total_length), **fields)
            self._of_length[group] = (forward.total_length, rotation)
        return rotation

    def _inv_freq(self, group: int, rotation: Rotation, device: torch.device) -> torch.Tensor:
        known, inv_freq = self._on_device.get((group, device), (None, None))
        if known is not rotation:
            inv_freq = rotation.inv_freq.to(device)
            self._on_device[group, device] = (rotation, inv_freq)
        return inv_freq
