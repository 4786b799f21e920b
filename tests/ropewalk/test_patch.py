"""A patched model computes what the definition says, layer by layer, and an unpatched one what it always did."""

import copy
import gc
import math

import pytest
import torch
from accelerate import cpu_offload

from ropewalk import Frequency, ModelShape, PatchError, Profile, ProfileError, apply_profile, tables
from ropewalk.frequencies import base_frequencies

ATTENTIONS = ("eager", "sdpa")
DTYPES = (torch.float32, torch.bfloat16)
LONGROPE = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
REAL = {
    "linear": {"factor": (1.0, 2.0, 4.0)},
    "ntk": {"factor": 3.0},
    "dynamic_ntk": {"factor": (1.0, 2.0, 3.0)},
    "yarn": {"factor": (3.0, 4.0, 4.0)},
    "longrope": {"factors": LONGROPE},
}


def literal_logits(model, ids, inverse_frequencies, scalings):
    """Llama written out: float32 weights, each layer rotated with its own frequencies, angles in double precision."""
    x = model.model.embed_tokens(ids)
    batch, length = ids.shape
    positions = torch.arange(length, dtype=torch.float64)
    causal = torch.full((length, length), -math.inf).triu(1)
    for layer, inv_freq, scaling in zip(model.model.layers, inverse_frequencies, scalings, strict=True):
        attention = layer.self_attn
        half = attention.head_dim // 2
        angles = torch.outer(positions, torch.as_tensor(inv_freq, dtype=torch.float64))
        turn = torch.polar(torch.full_like(angles, scaling), angles)

        def rotated(heads, turn=turn, half=half):
            pairs = torch.complex(heads[..., :half].double(), heads[..., half:].double()) * turn
            return torch.cat((pairs.real, pairs.imag), -1).float()

        normed = layer.input_layernorm(x)
        q, k, v = (
            projection(normed).view(batch, length, -1, attention.head_dim).transpose(1, 2)
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        groups = q.shape[1] // k.shape[1]
        q, k = rotated(q), rotated(k)
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        weights = (q @ k.transpose(2, 3) / attention.head_dim**0.5 + causal).softmax(-1)
        x = x + attention.o_proj((weights @ v).transpose(1, 2).reshape(batch, length, -1))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return model.lm_head(model.model.norm(x))


# Identity and removal


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_identity_gives_the_same_bits(build, tokens, logits, architecture, dtype, attention):
    model = build(architecture, dtype=dtype, attention=attention)
    ids = tokens(80, batch=2)
    plain = logits(model, ids)
    with apply_profile(model, Profile.identity(ModelShape.from_config(model.config), 96)):
        assert torch.equal(logits(model, ids), plain)


@pytest.mark.parametrize("method", ["linear", "ntk", "longrope"])
def test_a_factor_of_one_gives_the_same_bits(build, tokens, logits, profile_for, method):
    model = build()
    ids = tokens(80)
    fields = {"factors": [1.0] * 8, "attention_factor": 1.0} if method == "longrope" else {"factor": 1.0}
    plain = logits(model, ids)
    with apply_profile(model, profile_for(model, method, **fields)):
        assert torch.equal(logits(model, ids), plain)


@pytest.mark.parametrize("method", REAL)
def test_a_profile_changes_the_outputs_and_removal_restores_the_bits(
    build, tokens, logits, profile_for, architecture, method
):
    model = build(architecture)
    ids = tokens(80)
    plain = logits(model, ids)
    handle = apply_profile(model, profile_for(model, method, **REAL[method]))
    changed = logits(model, ids)
    assert torch.isfinite(changed).all()
    assert (changed - plain).abs().max() > 1e-2
    assert handle.active
    handle.remove()
    assert not handle.active
    assert torch.equal(logits(model, ids), plain)
    handle.remove()
    assert torch.equal(logits(model, ids), plain)


def test_leaving_the_context_by_an_error_restores_the_model(build, tokens, logits, profile_for):
    model = build()
    ids = tokens(40)
    plain = logits(model, ids)
    with pytest.raises(KeyError), apply_profile(model, profile_for(model, "ntk", factor=3.0)):
        raise KeyError
    assert torch.equal(logits(model, ids), plain)


# Against transformers' own implementation in the whole model


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_linear_is_what_transformers_computes(build, tokens, logits, profile_for, architecture, attention, seed):
    model = build(architecture, seed=seed, attention=attention)
    own = build(architecture, seed=seed, attention=attention, rope={"rope_type": "linear", "factor": 3.7})
    ids = tokens(90, seed=seed)
    with apply_profile(model, profile_for(model, "linear", factor=3.7)):
        assert torch.equal(logits(model, ids), logits(own, ids))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("attention_factor", [None, 1.4])
def test_yarn_is_what_transformers_computes(build, tokens, logits, profile_for, architecture, dtype, attention_factor):
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    if attention_factor is not None:
        rope["attention_factor"] = attention_factor
    model = build(architecture, dtype=dtype)
    own = build(architecture, dtype=dtype, rope=rope, max_position_embeddings=128)
    ids = tokens(90)
    with apply_profile(model, profile_for(model, "yarn", factor=4.0, attention_factor=attention_factor)):
        assert torch.equal(logits(model, ids), logits(own, ids))


def test_longrope_is_what_transformers_computes(build, tokens, logits, profile_for, architecture):
    rope = {
        "rope_type": "longrope",
        "factor": 3.0,
        "short_factor": [1.0] * 8,
        "long_factor": LONGROPE,
        "original_max_position_embeddings": 32,
    }
    model, own = build(architecture), build(architecture, rope=rope, max_position_embeddings=96)
    ids = tokens(90)
    with apply_profile(model, profile_for(model, "longrope", factors=LONGROPE)):
        assert torch.equal(logits(model, ids), logits(own, ids))


@pytest.mark.parametrize("length", [20, 32, 33, 90])
def test_dynamic_ntk_is_what_transformers_computes(build, tokens, logits, profile_for, architecture, length):
    model, own = build(architecture), build(architecture, rope={"rope_type": "dynamic", "factor": 2.5})
    ids = tokens(length)
    with apply_profile(model, profile_for(model, "dynamic_ntk", factor=2.5)):
        torch.testing.assert_close(logits(model, ids), logits(own, ids), rtol=1e-3, atol=1e-3)


# One factor per layer


@pytest.mark.parametrize("seed", range(3))
def test_each_layer_rotates_with_its_own_factor(build, tokens, logits, profile_for, seed):
    model = build(seed=seed, num_hidden_layers=2)
    ids = tokens(70, batch=2, seed=seed)
    theta = [10000.0 ** (-2 * j / 16) for j in range(8)]
    expected = literal_logits(model, ids, [[t / 1.5 for t in theta], [t / 6.0 for t in theta]], [1.0, 1.0])
    swapped = literal_logits(model, ids, [[t / 6.0 for t in theta], [t / 1.5 for t in theta]], [1.0, 1.0])
    with apply_profile(model, profile_for(model, "linear", factor=(1.5, 6.0))):
        found = logits(model, ids)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-3)
    assert (found - swapped).abs().max() > 0.1


