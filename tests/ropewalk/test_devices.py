"""A patched model gives the same on every device; the CPU is the reference that the other tests check."""

import pytest
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from ropewalk import Frequency, ModelShape, Profile, apply_profile
from tests.ropewalk.distance_cases import METHODS, Case, off, run
from tests.ropewalk.small_models import tokens

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
FREQUENCIES = [
    Frequency("linear", factor=(1.0, 3.0)),
    Frequency("ntk", factor=(2.0, 1.5)),
    Frequency("dynamic_ntk", factor=2.0),
    Frequency("yarn", factor=(4.0, 2.0)),
    Frequency("longrope", factors=tuple(1.0 + 0.2 * j for j in range(8))),
]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=32,
    )
    return LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("frequency", FREQUENCIES, ids=lambda f: f.method)
def test_logits_on_a_device_are_those_on_the_cpu_and_removal_restores_them(model, frequency, device):
    profile = Profile("p", ModelShape.from_config(model.config, id="tiny"), 128, frequency)
    ids = torch.randint(0, 64, (2, 96), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        with apply_profile(model.cpu(), profile):
            expected = model(ids).logits
        plain = model.to(device)(ids.to(device)).logits
        with apply_profile(model, profile):
            found = model(ids.to(device)).logits
        assert found.device.type == device
        torch.testing.assert_close(found.cpu(), expected, atol=2e-4, rtol=1e-3)
        assert not torch.allclose(found, plain, atol=1e-3)
        assert torch.equal(model(ids.to(device)).logits, plain)


BACKENDS = [
    ("cpu", "float32", "sdpa"),
    ("cpu", "bfloat16", "sdpa"),
    *(
        pytest.param("cuda", dtype, backend, marks=pytest.mark.gpu)
        for dtype in ("float32", "bfloat16")
        for backend in ("auto", "sdpa", "flex", "math")
    ),
    pytest.param("cuda", "bfloat16", "flash_attn", marks=pytest.mark.gpu),
]


@pytest.mark.parametrize(("device", "dtype", "backend"), BACKENDS)
@pytest.mark.parametrize("name", METHODS)
def test_distance_methods_on_a_device_are_explicit_scores_on_the_cpu(name, device, dtype, backend):
    if backend == "flash_attn":
        pytest.importorskip("flash_attn")
    case, ids = Case(name, head_dim=16), tokens(90, batch=2)
    with case.patched(backend="math"):
        expected = run(case.model, ids)
    case.model.to(device, getattr(torch, dtype))
    cache = DynamicCache(config=case.model.config)
    with case.patched(backend=backend):
        parts = [run(case.model, part.to(device), cache) for part in ids.split([60, 29, 1], dim=1)]
    found = torch.cat(parts, dim=1).cpu()
    assert off(found, expected) < (1e-3 if dtype == "float32" else 0.1)
