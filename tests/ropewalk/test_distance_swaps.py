"""Changing the profile is safe: no cache, model or thread sees another one's, and removal leaves nothing behind."""

import threading

import pytest
import torch
from transformers import DynamicCache, LlamaForCausalLM, StaticCache

from ropewalk import Distance, Frequency, PatchError, Profile, ProfileError, apply_profile
from tests.ropewalk.distance_cases import METHODS, ROUNDING, Case, off, run, shape_of
from tests.ropewalk.small_models import EAGER, KINDS, build, tokens

LENGTH = 60
OTHERS = [name for name in METHODS if name != "self_extend"]


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


def filled(model, ids):
    cache = DynamicCache(config=model.config)
    run(model, ids, cache=cache)
    return cache


# Caches


@pytest.mark.parametrize("other", OTHERS)
def test_a_cache_filled_under_another_profile_is_refused(other):
    first, second = Case("self_extend"), Case(other)
    with apply_profile(first.model, first.profile, check=False):
        cache = filled(first.model, tokens(20))
    with (
        apply_profile(first.model, second.profile, check=False),
        pytest.raises(PatchError, match="cache"),
    ):
        run(first.model, tokens(5), cache=cache)


def test_a_cache_filled_under_another_frequency_of_the_same_distance_method_is_refused():
    case = Case("self_extend")
    distance = Distance.from_dict(case.fields)
    other = Profile("other", case.profile.model, 128, Frequency("linear", factor=2.0), distance)
    with case.patched():
        cache = filled(case.model, tokens(20))
    with apply_profile(case.model, other, check=False), pytest.raises(PatchError, match="cache"):
        run(case.model, tokens(5), cache=cache)


def test_a_cache_filled_by_the_plain_model_is_refused(method):
    case = Case(method)
    cache = filled(case.model, tokens(20))
    with case.patched(), pytest.raises(PatchError, match="cache"):
        run(case.model, tokens(5), cache=cache)


def test_a_static_cache_filled_by_the_plain_model_is_refused():
    case = Case("dpe")
    cache = StaticCache(config=case.model.config, max_cache_len=40)
    run(case.model, tokens(20), cache=cache)
    with case.patched(), pytest.raises(PatchError, match="cache"):
        run(case.model, tokens(5), cache=cache)


def test_an_emptied_cache_is_as_good_as_new(method):
    case, ids = Case(method), tokens(LENGTH)
    with case.patched():
        cache = DynamicCache(config=case.model.config)
        run(case.model, tokens(30, seed=1), cache=cache)
        cache.crop(-30)
        first = run(case.model, ids[:, :40], cache=cache)
        second = run(case.model, ids[:, 40:], cache=cache)
    assert off(torch.cat((first, second), 1), case.literal.logits(ids)) < ROUNDING


def test_after_a_refused_cache_the_model_goes_on(method):
    case, ids = Case(method), tokens(LENGTH)
    cache = filled(case.model, tokens(20))
    with case.patched():
        with pytest.raises(PatchError):
            run(case.model, ids, cache=cache)
        assert off(run(case.model, ids), case.literal.logits(ids)) < ROUNDING


# Application and removal


@pytest.mark.parametrize(
    ("kind", "attention"),
    [
        (kind, attention)
        for kind in KINDS
        for attention in ("sdpa", "eager")
        if attention == "eager" or kind not in EAGER
    ],
)
def test_removal_restores_the_bits_and_the_attention(kind, attention):
    case, ids = Case("dpe", kind, attn_implementation=attention), tokens(LENGTH)
    plain = run(case.model, ids)
    modules = {name: module.config for name, module in case.model.named_modules() if hasattr(module, "config")}
    for _ in range(2):
        handle = case.patched()
        assert handle.active
        assert not torch.equal(run(case.model, ids), plain)
        handle.remove()
        handle.remove()
        assert not handle.active
        assert case.model.config._attn_implementation == attention
        assert torch.equal(run(case.model, ids), plain)
        for name, module in case.model.named_modules():
            if name in modules:
                assert module.config is modules[name], name
    assert "ropewalk" not in str(case.model.config.to_dict())


def test_an_exception_inside_removes_the_profile(method):
    case, ids = Case(method), tokens(LENGTH)
    plain = run(case.model, ids)
    with pytest.raises(KeyError), case.patched():
        raise KeyError
    assert case.model.config._attn_implementation == "sdpa"
    assert torch.equal(run(case.model, ids), plain)


def test_a_failed_forward_leaves_nothing_behind(method):
    case, ids = Case(method), tokens(LENGTH)
    with case.patched():
        hook = case.model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(case.model, ids)
        hook.remove()
        assert off(run(case.model, ids), case.literal.logits(ids)) < ROUNDING


