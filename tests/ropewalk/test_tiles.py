"""Tiles cover each pair of a band or of chunks exactly once, and never one pair more."""

import random

import pytest
import torch

from ropewalk.tiles import Band, Chunks, Tile


def covered(tiles: list[Tile], queries: int, keys: int) -> torch.Tensor:
    """How often each pair is computed, [queries, keys], counted from what the kinds of tiles mean."""
    counts = torch.zeros(queries, keys, dtype=torch.int64)
    for tile in tiles:
        assert tile.query >= 0 and tile.query + tile.queries <= queries
        assert tile.key >= 0 and tile.key + tile.keys <= keys
        assert tile.queries > 0 and tile.keys > 0
        assert tile.kind == "full" or (tile.queries == tile.keys and tile.queries > 1)
        for row in range(tile.queries):
            first, last = {"full": (0, tile.keys), "causal": (0, row + 1), "anticausal": (row, tile.keys)}[tile.kind]
            counts[tile.query + row, tile.key + first : tile.key + last] += 1
    return counts


def random_pairs(chance: random.Random) -> Band | Chunks:
    low = chance.choice([0, 0, 1, 2, 5, 16])
    high = chance.choice([None, low + 1, low + 2, low + 7, low + 30])
    if chance.random() < 0.5:
        return Band(low, high)
    low = chance.choice([0, 1, 2, 3])
    return Chunks(chance.choice([1, 2, 3, 8, 20]), low, chance.choice([None, low + 1, low + 2]))


@pytest.mark.parametrize("seed", range(8))
def test_each_pair_is_covered_exactly_once(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        pairs = random_pairs(chance)
        first_key, past, queries = chance.randint(0, 40), chance.randint(0, 40), chance.randint(1, 40)
        first_query = first_key + past
        m = torch.arange(first_query, first_query + queries)[:, None]
        n = torch.arange(first_key, first_query + queries)[None, :]
        counts = covered(pairs.tiles(first_query, queries, first_key), queries, past + queries)
        assert torch.equal(counts, pairs.contains(m, n).long()), (pairs, first_query, queries, first_key)


@pytest.mark.parametrize("seed", range(4))
def test_span_holds_every_pair(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        pairs = random_pairs(chance)
        first, last = sorted((chance.randint(0, 90), chance.randint(0, 90)))
        low, high = pairs.span(first, last)
        m, n = torch.arange(first, last + 1)[:, None], torch.arange(0, 120)[None, :]
        seen = n.expand(last + 1 - first, -1)[pairs.contains(m, n)]
        if len(seen):
            assert (low is None or int(seen.min()) >= low) and int(seen.max()) <= high


@pytest.mark.parametrize(
    ("band", "window", "expected"),
    [
        (Band(0, 8), None, Band(0, 8)),
        (Band(0, 8), 8, Band(0, 8)),
        (Band(0, 8), 5, Band(0, 5)),
        (Band(8), 20, Band(8, 20)),
        (Band(8), 8, None),
        (Band(8), 3, None),
    ],
)
def test_a_sliding_window_cuts_a_band(band: Band, window: int | None, expected: Band | None) -> None:
    assert band.within(window) == expected


def test_chunks_refuse_a_sliding_window() -> None:
    assert Chunks(8, 0).within(None) == Chunks(8, 0)
    with pytest.raises(ValueError, match="sliding window"):
        Chunks(8, 0).within(64)
