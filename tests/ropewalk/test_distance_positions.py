"""The regions of each method are the definition: every visible pair is in one, at its effective distance."""

import random

import pytest
import torch

from ropewalk import Distance
from ropewalk.regions import METHODS
from tests.ropewalk.literal import relative

LENGTH = 70


def drawn(method, seed):
    """Random fields of a method: windows of one token up to all of them, factors that divide nothing."""
    rng = random.Random(f"{method} {seed}")
    window = rng.choice([1, 2, rng.randint(3, LENGTH), LENGTH])
    return {"method": method} | {
        "none": {},
        "rerope": {"window": window},
        "leaky_rerope": {"window": window, "slope": rng.choice([1.0, 2.0, rng.uniform(1, 40)])},
        "self_extend": {"window": window, "group_size": rng.choice([1, 2, rng.randint(3, 90)])},
        "dca": {"chunk_size": window + 1, "local_size": rng.randint(1, window)},
        "dpe": {"window": window, "scale_factors": [1.0, rng.uniform(1, 40), float(rng.randint(2, 90))]},
    }[method]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("first", [0, 130_001])
def test_regions_partition_the_visible_pairs_at_the_defined_distances(method, seed, first):
    fields = drawn(method, seed)
    positions = torch.arange(first, first + LENGTH, dtype=torch.float64)
    if first:  # far keys as well
        positions[: LENGTH // 2] -= torch.arange(LENGTH // 2, 0, -1) * 3001.0
    m, n = positions[:, None], positions[None, :]
    scales = fields.get("scale_factors", [None])
    found = torch.zeros(LENGTH, LENGTH, dtype=torch.int64)
    distances = torch.zeros(LENGTH, LENGTH, len(scales), dtype=torch.float64)
    for region in METHODS[method](Distance.from_dict(fields)):
        inside = region.pairs.contains(m, n)
        found += inside
        effective = (region.query(positions)[:, None] - region.key(positions)[None, :]).expand(-1, -1, len(scales))
        distances = torch.where(inside[..., None], effective, distances)
    visible = n <= m
    assert torch.equal(found, visible.long())
    expected = [
        [relative(fields, int(a), int(b), scale) for scale in scales]
        for a in positions.tolist()
        for b in positions.tolist()
        if b <= a
    ]
    torch.testing.assert_close(distances[visible], torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-9)
