"""Which pairs of a query and a key belong to a region, and how they are covered by the shapes that kernels compute.

A region of the causal triangle is a band of distances, or of distances counted in chunks. Attention kernels compute
rectangles and causal squares; a band is cut into these, so that no kernel call computes a pair that is masked away
outside its own diagonal blocks, and no mask is ever made. Everything here is arithmetic on a few integers.

Queries have the consecutive positions `first_query` to `first_query + queries − 1`, and keys those from `first_key` up
to the same last position.
"""

from dataclasses import dataclass
from typing import Literal

import torch

Kind = Literal["full", "causal", "anticausal"]


@dataclass(frozen=True)
class Tile:
    """A rectangle of query and key indices.

    Attributes:
        kind: `full`, all its pairs; `causal`, a square whose row r sees the keys 0 to r of it; `anticausal`, a square
            whose row r sees the keys from r on.
    """

    kind: Kind
    query: int
    queries: int
    key: int
    keys: int


@dataclass(frozen=True)
class Band:
    """Pairs whose distance m − n is at least `low` and less than `high`; `None` is no bound."""

    low: int
    high: int | None = None

    def contains(self, m: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        """Truth values for positions that broadcast against each other."""
        distance = m - n
        inside = distance >= self.low
        return inside if self.high is None else inside & (distance < self.high)

    def tiles(self, first_query: int, queries: int, first_key: int) -> list[Tile]:
        """Tiles that cover each pair of the band exactly once."""
        past = first_query - first_key
        begin = max(0, self.low - past)  # the first query with a key in the band
        if self.high is None:
            return _triangle(begin, queries - begin, past + begin - self.low)
        width, found = self.high - self.low, []
        for row in range(begin, queries, width):
            found += _strip(row, min(width, queries - row), past + row - self.low, width)
        return found

    def span(self, first_query: int, last_query: int) -> tuple[int | None, int]:
        """Least (`None`: no bound) and greatest key position that any of the queries sees in the band."""
        return None if self.high is None else first_query - self.high + 1, last_query - self.low

    def within(self, sliding_window: int | None) -> "Band | None":
        """The part of the band at distances less than a sliding window; `None` when nothing is left."""
        if sliding_window is None or (self.high is not None and self.high <= sliding_window):
            return self
        return Band(self.low, sliding_window) if self.low < sliding_window else None


@dataclass(frozen=True)
class Chunks:
    """Pairs whose chunks ⌊m/size⌋ and ⌊n/size⌋ are at least `low` and less than `high` apart; n is at most m."""

    size: int
    low: int
    high: int | None = None

    def contains(self, m: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        """Truth values for positions that broadcast against each other."""
        apart = m.div(self.size, rounding_mode="floor") - n.div(self.size, rounding_mode="floor")
        inside = (apart >= self.low) & (m >= n)
        return inside if self.high is None else inside & (apart < self.high)

    def tiles(self, first_query: int, queries: int, first_key: int) -> list[Tile]:
        """Tiles that cover each of these pairs exactly once."""
        found, row = [], 0
        while row < queries:
            chunk = (first_query + row) // self.size
            rows = min(queries, (chunk + 1) * self.size - first_query) - row
            start = 0 if self.high is None else max(0, (chunk - self.high + 1) * self.size - first_key)
            if self.low == 0:
                diagonal = first_query + row - first_key
                found += _full(row, rows, start, diagonal - start)
                found.append(_square("causal", row, rows, diagonal))
            else:
                found += _full(row, rows, start, (chunk - self.low + 1) * self.size - first_key - start)
            row += rows
        return found

    def span(self, first_query: int, last_query: int) -> tuple[int | None, int]:
        """Least (`None`: no bound) and greatest key position that any of the queries sees in these chunks."""
        low = None if self.high is None else (first_query // self.size - self.high + 1) * self.size
        return low, last_query if self.low == 0 else (last_query // self.size - self.low + 1) * self.size - 1

    def within(self, sliding_window: int | None) -> "Chunks | None":
        """Itself; chunks and a sliding window are not combined."""
        if sliding_window is not None:
            raise ValueError("chunks cannot be cut by a sliding window")
        return self


def _full(query: int, queries: int, key: int, keys: int) -> list[Tile]:
    return [Tile("full", query, queries, key, keys)] if queries > 0 and keys > 0 else []


def _square(kind: Kind, query: int, size: int, key: int) -> Tile:
    """A square; the triangle of one row is a full tile of one key."""
    return Tile(kind if size > 1 else "full", query, size, key, size)


def _triangle(row: int, rows: int, diagonal: int) -> list[Tile]:
    """Rows that see everything up to their diagonal, which is at key `diagonal` in the first row."""
    if rows <= 0:
        return []
    if rows == 1:
        return _full(row, 1, 0, diagonal + 1)
    return [*_full(row, rows, 0, diagonal), _square("causal", row, rows, diagonal)]


def _strip(row: int, rows: int, diagonal: int, width: int) -> list[Tile]:
    """At most `width` rows that see the `width` keys up to their diagonal, as far as there are any."""
    if rows == 1:
        start = max(0, diagonal - width + 1)
        return _full(row, 1, start, diagonal + 1 - start)
    found = [_square("causal", row, rows, diagonal)]
    start = diagonal - width + 1  # of the keys before the square, those of the first row; it moves on by one a row
    if start < 0:
        whole = min(rows, 1 - start)  # rows that see every key there is
        found += _full(row, whole, 0, diagonal)
        row, rows, start = row + whole, rows - whole, 1
    rows = min(rows, diagonal - start)
    if rows > 0:
        found.append(_square("anticausal", row, rows, start))
        found += _full(row, rows, start + rows, diagonal - start - rows)
    return found
