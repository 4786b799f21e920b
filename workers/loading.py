"""Loading a model, its tokenizer or its shape alone, with one clear error for each thing that can be wrong."""

from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from ropewalk import ModelShape
from workers.errors import ModelError, first_line
from workers.source import fingerprint, model_folder
from workers.spec import ModelSpec


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode with its tokenizer."""

    model: Any
    tokenizer: Any
    shape: ModelShape
    fingerprint: str


def read_shape(spec: ModelSpec) -> ModelShape:
    """The model's shape from its configuration, without its weights.

    Raises:
        ModelError: there is no such model, or it is not a causal language model.
        ProfileError: it has no rotary embedding that a profile could change.
    """
    return ModelShape.from_config(_config(spec, model_folder(spec)), id=spec.id, revision=spec.revision)


def load_tokenizer(spec: ModelSpec) -> Any:
    """The model's tokenizer.

    Raises:
        ModelError: the model has none that can be read.
    """
    folder = model_folder(spec)
    try:
        return AutoTokenizer.from_pretrained(folder, **_hub(spec))
    except (OSError, ValueError, KeyError) as error:
        raise ModelError("model.id", spec.id, f"a model with a tokenizer ({first_line(error)})") from error


def load_model(spec: ModelSpec) -> LoadedModel:
    """The whole model, on the first GPU that is visible unless `device_map` says otherwise, else on the CPU.

    Raises:
        ModelError: there is no such model, or its weights cannot be read.
    """
    folder = model_folder(spec)
    config = _config(spec, folder)
    settings: dict[str, Any] = {"dtype": _dtype(spec), **_hub(spec)}
    if spec.attn_implementation is not None:
        settings["attn_implementation"] = spec.attn_implementation
    device_map = spec.device_map or ("cuda:0" if torch.cuda.is_available() else None)
    if device_map is not None:
        settings["device_map"] = device_map
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, **settings)
    except (OSError, ValueError, ImportError, SafetensorError) as error:
        raise ModelError("model", spec.id, f"a model that can be loaded ({first_line(error)})") from error
    commit = getattr(config, "_commit_hash", None)
    how = f"{model.dtype}/{model.config._attn_implementation}"
    return LoadedModel(
        model=model.eval().requires_grad_(False),
        tokenizer=load_tokenizer(spec),
        shape=ModelShape.from_config(model.config, id=spec.id, revision=spec.revision),
        fingerprint=fingerprint(folder, commit, how),
    )


def _config(spec: ModelSpec, folder: str) -> Any:
    try:
        config = AutoConfig.from_pretrained(folder, **_hub(spec))
    except (OSError, ValueError, KeyError) as error:
        allowed = f"a local folder with config.json, or a model on the Hub that can be reached ({first_line(error)})"
        raise ModelError("model.id", spec.id, allowed) from error
    remote = spec.trust_remote_code and hasattr(config, "auto_map")
    if type(config) not in AutoModelForCausalLM._model_mapping and not remote:
        raise ModelError("model.id", f"{spec.id} ({config.model_type})", "a causal language model of transformers")
    return config


def _hub(spec: ModelSpec) -> dict[str, Any]:
    return {"revision": spec.revision or "main", "trust_remote_code": spec.trust_remote_code}


def _dtype(spec: ModelSpec) -> Any:
    return "auto" if spec.dtype == "auto" else getattr(torch, spec.dtype)
