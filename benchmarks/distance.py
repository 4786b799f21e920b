"""What the distance methods cost: prefill, decode and peak memory of one attention layer against plain attention.

    python -m benchmarks.distance [--shape smollm2 llama3-8b] [--dtype float32 bfloat16] [--length 2048 8192 ...]

An attention layer of random weights in the shape of SmolLM2-135M (9 heads and 3 for keys, of 64 dimensions) or
Llama-3-8B (32 and 8, of 128), projections and cache update included. `--bare` shrinks the projections, which no method
changes, to almost nothing: the harder test. Plain is the same layer with the model's own `sdpa`. In each round plain
comes first and then every method, and the ratio is to the plain of its round; the median over rounds is shown.

Bound: 1 + 2w/L for a window of w tokens, what computing all pairs of the window a second time, masked, would cost;
twice the extra for a choice of key dimensions; 1 for dca, which computes no pair twice. Decode is one token over a
cache of L tokens, and its bound is the aim of 1.25. Memory is the peak above what the layer and its input take.

A cache that is copied for each token, as transformers' `DynamicCache` is, costs several times as much whenever the C
library gives the freed pages back to the system and faults them in again, which hits one or the other at random. So
while times are taken freed memory is kept; while memory is taken it is not.
"""

import argparse
import ctypes
import gc
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import DynamicCache, LlamaConfig, LlamaModel

from ropewalk import Distance, Frequency, KeyDims, ModelShape, Profile, apply_profile

SHAPES = {"smollm2": (9, 3, 64), "llama3-8b": (32, 8, 128)}
DTYPES = ("float32", "bfloat16", "float16")
TRAINED = 2048
DECODED = 16
DECODE_AIM = 1.25
_C = ctypes.CDLL(None)
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's mallopt


@dataclass(frozen=True)
class Times:
    """Seconds of one way to run the layer."""

    prefill: float
    decode: float


def layer(shape: str, dtype: torch.dtype, device: str, bare: bool = False) -> LlamaModel:
    """A model of one layer whose cost is its attention."""
    heads, kv_heads, head_dim = SHAPES[shape]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=heads * (8 if bare else head_dim),
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=TRAINED,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )
    return LlamaModel(config).to(device, dtype).eval()


