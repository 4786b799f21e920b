"""Putting together parts of a softmax that were computed apart, by the log-sum-exp of their scores."""

from copy import copy

import torch


class Merged:
    """Attention over disjoint parts of the keys, as if over all of them at once.

    Accumulates in float32 (float64 for float64 queries). A query that no part covers has the output 0.

    Args:
        like: queries [batch, heads, tokens, …], for type and device.
        value_dim: D of the output.

    Attributes:
        out: [batch, heads, tokens, D].
        lse: [batch, heads, tokens].
    """

    def __init__(self, like: torch.Tensor, value_dim: int) -> None:
        dtype = torch.promote_types(like.dtype, torch.float32)
        self.out = torch.zeros(*like.shape[:3], value_dim, dtype=dtype, device=like.device)
        self.lse = torch.full(like.shape[:3], -torch.inf, dtype=dtype, device=like.device)
        self._met = torch.zeros(like.shape[2], dtype=torch.bool)

    def of_repeat(self, repeat: int, kv_heads: int) -> "Merged":
        """The query heads of this number of each key/value head, as a view."""
        part = copy(self)
        part.out = self.out.unflatten(1, (kv_heads, -1))[:, :, repeat]
        part.lse = self.lse.unflatten(1, (kv_heads, -1))[:, :, repeat]
        part._met = self._met.clone()
        return part

    def add(self, first: int, step: int, out: torch.Tensor, lse: torch.Tensor) -> None:
        """Add parts for pieces of the queries, with at least one key for each of them.

        Args:
            first: index of the first query of the first piece.
            step: from one piece to the next, at least as much as the tokens of a piece.
            out: [pieces, batch, heads, tokens of a piece, D].
            lse: [pieces, batch, heads, tokens of a piece].
        """
        pieces, tokens = out.shape[0], out.shape[3]
        whole = self.out[:, :, first:].unfold(2, tokens, step)[:, :, :pieces].permute(2, 0, 1, 4, 3)
        total = self.lse[:, :, first:].unfold(2, tokens, step)[:, :, :pieces].permute(2, 0, 1, 3)
        met = self._met[first:].unfold(0, tokens, step)[:pieces]
        if bool(met.any()):
            together = torch.logaddexp(total, lse.to(total.dtype))
            whole.mul_((total - together).exp_()[..., None])
            whole.addcmul_(out.to(whole.dtype), (lse - together).exp_()[..., None])
            total.copy_(together)
        else:
            whole.copy_(out)
            total.copy_(lse)
        met.fill_(True)
