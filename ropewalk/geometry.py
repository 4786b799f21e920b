"""Where the queries and keys of one attention call stand: their positions, and which keys there are to see.

Positions are what the model says (`position_ids`), not indices, so left padding, repeated positions and a context that
begins anywhere come out right. A cache does not say the positions of its keys. They follow from the mask and from the
tokens at hand: keys lie one position apart, and the last one just before the first token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from ropewalk.errors import PatchError


@dataclass(frozen=True)
class Run:
    """Batch rows in which all that is not padding lies in one piece, at consecutive positions.

    Attributes:
        rows: indices in the batch.
        start, stop: indices of the first key and behind the last one.
        query: index, among the keys, of the first query that is not padding; the last one is the last key.
        offset: position − index.
    """

    rows: tuple[int, ...]
    start: int
    query: int
    stop: int
    offset: int

    @property
    def queries(self) -> range:
        """Positions of the queries."""
        return range(self.query + self.offset, self.stop + self.offset)

    @property
    def keys(self) -> range:
        """Positions of the keys."""
        return range(self.start + self.offset, self.stop + self.offset)


@dataclass(frozen=True, eq=False)
class Geometry:
    """Queries and keys of one call.

    Attributes:
        query: positions, integers [batch, queries].
        keys: how many.
        first: index of the first query among the keys.
        valid: false for keys that are padding or not there yet, [batch, keys]; `None` when all are valid.
        mask: which key each query may see besides, [batch or 1, queries, keys]; `None` is every earlier one.
        runs: the batch in runs, or `None` when some row is not one.
        before: position − index of the rows, on which the positions of keys before the first query rest.
        after: position − index of the rows' last tokens.
    """

    query: torch.Tensor
    keys: int
    first: int
    valid: torch.Tensor | None
    mask: torch.Tensor | None
    runs: tuple[Run, ...] | None
    before: frozenset[int]
    after: frozenset[int]

    @cached_property
    def key(self) -> torch.Tensor:
        """Positions of the keys, integers [batch, keys].

        Raises:
            PatchError: those of cached keys do not follow.
        """
        return _key_positions(self.query, self.keys, self.first, self.valid, self.runs)


def make_geometry(position_ids: torch.Tensor, batch: int, keys: int, first: int, mask: torch.Tensor | None) -> Geometry:
    """Find out positions and runs.

    Args:
        position_ids: integers [batch or 1, queries].
        batch: rows.
        keys: how many there are, unused places of a static cache included.
        first: index of the first query among them.
        mask: `None`, truth values [batch, keys] that are false at padding, or [batch or 1, 1, queries, keys], which
            may also be numbers to add.

    Raises:
        PatchError: the positions of cached keys do not follow, or queries may see later keys.
    """
    query = position_ids.expand(batch, -1)
    queries = query.shape[1]
    last = first + queries
    explicit = _explicit(mask) if mask is not None and mask.ndim == 4 else None
    valid = None
    if mask is not None and explicit is None:
        valid = mask[:, :keys].bool()
        if valid.shape[1] != keys:
            raise PatchError(f"the mask is for {valid.shape[1]} keys, there are {keys}")
    if last < keys:
        written = torch.arange(keys, device=query.device) < last
        valid = written.expand(batch, -1) if valid is None else valid & written
    if explicit is not None:
        return _of_explicit(query, keys, first, valid, explicit)
    runs = _runs(query, valid, first, last)
    if runs is None:
        found = Geometry(query, keys, first, valid, None, None, frozenset(), frozenset())
        # What a hole in the mask does to later positions is in the mask, so nothing rests on earlier calls.
        return replace(found, after=frozenset((found.key[:, last - 1] - (last - 1)).tolist()))
    before = frozenset(run.offset for run in runs if run.start < first)
    return Geometry(query, keys, first, valid, None, runs, before, frozenset(run.offset for run in runs))


def _of_explicit(
    query: torch.Tensor, keys: int, first: int, valid: torch.Tensor | None, mask: torch.Tensor
) -> Geometry:
    """Of a mask [batch or 1, queries, keys]."""
    offsets = frozenset((query[:, 0] - first).tolist())
    found = Geometry(
        query, keys, first, valid, mask if valid is None else mask & valid[:, None], None, offsets, offsets
    )
    if bool((found.mask & (found.key[:, None] > query[:, :, None])).any()):
        raise PatchError("a mask lets queries see later keys; distance methods are for causal attention")
    return found


def _explicit(mask: torch.Tensor) -> torch.Tensor:
    if mask.shape[1] != 1:
        raise PatchError(f"a mask for each of {mask.shape[1]} heads; distance methods take one mask for all heads")
    return mask[:, 0] if mask.dtype == torch.bool else mask[:, 0] > torch.finfo(mask.dtype).min / 2


def _runs(query: torch.Tensor, valid: torch.Tensor | None, first: int, last: int) -> tuple[Run, ...] | None:
    if valid is None:
        if query.shape[1] > 1 and not bool((query[:, 1:] - query[:, :-1] == 1).all()):
            return None
        return _grouped([(0, first, last, position - first) for position in query[:, 0].tolist()])
    counts = valid.sum(dim=1).tolist()
    at_hand = valid[:, first:last].any(dim=1).tolist()
    starts = valid.int().argmax(dim=1).tolist()
    found: list[tuple[int, int, int, int] | None] = []
    for row, (count, start) in enumerate(zip(counts, starts, strict=True)):
        stop = start + count
        begin = max(first, start)
        if not at_hand[row]:
            found.append(None)
            continue
        if not bool(valid[row, start:stop].all()):
            return None
        positions = query[row, begin - first : stop - first]
        if len(positions) > 1 and not bool((positions[1:] - positions[:-1] == 1).all()):
            return None
        found.append((start, begin, stop, int(positions[0]) - begin))
    return _grouped(found)


def _grouped(found: Sequence[tuple[int, int, int, int] | None]) -> tuple[Run, ...]:
    together: dict[tuple[int, int, int, int], list[int]] = {}
    for row, item in enumerate(found):
        if item is not None:
            together.setdefault(item, []).append(row)
    return tuple(Run(tuple(rows), *item) for item, rows in together.items())


def _key_positions(
    query: torch.Tensor, keys: int, first: int, valid: torch.Tensor | None, runs: tuple[Run, ...] | None
) -> torch.Tensor:
    """Integers [batch, keys]."""
    batch, queries = query.shape
    index = torch.arange(keys, device=query.device)
    if runs is not None:
        offsets = torch.zeros(batch, dtype=torch.long)
        for run in runs:
            offsets[list(run.rows)] = run.offset
        return index + offsets.to(query.device)[:, None]
    key = torch.empty(batch, keys, dtype=query.dtype, device=query.device)
    key[:, first : first + queries] = query
    key[:, first + queries :] = index[first + queries :] - first + query[:, :1]
    if first == 0:
        return key
    if valid is None:
        key[:, :first] = index[:first] - first + query[:, :1]
        return key
    # Rows with padding between: positions either count all places or only those that are not padding.
    counted = valid.cumsum(dim=1)
    for row in range(batch):
        at = int(valid[row, first : first + queries].int().argmax())
        begin, place = int(query[row, at]), first + at
        by_index, by_count = begin - place, begin - int(counted[row, place])
        if by_index == 0:
            key[row, :first] = index[:first]
        elif by_count == -1:
            key[row, :first] = counted[row, :first] - 1
        elif int(valid[row, :place].sum()) == place - int(valid[row].int().argmax()):
            key[row, :first] = index[:first] + by_index
        else:
            raise PatchError(
                f"the position {begin} of the first token of row {row} is neither its place {place} nor the number "
                f"{int(counted[row, place]) - 1} of tokens before it; the positions of the cached keys do not follow"
            )
    return key