def test_a_second_profile_on_top_is_refused_and_the_first_stays():
    case, ids = Case("self_extend"), tokens(LENGTH)
    other = Case("dca").profile
    with case.patched():
        expected = run(case.model, ids)
        for profile in (other, case.profile, Profile.identity(shape_of(case.model), 128)):
            with pytest.raises(ProfileError, match=r"remove\(\)"):
                apply_profile(case.model, profile)
        assert torch.equal(run(case.model, ids), expected)


def test_saved_while_patched_it_loads_as_the_plain_model(tmp_path):
    case, ids = Case("dpe"), tokens(LENGTH)
    plain = run(case.model, ids)
    with case.patched():
        case.model.save_pretrained(tmp_path)
    assert torch.equal(run(LlamaForCausalLM.from_pretrained(tmp_path, attn_implementation="sdpa").eval(), ids), plain)


# Several models


def test_two_models_carry_different_profiles():
    first, second, ids = Case("self_extend"), Case("dca", seed=1), tokens(LENGTH)
    with first.patched(), second.patched():
        for _ in range(2):
            assert off(run(first.model, ids), first.literal.logits(ids)) < ROUNDING
            assert off(run(second.model, ids), second.literal.logits(ids)) < ROUNDING


def test_a_handle_removed_out_of_order_leaves_the_other_alone():
    first, second, ids = Case("self_extend"), Case("dca", seed=1), tokens(LENGTH)
    plain = run(first.model, ids)
    one, two = first.patched(), second.patched()
    one.remove()
    assert torch.equal(run(first.model, ids), plain)
    assert off(run(second.model, ids), second.literal.logits(ids)) < ROUNDING
    two.remove()


def test_a_model_that_shares_the_config_object_stays_plain():
    case, ids = Case("dpe"), tokens(LENGTH)
    twin = LlamaForCausalLM(case.model.config).eval()
    twin.load_state_dict(case.model.state_dict())
    plain = run(twin, ids)
    with case.patched():
        assert torch.equal(run(twin, ids), plain)
        assert off(run(case.model, ids), case.literal.logits(ids)) < ROUNDING
    assert torch.equal(run(case.model, ids), plain)


# Threads


def in_threads(*works):
    """Runs each in a thread, all starting together; raises the first error."""
    barrier, errors = threading.Barrier(len(works)), []

    def start(work):
        try:
            barrier.wait()
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=start, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def repeated(model, ids, expected, pieces):
    """Work of a thread: prefill and decode, time and again, each the same as when alone."""

    def work():
        for _ in range(6):
            cache = DynamicCache(config=model.config)
            parts = [run(model, part, cache=cache) for part in ids.split(pieces, 1)]
            assert torch.equal(torch.cat(parts, 1), expected)

    return work


def alone(model, ids, pieces):
    cache = DynamicCache(config=model.config)
    return torch.cat([run(model, part, cache=cache) for part in ids.split(pieces, 1)], 1)


def test_two_threads_run_two_models():
    first, second = Case("self_extend"), Case("dpe query heads", seed=1)
    one, two = tokens(LENGTH), tokens(50, seed=1)
    with first.patched(), second.patched():
        expected = alone(first.model, one, [40, 17, 3]), alone(second.model, two, [20, 20, 10])
        in_threads(
            repeated(first.model, one, expected[0], [40, 17, 3]),
            repeated(second.model, two, expected[1], [20, 20, 10]),
        )


@pytest.mark.parametrize("frequency", [None, Frequency("dynamic_ntk", factor=2.0)], ids=["native", "dynamic_ntk"])
@pytest.mark.parametrize("name", ["rerope log_n", "dca", "dpe query heads"])
def test_threads_share_one_model(name, frequency):
    case = Case(name, frequency=frequency)
    works = [(tokens(LENGTH), [40, 17, 3]), (tokens(80, seed=1), [70, 10]), (tokens(30, seed=2), [10, 20])]
    with case.patched():
        expected = [alone(case.model, ids, pieces) for ids, pieces in works]
        in_threads(*[repeated(case.model, ids, e, p) for (ids, p), e in zip(works, expected, strict=True)])


def test_a_profile_applied_in_one_thread_leaves_a_model_in_another_plain():
    case, plain_model, ids = Case("dca"), build(seed=1), tokens(LENGTH)
    plain = run(plain_model, ids)

    def apply_and_remove():
        for _ in range(10):
            with case.patched():
                assert off(run(case.model, ids), expected) < ROUNDING

    def run_plain():
        for _ in range(20):
            assert torch.equal(run(plain_model, ids), plain)

    expected = case.literal.logits(ids)
    in_threads(apply_and_remove, run_plain)