def methods(shape: ModelShape, window: int) -> dict[str, tuple[Distance, Callable[[int], float]]]:
    """Distance settings, and their bound by length."""
    pairs = shape.head_dim // 2
    chosen = 3 * pairs // 4  # 48 of 64 as in the DPE paper
    random = torch.Generator().manual_seed(0)

    def dims(per: str, heads: int) -> KeyDims:
        ranks = torch.rand(1, heads, pairs, generator=random).argsort(-1).argsort(-1)
        return KeyDims.from_bools(per, (ranks < chosen).tolist())

    scales = (2.0, 8.0, 2.0, 8.0, 32.0, 32.0, 32.0, 4.0)
    once, twice, none = (lambda n: 1 + 2 * window / n), (lambda n: 1 + 4 * window / n), (lambda n: 1.0)
    return {
        "rerope": (Distance("rerope", window=window), once),
        "leaky_rerope": (Distance("leaky_rerope", window=window, slope=16.0), once),
        "self_extend": (Distance("self_extend", window=window, group_size=32), once),
        "dca": (Distance("dca", chunk_size=3 * TRAINED // 4, local_size=TRAINED // 8), none),
        "dpe": (Distance("dpe", window=window, scale_factors=scales), once),
        "dpe, key/value heads": (
            Distance("dpe", window=window, scale_factors=scales, key_dims=dims("kv_head", shape.num_kv_heads)),
            twice,
        ),
        "dpe, query heads": (
            Distance("dpe", window=window, scale_factors=scales, key_dims=dims("query_head", shape.num_heads)),
            twice,
        ),
    }


class Layer:
    """The layer with its input of one length."""

    def __init__(self, model: LlamaModel, length: int) -> None:
        self.model = model
        self.cuda = model.device.type == "cuda"
        x = torch.randn(1, length, model.config.hidden_size, generator=torch.Generator().manual_seed(0))
        self.x = x.to(model.device, model.dtype)

    def prefill(self) -> DynamicCache:
        """One forward over the whole input."""
        cache = DynamicCache(config=self.model.config)
        with torch.inference_mode():
            self.model(inputs_embeds=self.x, use_cache=True, cache=cache)
        return cache

    def decode(self, cache: DynamicCache) -> None:
        """Tokens, one at a time, over a cache that stays as long as it is."""
        with torch.inference_mode():
            for _ in range(DECODED):
                self.model(inputs_embeds=self.x[:, :1], use_cache=True, cache=cache)
                cache.crop(-1)

    def ready_to_time(self) -> None:
        """Keep freed memory from now on."""
        if not self.cuda:
            _C.mallopt(_M_MMAP_MAX, 0)
            _C.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)

    def seconds(self, run: Callable[[], Any]) -> tuple[float, Any]:
        """Time of a call, and its result."""
        self._wait()
        begin = time.perf_counter()
        result = run()
        self._wait()
        return time.perf_counter() - begin, result

    def memory(self) -> float:
        """Peak bytes of a prefill above what was taken before."""
        gc.collect()
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            self.prefill()
            return torch.cuda.max_memory_allocated() - before
        _C.mallopt(_M_MMAP_MAX, 65536)
        _C.mallopt(_M_TRIM_THRESHOLD, 128 * 1024)
        _C.malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is resident now
        before = _resident("VmRSS")
        self.prefill()
        return _resident("VmHWM") - before

    def _wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


def _resident(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def measure(
    layer: Layer, profiles: dict[str, Profile], rounds: int, backend: str
) -> tuple[list[Times], dict[str, list[Times]], dict[str, float]]:
    """Times of plain and of each profile, once a round, and the memory of each, of plain under the name `plain`."""

    def times() -> Times:
        layer.ready_to_time()
        prefill, cache = layer.seconds(layer.prefill)
        layer.decode(cache)
        decode = min(layer.seconds(lambda: layer.decode(cache))[0] for _ in range(3))
        return Times(prefill, decode / DECODED)

    def applied(profile: Profile) -> AbstractContextManager:
        return apply_profile(layer.model, profile, check=False, backend=backend)

    memory = {"plain": layer.memory()}
    for name, profile in profiles.items():
        with applied(profile):
            memory[name] = layer.memory()
    plain: list[Times] = []
    own: dict[str, list[Times]] = {name: [] for name in profiles}
    for _ in range(rounds):
        plain.append(times())
        for name, profile in profiles.items():
            with applied(profile):
                own[name].append(times())
    return plain, own, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=["float32", "bfloat16"])
    parser.add_argument("--length", type=int, nargs="+", default=[2048, 8192, 16384, 32768])
    parser.add_argument("--method", nargs="+", help="some of the methods (default: all)")
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bare", action="store_true", help="with next to no projections")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    console = Console(width=150)
    for shape_name in args.shape:
        for dtype in args.dtype:
            model = layer(shape_name, getattr(torch, dtype), args.device, args.bare)
            shape = ModelShape.from_config(model.config, id=shape_name)
            for length in args.length:
                table = Table(
                    "method",
                    "prefill s",
                    "ratio",
                    "bound",
                    "decode ms",
                    "ratio",
                    "aim",
                    "memory MiB",
                    title=f"{shape_name}, {dtype}, {length} tokens, window {args.window}, {args.device}, "
                    f"{args.threads} threads, {args.rounds} rounds",
                )
                chosen = methods(shape, args.window)
                chosen = {name: chosen[name] for name in args.method or chosen}
                profiles = {
                    name: Profile(name, shape, max(length, TRAINED), Frequency("native"), distance)
                    for name, (distance, _) in chosen.items()
                }
                plain, own, memory = measure(Layer(model, length), profiles, args.rounds, args.backend)
                middle = statistics.median
                table.add_row(
                    "plain",
                    f"{middle(a.prefill for a in plain):.3f}",
                    "",
                    "",
                    f"{1e3 * middle(a.decode for a in plain):.2f}",
                    "",
                    "",
                    f"{memory['plain'] / 2**20:.0f}",
                )
                for name, (_, bound) in chosen.items():
                    pairs = list(zip(plain, own[name], strict=True))
                    table.add_row(
                        name,
                        f"{middle(b.prefill for _, b in pairs):.3f}",
                        f"{middle(b.prefill / a.prefill for a, b in pairs):.3f}",
                        f"{bound(length):.3f}",
                        f"{1e3 * middle(b.decode for _, b in pairs):.2f}",
                        f"{middle(b.decode / a.decode for a, b in pairs):.3f}",
                        f"{DECODE_AIM}",
                        f"{memory[name] / 2**20:.0f}",
                    )
                console.print(table)


if __name__ == "__main__":
    main()
