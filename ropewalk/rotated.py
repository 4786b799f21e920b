"""Queries and keys of one layer, rotated as each region of its distance method wants them.

A cached key is stored rotated for the last region, in which nearly all keys of a long context are seen; a nearer region
turns on the keys that it sees, which are few. So decoding a token does not rotate the whole cache.
"""

from dataclasses import dataclass, replace

import torch

from ropewalk.layer import Layer, PairRegion
from ropewalk.regions import unchanged
from ropewalk.rotate import Rotator, Table, rotate

Where = range | torch.Tensor
"""Positions: a range, the same in all rows, or integers [batch, tokens]."""


@dataclass(frozen=True, eq=False)
class Keys:
    """Keys of one call.

    Attributes:
        tensor: [batch, kv heads, tokens, D], or D + 2E as `Layer.store` makes them.
        stored: whether `Layer.store` made them; else they are unrotated.
        positions: of the tokens.
    """

    tensor: torch.Tensor
    stored: bool
    positions: Where

    def cut(self, begin: int, end: int) -> "Keys":
        """The tokens from index `begin` to before `end`."""
        positions = self.positions
        positions = positions[begin:end] if isinstance(positions, range) else positions[:, begin:end]
        return replace(self, tensor=self.tensor[:, :, begin:end], positions=positions)


@dataclass(frozen=True, eq=False)
class RotatedLayer:
    """A layer with what it rotates with in one forward."""

    plan: Layer
    rotator: Rotator

    def scaled(self, q: torch.Tensor, positions: Where) -> torch.Tensor:
        """Queries [batch, heads, tokens, D] times the log-n factor of their positions."""
        if self.plan.log_length is None:
            return q
        if isinstance(positions, range):
            positions = torch.arange(positions.start, positions.stop, device=q.device)[None]
        factor = positions.clamp(min=0).double().log1p() / torch.tensor(float(self.plan.log_length)).double().log()
        dtype = torch.promote_types(q.dtype, torch.float32)
        return (q.to(dtype) * factor.clamp(min=1.0)[:, None, :, None].to(dtype)).to(q.dtype)

    def store(self, k: torch.Tensor, positions: Where) -> Keys:
        """Keys as they are cached, from unrotated ones [batch, kv heads, tokens, D].

        They are [batch, kv heads, tokens, D + 2E] with E mixed pairs of the selection.
        """
        region = self.plan.regions[-1]
        table = self.rotator.table(region.key, positions)
        if self.plan.selection is None:
            return Keys(rotate(k, table, self.plan.interleaved), True, positions)
        plain = self.rotator.table(unchanged, positions)
        stored = rotate(k, table.where(self.plan.selection.stored_far, plain), self.plan.interleaved)
        if self.plan.selection.is_mixed:
            stored = self.plan.selection.append_plain(stored, rotate(k, plain, self.plan.interleaved))
        return Keys(stored, True, positions)

    def query(self, q: torch.Tensor, region: PairRegion, positions: Where, repeat: int | None = None) -> torch.Tensor:
        """Queries [batch, heads, tokens, D] rotated for a region.

        Args:
            repeat: when q is only the query heads of this number of each key/value head.
        """
        table = self.rotator.table(region.query, positions)
        if self.plan.selects(region):
            chosen = self.plan.selection.chosen[:, None] if repeat is None else self.plan.selection.of_repeat(repeat)
            table = table.where(chosen, self.rotator.table(unchanged, positions))
        return rotate(q, table, self.plan.interleaved)

    def extended_query(self, q: torch.Tensor, region: PairRegion, positions: Where) -> torch.Tensor:
        """Queries [batch, heads, tokens, D + 2E] for stored keys of a region that `mixes`."""
        plain = rotate(q, self.rotator.table(unchanged, positions), self.plan.interleaved)
        return self.plan.selection.extend_query(self.query(q, region, positions), plain)

    def key(self, keys: Keys, region: PairRegion, repeat: int | None = None) -> torch.Tensor:
        """Keys [batch, kv heads, tokens, D] rotated for a region.

        Args:
            repeat: in a region that `mixes`, for the query heads of this number of each key/value head.
        """
        selects = self.plan.selects(region)
        if keys.stored and selects:
            return keys.tensor if repeat is None else self.plan.selection.key_of_repeat(keys.tensor, repeat)
        if not keys.stored:
            table = self.rotator.table(region.key, keys.positions)
            if selects:
                chosen = self.plan.selection.stored_far if repeat is None else self.plan.selection.of_repeat(repeat)
                table = table.where(chosen, self.rotator.table(unchanged, keys.positions))
            return rotate(keys.tensor, table, self.plan.interleaved)
        stored = keys.tensor[..., : self.plan.head_dim]
        if region.turn is None:
            return stored
        table = self.rotator.table(region.turn, keys.positions, scaled=False)
        if self.plan.selection is not None:
            still = Table(torch.ones_like(table.cos), torch.zeros_like(table.sin))
            table = table.where(self.plan.selection.stored_far, still)
        return rotate(stored, table, self.plan.interleaved)

    def stored_query_key(
        self, q: torch.Tensor, keys: Keys, region: PairRegion, positions: Where
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries [batch, heads, …] and keys [batch, kv heads, …] whose products are the scores of a region.

        One key serves all query heads that share it: in a region that `mixes` both have D + 2E dimensions.

        Args:
            keys: stored ones where the region `mixes`.
        """
        if self.plan.mixes(region):
            return self.extended_query(q, region, positions), keys.tensor
        return self.query(q, region, positions), self.key(keys, region)
