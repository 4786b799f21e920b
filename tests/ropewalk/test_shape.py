"""What a profile knows of a model is read from its config, the original trained length included."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from transformers import (
    Gemma3TextConfig,
    Glm4Config,
    GPTNeoXConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    Phi3Config,
    PhiConfig,
    Qwen2Config,
    Qwen3Config,
)

from ropewalk import ModelShape, ProfileError

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def test_reads_the_architecture_of_a_llama_config():
    config = LlamaConfig(num_hidden_layers=5, num_attention_heads=8, num_key_value_heads=2, hidden_size=256)
    assert ModelShape.from_config(config, id="org/name", revision="r1") == ModelShape(
        "org/name", "r1", "llama", 5, 8, 2, 32, 10000.0, 2048
    )


@pytest.mark.parametrize("config_class", [LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config])
def test_reads_base_and_length_of_each_architecture(config_class):
    rope = {"rope_type": "default", "rope_theta": 1e6}
    shape = ModelShape.from_config(config_class(rope_parameters=rope, max_position_embeddings=777))
    assert (shape.model_type, shape.rope_theta, shape.trained_length) == (config_class.model_type, 1e6, 777)
    assert shape.id == config_class.model_type, "the model type stands in for an id that is not known"


@pytest.mark.parametrize(
    "rope",
    [
        LLAMA3,
        {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 8192},
        {"rope_type": "dynamic", "factor": 16.0, "original_max_position_embeddings": 8192},
        {
            "rope_type": "longrope",
            "factor": 16.0,
            "short_factor": [1.0] * 64,
            "long_factor": [2.0] * 64,
            "original_max_position_embeddings": 8192,
        },
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_trained_length_is_the_original_one_of_an_extended_config(rope):
    shape = ModelShape.from_config(LlamaConfig(max_position_embeddings=131072, rope_parameters=rope))
    assert shape.trained_length == 8192


def test_trained_length_may_stand_beside_the_rotary_parameters():
    config = Phi3Config(max_position_embeddings=131072, original_max_position_embeddings=4096)
    assert ModelShape.from_config(config).trained_length == 4096


def test_reads_rope_scaling_of_older_config_files():
    config = LlamaConfig(
        rope_theta=25000.0, rope_scaling={"type": "linear", "factor": 4.0}, max_position_embeddings=512
    )
    shape = ModelShape.from_config(config)
    assert (shape.rope_theta, shape.trained_length) == (25000.0, 512)


def test_heads_without_groups_have_as_many_key_heads():
    shape = ModelShape.from_config(GPTNeoXConfig(num_attention_heads=8, hidden_size=64))
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim) == (8, 8, 8)


def test_of_a_base_per_layer_type_that_of_full_attention_is_read():
    shape = ModelShape.from_config(Gemma3TextConfig())
    assert (shape.rope_theta, shape.trained_length) == (1e6, 131072)


def test_layer_types_without_full_attention_are_refused():
    config = Gemma3TextConfig()
    config.rope_parameters = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    with pytest.raises(ProfileError, match="full_attention") as caught:
        ModelShape.from_config(config)
    assert caught.value.field == "model.rope_parameters"


@pytest.mark.parametrize(
    ("config", "head_dim", "rotary_dim"),
    [
        (GPTNeoXConfig(num_attention_heads=8, hidden_size=512), 64, 16),
        (GPTNeoXConfig(num_attention_heads=8, hidden_size=512, rotary_pct=0.5), 64, 32),
        (PhiConfig(num_attention_heads=8, hidden_size=512, partial_rotary_factor=0.5), 64, 32),
        (Glm4Config(num_attention_heads=8, hidden_size=512, head_dim=64), 64, 32),
        (LlamaConfig(num_attention_heads=8, hidden_size=512), 64, 64),
        (
            SimpleNamespace(
                **{**GPTNeoXConfig(num_attention_heads=8, hidden_size=512).to_dict(), "rope_parameters": None},
                rope_theta=1e4,
                rotary_pct=0.75,
            ),
            64,
            48,
        ),
    ],
    ids=["gpt_neox", "rotary_pct", "phi", "glm4", "llama", "older"],
)
def test_reads_how_much_of_a_head_is_rotated(config, head_dim, rotary_dim):
    shape = ModelShape.from_config(config)
    assert (shape.head_dim, shape.rotary_dim) == (head_dim, rotary_dim)
    assert ModelShape.from_dict(shape.to_dict()) == shape


def test_the_rotary_dimension_is_left_out_of_a_file_where_it_is_the_head_s():
    whole = ModelShape("m", None, "llama", 2, 4, 2, 16, 10000.0, 32)
    assert whole.rotary_dim == 16
    assert "rotary_dim" not in whole.to_dict()
    assert whole == ModelShape("m", None, "llama", 2, 4, 2, 16, 10000.0, 32, 16)
    assert replace(whole, rotary_dim=8).to_dict()["rotary_dim"] == 8


def test_a_model_without_attention_is_refused():
    with pytest.raises(ProfileError, match=r"model\.rope_theta"):
        ModelShape.from_config(MambaConfig())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ""),
        ("revision", 3),
        ("model_type", None),
        ("num_layers", 0),
        ("num_layers", 2.0),
        ("num_heads", True),
        ("num_kv_heads", 3),
        ("head_dim", 15),
        ("rotary_dim", 18),
        ("rotary_dim", 7),
        ("rotary_dim", 0),
        ("rotary_dim", 4.0),
        ("rope_theta", float("nan")),
        ("rope_theta", 1.0),
        ("rope_theta", 10**400),
        ("trained_length", "2048"),
    ],
)
def test_a_wrong_value_is_refused_by_name(field, value):
    good = ModelShape("m", None, "llama", 2, 4, 2, 16, 10000.0, 32).to_dict()
    with pytest.raises(ProfileError) as caught:
        ModelShape.from_dict({**good, field: value})
    assert caught.value.field == f"model.{field}"
