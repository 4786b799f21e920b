"""A small model with the features of a large one that has no weights: what is measured in place of a meta model."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ropewalk.errors import ProfileError

_HEADS = 2
_SMALL = {
    "intermediate_size": 16,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "vocab_size": 32,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}


def twin(model: nn.Module, attentions: Sequence[nn.Module]) -> tuple[nn.Module, Sequence[nn.Module]]:
    """The model itself when it has weights, else its small twin on the CPU, each with its attention modules.

    The twin has as many layers and the head dimension of the model; hidden size, number of heads and vocabulary are
    small.

    Raises:
        ProfileError: no twin can be made from the config.
    """
    if has_weights(model):
        return model, attentions
    names = {id(module): name for name, module in model.named_modules()}
    state = torch.get_rng_state()
    try:
        with torch.device("cpu"):
            small = type(model)(_small_config(model.config)).float().eval()
        _draw_weights(small)
        return small, [small.get_submodule(names[id(module)]) for module in attentions]
    except Exception as error:
        raise ProfileError(
            "model.device", "meta", f"weights, or a model whose shape can be made small; that gave: {error}"
        ) from error
    finally:
        torch.set_rng_state(state)


def has_weights(model: nn.Module) -> bool:
    """Whether forwards of the model compute numbers; weights that accelerate has put elsewhere count as there."""
    return any(hasattr(module, "_hf_hook") for module in model.modules()) or not any(
        parameter.is_meta for parameter in model.parameters()
    )


def _small_config(config: Any) -> Any:
    small = copy.deepcopy(config)
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    values = {**_SMALL, "num_attention_heads": _HEADS, "hidden_size": _HEADS * head_dim, "head_dim": head_dim}
    kv_heads = getattr(config, "num_key_value_heads", None)
    if kv_heads is not None:
        values["num_key_value_heads"] = _HEADS if kv_heads == heads else 1
    for name, value in values.items():
        if getattr(small, name, None) is not None and not isinstance(getattr(type(small), name, None), property):
            setattr(small, name, value)
    small._attn_implementation = "eager"
    return small


def _draw_weights(model: nn.Module) -> None:
    """Random numbers everywhere, norms and biases too, so that nothing commutes with a rotation by being constant."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(drawn / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else 1 + 0.3 * drawn)
