"""Attention of a full or causal block together with the log-sum-exp of its scores, by one of several kernels.

The log-sum-exp is what lets parts of a softmax be computed apart and put together (`ropewalk.merge`). PyTorch's
`scaled_dot_product_attention` does not return it, the operators below it do.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch

from ropewalk.errors import ProfileError, nearest

BACKENDS = ("auto", "sdpa", "flash_attn", "flex", "math")
HALF = (torch.float16, torch.bfloat16)

Kernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float, bool, float | None], tuple]


@dataclass(frozen=True)
class Scores:
    """What becomes of a product of query and key: times `scale`, then, with a soft cap c, c·tanh(score/c)."""

    scale: float
    softcap: float | None = None


@dataclass(frozen=True)
class Request:
    """What a kernel would be asked for."""

    device: str
    dtype: torch.dtype
    key_dim: int
    value_dim: int
    softcap: float | None


def choose(backend: str, request: Request) -> Kernel | None:
    """The kernel of a backend, `None` for scores computed explicitly (math).

    Raises:
        ProfileError: the backend is named and cannot do it.
    """
    if backend == "math":
        return None
    if backend != "auto":
        problem = _PROBLEMS[backend](request)
        if problem is not None:
            raise ProfileError("backend", backend, problem)
        return _KERNELS[backend]
    for name in ("flash_attn", "sdpa"):
        if _PROBLEMS[name](request) is None:
            return _KERNELS[name]
    return None


def check_backend(backend: Any) -> None:
    """Raise `ProfileError` for a backend that does not exist or is not installed."""
    if backend not in BACKENDS:
        raise ProfileError("backend", backend, f"one of {nearest(str(backend), BACKENDS)}")
    if backend == "flash_attn" and not _has_flash_attn():
        raise ProfileError("backend", backend, "an installed package flash-attn")


@cache
def _has_flash_attn() -> bool:
    return importlib.util.find_spec("flash_attn") is not None


def _sdpa_problem(request: Request) -> str | None:
    if request.softcap is not None:
        return "a model without a soft cap on its scores"
    if request.device not in ("cpu", "cuda"):
        return f"a model on CPU or CUDA, not {request.device}"
    if request.key_dim != request.value_dim:
        return f"keys and values of one size, not {request.key_dim} and {request.value_dim}"
    if request.device == "cuda" and request.dtype in HALF and (request.key_dim > 256 or request.key_dim % 8):
        return f"at most 256 dimensions per head, a multiple of 8, not {request.key_dim}"
    if request.device == "cuda" and request.dtype == torch.float64:
        return "float32, float16 or bfloat16 on CUDA"
    return None


def _flash_attn_problem(request: Request) -> str | None:
    if not _has_flash_attn():
        return "an installed package flash-attn"
    if request.device != "cuda" or request.dtype not in HALF:
        return f"float16 or bfloat16 on CUDA, not {request.dtype} on {request.device}"
    if request.key_dim != request.value_dim or request.key_dim > 256 or request.key_dim % 8:
        return f"at most 256 dimensions per head, a multiple of 8, not {request.key_dim}"
    return None


def _flex_problem(request: Request) -> str | None:
    if request.device != "cuda":
        return f"a model on CUDA; PyTorch's flex_attention gives no log-sum-exp on {request.device}"
    if request.dtype == torch.float64:
        return "float32, float16 or bfloat16"
    return None


def _sdpa(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool, softcap: float | None
) -> tuple:
    aten = torch.ops.aten
    if q.device.type == "cpu":
        return aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)
    if q.dtype in HALF:
        return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)[:2]
    # The memory-efficient kernel takes no fewer key heads than query heads: one call for each that share a key head.
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
    repeats = q.shape[1] // k.shape[1]
    for repeat in range(repeats):
        part, part_lse, *_ = aten._scaled_dot_product_efficient_attention(
            q[:, repeat::repeats], k, v, None, True, 0.0, causal, scale=scale
        )
        out[:, repeat::repeats], lse[:, repeat::repeats] = part, part_lse[..., : q.shape[2]]
    return out, lse


def _flash_attn(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool, softcap: float | None
) -> tuple:
    from flash_attn import flash_attn_func

    out, lse, _ = flash_attn_func(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        softmax_scale=scale,
        causal=causal,
        softcap=softcap or 0.0,
        return_attn_probs=True,
    )
    return out.transpose(1, 2), lse


def _flex(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool, softcap: float | None
) -> tuple:
    def capped(score: torch.Tensor, *_: Any) -> torch.Tensor:
        return softcap * torch.tanh(score / softcap)

    mask = _causal_blocks(q.shape[2], str(q.device)) if causal else None
    return _compiled_flex()(
        q,
        k,
        v,
        score_mod=None if softcap is None else capped,
        block_mask=mask,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
        return_lse=True,
    )


@cache
def _compiled_flex() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True)


@lru_cache(maxsize=64)
def _causal_blocks(size: int, device: str) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(lambda b, h, m, n: m >= n, None, None, size, size, device=device)


_KERNELS: dict[str, Kernel] = {"sdpa": _sdpa, "flash_attn": _flash_attn, "flex": _flex}
_PROBLEMS: dict[str, Callable[[Request], str | None]] = {
    "sdpa": _sdpa_problem,
    "flash_attn": _flash_attn_problem,
    "flex": _flex_problem,
}