def test_yarn_scales_attention_per_layer(build, tokens, logits, profile_for):
    model = build(num_hidden_layers=2)
    ids = tokens(70)
    low = max(math.floor(16 * math.log(32 / (2 * math.pi * 8)) / (2 * math.log(1e4))), 0)
    high = min(math.ceil(16 * math.log(32 / (2 * math.pi * 1)) / (2 * math.log(1e4))), 15)
    rows, scalings = [], []
    for factor in (2.0, 8.0):
        ramp = [min(max((j - low) / (high - low), 0), 1) for j in range(8)]
        rows.append([1e4 ** (-2 * j / 16) * ((1 - ramp[j]) + ramp[j] / factor) for j in range(8)])
        scalings.append(0.1 * math.log(factor) + 1)
    with apply_profile(model, profile_for(model, "yarn", factor=(2.0, 8.0), beta_fast=8)):
        found = logits(model, ids)
    torch.testing.assert_close(found, literal_logits(model, ids, rows, scalings), rtol=1e-3, atol=2e-3)


def test_longrope_takes_factors_per_layer_and_pair(build, tokens, logits, profile_for):
    model = build(num_hidden_layers=2)
    ids = tokens(70)
    factors = [LONGROPE, LONGROPE[::-1]]
    rows = [[1 / (f[j] * 1e4 ** (2 * j / 16)) for j in range(8)] for f in factors]
    scaling = math.sqrt(1 + math.log(3) / math.log(32))
    with apply_profile(model, profile_for(model, "longrope", factors=factors)):
        found = logits(model, ids)
    torch.testing.assert_close(found, literal_logits(model, ids, rows, [scaling] * 2), rtol=1e-3, atol=2e-3)


