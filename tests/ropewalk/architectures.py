"""The architectures that are tested: a tiny model with random weights and the true features of each, and what works.

The table of supported models in the README is made from this list, and renewed by

    python -m tests.ropewalk.architectures
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from torch import nn

TRAINED_LENGTH = 32
VOCABULARY = 97
README = Path(__file__).parents[2] / "README.md"
START, END = "<!-- architectures -->", "<!-- /architectures -->"

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": TRAINED_LENGTH,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
ALTERNATING = ["sliding_attention", "full_attention"] * 2
MOSTLY_LOCAL = ["sliding_attention"] * 3 + ["full_attention"]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": TRAINED_LENGTH,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.0, 1.1, 1.1, 1.2, 1.2, 1.3, 1.3],
    "long_factor": [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0],
    "original_max_position_embeddings": TRAINED_LENGTH,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 4.0,
    "truncate": False,
    "original_max_position_embeddings": TRAINED_LENGTH,
}


def base(rope_theta: float, **more: Any) -> dict[str, Any]:
    """Rotary parameters without scaling."""
    return {"rope_type": "default", "rope_theta": rope_theta, **more}


@dataclass(frozen=True)
class Architecture:
    """One line of the table.

    Attributes:
        name: as people know it.
        features: what is special about its attention, for the table.
        config_class, model_class: of transformers.
        config: what differs from `SIZES`.
        refused: why no profile can be applied; `None` where the frequency methods work.
        message: a part of the error that says so.
        distance_refused: why no distance method can be applied where frequency methods can; `None`: they can.
        distance_message: a part of the error that says so.
        neighbours: whether neighbouring dimensions are a pair, instead of (j, j + J).
        still: layers that do not rotate.
    """

    name: str
    features: str
    config_class: type
    model_class: type
    config: dict[str, Any] = field(default_factory=dict)
    refused: str | None = None
    message: str = ""
    distance_refused: str | None = None
    distance_message: str = ""
    neighbours: bool = False
    still: tuple[int, ...] = ()

    @property
    def window(self) -> bool:
        """Whether a layer has a sliding window, which `dca` does not go with."""
        return self.config.get("sliding_window") is not None

    def build(self, seed: int = 0, **config: Any) -> nn.Module:
        """The model, float32, in evaluation mode, the same for the same seed.

        Weights are drawn wide enough for attention to be far from uniform, so that positions matter.
        """
        values = {**SIZES, **self.config, **config}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.model_class(self.config_class(**values)).eval()
            with torch.no_grad():
                for name, parameter in sorted(model.named_parameters()):
                    if "norm" in name:
                        continue
                    if parameter.dim() > 1:
                        parameter.copy_(torch.randn(parameter.shape) * 0.2)
                    elif name.endswith(("bias", "sinks")):
                        parameter.copy_(torch.randn(parameter.shape) * 0.1)
        return model.float()


def _qwen2_vl(**values: Any) -> Any:
    text = {**values, "rope_parameters": base(1e6, mrope_section=[2, 3, 3])}
    vision = {"depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2}
    return hf.Qwen2VLConfig(text_config=text, vision_config=vision)


ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture(
        "Llama 2",
        "one key head per query head",
        hf.LlamaConfig,
        hf.LlamaForCausalLM,
        {"num_key_value_heads": 4, "rope_parameters": base(10000.0)},
    ),
    Architecture(
        "Llama 3",
        "grouped query heads, base 500,000",
        hf.LlamaConfig,
        hf.LlamaForCausalLM,
        {"rope_parameters": base(500000.0)},
    ),
    Architecture(
        "Llama 3.1, 3.2, 3.3",
        "llama3 scaling",
        hf.LlamaConfig,
        hf.LlamaForCausalLM,
        {"rope_parameters": LLAMA3, "max_position_embeddings": 4 * TRAINED_LENGTH},
    ),
    Architecture(
        "Mistral v0.2",
        "base 1,000,000, no window",
        hf.MistralConfig,
        hf.MistralForCausalLM,
        {"sliding_window": None, "rope_parameters": base(1e6)},
    ),
    Architecture(
        "Mistral v0.1",
        "sliding window in every layer",
        hf.MistralConfig,
        hf.MistralForCausalLM,
        {"sliding_window": 20, "rope_parameters": base(10000.0)},
    ),
    Architecture("Qwen2.5", "biases of q, k, v", hf.Qwen2Config, hf.Qwen2ForCausalLM, {"rope_parameters": base(1e6)}),
    Architecture(
        "Qwen3",
        "norms of q and k, head_dim apart from the hidden size",
        hf.Qwen3Config,
        hf.Qwen3ForCausalLM,
        {"head_dim": 24, "rope_parameters": base(1e6)},
    ),
    Architecture(
        "Qwen3-MoE",
        "norms of q and k, experts",
        hf.Qwen3MoeConfig,
        hf.Qwen3MoeForCausalLM,
        {
            "head_dim": 16,
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "moe_intermediate_size": 16,
            "experts_implementation": "eager",
            "rope_parameters": base(1e6),
        },
    ),
    Architecture(
        "Qwen3-Next",
        "layers without attention, 1/4 of a head rotated",
        hf.Qwen3NextConfig,
        hf.Qwen3NextForCausalLM,
        {
            "head_dim": 16,
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "rope_parameters": base(1e6, partial_rotary_factor=0.25),
        },
        distance_refused="layers without attention",
        distance_message="Qwen3NextDecoderLayer",
    ),
    Architecture(
        "Phi-3",
        "longrope, q, k and v in one projection",
        hf.Phi3Config,
        hf.Phi3ForCausalLM,
        {
            "rope_parameters": LONGROPE,
            "max_position_embeddings": 4 * TRAINED_LENGTH,
            "original_max_position_embeddings": TRAINED_LENGTH,
        },
    ),
    Architecture(
        "Phi-4-mini",
        "longrope, 3/4 of a head rotated",
        hf.Phi3Config,
        hf.Phi3ForCausalLM,
        {
            "rope_parameters": {
                **LONGROPE,
                "partial_rotary_factor": 0.75,
                "short_factor": LONGROPE["short_factor"][:6],
                "long_factor": LONGROPE["long_factor"][:6],
            },
            "max_position_embeddings": 4 * TRAINED_LENGTH,
            "original_max_position_embeddings": TRAINED_LENGTH,
        },
    ),
    Architecture(
        "Gemma 2",
        "local and global layers, soft-capped scores",
        hf.Gemma2Config,
        hf.Gemma2ForCausalLM,
        {
            "head_dim": 16,
            "layer_types": ALTERNATING,
            "sliding_window": 20,
            "attn_logit_softcapping": 5.0,
            "attn_implementation": "eager",
            "query_pre_attn_scalar": 24,
            "rope_parameters": base(10000.0),
        },
    ),
    Architecture(
        "Gemma 3",
        "local and global layers with a base each, norms of q and k",
        hf.Gemma3TextConfig,
        hf.Gemma3ForCausalLM,
        {
            "head_dim": 16,
            "layer_types": MOSTLY_LOCAL,
            "sliding_window": 20,
            "query_pre_attn_scalar": 24,
            "rope_parameters": {
                "sliding_attention": base(10000.0),
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            },
        },
    ),
    Architecture(
        "GPT-NeoX, Pythia",
        "1/4 of a head rotated",
        hf.GPTNeoXConfig,
        hf.GPTNeoXForCausalLM,
        {"rope_parameters": base(10000.0, partial_rotary_factor=0.25)},
    ),
    Architecture(
        "Phi-2",
        "1/2 of a head rotated, biases",
        hf.PhiConfig,
        hf.PhiForCausalLM,
        {"num_key_value_heads": 4, "rope_parameters": base(10000.0, partial_rotary_factor=0.5)},
    ),
    Architecture(
        "StableLM 2",
        "1/4 of a head rotated, norms of q and k per head",
        hf.StableLmConfig,
        hf.StableLmForCausalLM,
        {"qk_layernorm": True, "rope_parameters": base(10000.0, partial_rotary_factor=0.25)},
    ),
    Architecture(
        "Cohere, Command R",
        "neighbouring dimensions paired, norms of q and k",
        hf.CohereConfig,
        hf.CohereForCausalLM,
        {"use_qk_norm": True, "logit_scale": 1.0, "rope_parameters": base(10000.0)},
        neighbours=True,
    ),
    Architecture(
        "Cohere2, Command R7B",
        "neighbouring dimensions paired, local layers, global layers without rotation",
        hf.Cohere2Config,
        hf.Cohere2ForCausalLM,
        {
            "layer_types": MOSTLY_LOCAL,
            "sliding_window": 20,
            "head_dim": 16,
            "logit_scale": 1.0,
            "rope_parameters": base(50000.0),
        },
        neighbours=True,
        still=(3,),
    ),
    Architecture(
        "GLM-4",
        "1/2 of a head rotated, neighbouring dimensions paired",
        hf.Glm4Config,
        hf.Glm4ForCausalLM,
        {"head_dim": 16, "attention_bias": True, "rope_parameters": base(10000.0, partial_rotary_factor=0.5)},
        neighbours=True,
    ),
    Architecture(
        "OLMo 2",
        "norms of q and k over all heads",
        hf.Olmo2Config,
        hf.Olmo2ForCausalLM,
        {"rope_parameters": base(500000.0)},
    ),
    Architecture(
        "OLMo 3",
        "norms of q and k over all heads, local and global layers",
        hf.Olmo3Config,
        hf.Olmo3ForCausalLM,
        {"layer_types": MOSTLY_LOCAL, "sliding_window": 20, "rope_parameters": base(500000.0)},
    ),
    Architecture(
        "EXAONE 4",
        "local layers, global layers without rotation, norms of q and k",
        hf.Exaone4Config,
        hf.Exaone4ForCausalLM,
        {"layer_types": MOSTLY_LOCAL, "sliding_window": 20, "head_dim": 16, "rope_parameters": base(1e6)},
        still=(3,),
    ),
    Architecture(
        "Falcon",
        "one key head for all, attention of its own",
        hf.FalconConfig,
        hf.FalconForCausalLM,
        {"multi_query": True, "parallel_attn": True, "rope_parameters": base(10000.0)},
        distance_refused="attends through functions of its own",
        distance_message="FalconAttention",
    ),
    Architecture(
        "SmolLM3",
        "every fourth layer without rotation",
        hf.SmolLM3Config,
        hf.SmolLM3ForCausalLM,
        {"no_rope_layer_interval": 4, "rope_parameters": base(5e6)},
        still=(3,),
    ),
    Architecture(
        "Granite 3",
        "attention scaled by the config",
        hf.GraniteConfig,
        hf.GraniteForCausalLM,
        {"attention_multiplier": 0.2, "rope_parameters": base(10000.0)},
    ),
    Architecture(
        "gpt-oss",
        "attention sinks, local and global layers, yarn, cos and sin of half width",
        hf.GptOssConfig,
        hf.GptOssForCausalLM,
        {
            "head_dim": 16,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "experts_implementation": "eager",
            "attn_implementation": "eager",
            "layer_types": ALTERNATING,
            "sliding_window": 20,
            "rope_parameters": YARN,
            "max_position_embeddings": 4 * TRAINED_LENGTH,
        },
    ),
    Architecture(
        "GPT-J",
        "neighbouring dimensions paired, a fixed table",
        hf.GPTJConfig,
        hf.GPTJForCausalLM,
        {"rotary_dim": 8, "n_inner": 48},
        refused="its config names no base, and its table ends at the trained length",
        message="gptj names no base",
    ),
    Architecture(
        "DeepSeek-V2, V3",
        "latent attention",
        hf.DeepseekV3Config,
        hf.DeepseekV3ForCausalLM,
        {
            "kv_lora_rank": 16,
            "q_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "num_key_value_heads": 4,
            "first_k_dense_replace": 4,
            "rope_parameters": base(10000.0),
        },
        refused="keys are latent, and all heads share the rotated part",
        message="kv_lora_rank",
    ),
    Architecture(
        "Gemma 4",
        "local and global layers with heads of another size",
        hf.Gemma4TextConfig,
        hf.Gemma4ForCausalLM,
        {
            "head_dim": 16,
            "global_head_dim": 32,
            "layer_types": MOSTLY_LOCAL,
            "sliding_window": 20,
            "vocab_size_per_layer_input": VOCABULARY,
            "hidden_size_per_layer_input": 8,
        },
        refused="heads differ in size from layer to layer",
        message="model.head_dim: got 'one value per layer'",
    ),
    Architecture(
        "Llama 4",
        "a complex table",
        hf.Llama4TextConfig,
        hf.Llama4ForCausalLM,
        {
            "head_dim": 16,
            "intermediate_size_mlp": 48,
            "num_local_experts": 2,
            "rope_parameters": base(500000.0),
        },
        refused="rotates by complex numbers, not by cos and sin",
        message="Llama4TextRotaryEmbedding",
    ),
    Architecture(
        "DeepSeek-V3.2, GLM-5",
        "latent attention, keys chosen by an indexer",
        hf.DeepseekV32Config,
        hf.DeepseekV32ForCausalLM,
        {
            "kv_lora_rank": 16,
            "q_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "num_key_value_heads": 4,
            "first_k_dense_replace": 4,
            "rope_parameters": base(10000.0),
        },
        refused="a second rotation inside the attention",
        message="Indexer inside DeepseekV32Attention",
    ),
    Architecture(
        "Qwen2-VL, Qwen2.5-VL",
        "positions of three axes (mrope)",
        _qwen2_vl,
        hf.Qwen2VLForConditionalGeneration,
        refused="positions of several axes",
        message="mrope_section",
    ),
)


def works() -> list[Architecture]:
    """The architectures that frequency methods can be applied to."""
    return [item for item in ARCHITECTURES if not item.refused]


def attends() -> list[Architecture]:
    """The architectures that distance methods can be applied to."""
    return [item for item in works() if not item.distance_refused]


def table() -> str:
    """The list as a markdown table."""
    lines = ["| model | what is special | frequency methods | distance methods |", "| --- | --- | --- | --- |"]
    for item in ARCHITECTURES:
        frequency = f"refused: {item.refused}" if item.refused else "all"
        distance = "refused" if item.refused else "all but `dca`" if item.window else "all"
        if item.distance_refused:
            distance = f"refused: {item.distance_refused}"
        lines.append(f"| {item.name} | {item.features} | {frequency} | {distance} |")
    return "\n".join(lines)


def write_readme() -> None:
    """Put the table in its place in the README."""
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(START)
    README.write_text(f"{before}{START}\n{table()}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    write_readme()
