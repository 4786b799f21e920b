"""Models whose own rotation changes with the length, dynamic and longrope, rotate by one rule under a profile."""

import math

import pytest
import torch

from ropewalk import Distance, Frequency, ModelShape, Profile, apply_profile
from ropewalk.rotary import examine
from tests.ropewalk.architectures import ARCHITECTURES, TRAINED_LENGTH

SHORT, LONG = [1.0] * 4 + [1.1] * 4, [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
LONGROPE = {
    "rope_type": "longrope",
    "factor": 4.0,
    "short_factor": SHORT,
    "long_factor": LONG,
    "original_max_position_embeddings": 40,
}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.5}
ON_BASE = {
    "ntk": {"factor": 3.0},
    "dynamic_ntk": {"factor": (1.0, 2.0, 3.0)},
    "yarn": {"factor": (3.0, 4.0, 4.0)},
    "longrope": {"factors": LONG},
}
CHUNKS = [(0, 30), (30, 64), *((i, i + 1) for i in range(64, 72))]


@pytest.fixture
def longrope(build):
    return lambda **config: build(rope=LONGROPE, **{"max_position_embeddings": 160, **config})


@pytest.fixture
def dynamic(build):
    return lambda **config: build(rope=DYNAMIC, **{"max_position_embeddings": 40, **config})


def identity(model, target_length):
    return Profile.identity(ModelShape.from_config(model.config), target_length)


def in_chunks(model, ids):
    cache, parts = None, []
    for start, stop in CHUNKS:
        with torch.no_grad():
            outputs = model(input_ids=ids[:, start:stop], cache=cache, use_cache=True)
        cache = outputs.cache
        parts.append(outputs.logits)
    return torch.cat(parts, 1)


@pytest.mark.parametrize("method", ON_BASE)
@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_methods_on_the_base_frequencies_replace_the_scaling(build, tokens, logits, profile_for, request, kind, method):
    model = request.getfixturevalue(kind)()
    plain = build(max_position_embeddings=40)
    for length in (30, 90):
        ids = tokens(length)
        with (
            apply_profile(model, profile_for(model, method, **ON_BASE[method])),
            apply_profile(plain, profile_for(plain, method, **ON_BASE[method])),
        ):
            assert torch.equal(logits(model, ids), logits(plain, ids))


@pytest.mark.parametrize("method", ["native", "linear"])
@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_a_distance_method_decodes_what_it_prefills(tokens, logits, request, kind, method):
    model = request.getfixturevalue(kind)()
    ids = tokens(72)
    frequency = Frequency("native") if method == "native" else Frequency("linear", factor=(1.0, 1.5, 2.0))
    distance = Distance("self_extend", window=12, group_size=5)
    plain = logits(model, ids)
    with apply_profile(model, Profile("p", ModelShape.from_config(model.config), 160, frequency, distance)):
        whole = logits(model, ids)
        torch.testing.assert_close(in_chunks(model, ids), whole, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(whole, plain, atol=1e-2)
    assert torch.equal(logits(model, ids), plain)


@pytest.mark.parametrize(
    "distance", [Distance(), Distance("self_extend", window=12, group_size=5)], ids=["none", "self_extend"]
)
def test_phi3_generates_across_its_original_length(tokens, distance):
    """Phi-3 itself starts its cache anew when a generation passes the original length."""
    architecture = next(item for item in ARCHITECTURES if item.name == "Phi-3")
    model = architecture.build()
    ids = tokens(TRAINED_LENGTH - 4)
    with apply_profile(model, Profile("p", ModelShape.from_config(model.config), 128, Frequency("native"), distance)):
        found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False)
        expected = ids
        for _ in range(12):
            with torch.no_grad():
                last = model(input_ids=expected, use_cache=False).logits[:, -1:]
            expected = torch.cat((expected, last.argmax(-1)), 1)
    assert torch.equal(found, expected)


# longrope


@pytest.mark.parametrize(("target", "length"), [(40, 30), (40, 40), (160, 41), (160, 90)])
def test_the_longrope_identity_is_the_model_on_the_side_that_the_target_is_on(longrope, tokens, logits, target, length):
    model = longrope()
    ids = tokens(length)
    plain = logits(model, ids)
    with apply_profile(model, identity(model, target)):
        assert torch.equal(logits(model, ids), plain)
    assert torch.equal(logits(model, ids), plain)


