"""A model under a distance method is used as any other: compiled, cast, pickled, offloaded, interrupted."""

import pickle

import pytest
import torch
from accelerate import cpu_offload
from torch import nn
from transformers import DynamicCache, StaticCache

from ropewalk import Frequency, PatchError, Profile, apply_profile
from tests.ropewalk.distance_cases import METHODS, ROUNDING, Case, in_pieces, off, run
from tests.ropewalk.small_models import tokens

LENGTH = 60
PIECES = [40, 18, 1]


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


class OtherCache:
    """A cache that is none of transformers', as third parties write them."""

    def __init__(self):
        self.inner = DynamicCache()

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_a_cache_that_is_not_of_transformers_is_refused():
    case, ids, cache = Case("self_extend"), tokens(LENGTH), OtherCache()
    with case.patched(), torch.no_grad():
        case.model(input_ids=ids[:, :40], past_key_values=cache, use_cache=True)
        with pytest.raises(PatchError, match="20 queries meet 60 keys, of which some did not come from a Cache"):
            case.model(input_ids=ids[:, 40:], past_key_values=cache, use_cache=True)


# torch.compile


@pytest.fixture
def compiler():
    torch.compiler.reset()
    yield lambda model: torch.compile(model, backend="eager")
    torch.compiler.reset()


def test_a_compiled_model_gives_what_the_definition_gives(compiler):
    case, ids = Case("dpe query heads", num_hidden_layers=1), tokens(LENGTH)
    compiled, plain = compiler(case.model), run(case.model, ids)
    with case.patched():
        assert off(run(compiled, ids, use_cache=False), case.literal.logits(ids)) < ROUNDING
    assert off(run(compiled, ids, use_cache=False), plain) < ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_a_compiled_model_decodes_over_a_cache(compiler, method, static):
    case, ids = Case(method), tokens(LENGTH)
    compiled, config = compiler(case.model), case.model.config
    with case.patched():
        cache = StaticCache(config=config, max_cache_len=80) if static else DynamicCache(config=config)
        assert off(in_pieces(compiled, ids, [40, 18, 1], cache), case.literal.logits(ids)) < ROUNDING


def test_a_model_that_was_compiled_before_follows_each_frequency_profile(compiler):
    case, ids = Case("self_extend", num_hidden_layers=1), tokens(LENGTH)
    compiled, plain = compiler(case.model), run(case.model, ids)
    assert off(run(compiled, ids, use_cache=False), plain) < ROUNDING
    profile = Profile("linear", case.profile.model, 128, Frequency("linear", factor=2.0))
    with apply_profile(case.model, profile, check=False):
        expected = run(case.model, ids)
        assert off(expected, plain) > 0.1
        assert off(run(compiled, ids, use_cache=False), expected) < ROUNDING
    assert off(run(compiled, ids, use_cache=False), plain) < ROUNDING


# Precision


def test_autocast(method):
    case, ids = Case(method), tokens(LENGTH)
    with case.patched(), torch.autocast("cpu", torch.bfloat16):
        whole, pieces = run(case.model, ids), in_pieces(case.model, ids, PIECES)
    expected = case.literal.logits(ids)
    assert off(whole, expected) < 0.1
    assert off(pieces, expected) < 0.1


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 0.02), (torch.bfloat16, 0.1), (torch.float64, 1e-5)])
def test_a_model_cast_after_applying(method, dtype, tolerance):
    case, ids = Case(method), tokens(LENGTH)
    expected = case.literal.logits(ids)
    with case.patched():
        case.model.to(dtype)
        assert off(run(case.model, ids), expected) < tolerance
        assert off(in_pieces(case.model, ids, PIECES), expected) < tolerance


@pytest.mark.parametrize("backend", ["auto", "math"])
def test_scores_that_are_large_before_they_are_scaled_fit_float16(backend):
    case, ids = Case("self_extend", "qkv bias", num_attention_heads=4, hidden_size=512), tokens(LENGTH)
    with torch.no_grad():
        for layer in case.model.model.layers:
            layer.self_attn.q_proj.bias.fill_(40.0)
            layer.self_attn.k_proj.bias.fill_(40.0)
    case.model.half()
    assert torch.isfinite(in_pieces(case.model, ids, PIECES)).all()
    with case.patched(backend=backend):
        assert torch.isfinite(run(case.model, ids)).all()
        assert torch.isfinite(in_pieces(case.model, ids, PIECES)).all()


# Copies and places


def test_a_pickled_model_keeps_its_profile(method):
    case, ids = Case(method), tokens(LENGTH)
    with case.patched():
        expected, decoded = run(case.model, ids), in_pieces(case.model, ids, PIECES)
        copied = pickle.loads(pickle.dumps(case.model))
    assert torch.equal(run(copied, ids), expected)
    assert torch.equal(in_pieces(copied, ids, PIECES), decoded)
    for layer in [hook.plan for m in copied.modules() for hook in m._forward_pre_hooks.values()]:
        keys = {region.key for region in layer.regions}
        assert len(keys) == (1 if method == "dca" else 2), "equal maps are one object"


def test_offloaded_weights(method):
    case, ids = Case(method), tokens(LENGTH)
    expected = case.literal.logits(ids)
    cpu_offload(case.model, execution_device="cpu")
    with apply_profile(case.model, case.profile):
        assert off(run(case.model, ids), expected) < ROUNDING
        assert off(in_pieces(case.model, ids, PIECES), expected) < ROUNDING


# Interruptions


def state(model):
    """What applying a profile changes: configs, hooks."""
    return [(id(vars(module).get("config")), len(module._forward_pre_hooks)) for module in model.modules()]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("forward", [1, 2, 5, 8])
def test_a_self_check_that_breaks_off_leaves_the_model_as_it_was(error, forward):
    case, ids, calls = Case("dpe query heads"), tokens(LENGTH), 0
    plain = run(case.model, ids)

    def interrupt(*_):
        nonlocal calls
        calls += 1
        if calls == forward:
            raise error

    hook = case.model.model.layers[1].register_forward_pre_hook(interrupt)
    before = state(case.model)
    with pytest.raises(error):
        apply_profile(case.model, case.profile)
    assert state(case.model) == before
    hook.remove()
    assert torch.equal(run(case.model, ids), plain)


def test_an_interrupt_while_the_hooks_are_put_leaves_the_model_as_it_was(monkeypatch):
    case, ids, register = Case("dca"), tokens(LENGTH), nn.Module.register_forward_pre_hook
    plain, before = run(case.model, ids), state(case.model)

    def interrupted(module, *args, **kwargs):
        if getattr(module, "layer_idx", 0) == 1:
            raise KeyboardInterrupt
        return register(module, *args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(nn.Module, "register_forward_pre_hook", interrupted)
        case.patched()
    assert state(case.model) == before
    assert torch.equal(run(case.model, ids), plain)


def test_another_attention_set_while_applied_is_refused_and_holds_after_removal():
    case, ids = Case("dca"), tokens(LENGTH)
    with case.patched():
        case.model.set_attn_implementation("eager")
        with pytest.raises(PatchError, match="set to eager while a distance method is applied"):
            run(case.model, ids)
    assert case.model.config._attn_implementation == "eager"
    case.model.set_attn_implementation("sdpa")
    assert off(run(case.model, ids), run(Case("dca").model, ids)) == 0.0
