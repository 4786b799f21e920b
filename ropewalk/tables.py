"""The cos and sin that each layer gets in one forward, computed when a layer asks and shared while others need it.

Layers with equal frequencies form a group. A group's table is computed by its first layer, kept for the forward it
belongs to and dropped by its last layer, so that a forward holds few tables at a time and none outlives it.
"""

import weakref
from dataclasses import dataclass, field, replace

import torch

from ropewalk.axes import Frequency
from ropewalk.errors import PatchError
from ropewalk.frequencies import LENGTH_DEPENDENT, METHODS, Rotation, Setting

Table = tuple[torch.Tensor, torch.Tensor]


def rotation_table(
    position_ids: torch.Tensor, inv_freq: torch.Tensor, attention_scaling: float, dtype: torch.dtype
) -> Table:
    """cos and sin in the half-split layout.

    Angles are float32: in bfloat16 neighbouring positions above 256 would be one.

    Args:
        position_ids: integers [batch, tokens].
        inv_freq: float32 [d/2] on the same device.

    Returns:
        cos and sin, each [batch, tokens, d] in `dtype`.
    """
    angles = position_ids[..., None].float() * inv_freq
    cos, sin = angles.cos(), angles.sin()
    if attention_scaling != 1.0:
        cos, sin = cos * attention_scaling, sin * attention_scaling
    cos, sin = cos.to(dtype), sin.to(dtype)
    return torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)


@dataclass(eq=False)
class _Forward:
    """What is known of one forward: identified by the model's own cos tensor, which every forward makes anew."""

    own_cos: weakref.ref
    total_length: int | None = None
    rotations: dict[int, Rotation] = field(default_factory=dict)
    tables: dict[int, Table] = field(default_factory=dict)


class RotaryTables:
    """Tables of a profile's frequency axis for the layers of one model.

    Args:
        frequency: method and factors; its lists fit `num_layers`.
        setting: native rotation and lengths.
        num_layers: layers of the model.

    Attributes:
        total_length: T for methods that depend on it; `None` takes the largest position of each forward + 1.
    """

    def __init__(self, frequency: Frequency, setting: Setting, num_layers: int) -> None:
        self.total_length: int | None = None
        self._formula = METHODS[frequency.method]
        self._setting = setting
        self._groups: list[dict] = []
        self._group_of: list[int] = []
        for layer in range(num_layers):
            fields = frequency.for_layer(layer)
            if fields not in self._groups:
                self._groups.append(fields)
            self._group_of.append(self._groups.index(fields))
        self._last_layer = {group: layer for layer, group in enumerate(self._group_of)}
        self._fixed: list[Rotation] | None = None
        if frequency.method not in LENGTH_DEPENDENT:
            self._fixed = [self._formula(setting, **fields) for fields in self._groups]
        self._on_device: dict[tuple[int, torch.device], torch.Tensor] = {}
        self._forward: _Forward | None = None

    def for_layer(self, layer: int, own_cos: torch.Tensor, position_ids: torch.Tensor) -> Table | None:
        """The table of a layer, or `None` where its rotation is the model's own.

        Args:
            own_cos: the model's cos [batch, tokens, d] of this forward; gives device and dtype.
            position_ids: integers [batch, tokens].

        Raises:
            PatchError: positions and cos do not belong together.
        """
        group = self._group_of[layer]
        if self._fixed is not None and self._fixed[group].equals(self._setting.native):
            return None
        forward = self._of(own_cos)
        if group in forward.tables:
            table = forward.tables[group]
        else:
            rotation = self._rotation(group, forward, position_ids)
            if rotation.equals(self._setting.native):
                return None
            if own_cos.shape[:-1] != position_ids.shape or own_cos.shape[-1] != self._setting.dim:
                raise PatchError(
                    f"layer {layer}: cos has shape {tuple(own_cos.shape)}, position_ids {tuple(position_ids.shape)}; "
                    f"expected [batch, tokens, {self._setting.dim}] and [batch, tokens]"
                )
            device = own_cos.device
            inv_freq = self._inv_freq(group, rotation, device)
            table = rotation_table(position_ids.to(device), inv_freq, rotation.attention_scaling, own_cos.dtype)
            forward.tables[group] = table
        if layer == self._last_layer[group]:
            forward.tables.pop(group, None)
        return table

    def _of(self, own_cos: torch.Tensor) -> _Forward:
        """The current forward; a new one when cos is another tensor than before."""
        forward = self._forward
        if forward is None or forward.own_cos() is not own_cos:
            forward = self._forward = _Forward(weakref.ref(own_cos, self._end))
        return forward

    def _end(self, own_cos: weakref.ref) -> None:
        """A forward is over, completed or not: its tables go."""
        if self._forward is not None and self._forward.own_cos is own_cos:
            self._forward = None

    def _rotation(self, group: int, forward: _Forward, position_ids: torch.Tensor) -> Rotation:
        if self._fixed is not None:
            return self._fixed[group]
        if group not in forward.rotations:
            if forward.total_length is None:
                forward.total_length = self.total_length or int(position_ids.max()) + 1
            setting = replace(self._setting, total_length=forward.total_length)
            forward.rotations[group] = self._formula(setting, **self._groups[group])
        return forward.rotations[group]

    def _inv_freq(self, group: int, rotation: Rotation, device: torch.device) -> torch.Tensor:
        if self._fixed is None:
            return rotation.inv_freq.to(device)
        key = (group, device)
        if key not in self._on_device:
            self._on_device[key] = rotation.inv_freq.to(device)
        return self._on_device[key]
