"""Models that rotate in a way the patch does not cover are refused with the reason, not patched wrongly."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GlmConfig,
    GlmForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
)

from ropewalk import ModelShape, Profile, ProfileError, apply_profile
from ropewalk.rotary import examine

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}


def refusal(model):
    """The error of applying the identity; the model must be left without hooks."""
    shape = ModelShape.from_config(model.config)
    with pytest.raises(ProfileError) as caught:
        apply_profile(model, Profile.identity(shape, 128))
    assert not any(module._forward_pre_hooks for module in model.modules())
    return caught.value


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "dynamic", "factor": 2.0},
        {
            "rope_type": "longrope",
            "factor": 2.0,
            "short_factor": [1.0] * 8,
            "long_factor": [2.0] * 8,
            "original_max_position_embeddings": 32,
        },
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_rotary_types_that_keep_state_between_calls(build, architecture, rope):
    error = refusal(build(architecture, rope=rope))
    assert error.field == "model.rope_type"
    assert error.value == rope["rope_type"]
    assert "keeps state" in error.allowed


def test_an_unknown_rotary_type(build):
    model = build()
    model.model.rotary_emb.rope_type = "spiral"
    assert refusal(model).value == "spiral"


@pytest.mark.parametrize(
    ("config_class", "model_class", "extra"),
    [
        (CohereConfig, CohereForCausalLM, {}),
        (GptOssConfig, GptOssForCausalLM, {"num_local_experts": 2, "num_experts_per_tok": 1}),
    ],
    ids=["interleaved", "half"],
)
def test_layouts_other_than_half_split_are_found_by_measurement(config_class, model_class, extra):
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    error = refusal(model_class(config_class(**SMALL, **extra, rope_parameters=rope)))
    assert error.field == "model.rotary"
    assert "half-split" in error.allowed


@pytest.mark.parametrize(
    ("config_class", "model_class"), [(GlmConfig, GlmForCausalLM), (Phi3Config, Phi3ForCausalLM)], ids=["glm", "phi3"]
)
def test_partial_rotation(config_class, model_class):
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    error = refusal(model_class(config_class(**SMALL, rope_parameters=rope)))
    assert (error.field, error.value) == ("model.partial_rotary_factor", 0.5)


def test_rotation_by_layer_type():
    config = Gemma3TextConfig(**SMALL)
    with pytest.raises(ProfileError, match="per layer type"):
        ModelShape.from_config(config)
    shape = ModelShape("g", None, config.model_type, 2, 2, 2, 16, 1e6, 64)
    with pytest.raises(ProfileError, match="not one per layer type"):
        examine(Gemma3ForCausalLM(config), shape)


def test_a_model_without_rotation():
    config = GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2, n_positions=64)
    with pytest.raises(ProfileError, match="names no base"):
        ModelShape.from_config(config)
    shape = ModelShape("g", None, "gpt2", 2, 2, 2, 16, 1e4, 64)
    with pytest.raises(ProfileError, match="a rotary module"):
        examine(GPT2LMHeadModel(config), shape)


def test_several_rotary_modules(build):
    model = build()
    model.model.second = nn.Module()
    model.model.second.register_buffer("inv_freq", torch.ones(8))
    assert refusal(model).value == "2 rotary modules"


def test_positions_of_several_axes(build):
    model = build()
    model.model.rotary_emb.config.rope_parameters["mrope_section"] = [2, 3, 3]
    assert refusal(model).field == "model.mrope_section"


def test_a_rotary_module_that_cannot_be_called_with_positions(build):
    model = build()
    model.model.rotary_emb.forward = lambda x: x
    error = refusal(model)
    assert error.field == "model.rotary"
    assert "calling it gave" in error.allowed


def test_attention_modules_that_do_not_match_the_layers(build):
    model = build()
    model.model.layers = model.model.layers[:2]
    error = refusal(model)
    assert error.value == "2 modules that take position_embeddings"
    assert "3 layers" in error.allowed


def test_frequencies_that_are_not_loaded(build):
    model = build().to("meta")
    assert refusal(model).field == "model.device"


def test_a_config_that_lacks_a_number(build):
    config = build().config.to_dict()
    del config["num_hidden_layers"]
    with pytest.raises(ProfileError, match=r"model\.num_hidden_layers.*SimpleNamespace does not"):
        ModelShape.from_config(SimpleNamespace(**config))