@pytest.mark.parametrize("target", [40, 160])
def test_the_longrope_table_is_one_for_prefill_and_decode(longrope, tokens, logits, target):
    model = longrope()
    ids = tokens(72)
    with torch.no_grad():
        assert not torch.allclose(in_chunks(model, ids), logits(model, ids), atol=1e-2), (
            "the model by itself mixes them"
        )
    with apply_profile(model, identity(model, target)):
        torch.testing.assert_close(in_chunks(model, ids), logits(model, ids), rtol=1e-3, atol=1e-3)


def test_the_target_chooses_the_longrope_table_whatever_the_model_ran_before(longrope, tokens, logits):
    model = longrope()
    shape = ModelShape.from_config(model.config)
    expected = {
        target: 1 / (torch.tensor(factors) * 1e4 ** (torch.arange(0, 16, 2) / 16))
        for target, factors in ((40, SHORT), (41, LONG))
    }
    for length in (20, 90, 20):
        logits(model, tokens(length))
        rotary = examine(model, shape)
        for target, inv_freq in expected.items():
            for setting in rotary.settings(shape, target):
                torch.testing.assert_close(setting.native.inv_freq, inv_freq)
                assert setting.native.attention_scaling == math.sqrt(1 + math.log(4) / math.log(40))


def test_linear_divides_the_chosen_longrope_table(longrope, tokens, logits, profile_for, build):
    model = longrope()
    rope = {**LONGROPE, "short_factor": [2.5 * x for x in SHORT], "long_factor": [2.5 * x for x in LONG]}
    reference = build(rope=rope, max_position_embeddings=160)
    ids = tokens(90)
    with apply_profile(model, profile_for(model, "linear", factor=2.5)):
        torch.testing.assert_close(logits(model, ids), logits(reference, ids), rtol=1e-4, atol=1e-4)


def test_a_longrope_model_in_bfloat16_keeps_its_bits(longrope, tokens, logits):
    model = longrope(dtype=torch.bfloat16)
    for target, length in ((40, 30), (160, 90)):
        plain = logits(model, tokens(length))
        with apply_profile(model, identity(model, target)):
            assert torch.equal(logits(model, tokens(length)), plain)


def test_a_longrope_model_cast_whole_rotates_with_its_rounded_frequencies(longrope, tokens, logits):
    model = longrope().to(torch.bfloat16)
    for target, length in ((40, 30), (160, 90)):
        plain = logits(model, tokens(length))
        with apply_profile(model, identity(model, target)):
            assert torch.equal(logits(model, tokens(length)), plain)


# dynamic


@pytest.mark.parametrize("length", [20, 40, 41, 90])
def test_a_dynamic_model_goes_on_growing_under_the_identity(dynamic, tokens, logits, length):
    model = dynamic()
    ids = tokens(length)
    plain = logits(model, ids)
    with apply_profile(model, identity(model, 160)):
        torch.testing.assert_close(logits(model, ids), plain, rtol=1e-4, atol=1e-4)
    with apply_profile(
        model, Profile("p", ModelShape.from_config(model.config), 160, Frequency("dynamic_ntk", factor=2.5))
    ):
        torch.testing.assert_close(logits(model, ids), plain, rtol=1e-4, atol=1e-4)


def test_the_growth_of_a_dynamic_model_does_not_depend_on_what_it_ran_before(dynamic, tokens, logits):
    model = dynamic()
    ids = tokens(50)
    with apply_profile(model, identity(model, 160)):
        first = logits(model, ids)
        logits(model, tokens(90))
        assert torch.equal(logits(model, ids), first)


def test_with_the_length_pinned_a_dynamic_model_decodes_what_it_prefills(dynamic, tokens, logits):
    model = dynamic()
    ids = tokens(72)
    with apply_profile(model, identity(model, 160)) as handle:
        handle.total_length = 72
        torch.testing.assert_close(in_chunks(model, ids), logits(model, ids), rtol=1e-3, atol=1e-3)


def test_linear_divides_the_grown_frequencies(dynamic, tokens, logits, profile_for):
    model = dynamic()
    ids = tokens(90)
    rotary = model.model.rotary_emb
    logits(model, ids)
    grown = rotary.inv_freq.clone()
    with apply_profile(model, profile_for(model, "linear", factor=2.0)):
        found = logits(model, ids)
    rotary.forward = lambda x, position_ids: _table(grown / 2.0, position_ids)
    torch.testing.assert_close(logits(model, ids), found, rtol=1e-4, atol=1e-4)


def _table(inv_freq, position_ids):
    angles = (position_ids[..., None].float() * inv_freq).repeat(1, 1, 2)
    return angles.cos(), angles.sin()
