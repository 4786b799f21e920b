"""A patched model gives the same on every device; the CPU is the reference that the other tests check."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ropewalk import Frequency, ModelShape, Profile, apply_profile

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
