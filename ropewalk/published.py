"""Settings of published methods by name, each with its source: data, from which `published` makes a model's profile.

What a source leaves to the model or the target length is a `Formula`. Where no source gives a value the note says so:
the choice is then this project's own.

The factors of DPE were found for one model each, so they are refused for another architecture; to try them there, or
others, write the distance axis out instead of naming it. A model's shape does not hold its llama3 scaling, so the
shapes of Llama-3-8B and Llama-3.1-8B are alike and the sets of one are accepted for the other: it is for the caller to
name the set of the model at hand.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ropewalk.axes import Frequency
from ropewalk.distance import Distance
from ropewalk.errors import ProfileError, nearest
from ropewalk.fields import integer
from ropewalk.profile import Profile
from ropewalk.shape import ModelShape

LONG = 131072  # tokens of what these papers call 128k


@dataclass(frozen=True)
class Formula:
    """A value that follows from the model and the target length.

    Attributes:
        text: for people; L0 is the trained length, N the target length, w the window.
        value: from the model's shape, N in tokens, and the axis's other fields.
    """

    text: str
    value: Callable[[ModelShape, int, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class MadeFor:
    """The architecture that a set of factors was found on.

    Attributes:
        trained_lengths: L0 of the model and of those that differ from it in nothing else.
    """

    name: str
    model_type: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float
    trained_lengths: tuple[int, ...]

    def check(self, published: str, shape: ModelShape) -> None:
        """Raise `ProfileError`, with both values, when the model has another architecture."""
        made = {name: (getattr(self, name),) for name in _COMPARED}
        made |= {"rotary_dim": (self.head_dim,), "trained_length": self.trained_lengths}
        for name, allowed in made.items():
            if getattr(shape, name) not in allowed:
                one = " or ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in allowed)
                raise ProfileError(
                    f"model.{name}",
                    getattr(shape, name),
                    f"{one}, as {self.name} has, for which {published} was made; another model needs its own factors",
                )


_COMPARED = ("model_type", "num_layers", "num_heads", "num_kv_heads", "head_dim", "rope_theta")


@dataclass(frozen=True)
class Published:
    """A published profile before it is made for a model.

    Attributes:
        description: what it does.
        source: where the figures stand.
        note: what of it is not published.
        frequency, distance: fields of the axis, as numbers or as `Formula`; the axis is left alone where it is empty.
        made_for: the only architecture it is for; None: any.
        target_length: N that the figures are for, taken when none is named. With `made_for` the longest allowed, since
            the factors were searched for at this length.
    """

    description: str
    source: str
    frequency: Mapping[str, Any] = field(default_factory=dict)
    distance: Mapping[str, Any] = field(default_factory=dict)
    made_for: MadeFor | None = None
    target_length: int | None = None
    note: str = ""

    @property
    def method(self) -> str:
        """The method of the axis that it sets."""
        return (self.distance or self.frequency)["method"]

    def axes(self, shape: ModelShape, target_length: int, given: Mapping[str, Any]) -> tuple[Frequency, Distance]:
        """Both axes for a model.

        Args:
            target_length: N in tokens.
            given: fields that replace published ones, or add to them.

        Raises:
            ProfileError: a given field is not one of the method's, or its value is wrong. Whether the axes fit the
                model is not looked at.
        """
        if self.distance:
            return Frequency("native"), Distance(
                **_filled("distance", Distance, self.distance, shape, target_length, given)
            )
        return Frequency(**_filled("frequency", Frequency, self.frequency, shape, target_length, given)), Distance()

    def settings(self) -> dict[str, Any]:
        """The fields of the axis, a formula as its text."""
        items = (self.distance or self.frequency).items()
        return {name: value.text if isinstance(value, Formula) else value for name, value in items}


def _filled(
    axis: str, kind: type, fields_: Mapping[str, Any], shape: ModelShape, length: int, given: Mapping[str, Any]
) -> dict[str, Any]:
    known = [item.name for item in fields(kind) if item.name != "method"]
    for name in given:
        if name not in known:
            raise ProfileError(f"{axis}.{name}", given[name], f"no field of this name, only {nearest(name, known)}")
    values = {**fields_, **given}
    # the axis itself refuses a value that is wrong; a formula reads only those that are right
    fixed = {name: value for name, value in values.items() if not isinstance(value, Formula)}
    return {
        name: value.value(shape, length, fixed) if isinstance(value, Formula) else value
        for name, value in values.items()
    }


def _slope(shape: ModelShape, length: int, axis: Mapping[str, Any]) -> float:
    window = axis["window"]
    if isinstance(window, bool) or not isinstance(window, int):
        return 1.0  # for the axis to refuse the window
    return max(1.0, (length - window) / max(1, shape.trained_length - window))


FACTOR = Formula("N/L0, at least 1", lambda shape, length, axis: max(1.0, length / shape.trained_length))
SLOPE = Formula("(N − w)/(L0 − w), at least 1", _slope)
CHUNK = Formula("3·L0/4", lambda shape, length, axis: 3 * shape.trained_length // 4)
LOCAL = Formula(
    "L0/8, of Qwen L0/16",
    lambda shape, length, axis: max(1, shape.trained_length // (16 if shape.model_type.startswith("qwen") else 8)),
)

LLAMA_3_8B = MadeFor("Llama-3-8B", "llama", 32, 32, 8, 128, 5e5, (8192,))
LLAMA_3_1_8B = MadeFor("Llama-3.1-8B", "llama", 32, 32, 8, 128, 5e5, (8192,))
MISTRAL_7B = MadeFor("Mistral-7B-v0.2", "mistral", 32, 32, 8, 128, 1e6, (32768,))
QWEN_2_5_7B = MadeFor("Qwen2.5-7B", "qwen2", 28, 28, 4, 128, 1e6, (32768, 131072))

_KEY_PAIRS = (
    "All dimension pairs are scaled unless key_dims is given: the paper scales the top 48 of 64 in each head, which "
    "has to be measured on the model."
)


def _dpe(model: MadeFor, factors: tuple[int, ...], description: str) -> Published:
    return Published(
        description=description,
        source="arXiv 2504.18857",
        distance={"method": "dpe", "window": 1024, "scale_factors": factors},
        made_for=model,
        target_length=LONG,
        note=_KEY_PAIRS,
    )


_USUAL = "usual setting at 128k"
_UNKNOWN = "What the DPE paper (arXiv 2504.18857) took for its baselines is not published."

PUBLISHED: dict[str, Published] = {
    "dpe-llama-3-8b": _dpe(
        LLAMA_3_8B, (4, 4, 2, 16, 32, 32, 16, 128), "8k to 128k: the set behind the paper's released predictions"
    ),
    "dpe-llama-3-8b-alt": _dpe(
        LLAMA_3_8B,
        (2, 8, 2, 8, 32, 32, 32, 4),
        "8k to 128k: a second published set, in conflict with dpe-llama-3-8b",
    ),
    "dpe-mistral-7b-v0.2": _dpe(MISTRAL_7B, (4, 16, 2, 16, 32, 16, 16, 2), "to 128k"),
    "dpe-llama-3.1-8b": _dpe(LLAMA_3_1_8B, (2, 32, 32, 2, 2, 2, 2, 1), "within the window of 128k"),
    "dpe-qwen2.5-7b": _dpe(QWEN_2_5_7B, (2, 16, 8, 8, 32, 8, 2, 4), "within the window of 128k"),
    "self-extend": Published(
        "Self-Extend: positions beyond the window in groups. Reaches (L0 − w)·G + w tokens.",
        _USUAL,
        distance={"method": "self_extend", "window": 1024, "group_size": 32},
        target_length=LONG,
        note=_UNKNOWN,
    ),
    "rerope": Published(
        "ReRoPE: every distance beyond the window is the window.",
        _USUAL,
        distance={"method": "rerope", "window": 1024},
        target_length=LONG,
        note=_UNKNOWN,
    ),
    "leaky-rerope": Published(
        "Leaky ReRoPE: distances beyond the window grow 1/slope as fast.",
        "this project's choice",
        distance={"method": "leaky_rerope", "window": 1024, "slope": SLOPE},
        note="No setting is published: the window is that of rerope, the slope brings the farthest token to L0.",
    ),
    "dca": Published(
        "Dual Chunk Attention: positions within chunks, exact near their borders.",
        "arXiv 2402.17463",
        distance={"method": "dca", "chunk_size": CHUNK, "local_size": LOCAL},
    ),
    "pi": Published(
        "Position interpolation: all frequencies divided by the factor.",
        "arXiv 2306.15595",
        frequency={"method": "linear", "factor": FACTOR},
    ),
    "ntk": Published(
        "NTK-aware scaling: the base raised.", "community formula", frequency={"method": "ntk", "factor": FACTOR}
    ),
    "dynamic-ntk": Published(
        "Dynamic NTK: the base raised with the length reached.",
        "transformers' rope type `dynamic`",
        frequency={"method": "dynamic_ntk", "factor": FACTOR},
    ),
    "yarn": Published(
        "YaRN: low frequencies interpolated, high ones kept.",
        "arXiv 2309.00071",
        frequency={"method": "yarn", "factor": FACTOR, "beta_fast": 32.0, "beta_slow": 1.0},
    ),
}
"""Every published profile by name."""


def entry(name: str) -> Published:
    """The published profile of that name.

    Raises:
        ProfileError: there is none.
    """
    if name not in PUBLISHED:
        raise ProfileError("profile", name, f"one of {nearest(name, PUBLISHED)}")
    return PUBLISHED[name]


def resolve_length(name: str, target_length: int | None) -> int:
    """N in tokens of a published profile: as given, else the one its figures are for.

    Raises:
        ProfileError: none is given and none published, or more than the factors of DPE were searched for.
    """
    known = entry(name).target_length
    if target_length is None:
        if known is None:
            raise ProfileError("target_length", None, f"a number of tokens: the source of {name} names none")
        return known
    length = integer("target_length", target_length, 1)
    if entry(name).made_for is not None and length > known:
        raise ProfileError(
            "target_length", length, f"at most {known} tokens, for which the factors of {name} were searched"
        )
    return length


def published(name: str, shape: ModelShape, target_length: int | None = None, **given: Any) -> Profile:
    """The published profile of that name, made for a model.

    Example:
        >>> profile = published("self-extend", ModelShape.from_config(model.config), group_size=16)
        >>> profile.distance.window
        1024

    Args:
        name: a key of `PUBLISHED`.
        shape: of the model.
        target_length: N in tokens; by default the one that the figures are for.
        given: fields of the profile's axis in place of the published ones, `key_dims` of DPE among them.

    Raises:
        ProfileError: no such name or field, or the model does not fit: another architecture than the set was made for,
            a window longer than the trained length. Gives both values.
    """
    known = entry(name)
    length = resolve_length(name, target_length)
    if known.made_for is not None:
        known.made_for.check(name, shape)
    frequency, distance = known.axes(shape, length, given)
    return Profile(name, shape, length, frequency, distance, provenance(name, given))


def provenance(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a profile file says of where its figures come from."""
    known = PUBLISHED[name]
    result: dict[str, Any] = {"published": name, "source": known.source, "description": known.description}
    if known.note:
        result["note"] = known.note
    if known.made_for is not None:
        result["made_for"] = known.made_for.name
    if given:
        result["changed"] = sorted(given)
    return result
