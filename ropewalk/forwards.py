"""What the layers of one forward have in common, found out once and forgotten with the forward."""

import weakref
from collections.abc import Callable, Hashable

import torch

from ropewalk.geometry import Geometry

Identity = tuple[torch.Tensor, torch.Tensor]


class Forward:
    """One forward of a model: positions and masks as read from the tensors that its layers share."""

    def __init__(self) -> None:
        self._geometries: dict[Hashable, tuple[torch.Tensor | None, Geometry]] = {}
        self._where: range | torch.Tensor | None = None
        self._identity: Identity | None = None

    def geometry(self, sizes: Hashable, mask: torch.Tensor | None, make: Callable[[], Geometry]) -> Geometry:
        """The geometry of these sizes and this mask, made when it is asked for first."""
        key = (sizes, id(mask))
        if key not in self._geometries:
            self._geometries[key] = (mask, make())  # the mask lives on, so that no other gets its id
        return self._geometries[key][1]

    def where(self, position_ids: torch.Tensor, batch: int) -> range | torch.Tensor:
        """Positions of the tokens: a range when they are consecutive and the same in all rows."""
        if self._where is None:
            rows = position_ids.expand(batch, -1)
            first = int(rows[0, 0])
            if rows.shape == (1, 1):
                self._where = range(first, first + 1)
                return self._where
            wanted = torch.arange(first, first + rows.shape[1], device=rows.device)
            self._where = range(first, first + rows.shape[1]) if bool((rows == wanted).all()) else rows
        return self._where

    def identity(self, own: Identity) -> Identity:
        """cos and sin that rotate nothing, in the form of the model's own."""
        if self._identity is None:
            self._identity = torch.ones_like(own[0]), torch.zeros_like(own[1])
        return self._identity


class Forwards:
    """The forwards in progress, each known by a cos that the model made for it, a new tensor every time.

    So forwards of several threads on one model do not meet.
    """

    def __init__(self) -> None:
        self._current: dict[int, tuple[weakref.ref, Forward]] = {}

    def __deepcopy__(self, memo: dict) -> "Forwards":
        return Forwards()

    def __reduce__(self) -> tuple[type["Forwards"], tuple]:
        return Forwards, ()

    def of(self, own_cos: torch.Tensor) -> Forward:
        """The forward that a cos belongs to."""
        key, current = id(own_cos), self._current
        known = current.get(key)
        if known is None or known[0]() is not own_cos:

            def end(dead: weakref.ref) -> None:
                """The forward is over, completed or not."""
                if key in current and current[key][0] is dead:
                    del current[key]

            known = current[key] = (weakref.ref(own_cos, end), Forward())
        return known[1]
