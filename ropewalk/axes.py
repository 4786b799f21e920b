"""The frequency axis of a profile: how fast each dimension pair turns in each layer."""

import inspect
from dataclasses import dataclass, fields
from typing import Any

from ropewalk.errors import ProfileError, nearest
from ropewalk.fields import mapping, number, plain
from ropewalk.frequencies import MAX_FACTOR, METHODS, MIN_DIM, MIN_FACTOR, method_fields
from ropewalk.shape import ModelShape

Factors = tuple[float, ...] | tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Frequency:
    """How the rotation angles change; which fields there are depends on the method.

    Attributes:
        method: a key of `ropewalk.frequencies.METHODS`.
        factor: one number, or one per layer (linear, ntk, dynamic_ntk, yarn).
        beta_fast, beta_slow: rotations over the trained length that bound yarn's ramp; 32 and 1 when not given.
        attention_factor: of yarn and longrope; by the method's formula when not given.
        factors: longrope's λ, one per rotated dimension pair, or per layer and pair.

    Raises:
        ProfileError: a value is wrong, or the method has no such field.
    """

    method: str
    factor: float | tuple[float, ...] | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    attention_factor: float | None = None
    factors: Factors | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or self.method not in METHODS:
            raise ProfileError("frequency.method", self.method, f"one of {nearest(self.method, METHODS)}")
        known = method_fields(self.method)
        for item in fields(self)[1:]:
            name, value = f"frequency.{item.name}", getattr(self, item.name)
            if item.name not in known:
                if value is not None:
                    takes = ", ".join(known) or "no field"
                    raise ProfileError(name, value, f"nothing: method {self.method} takes {takes}")
                continue
            if value is None:
                value = known[item.name]
                if value is inspect.Parameter.empty:
                    raise ProfileError(name, None, f"method {self.method} requires this field")
            if value is not None:
                object.__setattr__(self, item.name, _FIELD_CHECKS[item.name](name, value))
        if self.method == "yarn" and self.beta_fast <= self.beta_slow:
            raise ProfileError("frequency.beta_fast", self.beta_fast, f"a number above beta_slow {self.beta_slow:g}")

    @classmethod
    def from_dict(cls, data: Any) -> "Frequency":
        """Inverse of `to_dict`; raises `ProfileError` for a wrong, unknown or missing field."""
        return cls(**mapping("frequency", data, [item.name for item in fields(cls)], required=["method"]))

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the method and the fields it has a value for."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: plain(name, value) for name, value in values.items() if value is not None}

    def for_layer(self, layer: int) -> dict[str, Any]:
        """Keyword arguments of the method's formula in one layer."""
        values = {name: getattr(self, name) for name in method_fields(self.method)}
        if isinstance(values.get("factor"), tuple):
            values["factor"] = values["factor"][layer]
        if isinstance(values.get("factors"), tuple) and isinstance(values["factors"][0], tuple):
            values["factors"] = values["factors"][layer]
        return values

    def check_fits(self, shape: ModelShape) -> None:
        """Raise `ProfileError` when a list does not have the model's number of layers or pairs."""
        if isinstance(self.factor, tuple) and len(self.factor) != shape.num_layers:
            raise ProfileError(
                "frequency.factor",
                f"{len(self.factor)} numbers",
                f"one number, or one for each of the {shape.num_layers} layers of the model",
            )
        if self.factors is not None:
            pairs, layers = shape.rotary_dim // 2, shape.num_layers
            allowed = f"{pairs} numbers, one per rotated dimension pair, or {layers} lists of them, one per layer"
            per_layer = isinstance(self.factors[0], tuple)
            if per_layer and len(self.factors) != layers:
                raise ProfileError("frequency.factors", f"{len(self.factors)} lists", allowed)
            for row in self.factors if per_layer else (self.factors,):
                if len(row) != pairs:
                    raise ProfileError("frequency.factors", f"{len(row)} numbers", allowed)
        if shape.rotary_dim < MIN_DIM.get(self.method, 2):
            name = "model.head_dim" if shape.rotary_dim == shape.head_dim else "model.rotary_dim"
            raise ProfileError(name, shape.rotary_dim, f"at least {MIN_DIM[self.method]} for method {self.method}")


def _factor(name: str, value: Any) -> float | tuple[float, ...]:
    if isinstance(value, list | tuple) and value:
        return tuple(number(f"{name}[{i}]", item, MIN_FACTOR, MAX_FACTOR) for i, item in enumerate(value))
    if isinstance(value, list | tuple | dict | str):
        raise ProfileError(name, value, f"a number from {MIN_FACTOR:g} to {MAX_FACTOR:g}, or a list of one per layer")
    return number(name, value, MIN_FACTOR, MAX_FACTOR)


def _factors(name: str, value: Any) -> Factors:
    if not isinstance(value, list | tuple) or not value:
        raise ProfileError(name, value, "a list of numbers, one per rotated dimension pair, or a list of such lists")
    if not isinstance(value[0], list | tuple):
        return tuple(number(f"{name}[{i}]", item, MIN_FACTOR, MAX_FACTOR) for i, item in enumerate(value))
    rows = []
    for layer, row in enumerate(value):
        if not isinstance(row, list | tuple) or not row:
            raise ProfileError(f"{name}[{layer}]", row, "a list of numbers, one per dimension pair, as in layer 0")
        rows.append(tuple(number(f"{name}[{layer}][{i}]", item, MIN_FACTOR, MAX_FACTOR) for i, item in enumerate(row)))
    return tuple(rows)


def _positive(name: str, value: Any) -> float:
    return number(name, value, 0.0, above=True)


_FIELD_CHECKS = {
    "factor": _factor,
    "beta_fast": _positive,
    "beta_slow": _positive,
    "attention_factor": _positive,
    "factors": _factors,
}
