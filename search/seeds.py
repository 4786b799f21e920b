"""Every random stream of a campaign has its own seed, derived from the campaign's and from what it is for."""

import hashlib


def derive(seed: int, *purpose: str) -> int:
    """A seed in [0, 2**63) for one purpose; different purposes give unrelated streams."""
    digest = hashlib.sha256("/".join([str(seed), *purpose]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
