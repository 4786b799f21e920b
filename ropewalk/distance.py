"""The distance axis of a profile: how a relative distance beyond a local window is mapped.

Which fields there are depends on the method; what the methods compute is in `ropewalk.regions`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Self

from ropewalk.errors import ProfileError, nearest
from ropewalk.fields import integer, mapping, number, plain
from ropewalk.shape import ModelShape

MAX_SCALE = 1e6
HEADS = ("query_head", "kv_head")


@dataclass(frozen=True)
class KeyDims:
    """Which dimension pairs of each head take the far distances of DPE; all others keep the plain distance.

    Attributes:
        top_k: pairs chosen in each head, 0 to all.
        per: `query_head`, a choice for each query head as published, or `kv_head`, for each key/value head, cheaper.
        mask: hexadecimal digits of each head, [layer][head]; the first digit's most significant bit is pair 0, and
            bits beyond the last pair are 0.
    """

    top_k: int
    per: str
    mask: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "top_k", integer("distance.key_dims.top_k", self.top_k, 0))
        if self.per not in HEADS:
            raise ProfileError("distance.key_dims.per", self.per, f"one of {nearest(self.per, HEADS)}")
        name = "distance.key_dims.mask"
        if not isinstance(self.mask, list | tuple) or not self.mask:
            raise ProfileError(name, self.mask, "a list of layers, each a list with the hex digits of every head")
        rows = []
        for layer, row in enumerate(self.mask):
            if not isinstance(row, list | tuple) or not row:
                raise ProfileError(f"{name}[{layer}]", row, "a list with the hex digits of every head")
            rows.append(tuple(self._digits(f"{name}[{layer}][{head}]", text) for head, text in enumerate(row)))
        object.__setattr__(self, "mask", tuple(rows))

    def _digits(self, name: str, text: Any) -> str:
        if not isinstance(text, str) or not text or any(digit not in "0123456789abcdef" for digit in text):
            raise ProfileError(name, text, "lower-case hexadecimal digits, four dimension pairs each")
        chosen = int(text, 16).bit_count()
        if chosen != self.top_k:
            raise ProfileError(name, text, f"{self.top_k} pairs as top_k says; this chooses {chosen}")
        return text

    @classmethod
    def from_bools(cls, per: str, chosen: Sequence[Sequence[Sequence[bool]]]) -> Self:
        """From truth values [layer][head][pair], as many true ones in each head."""
        mask = tuple(tuple(_hex(pairs) for pairs in heads) for heads in chosen)
        return cls(sum(map(bool, chosen[0][0])), per, mask)

    def bools(self, pairs: int) -> list[list[list[bool]]]:
        """Truth values [layer][head][pair]."""
        return [[_bits(text, pairs) for text in row] for row in self.mask]

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Inverse of `to_dict`; raises `ProfileError` for a wrong, unknown or missing field."""
        names = [item.name for item in fields(cls)]
        return cls(**mapping("distance.key_dims", data, names, required=names))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"top_k": self.top_k, "per": self.per, "mask": [list(row) for row in self.mask]}

    def check_fits(self, shape: ModelShape) -> None:
        """Raise `ProfileError`, with both numbers, when layers, heads or pairs are not the model's."""
        name, pairs = "distance.key_dims.mask", shape.rotary_dim // 2
        heads = shape.num_heads if self.per == "query_head" else shape.num_kv_heads
        if self.top_k > pairs:
            raise ProfileError("distance.key_dims.top_k", self.top_k, f"at most the model's {pairs} rotated pairs")
        if len(self.mask) != shape.num_layers:
            raise ProfileError(name, f"{len(self.mask)} layers", f"the model's {shape.num_layers} layers")
        for layer, row in enumerate(self.mask):
            if len(row) != heads:
                kind = "query" if self.per == "query_head" else "key/value"
                raise ProfileError(f"{name}[{layer}]", f"{len(row)} heads", f"the model's {heads} {kind} heads")
            for head, text in enumerate(row):
                digits, spare = -(-pairs // 4), -pairs % 4
                if len(text) != digits or int(text, 16) & ((1 << spare) - 1):
                    raise ProfileError(
                        f"{name}[{layer}][{head}]", text, f"{digits} digits for the model's {pairs} rotated pairs"
                    )


def _hex(pairs: Sequence[bool]) -> str:
    bits = "".join("1" if pair else "0" for pair in pairs)
    digits = -(-len(bits) // 4)
    return f"{int(bits.ljust(4 * digits, '0'), 2):0{digits}x}"


def _bits(text: str, pairs: int) -> list[bool]:
    return [bit == "1" for bit in f"{int(text, 16):0{4 * len(text)}b}"[:pairs]]


@dataclass(frozen=True)
class Distance:
    """How relative distances are mapped; `none` keeps them.

    Attributes:
        method: a key of `FIELDS`.
        window: w in tokens; distances below it stay as they are (rerope, leaky_rerope, self_extend, dpe).
        log_n: whether rerope multiplies the query at position m by max(1, ln(m + 1)/ln L0); no when not given.
        slope: k of leaky_rerope's far distance w + (m − n − w)/k; at least 1.
        group_size: G of self_extend, a whole number of at least 1.
        chunk_size: s of dca in tokens.
        local_size: l of dca in tokens, less than s; positions of keys repeat every c = s − l.
        group_bounds: of dpe's groups of dimension pairs: group i is pairs [bounds[i], bounds[i + 1]); equal groups when
            not given. Pair 0 turns fastest.
        scale_factors: s_i of each of dpe's groups; at least 1.
        key_dims: which pairs dpe scales in each head; all when not given.

    Raises:
        ProfileError: a value is wrong, or the method has no such field.
    """

    method: str = "none"
    window: int | None = None
    log_n: bool | None = None
    slope: float | None = None
    group_size: int | None = None
    chunk_size: int | None = None
    local_size: int | None = None
    group_bounds: tuple[int, ...] | None = None
    scale_factors: tuple[float, ...] | None = None
    key_dims: KeyDims | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or self.method not in FIELDS:
            raise ProfileError("distance.method", self.method, f"one of {nearest(self.method, FIELDS)}")
        known = FIELDS[self.method]
        for item in fields(self)[1:]:
            name, value = f"distance.{item.name}", getattr(self, item.name)
            if item.name not in known:
                if value is not None:
                    takes = ", ".join(known) or "no field"
                    raise ProfileError(name, value, f"nothing: method {self.method} takes {takes}")
            elif value is not None:
                object.__setattr__(self, item.name, _CHECKS[item.name](name, value))
            elif item.name == "log_n":
                object.__setattr__(self, "log_n", False)
            elif item.name not in _OPTIONAL:
                raise ProfileError(name, None, f"method {self.method} requires this field")
        if self.method == "dca" and self.local_size >= self.chunk_size:
            raise ProfileError("distance.local_size", self.local_size, f"less than chunk_size {self.chunk_size}")
        if self.group_bounds is not None and len(self.group_bounds) != len(self.scale_factors) + 1:
            raise ProfileError(
                "distance.group_bounds",
                f"{len(self.group_bounds)} numbers",
                f"one more than the {len(self.scale_factors)} scale_factors",
            )

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Inverse of `to_dict`; raises `ProfileError` for a wrong, unknown or missing field."""
        values = mapping("distance", data, [item.name for item in fields(cls)], required=["method"])
        if values.get("key_dims") is not None:
            values["key_dims"] = KeyDims.from_dict(values["key_dims"])
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the method and the fields it has a value for."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        if self.key_dims is not None:
            values["key_dims"] = self.key_dims.to_dict()
        return {name: plain(name, value) for name, value in values.items() if value is not None}

    def bounds(self, pairs: int) -> tuple[int, ...]:
        """Where dpe's groups begin and end among the model's rotated pairs."""
        if self.group_bounds is not None:
            return self.group_bounds
        size = pairs // len(self.scale_factors)
        return tuple(range(0, pairs + 1, size))

    def check_fits(self, shape: ModelShape) -> None:
        """Raise `ProfileError`, with both numbers, when window, groups or key dimensions do not fit the model.

        A window or chunk longer than the trained length would leave distances unchanged that the model has never seen.
        """
        for name in ("window", "chunk_size"):
            value = getattr(self, name)
            if value is not None and value > shape.trained_length:
                raise ProfileError(
                    f"distance.{name}", value, f"at most the {shape.trained_length} tokens the model was trained on"
                )
        if self.method != "dpe":
            return
        pairs, groups = shape.rotary_dim // 2, len(self.scale_factors)
        if self.group_bounds is None and pairs % groups:
            raise ProfileError(
                "distance.scale_factors",
                f"{groups} groups",
                f"a number of groups that divides the model's {pairs} rotated pairs, or group_bounds",
            )
        if self.group_bounds is not None and self.group_bounds[-1] != pairs:
            raise ProfileError(
                "distance.group_bounds", f"an end at {self.group_bounds[-1]}", f"the model's {pairs} rotated pairs"
            )
        if self.key_dims is not None:
            self.key_dims.check_fits(shape)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ProfileError(name, value, "true or false")
    return value


def _scales(name: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ProfileError(name, value, "a list of numbers of at least 1, one per group of dimension pairs")
    return tuple(number(f"{name}[{i}]", item, 1.0, MAX_SCALE) for i, item in enumerate(value))


def _bounds(name: str, value: Any) -> tuple[int, ...]:
    allowed = "increasing whole numbers from 0 to the number of rotated pairs"
    if not isinstance(value, list | tuple) or len(value) < 2:
        raise ProfileError(name, value, allowed)
    bounds = tuple(integer(f"{name}[{i}]", item, 0) for i, item in enumerate(value))
    if bounds[0] != 0 or any(a >= b for a, b in pairwise(bounds)):
        raise ProfileError(name, list(bounds), allowed)
    return bounds


def _key_dims(name: str, value: Any) -> KeyDims:
    if not isinstance(value, KeyDims):
        raise ProfileError(name, value, "a KeyDims")
    return value


def _positive(name: str, value: Any) -> int:
    return integer(name, value, 1)


FIELDS: dict[str, tuple[str, ...]] = {
    "none": (),
    "rerope": ("window", "log_n"),
    "leaky_rerope": ("window", "slope"),
    "self_extend": ("window", "group_size"),
    "dca": ("chunk_size", "local_size"),
    "dpe": ("window", "group_bounds", "scale_factors", "key_dims"),
}
"""Fields of each method."""

_OPTIONAL = {"log_n", "group_bounds", "key_dims"}
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "window": _positive,
    "log_n": _flag,
    "slope": lambda name, value: number(name, value, 1.0, MAX_SCALE),
    "group_size": _positive,
    "chunk_size": _positive,
    "local_size": _positive,
    "group_bounds": _bounds,
    "scale_factors": _scales,
    "key_dims": _key_dims,
}
