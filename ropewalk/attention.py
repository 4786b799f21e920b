"""Attention under a distance method: one call of one layer, from unrotated queries to the output."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ropewalk.dense import attend_dense
from ropewalk.errors import PatchError
from ropewalk.forwards import Forward
from ropewalk.geometry import Geometry, make_geometry
from ropewalk.kernels import Kernel, Request, Scores, choose
from ropewalk.rotated import Keys, RotatedLayer, Where
from ropewalk.single import attend_single
from ropewalk.tiled import Tiled

FEW_QUERIES = 16
"""Up to so many queries, making a version of all keys for each query head costs more than explicit scores."""


@dataclass(eq=False)
class Call:
    """What the attention of one layer has to know in one forward.

    Attributes:
        layer: how it attends, and what it rotates with.
        position_ids: integers [batch or 1, tokens].
        forward: keeps what all layers of the forward have in common.
        backend: of `ropewalk.kernels`.
        past: tokens that the cache of the layer held before; `None` without a cache.
        offsets: position − index of the tokens of that cache, as far as met.
    """

    layer: RotatedLayer
    position_ids: torch.Tensor
    forward: Forward
    backend: str
    past: int | None = None
    offsets: set[int] = field(default_factory=set)

    def store(self, k: torch.Tensor, past: int, offsets: set[int]) -> torch.Tensor:
        """New keys as they are cached, behind `past` others."""
        self.past, self.offsets = past, offsets
        return self.layer.store(k, self.forward.where(self.position_ids, k.shape[0])).tensor

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None,
        scores: Scores,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Output [batch, heads, tokens, D] in q's dtype.

        Args:
            q: unrotated queries [batch, heads, tokens, D].
            k: keys [batch, kv heads, keys, D]; stored ones when there is a cache.
            v: values [batch, kv heads, keys, D].
            mask: as `ropewalk.geometry.make_geometry` takes it.
            scores: what is done to scores.
            sinks: a score for each query head, [heads], that takes weight and has no value.
        """
        batch, _, tokens, _ = q.shape
        count = k.shape[2]
        if self.past is None and count != tokens:
            raise PatchError(
                f"{tokens} queries meet {count} keys, of which some did not come from a Cache of transformers; "
                "distance methods take no other cache, since cached keys are stored rotated"
            )
        first = 0 if self.past is None else min(self.past, count - tokens)
        geometry = self.forward.geometry(
            (count, first, batch), mask, lambda: make_geometry(self.position_ids, batch, count, first, mask)
        )
        if self.past is not None:
            self._check_offsets(geometry, self.past - first)
        kernel = self._kernel(q, v, scores.softcap)
        single = tokens == 1 and self.past is not None and (kernel is None or self._mixes or self._small(q))
        dense = kernel is None or (self._mixes and tokens <= FEW_QUERIES)
        if geometry.runs is None or (dense and not single):
            queries, positions = _wheres(geometry, batch, tokens)
            keys = Keys(k, self.past is not None, positions)
            out, lse = attend_dense(self.layer, scores, geometry, q, keys, v, queries)
            return _with_sinks(out, lse, sinks).to(q.dtype)
        whole = None
        for run in geometry.runs:
            rows, begin, end = _rows(run.rows, batch), run.query - first, run.stop - first
            keys = Keys(k[rows, :, run.start : run.stop], self.past is not None, run.keys)
            given = (q[rows, :, begin:end], keys, v[rows, :, run.start : run.stop], run.queries)
            if single:
                part = attend_single(self.layer, scores, *given, sinks)
            else:
                part = _with_sinks(*Tiled(self.layer, scores, kernel).attend(*given), sinks)
            if part.shape[0] == batch and end - begin == tokens:
                return part.to(q.dtype)
            if whole is None:  # what is padding stays 0
                whole = q.new_zeros(*q.shape[:3], v.shape[-1])
            whole[rows, :, begin:end] = part.to(q.dtype)
        return q.new_zeros(*q.shape[:3], v.shape[-1]) if whole is None else whole

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

    def _small(self, q: torch.Tensor) -> bool:
        """Whether explicit scores of one token are the faster way."""
        return self.backend == "auto" and q.device.type == "cpu"

    @property
    def _mixes(self) -> bool:
        return self.layer.plan.mixes(self.layer.plan.regions[-1])

    def _kernel(self, q: torch.Tensor, v: torch.Tensor, softcap: float | None) -> Kernel | None:
        if torch.is_grad_enabled() and (q.requires_grad or v.requires_grad):
            return None
        return choose(self.backend, Request(q.device.type, q.dtype, self.layer.plan.head_dim, v.shape[-1], softcap))


def _with_sinks(out: torch.Tensor, lse: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """The output when scores [heads] without a value took part in the softmax."""
    return out if sinks is None else out * torch.sigmoid(lse - sinks.to(lse.dtype)[:, None])[..., None]


def _rows(rows: Sequence[int], batch: int) -> slice | list[int]:
    """A slice, which copies nothing, where the rows lie side by side."""
    if list(rows) == list(range(rows[0], rows[-1] + 1)):
        return slice(rows[0], rows[-1] + 1)
    return list(rows)


def _wheres(geometry: Geometry, batch: int, tokens: int) -> tuple[Where, Where]:
    """Positions of queries and keys: ranges where all rows have the same."""
    if geometry.runs is not None and len(geometry.runs) == 1 and len(geometry.runs[0].rows) == batch:
        offset, first = geometry.runs[0].offset, geometry.first
        return range(offset + first, offset + first + tokens), range(offset, offset + geometry.keys)
    return geometry.query, geometry.key