def test_only_the_layers_that_differ_get_another_table(build, tokens, logits, profile_for):
    model = build()
    seen = {}
    with apply_profile(model, profile_for(model, "linear", factor=(1.0, 2.0, 1.0))):
        for layer in model.model.layers:
            layer.self_attn.register_forward_pre_hook(
                lambda module, _, kwargs: seen.update({module.layer_idx: kwargs["position_embeddings"]}),
                with_kwargs=True,
            )
        logits(model, tokens(20))
    assert seen[0] is seen[2], "the tuple that the model made"
    assert not torch.equal(seen[0][0], seen[1][0])
    assert seen[1][0].shape == seen[0][0].shape


# Configs with a scaling of their own

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LINEAR = {"rope_type": "linear", "factor": 4.0}


@pytest.mark.parametrize("rope", [LLAMA3, YARN, LINEAR], ids=lambda rope: rope["rope_type"])
def test_linear_scales_what_a_scaled_config_rotates_with(build, tokens, logits, profile_for, architecture, rope):
    model, reference = (build(architecture, rope=rope, max_position_embeddings=128) for _ in range(2))
    assert not torch.equal(model.model.rotary_emb.inv_freq, base_frequencies(1e4, 16))
    reference.model.rotary_emb.inv_freq = reference.model.rotary_emb.inv_freq / 2.5
    ids = tokens(100)
    with apply_profile(model, profile_for(model, "linear", factor=2.5)):
        assert torch.equal(logits(model, ids), logits(reference, ids))


def test_methods_on_the_base_frequencies_replace_a_scaled_config_s_own_scaling(build, tokens, logits, profile_for):
    scaled, plain = build(rope=LLAMA3, max_position_embeddings=128), build()
    ids = tokens(90)
    with (
        apply_profile(scaled, profile_for(scaled, "yarn", factor=4.0)),
        apply_profile(plain, profile_for(plain, "yarn", factor=4.0)),
    ):
        assert torch.equal(logits(scaled, ids), logits(plain, ids))


