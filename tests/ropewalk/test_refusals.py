"""Models that rotate in a way the patch does not cover are refused with the reason, not patched wrongly."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
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
LATENT = {
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "first_k_dense_replace": 2,
}


class Indexer(nn.Module):
    """A part of an attention that rotates for itself, as in sparse attention."""

    def forward(self, hidden_states, position_embeddings):
        return hidden_states


def refusal(model):
    """The error of applying the identity; the model must be left without hooks."""
    shape = ModelShape.from_config(model.config)
    with pytest.raises(ProfileError) as caught:
        apply_profile(model, Profile.identity(shape, 128))
    assert not any(module._forward_pre_hooks for module in model.modules())
    return caught.value


def test_an_unknown_rotary_type(build):
    model = build()
    model.model.rotary_emb.rope_type = "spiral"
    assert refusal(model).value == "spiral"


def test_a_layout_that_is_none_of_the_known_is_found_by_measurement(build):
    model = build()
    forward = model.model.rotary_emb.forward
    model.model.rotary_emb.forward = lambda x, position_ids: tuple(part.flip(-1) for part in forward(x, position_ids))
    error = refusal(model)
    assert error.field == "model.rotary"
    assert "something else" in error.allowed


def test_a_number_of_rotated_dimensions_that_the_config_does_not_name(build):
    model = build()
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq[:6]
    error = refusal(model)
    assert (error.field, error.value) == ("model.rotary_dim", 12)
    assert "16 rotated" in error.allowed


def test_a_profile_for_another_number_of_rotated_dimensions(build):
    model = build()
    shape = replace(ModelShape.from_config(model.config), rotary_dim=8)
    with pytest.raises(ProfileError, match=r"model\.rotary_dim: got 16; .* rotary_dim 8"):
        apply_profile(model, Profile.identity(shape, 128))


def test_layers_of_a_type_that_has_no_frequencies():
    config = Gemma3TextConfig(**SMALL, layer_types=["full_attention", "sliding_attention"])
    model = Gemma3ForCausalLM(config)
    model.config.layer_types = ["full_attention", "chunked_attention"]
    error = refusal(model)
    assert error.field == "model.layer_types"
    assert "full_attention, sliding_attention" in error.allowed


def test_latent_attention():
    config = DeepseekV3Config(**{**SMALL, "head_dim": 8}, **LATENT)
    error = refusal(DeepseekV3ForCausalLM(config))
    assert (error.field, error.value) == ("model.attention", "DeepseekV3Attention with latent keys (kv_lora_rank 8)")


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


def test_axes_that_only_the_rotary_module_knows_of(build):
    model = build()
    model.model.rotary_emb.mrope_section = [2, 3, 3]
    assert refusal(model).field == "model.mrope_section"


def test_an_attention_with_a_second_rotation_inside(build):
    model = build()
    for layer in model.model.layers:
        layer.self_attn.indexer = Indexer()
    error = refusal(model)
    assert (error.field, error.value) == ("model.attention", "Indexer inside LlamaAttention")


def test_layers_that_differ_in_shape():
    class Config(SimpleNamespace):
        @property
        def head_dim(self):
            raise RuntimeError("varies across layers")

    values = LlamaConfig().to_dict()
    del values["head_dim"]
    with pytest.raises(ProfileError, match=r"model\.head_dim: got 'one value per layer'"):
        ModelShape.from_config(Config(**values))


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
