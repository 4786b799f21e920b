"""What the layers of one forward have in common, found out once and forgotten with the forward."""

import threading
import weakref
from collections.abc import Callable, Hashable

import torch

from ropewalk.geometry import Geometry

Identity = tuple[torch.Tensor, torch.Tensor]


class Forward:
    """One forward of a model: positions and masks as read from the tensors that its layers share."""

    def __init__(self) -> None:
        self._geometries: dict[Hashable, Geometry] = {}
        self._where: range | torch.Tensor | None = None
        self._identity: Identity | None = None

    def geometry(self, key: Hashable, make: Callable[[], Geometry]) -> Geometry:
        """The geometry of a key, made when it is asked for first."""
        if key not in self._geometries:
            self._geometries[key] = make()
        return self._geometries[key]

    def where(self, position_ids: torch.Tensor, batch: int) -> range | torch.Tensor:
        """Positions of the tokens: a range when they are consecutive and the same in all rows."""
        if self._where is None:
            rows = position_ids.expand(batch, -1)
            first = int(rows[0, 0])
            wanted = torch.arange(first, first + rows.shape[1], device=rows.device)
            self._where = range(first, first + rows.shape[1]) if bool((rows == wanted).all()) else rows
        return self._where

    def identity(self, own: Identity) -> Identity:
        """cos and sin that rotate nothing, in the form of the model's own."""
        if self._identity is None:
            self._identity = torch.ones_like(own[0]), torch.zeros_like(own[1])
        return self._identity


class Forwards:
    """The forward that each thread is in, told by the model's own cos, which every forward makes anew."""

    def __init__(self) -> None:
        self._current: dict[int, tuple[weakref.ref, Forward]] = {}

    def __deepcopy__(self, memo: dict) -> "Forwards":
        return Forwards()

    def of(self, own_cos: torch.Tensor) -> Forward:
        """The forward of this thread that this cos belongs to."""
        thread = threading.get_ident()
        known = self._current.get(thread)
        if known is None or known[0]() is not own_cos:
            known = self._current[thread] = (weakref.ref(own_cos, lambda dead: self._end(thread, dead)), Forward())
        return known[1]

    def _end(self, thread: int, own_cos: weakref.ref) -> None:
        known = self._current.get(thread)
        if known is not None and known[0] is own_cos:
            del self._current[thread]
