"""Attention under a distance method: one call of one layer, from unrotated queries to the output."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ropewalk.dense import attend_dense
from ropewalk.errors import PatchError
from ropewalk.forwards import Forward
from ropewalk.geometry import Geometry, Run, make_geometry
from ropewalk.kernels import Kernel, Request, choose
from ropewalk.layer import Keys, Layer, Where
from ropewalk.rotate import Rotator
from ropewalk.tiled import attend_tiled

FEW_QUERIES = 16
"""Up to so many queries, making a version of all keys for each query head costs more than explicit scores."""


@dataclass(eq=False)
class Call:
    """What the attention of one layer has to know in one forward.

    Attributes:
        layer: how it attends.
        rotator: what it rotates with.
        position_ids: integers [batch or 1, tokens].
        forward: keeps what all layers of the forward have in common.
        backend: of `ropewalk.kernels`.
        past: tokens that the cache of the layer held before; `None` without a cache.
        offsets: position − index of the tokens of that cache, as far as met.
    """

    layer: Layer
    rotator: Rotator
    position_ids: torch.Tensor
    forward: Forward
    backend: str
    past: int | None = None
    offsets: set[int] = field(default_factory=set)

    def store(self, k: torch.Tensor, past: int, offsets: set[int]) -> torch.Tensor:
        """New keys as they are cached, behind `past` others."""
        self.past, self.offsets = past, offsets
        return self.layer.store(k, self.forward.where(self.position_ids, k.shape[0]), self.rotator).tensor

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None,
        scale: float,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Output [batch, heads, tokens, D] in q's dtype.

        Args:
            q: unrotated queries [batch, heads, tokens, D].
            k: keys [batch, kv heads, keys, D]; stored ones when there is a cache.
            v: values [batch, kv heads, keys, D].
            mask: as `ropewalk.geometry.make_geometry` takes it.
            softcap: c: scores s become c·tanh(s/c).
            sinks: a score for each query head, [heads], that takes weight and has no value.
        """
        batch, _, tokens, _ = q.shape
        count = k.shape[2]
        first = 0 if self.past is None else min(self.past, count - tokens)
        geometry = self.forward.geometry(
            (count, first, batch, id(mask)), lambda: make_geometry(self.position_ids, batch, count, first, mask)
        )
        if self.past is not None:
            self._check_offsets(geometry, self.past - first)
        kernel = self._kernel(q, v, softcap)
        if kernel is None or geometry.runs is None or (tokens <= FEW_QUERIES and self._mixes):
            queries, positions = _wheres(geometry, batch, tokens)
            keys = Keys(k, self.past is not None, positions)
            out, lse = attend_dense(self.layer, self.rotator, q, keys, v, queries, geometry, scale, softcap)
        else:
            out, lse = self._by_runs(q, k, v, geometry, geometry.runs, scale, softcap, kernel)
        if sinks is not None:
            out = out * torch.sigmoid(lse - sinks.to(lse.dtype)[:, None])[..., None]
        return out.to(q.dtype)

    def _check_offsets(self, geometry: Geometry, dropped: int) -> None:
        """The positions of cached keys follow from those of new tokens only where no position was left out between.

        Args:
            dropped: how many keys a sliding cache no longer has.
        """
        before = {offset - dropped for offset in geometry.before}
        if self.past and not before <= self.offsets:
            jump = sorted(before - self.offsets)[0]
            raise PatchError(
                f"the positions of new tokens lie {jump} beyond their place in the cache, those of the cached tokens "
                f"{', '.join(map(str, sorted(self.offsets)))}: positions jump between calls over one KV cache, and the "
                "positions of the cached keys do not follow; run such tokens in one call"
            )
        if not self.past:
            self.offsets.clear()
        self.offsets |= {offset - dropped for offset in geometry.after}

    @property
    def _mixes(self) -> bool:
        return self.layer.mixes(self.layer.regions[-1])

    def _kernel(self, q: torch.Tensor, v: torch.Tensor, softcap: float | None) -> Kernel | None:
        if torch.is_grad_enabled() and (q.requires_grad or v.requires_grad):
            return None
        return choose(self.backend, Request(q.device.type, q.dtype, self.layer.head_dim, v.shape[-1], softcap))

    def _by_runs(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        geometry: Geometry,
        runs: Sequence[Run],
        scale: float,
        softcap: float | None,
        kernel: Kernel,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        batch, heads, tokens, _ = q.shape
        stored = self.past is not None
        whole: list[torch.Tensor] = []
        for run in runs:
            rows = _rows(run.rows, batch)
            begin, end = run.query - geometry.first, run.stop - geometry.first
            keys = Keys(k[rows, :, run.start : run.stop], stored, run.keys)
            values = v[rows, :, run.start : run.stop]
            part = attend_tiled(
                self.layer,
                self.rotator,
                q[rows, :, begin:end],
                keys,
                values,
                run.queries,
                scale,
                softcap,
                kernel,
            )
            if len(run.rows) == batch and end - begin == tokens:
                return part
            if not whole:
                out, lse = part
                whole = [
                    out.new_zeros(batch, heads, tokens, out.shape[-1]),
                    lse.new_full((batch, heads, tokens), -torch.inf),
                ]
            for all_rows, of_run in zip(whole, part, strict=True):
                all_rows[rows, :, begin:end] = of_run
        if not whole:  # nothing but padding
            return q.new_zeros(batch, heads, tokens, v.shape[-1]), q.new_full((batch, heads, tokens), -torch.inf)
        return whole[0], whole[1]


def _rows(rows: Sequence[int], batch: int) -> slice | list[int]:
    """A slice, which copies nothing, where the rows lie side by side."""
    if list(rows) == list(range(rows[0], rows[-1] + 1)):
        return slice(rows[0], rows[-1] + 1)
    return list(rows)


def _wheres(geometry: Geometry, batch: int, tokens: int) -> tuple[Where, Where]:
    """Positions of queries and keys: ranges where all rows have the same."""
    if geometry.runs is not None and len(geometry.runs) == 1 and len(geometry.runs[0].rows) == batch:
        offset, first = geometry.runs[0].offset, geometry.first
        return range(offset + first, offset + first + tokens), range(offset, offset + geometry.key.shape[1])
    return geometry.query, geometry.key
