"""Two-layer models with random weights for the distance methods, told apart by how their attention differs."""

from typing import Any

import torch
from torch import nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

TRAINED = 64
VOCABULARY = 97
HEADED = {"num_key_value_heads": 2, "head_dim": 16}
KINDS: dict[str, tuple[type, type, dict[str, Any]]] = {
    "gqa": (LlamaConfig, LlamaForCausalLM, HEADED),
    "mqa": (LlamaConfig, LlamaForCausalLM, {"num_key_value_heads": 1, "head_dim": 16}),
    "mha": (LlamaConfig, LlamaForCausalLM, {"num_key_value_heads": 4, "head_dim": 16}),
    "qk norm": (Qwen3Config, Qwen3ForCausalLM, HEADED),
    "qkv bias": (Qwen2Config, Qwen2ForCausalLM, {"num_key_value_heads": 2}),
    "sliding": (MistralConfig, MistralForCausalLM, {**HEADED, "sliding_window": 30}),
    "softcap": (
        Gemma2Config,
        Gemma2ForCausalLM,
        {**HEADED, "sliding_window": 30, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 20},
    ),
    "sinks": (
        GptOssConfig,
        GptOssForCausalLM,
        {
            **HEADED,
            "sliding_window": 30,
            "num_local_experts": 1,
            "num_experts_per_tok": 1,
            "experts_implementation": "eager",
        },
    ),
    "two bases": (
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        {
            **HEADED,
            "sliding_window": 30,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
                "full_attention": {"rope_type": "linear", "rope_theta": 50000.0, "factor": 2.0},
            },
        },
    ),
    "no positions": (SmolLM3Config, SmolLM3ForCausalLM, {"num_key_value_heads": 2, "no_rope_layers": [1, 0]}),
    "partial": (GPTNeoXConfig, GPTNeoXForCausalLM, {}),
    "interleaved": (CohereConfig, CohereForCausalLM, {"num_key_value_heads": 2}),
}
INTERLEAVED = ("interleaved",)
ROTATES = {"no positions": [True, False]}
"""By layer, where one does not rotate."""
WITHOUT_HEAD_DIM = ("qkv bias", "no positions", "partial", "interleaved")
EAGER = ("softcap", "sinks")  # not in sdpa


def build(kind: str = "gqa", *, seed: int = 0, **changes: Any) -> nn.Module:
    """A float32 model in eval mode; four query heads of 16 dimensions where `changes` says nothing else.

    The weights are drawn wide enough for attention to be far from uniform, so that positions matter.
    """
    config_class, model_class, special = KINDS[kind]
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    if kind == "partial":
        rope["partial_rotary_factor"] = 0.5
    values = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64 if kind in WITHOUT_HEAD_DIM else 32,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": TRAINED,
        "rope_parameters": rope,
        "attn_implementation": "eager" if kind in EAGER else "sdpa",
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": None,
        **special,
        **changes,
    }
    model = model_class(config_class(**values)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.25)
            elif name.endswith(("bias", "sinks")):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def tokens(length: int, batch: int = 1, seed: int = 0) -> torch.Tensor:
    """Random ids [batch, length], none of them padding or a beginning of text."""
    return torch.randint(2, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))
