"""What a profile has to know about a model: its architecture, and the numbers that RoPE formulas refer to."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from ropewalk.errors import ProfileError
from ropewalk.fields import integer, mapping, number, text

FULL_ATTENTION = "full_attention"


@dataclass(frozen=True)
class ModelShape:
    """Architecture of a model as far as rotary embeddings are concerned.

    `id` and `revision` say where the model came from; all other fields must match for a profile to be applied.

    Attributes:
        head_dim: dimensions of one attention head.
        rope_theta: base of the inverse frequencies θ_j = rope_theta^(−2j/rotary_dim); of a model with one base per
            type of layer, that of its layers with full attention.
        trained_length: tokens the model was trained on before any extension of its context (L0 of the formulas).
        rotary_dim: dimensions of a head that are rotated; `head_dim` when not given. A profile file has it only where
            it is less.
    """

    id: str
    revision: str | None
    model_type: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float
    trained_length: int
    rotary_dim: int | None = None

    def __post_init__(self) -> None:
        text("model.id", self.id)
        if self.revision is not None:
            text("model.revision", self.revision)
        text("model.model_type", self.model_type)
        for name in ("num_layers", "num_heads", "num_kv_heads", "trained_length"):
            object.__setattr__(self, name, integer(f"model.{name}", getattr(self, name), 1))
        object.__setattr__(self, "head_dim", integer("model.head_dim", self.head_dim, 2))
        object.__setattr__(self, "rope_theta", number("model.rope_theta", self.rope_theta, 1.0, above=True))
        if self.head_dim % 2:
            raise ProfileError("model.head_dim", self.head_dim, "an even number: dimensions are rotated in pairs")
        if self.num_heads % self.num_kv_heads:
            raise ProfileError("model.num_kv_heads", self.num_kv_heads, f"a divisor of num_heads {self.num_heads}")
        rotary_dim = self.head_dim if self.rotary_dim is None else integer("model.rotary_dim", self.rotary_dim, 2)
        if rotary_dim % 2 or rotary_dim > self.head_dim:
            raise ProfileError(
                "model.rotary_dim", rotary_dim, f"an even number of at most head_dim {self.head_dim}, or nothing"
            )
        object.__setattr__(self, "rotary_dim", rotary_dim)

    @classmethod
    def from_config(cls, config: Any, id: str | None = None, revision: str | None = None) -> "ModelShape":
        """Read the shape from a transformers config.

        The original trained length is `original_max_position_embeddings` where the config gives one (yarn, llama3,
        longrope and dynamic configs do), else `max_position_embeddings`. Of a config with rotary parameters per layer
        type those of its layers with full attention are read.

        Args:
            config: a `PreTrainedConfig`; of a composite model the text part is read.
            id: where the model came from; the config's `name_or_path`, else its model type, when not given.

        Raises:
            ProfileError: the config lacks a number, or its rotary parameters per layer type lack full attention.
        """
        if not hasattr(config, "model_type"):
            raise ProfileError("config", type(config).__name__, "a config of transformers, as a model's `config`")
        text_config = config.get_text_config() if hasattr(config, "get_text_config") else config
        rope = _rope_parameters(text_config)
        num_heads = _read(text_config, "num_attention_heads")
        head_dim = _value(text_config, "head_dim")
        if head_dim is None:
            head_dim = _read(text_config, "hidden_size") // num_heads
        num_kv_heads = _value(text_config, "num_key_value_heads")
        trained_length = rope.get("original_max_position_embeddings")
        if trained_length is None:
            trained_length = getattr(text_config, "original_max_position_embeddings", None)
        if trained_length is None:
            trained_length = _read(text_config, "max_position_embeddings")
        return cls(
            id=id or getattr(config, "name_or_path", None) or text_config.model_type,
            revision=revision,
            model_type=text_config.model_type,
            num_layers=_read(text_config, "num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=num_heads if num_kv_heads is None else num_kv_heads,
            head_dim=head_dim,
            rope_theta=rope.get("rope_theta"),
            trained_length=trained_length,
            rotary_dim=int(head_dim * _rotated_share(text_config, rope)),
        )

    @classmethod
    def from_dict(cls, data: Any) -> "ModelShape":
        """Inverse of `to_dict`; raises `ProfileError` for a wrong, unknown or missing field."""
        names = [field.name for field in fields(cls)]
        return cls(**mapping("model", data, names, required=[name for name in names if name != "rotary_dim"]))

    def to_dict(self) -> dict[str, Any]:
        """Plain data in the order of the profile file; `rotary_dim` only where it is less than `head_dim`."""
        data = asdict(self)
        if self.rotary_dim == self.head_dim:
            del data["rotary_dim"]
        return data


def _value(config: Any, name: str) -> int | None:
    try:
        return getattr(config, name, None)
    except RuntimeError as error:  # how configs of models whose layers differ in shape answer
        raise ProfileError(f"model.{name}", "one value per layer", "a model whose layers all have the same") from error


def _read(config: Any, name: str) -> int:
    value = _value(config, name)
    if value is None:
        raise ProfileError(f"model.{name}", None, f"a config that has it; {type(config).__name__} does not")
    return value


def layer_parameters(config: Any, layer_type: str | None) -> dict[str, Any]:
    """The rotary parameters of a text config for one type of layer, or for all layers when it is `None`."""
    parameters = getattr(config, "rope_parameters", None) or {}
    return dict(parameters if layer_type is None else parameters.get(layer_type) or {})


def _rope_parameters(config: Any) -> dict[str, Any]:
    """The flat rotary parameters that a shape is read from, `rope_theta` included."""
    parameters = layer_parameters(config, None)
    nested = [key for key, value in parameters.items() if isinstance(value, dict)]
    if nested:
        if FULL_ATTENTION not in nested:
            raise ProfileError(
                "model.rope_parameters", ", ".join(nested), f"one set for all layers, or one of them {FULL_ATTENTION}"
            )
        parameters = layer_parameters(config, FULL_ATTENTION)
    if parameters.get("rope_theta") is None:
        parameters["rope_theta"] = getattr(config, "rope_theta", None)
    if parameters["rope_theta"] is None:
        raise ProfileError(
            "model.rope_theta", None, f"a model with rotary embeddings; {config.model_type} names no base"
        )
    return parameters


def _rotated_share(config: Any, rope: dict[str, Any]) -> float:
    """Which part of a head is rotated; older configs name it beside the rotary parameters, or `rotary_pct`."""
    for value in (
        rope.get("partial_rotary_factor"),
        getattr(config, "partial_rotary_factor", None),
        getattr(config, "rotary_pct", None),
    ):
        if value is not None:
            return value
    return 1.0
