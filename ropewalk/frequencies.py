"""Inverse frequencies of the frequency methods, one pure function each.

A formula is called for one layer. Its keyword-only parameters are the fields that the method has in a profile, with
their defaults; so the signature is the schema, and adding a method is one function and one line in `METHODS`.

Notation: dimension pair j of d/2; base frequency θ_j = base^(−2j/d); factor s; trained length L0; target length N;
total length T. The angle of pair j at position p is p·θ_j.

`linear` divides what the model itself rotates with, so llama3 scaling and the attention scaling of the model's config
stay. The others are defined on the base frequencies and replace the config's scaling, so no factor is applied twice.
Base and native rotation are those of the layer: where local and global layers have a base each (Gemma 3), every layer
starts from its own, and a profile's factor applies to all of them unless it is given per layer.

Arithmetic is float32 in the order of operations of transformers, whose implementations are met bit for bit where it has
one; the scalar parts (base′, correction range) are computed in double precision.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

MIN_FACTOR = 0.1
MAX_FACTOR = 1000.0


@dataclass(frozen=True, eq=False)
class Rotation:
    """What one layer rotates with.

    Attributes:
        inv_freq: float32 [d/2] on the CPU, radians per token.
        attention_scaling: multiplies cos and sin, and so queries and keys.
    """

    inv_freq: torch.Tensor
    attention_scaling: float

    def equals(self, other: "Rotation") -> bool:
        """Bit for bit."""
        return self.attention_scaling == other.attention_scaling and torch.equal(self.inv_freq, other.inv_freq)


@dataclass(frozen=True)
class Growth:
    """The scaling of a model whose own config is `dynamic`: its base grows with the total length.

    Attributes:
        factor: s of the config.
        length: tokens up to which the base stays, the config's `max_position_embeddings`.
    """

    factor: float
    length: int


@dataclass(frozen=True, eq=False)
class Setting:
    """What the formulas refer to in one layer besides a profile's own fields.

    Attributes:
        native: what the unpatched model rotates with; of a model with `growth`, up to its length.
        rope_theta: base of θ_j.
        trained_length: L0 in tokens.
        target_length: N in tokens.
        total_length: T in tokens; only methods in `LENGTH_DEPENDENT` and settings with `growth` read it.
        growth: how the native rotation changes with T; `None` where it does not.
        steady: whether the unpatched model rotates with `native` at every length, so that leaving the layer alone is
            the same as giving it `native`.
        layout: how the model lays out the pairs in cos and sin, a key of `ropewalk.tables.LAYOUTS`.
    """

    native: Rotation
    rope_theta: float
    trained_length: int
    target_length: int
    total_length: int = 0
    growth: Growth | None = None
    steady: bool = True
    layout: str = "halves"

    @property
    def dim(self) -> int:
        """Rotary dimension d."""
        return 2 * self.native.inv_freq.numel()


def base_frequencies(base: float, dim: int) -> torch.Tensor:
    """θ_j = base^(−2j/d), float32 [d/2]."""
    return 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.float32, device="cpu") / dim))


def native(setting: Setting) -> Rotation:
    """The model's own rotation."""
    growth = setting.growth
    if growth is None or setting.total_length <= growth.length:
        return setting.native
    return dynamic_ntk(replace(setting, trained_length=growth.length), factor=growth.factor)


def linear(setting: Setting, *, factor: float) -> Rotation:
    """Position interpolation, θ_j / s on the native frequencies (arXiv 2306.15595)."""
    own = native(setting)
    return Rotation(own.inv_freq / factor, own.attention_scaling)


def ntk(setting: Setting, *, factor: float) -> Rotation:
    """NTK-aware scaling: base′ = base·s^(d/(d−2))."""
    dim = setting.dim
    return Rotation(base_frequencies(setting.rope_theta * factor ** (dim / (dim - 2)), dim), 1.0)


def dynamic_ntk(setting: Setting, *, factor: float) -> Rotation:
    """base′ = base·(s·T/L0 − (s − 1))^(d/(d−2)) for T > L0, else base (`dynamic` of transformers)."""
    dim, base = setting.dim, setting.rope_theta
    if setting.total_length > setting.trained_length:
        growth = factor * setting.total_length / setting.trained_length - (factor - 1)
        base = base * growth ** (dim / (dim - 2))
    return Rotation(base_frequencies(base, dim), 1.0)


def yarn_range(base: float, dim: int, trained_length: int, beta_fast: float, beta_slow: float) -> tuple[int, int]:
    """Pairs below the first number are extrapolated, above the second interpolated (arXiv 2309.00071, eq. 17–18)."""

    def correction(rotations: float) -> float:
        return dim * math.log(trained_length / (2 * math.pi * rotations)) / (2 * math.log(base))

    return max(math.floor(correction(beta_fast)), 0), min(math.ceil(correction(beta_slow)), dim - 1)


def yarn(
    setting: Setting,
    *,
    factor: float,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    attention_factor: float | None = None,
) -> Rotation:
    """θ_j·(1 − ramp_j) + (θ_j/s)·ramp_j; attention factor 0.1·ln s + 1, and 1 for s ≤ 1 (arXiv 2309.00071)."""
    dim, base = setting.dim, setting.rope_theta
    low, high = yarn_range(base, dim, setting.trained_length, beta_fast, beta_slow)
    width = high - low if high != low else 0.001  # as transformers: a step instead of a division by zero
    ramp = ((torch.arange(dim // 2, dtype=torch.float32, device="cpu") - low) / width).clamp(0, 1)
    powers = base ** (torch.arange(0, dim, 2, dtype=torch.float32, device="cpu") / dim)
    kept = 1 - ramp
    inv_freq = (1.0 / (factor * powers)) * (1 - kept) + (1.0 / powers) * kept
    if attention_factor is None:
        attention_factor = 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
    return Rotation(inv_freq, attention_factor)


def longrope(setting: Setting, *, factors: tuple[float, ...], attention_factor: float | None = None) -> Rotation:
    """1/(λ_j·base^(2j/d)); attention factor √(1 + ln(N/L0)/ln L0), and 1 for N ≤ L0 (arXiv 2402.13753)."""
    dim = setting.dim
    powers = setting.rope_theta ** (torch.arange(0, dim, 2, dtype=torch.float32, device="cpu") / dim)
    inv_freq = 1.0 / (torch.tensor(factors, dtype=torch.float32, device="cpu") * powers)
    if attention_factor is None:
        ratio = setting.target_length / setting.trained_length
        attention_factor = (
            math.sqrt(1 + math.log(ratio) / math.log(setting.trained_length))
            if ratio > 1 and setting.trained_length > 1
            else 1.0
        )
    return Rotation(inv_freq, attention_factor)


METHODS: dict[str, Callable[..., Rotation]] = {
    "native": native,
    "linear": linear,
    "ntk": ntk,
    "dynamic_ntk": dynamic_ntk,
    "yarn": yarn,
    "longrope": longrope,
}

LENGTH_DEPENDENT = frozenset({"dynamic_ntk"})
"""Methods whose table depends on the total length, and so on the forward, whatever the model."""

MIN_DIM = {"ntk": 4, "dynamic_ntk": 4}
"""Smallest rotary dimension of a method that has one: the exponent d/(d−2) has no value at d = 2."""


def method_fields(method: str) -> dict[str, Any]:
    """Fields of a method with their defaults; `inspect.Parameter.empty` marks a required one."""
    parameters = inspect.signature(METHODS[method]).parameters.values()
    return {item.name: item.default for item in parameters if item.kind is inspect.Parameter.KEYWORD_ONLY}
