"""The self-check catches a patch that has stopped working, and is invisible otherwise."""

import pytest
import torch

from ropewalk import PatchError, apply_profile


def unhooked(model):
    return not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("linear", {"factor": 2.0}),
        ("linear", {"factor": 1.0}),
        ("linear", {"factor": (1.0, 1.0, 1.0001)}),
        ("ntk", {"factor": 1.0001}),
        ("dynamic_ntk", {"factor": 4.0}),
        ("yarn", {"factor": 1.0}),
    ],
)
def test_it_passes_on_a_working_model_however_weak_the_profile(build, profile_for, architecture, dtype, method, fields):
    model = build(architecture, dtype=dtype)
    with apply_profile(model, profile_for(model, method, **fields)) as handle:
        assert handle.total_length is None
    assert unhooked(model)


def test_dynamic_ntk_passes_where_the_target_is_the_trained_length(build, profile_for):
    model = build()
    with apply_profile(model, profile_for(model, "dynamic_ntk", target_length=32, factor=4.0)):
        pass


def test_an_attention_that_ignores_its_position_embeddings_is_caught(build, profile_for, monkeypatch):
    model = build()
    attention = type(model.model.layers[0].self_attn)
    original = attention.forward

    def forward(self, hidden_states, position_embeddings=None, **kwargs):
        shape = (1, hidden_states.shape[1], 16)
        return original(self, hidden_states, position_embeddings=(torch.ones(shape), torch.zeros(shape)), **kwargs)

    monkeypatch.setattr(attention, "forward", forward)
    with pytest.raises(PatchError, match=r"no effect .* transformers"):
        apply_profile(model, profile_for(model, "linear", factor=2.0))
    assert unhooked(model)


def test_position_embeddings_passed_in_another_way_are_caught(build, profile_for, monkeypatch):
    model = build()
    attention = type(model.model.layers[0].self_attn)
    original = attention.__call__

    def call(self, hidden_states, position_embeddings, **kwargs):
        return original(self, hidden_states, position_embeddings, **kwargs)

    monkeypatch.setattr(attention, "__call__", call)
    with pytest.raises(PatchError, match="layer 0: LlamaAttention was called without the keyword position_embeddings"):
        apply_profile(model, profile_for(model, "linear", factor=2.0))
    assert unhooked(model)


def test_a_layer_that_is_not_called_is_caught(build, profile_for, monkeypatch):
    model = build()
    layer = model.model.layers[1]
    monkeypatch.setattr(layer, "forward", lambda hidden_states, **_: hidden_states)
    with pytest.raises(PatchError, match="attention of layer 1 is called 0 times"):
        apply_profile(model, profile_for(model, "linear", factor=2.0))
    assert unhooked(model)


def test_outputs_that_are_not_reproducible_are_caught(build, profile_for):
    model = build()
    noise = model.model.norm.register_forward_hook(lambda *args: args[2] + torch.rand(1))
    with pytest.raises(PatchError, match="identity"):
        apply_profile(model, profile_for(model, "linear", factor=2.0))
    noise.remove()
    assert unhooked(model)


def test_a_removal_that_does_not_restore_is_caught(build, profile_for):
    model = build()
    calls = []

    def drift(module, args, output):
        calls.append(None)
        return output + (len(calls) > 3)

    hook = model.model.norm.register_forward_hook(drift)
    with pytest.raises(PatchError, match="does not restore"):
        apply_profile(model, profile_for(model, "linear", factor=2.0))
    hook.remove()
    assert unhooked(model)


def test_outputs_that_are_not_finite_are_caught(build, profile_for):
    model = build()
    with torch.no_grad():
        model.lm_head.weight[0, 0] = float("nan")
    with pytest.raises(PatchError, match="unpatched model gives outputs that are not finite"):
        apply_profile(model, profile_for(model, "linear", factor=2.0))
    assert unhooked(model)


def test_a_profile_that_overflows_is_caught(build, profile_for):
    model = build(dtype=torch.float16)
    with pytest.raises(PatchError, match="'test' gives outputs that are not finite"):
        apply_profile(model, profile_for(model, "yarn", factor=2.0, attention_factor=60000.0))
    assert unhooked(model)


def test_without_the_check_nothing_is_run(build, profile_for):
    model = build()
    calls = []
    model.register_forward_pre_hook(lambda *_: calls.append(None))
    apply_profile(model, profile_for(model, "linear", factor=2.0), check=False).remove()
    assert calls == []


def test_it_leaves_modes_and_random_state_as_they_were(build, profile_for):
    model = build(attention_dropout=0.5).train()
    model.model.layers[1].eval()
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    with apply_profile(model, profile_for(model, "linear", factor=2.0)):
        assert [module.training for module in model.modules()] == modes
        assert torch.equal(torch.get_rng_state(), state)
