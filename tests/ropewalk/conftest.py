"""Tiny models with random weights, one per architecture, and the shape and profiles that go with them."""

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from ropewalk import Distance, Frequency, ModelShape, Profile

ARCHITECTURES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
TRAINED_LENGTH = 32


@pytest.fixture(params=sorted(ARCHITECTURES))
def architecture(request):
    return request.param


@pytest.fixture
def build():
    """build(architecture, seed=0, dtype=float32, attention="sdpa", rope=None, **config) -> model.

    The weights are drawn wide enough for attention to be far from uniform, so that positions matter; they depend on
    the seed alone, not on the rotary parameters.
    """

    def make(architecture="llama", *, seed=0, dtype=torch.float32, attention="sdpa", rope=None, **config):
        config_class, model_class = ARCHITECTURES[architecture]
        values = {
            "vocab_size": 97,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": TRAINED_LENGTH,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, **(rope or {})},
            "attn_implementation": attention,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": None,
            **config,
        }
        model = model_class(config_class(**values)).eval()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in sorted(model.named_parameters()):
                if parameter.dim() > 1:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
                elif name.endswith("bias"):
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
        inv_freq = model.model.rotary_emb.inv_freq
        model.to(dtype)
        model.model.rotary_emb.inv_freq = inv_freq  # stays float32, as in a model loaded in this dtype
        return model

    return make


@pytest.fixture
def tokens():
    """tokens(length, batch=1, seed=0) -> ids [batch, length]."""

    def draw(length, batch=1, seed=0):
        return torch.randint(2, 97, (batch, length), generator=torch.Generator().manual_seed(seed))

    return draw


@pytest.fixture
def logits():
    def run(model, ids, **kwargs):
        with torch.no_grad():
            return model(input_ids=ids, **kwargs).logits

    return run


@pytest.fixture
def profile_for():
    """profile_for(model, method, target_length=96, **fields) -> Profile."""

    def make(model, method, target_length=96, **fields):
        return Profile("test", ModelShape.from_config(model.config), target_length, Frequency(method, **fields))

    return make


@pytest.fixture
def example_profile():
    """A profile with every part set, for the file format."""
    shape = ModelShape("org/model", "abc123", "llama", 3, 4, 2, 16, 10000.0, 32)
    return Profile("café", shape, 96, Frequency("linear", factor=(1, 2.5, 4)), Distance(), {"seed": 7, "score": [0.5]})