# Ways of running a model


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("method", ["linear", "yarn"])
def test_left_padding_changes_nothing(build, tokens, logits, profile_for, architecture, method, attention):
    model = build(architecture, attention=attention)
    ids = tokens(60)
    padded = torch.cat((torch.zeros(1, 9, dtype=torch.long), ids), 1)
    mask = (torch.arange(69) >= 9).long()[None]
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with apply_profile(model, profile_for(model, method, **REAL[method])):
        alone = logits(model, ids)
        together = logits(
            model,
            torch.cat((padded, tokens(69, seed=1))),
            attention_mask=torch.cat((mask, torch.ones_like(mask))),
            position_ids=torch.cat((positions, torch.arange(69)[None])),
        )
    torch.testing.assert_close(together[:1, 9:], alone, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("method", REAL)
def test_chunked_prefill_and_decode_give_what_one_forward_gives(build, tokens, profile_for, architecture, method):
    model = build(architecture)
    ids = tokens(72)
    handle = apply_profile(model, profile_for(model, method, **REAL[method]))
    handle.total_length = 72
    with handle, torch.no_grad():
        whole = model(input_ids=ids, use_cache=False).logits
        cache, parts = None, []
        for start, stop in [(0, 30), (30, 64), *((i, i + 1) for i in range(64, 72))]:
            outputs = model(input_ids=ids[:, start:stop], cache=cache, use_cache=True)
            cache = outputs.cache
            parts.append(outputs.logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-3, atol=1e-3)


def test_several_questions_over_one_cached_context_give_what_whole_prompts_give(build, tokens, profile_for):
    model = build()
    context, questions = tokens(50), [tokens(7, seed=seed) for seed in (1, 2)]
    with apply_profile(model, profile_for(model, "linear", factor=(1.0, 2.0, 4.0))), torch.no_grad():
        cache = model(input_ids=context, use_cache=True).cache
        for question in questions:
            found = model(input_ids=question, cache=copy.deepcopy(cache)).logits
            whole = model(input_ids=torch.cat((context, question), 1)).logits
            torch.testing.assert_close(found, whole[:, 50:], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("method", ["linear", "dynamic_ntk"])
def test_generate_continues_greedily(build, tokens, logits, profile_for, architecture, method):
    model = build(architecture)
    ids = tokens(40)
    handle = apply_profile(model, profile_for(model, method, **REAL[method]))
    handle.total_length = 46
    with handle:
        written = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)
        expected = ids
        for _ in range(6):
            expected = torch.cat((expected, logits(model, expected)[:, -1:].argmax(-1)), 1)
    assert torch.equal(written, expected)


def test_a_model_whose_weights_are_offloaded_is_patched_too(build, tokens, logits, profile_for):
    resident, offloaded = build(), build()
    profile = profile_for(resident, "linear", factor=(1.0, 2.0, 4.0))
    ids = tokens(60)
    plain = logits(resident, ids)
    cpu_offload(offloaded, execution_device=torch.device("cpu"))
    assert offloaded.model.embed_tokens.weight.is_meta
    with apply_profile(resident, profile), apply_profile(offloaded, profile):
        assert torch.equal(logits(offloaded, ids), logits(resident, ids))
    assert torch.equal(logits(offloaded, ids), plain)


def test_a_model_without_a_head_is_patched_too(build, tokens, profile_for):
    model = build()
    ids = tokens(60)
    with torch.no_grad():
        plain = model.model(ids).last_hidden_state
        with apply_profile(model.model, profile_for(model, "ntk", factor=4.0)):
            assert not torch.equal(model.model(ids).last_hidden_state, plain)
        assert torch.equal(model.model(ids).last_hidden_state, plain)


def test_angles_are_float32_and_tables_have_the_model_s_dtype(build, tokens, logits, profile_for):
    model = build(dtype=torch.bfloat16)
    seen = []
    with apply_profile(model, profile_for(model, "linear", factor=1.25)):
        model.model.layers[0].self_attn.register_forward_pre_hook(
            lambda module, _, kwargs: seen.append(kwargs["position_embeddings"]), with_kwargs=True
        )
        logits(model, tokens(2), position_ids=torch.tensor([[4000, 4001]]), attention_mask=torch.ones(1, 2))
    cos, sin = seen[0]
    assert cos.dtype == sin.dtype == torch.bfloat16
    for index, position in enumerate((4000, 4001)):
        angle = torch.tensor(position / 1.25, dtype=torch.float32)
        assert cos[0, index, 0] == angle.cos().bfloat16()
        assert sin[0, index, 8] == angle.sin().bfloat16()


# The total length of dynamic_ntk


def test_dynamic_ntk_leaves_a_short_forward_alone(build, tokens, logits, profile_for):
    model = build()
    ids = tokens(32)
    plain = logits(model, ids)
    with apply_profile(model, profile_for(model, "dynamic_ntk", factor=4.0)):
        assert torch.equal(logits(model, ids), plain)


def test_dynamic_ntk_takes_its_table_for_a_pinned_total_length(build, tokens, logits, profile_for):
    model = build(num_hidden_layers=2)
    ids = tokens(40)
    with apply_profile(model, profile_for(model, "dynamic_ntk", factor=(1.0, 3.0))) as handle:
        assert handle.total_length is None
        for pinned in (96, None):
            handle.total_length = pinned
            rows = []
            for factor in (1.0, 3.0):
                base = 1e4 * (factor * (pinned or 40) / 32 - (factor - 1)) ** (16 / 14)
                rows.append([base ** (-2 * j / 16) for j in range(8)])
            expected = literal_logits(model, ids, rows, [1.0, 1.0])
            torch.testing.assert_close(logits(model, ids), expected, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "96"])
