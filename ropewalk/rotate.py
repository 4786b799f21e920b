"""Rotating queries and keys, and the cos and sin for it: for any positions, fractional ones too.

Angles are computed in double precision. In float32 an angle of 100,000 radians is known to 0.004 only, and a rotation
that is put together from two, as that of a cached key, would drift apart from the same rotation made at once.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

Angle = Callable[[torch.Tensor], torch.Tensor]
"""From positions, float64 [...], to the positions to rotate each pair for, float64 [..., pairs] or [..., 1]."""

MARGIN = 256
KEPT_NUMBERS = 2**25

_lock = threading.Lock()


class Table(NamedTuple):
    """cos and sin, each [batch or 1, heads or 1, tokens, pairs]."""

    cos: torch.Tensor
    sin: torch.Tensor

    def where(self, chosen: torch.Tensor, other: "Table") -> "Table":
        """This table where `chosen` [heads, 1, pairs] is true, the other elsewhere."""
        return Table(torch.where(chosen, self.cos, other.cos), torch.where(chosen, self.sin, other.sin))


def rotate(x: torch.Tensor, table: Table, interleaved: bool) -> torch.Tensor:
    """x with its pairs turned, in x's dtype; arithmetic is the table's.

    Args:
        x: [batch, heads, tokens, D].
        table: J pairs, 2J ≤ D; dimensions from 2J on stay as they are.
        interleaved: pair j is the dimensions (2j, 2j + 1), as in GPT-J, else (j, j + J), as in Llama.
    """
    pairs = table.cos.shape[-1]
    if pairs == 0:
        return x
    if not interleaved and x.dtype == table.cos.dtype and not (torch.is_grad_enabled() and x.requires_grad):
        return _rotated_in_place(x, table, pairs)
    turned = x[..., : 2 * pairs].to(table.cos.dtype)
    first, second = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.split(pairs, dim=-1)
    halves = (first * table.cos - second * table.sin, second * table.cos + first * table.sin)
    turned = torch.stack(halves, dim=-1).flatten(-2) if interleaved else torch.cat(halves, dim=-1)
    turned = turned.to(x.dtype)
    return turned if 2 * pairs == x.shape[-1] else torch.cat((turned, x[..., 2 * pairs :]), dim=-1)


def _rotated_in_place(x: torch.Tensor, table: Table, pairs: int) -> torch.Tensor:
    """The same for pairs (j, j + J), written into one new tensor."""
    out = x.new_empty(x.shape)
    first, second = x[..., :pairs], x[..., pairs : 2 * pairs]
    to_first, to_second = out[..., :pairs], out[..., pairs : 2 * pairs]
    torch.mul(first, table.cos, out=to_first).addcmul_(second, table.sin, value=-1)
    torch.mul(second, table.cos, out=to_second).addcmul_(first, table.sin)
    if 2 * pairs < x.shape[-1]:
        out[..., 2 * pairs :] = x[..., 2 * pairs :]
    return out


def make_table(positions: torch.Tensor, inv_freq: torch.Tensor, attention_scaling: float, dtype: torch.dtype) -> Table:
    """cos and sin of positions, float64 [batch, tokens, pairs or 1], at frequencies float32 [pairs]."""
    angles = (positions * inv_freq.double()).unsqueeze(1)
    return Table((angles.cos() * attention_scaling).to(dtype), (angles.sin() * attention_scaling).to(dtype))


@dataclass(frozen=True, eq=False)
class Rotator:
    """What one layer rotates with: frequencies, their attention scaling, and where the tables are kept.

    Attributes:
        inv_freq: float32 [pairs] on the layer's device; layers that share it share tables.
        dtype: of the tables.
    """

    inv_freq: torch.Tensor
    attention_scaling: float
    dtype: torch.dtype
    kept: "KeptTables"

    def table(self, angle: Angle, positions: "range | torch.Tensor", scaled: bool = True) -> Table:
        """The table of a range of positions, for all rows, or of integers [batch, tokens].

        Args:
            scaled: with the attention scaling, as queries and keys are rotated first; without, to turn a key on.
        """
        scaling = self.attention_scaling if scaled else 1.0
        if isinstance(positions, range):
            return self.kept.get(self.inv_freq, angle, positions, scaling, self.dtype)
        return make_table(angle(positions.double()), self.inv_freq, scaling, self.dtype)


class KeptTables:
    """Tables of ranges of positions, kept for other layers and for the next tokens, the least recently used ones
    dropped beyond `KEPT_NUMBERS`. A table depends on nothing but its arguments, so none is ever out of date."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple, tuple[torch.Tensor, range, Table]] = OrderedDict()

    def __deepcopy__(self, memo: dict) -> "KeptTables":
        return KeptTables()

    def __reduce__(self) -> tuple[type["KeptTables"], tuple]:
        return KeptTables, ()

    def get(
        self, inv_freq: torch.Tensor, angle: Angle, positions: range, attention_scaling: float, dtype: torch.dtype
    ) -> Table:
        """The table [1, 1, tokens, pairs]; the arguments are those of `make_table`."""
        if inv_freq.numel() == 0:
            empty = torch.empty(1, 1, len(positions), 0, dtype=dtype, device=inv_freq.device)
            return Table(empty, empty)
        key = (id(inv_freq), angle, attention_scaling, dtype)
        with _lock:
            found = self._kept.get(key)
            if found is not None and found[0] is inv_freq and _within(positions, found[1]):
                self._kept.move_to_end(key)
                return _cut(found[2], positions, found[1])
        # Some tokens more than asked for, so that token-by-token decoding does not compute a table for each.
        covered = range(positions.start, positions.stop + MARGIN)
        with torch.inference_mode(False):  # a later forward may be one with gradients
            wanted = torch.arange(covered.start, covered.stop, dtype=torch.float64, device=inv_freq.device)
            table = make_table(angle(wanted)[None], inv_freq, attention_scaling, dtype)
        with _lock:
            self._kept[key] = (inv_freq, covered, table)
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and self._numbers() > KEPT_NUMBERS:
                self._kept.popitem(last=False)
        return _cut(table, positions, covered)

    def _numbers(self) -> int:
        return sum(2 * table.cos.numel() for _, _, table in self._kept.values())


def _within(inner: range, outer: range) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


def _cut(table: Table, wanted: range, covered: range) -> Table:
    begin, size = wanted.start - covered.start, len(wanted)
    return Table(table.cos.narrow(2, begin, size), table.sin.narrow(2, begin, size))
