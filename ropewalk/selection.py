"""Which dimension pairs of each head take the far distances of DPE, and how one stored key serves heads that differ.

Query heads of one key/value head may choose different pairs. A pair that all of them choose, or none, is stored once,
rotated as they need it. A pair that some choose and some do not is *mixed*: it is stored rotated for far distances in
its place, and once more, rotated for the plain distance, behind the D dimensions of the key. So keys are never expanded
to all query heads; a key grows by two dimensions for each mixed pair.
"""

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, eq=False)
class Selection:
    """The choice of one layer.

    Attributes:
        chosen: truth values [query heads, pairs].
        kv_heads: key/value heads; query heads h·n to h·n + n − 1 share key/value head h.
        interleaved: how pairs lie in a head.
        stored_far: pairs whose stored keys are rotated for far distances, [kv heads, 1, pairs].
        mixed: indices of the mixed pairs, [kv heads, E]; where a head has fewer than E, others, of no effect, fill up.
        mixed_dims: their dimensions in a head, [kv heads, 2E]: all first ones, then all second ones.
    """

    chosen: torch.Tensor
    kv_heads: int
    interleaved: bool
    stored_far: torch.Tensor = field(init=False)
    mixed: torch.Tensor = field(init=False)
    mixed_dims: torch.Tensor = field(init=False)
    _is_mixed: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        with torch.inference_mode(False):  # a later forward may be one with gradients
            far = self._shared.any(dim=1)
            is_mixed = far & ~self._shared.all(dim=1)
            width = int(is_mixed.sum(dim=1).max())
            mixed = is_mixed.int().argsort(dim=1, descending=True, stable=True)[:, :width]
            dims = (2 * mixed, 2 * mixed + 1) if self.interleaved else (mixed, mixed + self.chosen.shape[1])
            object.__setattr__(self, "stored_far", far[:, None])
            object.__setattr__(self, "mixed", mixed)
            object.__setattr__(self, "mixed_dims", torch.cat(dims, dim=1))
            object.__setattr__(self, "_is_mixed", is_mixed)

    @property
    def repeats(self) -> int:
        """Query heads that share a key/value head."""
        return self.chosen.shape[0] // self.kv_heads

    @property
    def is_mixed(self) -> bool:
        """Whether some pair is chosen by some but not all query heads of a key/value head."""
        return self.mixed.shape[1] > 0

    @property
    def _shared(self) -> torch.Tensor:
        return self.chosen.view(self.kv_heads, self.repeats, -1)

    def to(self, device: torch.device) -> "Selection":
        """The same on another device."""
        with torch.inference_mode(False):
            return Selection(self.chosen.to(device), self.kv_heads, self.interleaved)

    def of_repeat(self, repeat: int) -> torch.Tensor:
        """Choice of the query heads number `repeat` of each key/value head, [kv heads, 1, pairs]."""
        return self._shared[:, repeat, None]

    def append_plain(self, far: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
        """Keys [..., kv heads, tokens, D + 2E]: `far`, and of `plain` the mixed pairs."""
        return torch.cat((far, self._take(plain)), dim=-1)

    def key_of_repeat(self, stored: torch.Tensor, repeat: int) -> torch.Tensor:
        """Keys [..., kv heads, tokens, D] as the query heads number `repeat` need them for far distances."""
        head_dim = stored.shape[-1] - 2 * self.mixed.shape[1]
        # Put the plain version in its place where this head did not choose the pair.
        index = torch.arange(head_dim, device=stored.device).repeat(self.kv_heads, 1)
        plain = ~self.of_repeat(repeat)[:, 0].gather(1, self.mixed) & self._is_mixed.gather(1, self.mixed)
        behind = torch.arange(head_dim, stored.shape[-1], device=stored.device).expand(self.kv_heads, -1)
        put = torch.cat((plain, plain), dim=1)
        index.scatter_(1, self.mixed_dims, torch.where(put, behind, self.mixed_dims))
        index = index[:, None].expand(*stored.shape[:-1], head_dim)
        return stored.gather(-1, index)

    def extend_query(self, far: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
        """Queries [batch, heads, tokens, D + 2E] whose product with stored keys is the score at far distances.

        A head meets each mixed pair in one of the two places, and has 0 in the other.

        Args:
            far: queries rotated for far distances in the chosen pairs and plainly in the others, [batch, heads, …, D].
            plain: queries rotated plainly, of the same shape.
        """
        dims = self.mixed_dims.repeat_interleave(self.repeats, dim=0)
        mixed = self.mixed.repeat_interleave(self.repeats, dim=0)
        real = self._is_mixed.repeat_interleave(self.repeats, dim=0).gather(1, mixed)
        behind = (~self.chosen).gather(1, mixed) & real
        behind = torch.cat((behind, behind), dim=1)
        index = dims[:, None].expand(*plain.shape[:-1], -1)
        extra = plain.gather(-1, index) * behind[:, None]
        keep = torch.ones(dims.shape[0], far.shape[-1], dtype=far.dtype, device=far.device)
        keep.scatter_(1, dims, (~behind).to(far.dtype))
        return torch.cat((far * keep[:, None], extra), dim=-1)

    def _take(self, plain: torch.Tensor) -> torch.Tensor:
        index = self.mixed_dims[:, None].expand(*plain.shape[:-1], -1)
        return plain.gather(-1, index)