def test_a_total_length_that_is_no_length_is_refused(build, profile_for, value):
    model = build()
    handle = apply_profile(model, profile_for(model, "dynamic_ntk", factor=2.0))
    with handle, pytest.raises(ProfileError, match="total_length"):
        handle.total_length = value


# Application


def test_a_second_application_is_refused_until_the_first_is_removed(build, profile_for):
    model = build()
    profile = profile_for(model, "linear", factor=2.0)
    for first in (profile, Profile.identity(profile.model, 96)):
        with apply_profile(model, first):
            for target in (model, model.model, copy.deepcopy(model)):
                with pytest.raises(ProfileError, match=r"remove\(\)"):
                    apply_profile(target, profile)
    with apply_profile(model, profile):
        pass


def test_a_profile_for_another_model_is_refused_and_leaves_the_model_alone(build, tokens, logits, profile_for):
    model, other = build(), build(num_hidden_layers=4)
    plain = logits(model, tokens(20))
    with pytest.raises(ProfileError, match=r"num_layers.*3.*4"):
        apply_profile(model, profile_for(other, "linear", factor=2.0))
    assert torch.equal(logits(model, tokens(20)), plain)


def test_two_models_are_patched_independently(build, tokens, logits, profile_for):
    one, other = build(), build()
    ids = tokens(60)
    plain = logits(one, ids)
    with apply_profile(one, profile_for(one, "ntk", factor=4.0)):
        assert torch.equal(logits(other, ids), plain)
        with apply_profile(other, profile_for(other, "linear", factor=2.0)):
            assert not torch.equal(logits(one, ids), logits(other, ids))


def test_layers_with_equal_factors_share_one_table_a_forward(build, tokens, logits, profile_for, monkeypatch):
    model = build(num_hidden_layers=6)
    made = []
    original = tables.rotation_table
    with apply_profile(model, profile_for(model, "linear", factor=(2.0, 3.0, 2.0, 1.0, 3.0, 5.0))):
        monkeypatch.setattr(tables, "rotation_table", lambda *args: made.append(args) or original(*args))
        logits(model, tokens(20))
        assert len(made) == 3
        logits(model, tokens(20))
        assert len(made) == 6


@pytest.mark.parametrize("method", ["linear", "dynamic_ntk"])
def test_nothing_that_grows_with_the_context_is_kept(build, tokens, logits, profile_for, method):
    model = build()

    def large():
        gc.collect()
        return sum(1 for item in gc.get_objects() if type(item) is torch.Tensor and item.numel() >= 1000)

    class Abort(Exception):
        pass

    def abort(*_):
        raise Abort

    before = large()
    with apply_profile(model, profile_for(model, method, factor=(2.0, 3.0, 2.0))):
        logits(model, tokens(500))
        assert large() == before
        stop = model.model.layers[1].mlp.register_forward_hook(abort)
        with pytest.raises(Abort):
            logits(model, tokens(500))
        stop.remove()
        assert large() == before


def test_positions_that_do_not_belong_to_the_table_are_an_error(build, tokens, logits, profile_for):
    model = build()

    def shorten(module, args, kwargs):
        return args, {**kwargs, "position_ids": kwargs["position_ids"][:, 1:]}

    model.model.layers[1].self_attn.register_forward_pre_hook(shorten, with_kwargs=True)
    with (
        apply_profile(model, profile_for(model, "linear", factor=(1.0, 2.0, 3.0)), check=False),
        pytest.raises(PatchError, match="layer 1: cos has shape"),
    ):
        logits(model, tokens(20))


def test_frequency_is_the_same_from_either_module():
    from ropewalk.profile import Frequency as from_profile

    assert from_profile is Frequency


def test_arguments_of_another_kind_are_refused(build, profile_for):
    model = build()
    profile = profile_for(model, "native")
    with pytest.raises(ProfileError, match="a Profile; load_profile reads one"):
        apply_profile(model, "dpe.json")
    with pytest.raises(ProfileError, match="second argument"):
        apply_profile(profile, model)
    with pytest.raises(ProfileError, match="a config of transformers"):
        ModelShape.from_config(model)
