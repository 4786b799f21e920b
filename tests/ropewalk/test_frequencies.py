"""Each formula against a literal definition in double precision, and against transformers' own implementation."""

import math
from dataclasses import replace
from random import Random

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ropewalk.frequencies import METHODS, Growth, Rotation, Setting, base_frequencies, method_fields, yarn_range

SEEDS = range(4)


def draw(seed):
    """base, rotary dimension, trained length, factor."""
    random = Random(seed)
    return (
        random.choice([1e4, 5e5, 1e6]),
        random.choice([16, 32, 64, 128]),
        random.choice([256, 2048, 8192, 32768]),
        random.uniform(1.0, 40.0),
    )


def setting(base, dim, trained, target=0, total=0, native=None, scaling=1.0):
    inv_freq = base_frequencies(base, dim) if native is None else native
    return Setting(Rotation(inv_freq, scaling), base, trained, target, total)


def theta(base, dim, j):
    return base ** (-2 * j / dim)


def assert_frequencies(rotation, literal):
    assert rotation.inv_freq.dtype == torch.float32
    torch.testing.assert_close(
        rotation.inv_freq.double(), torch.tensor(literal, dtype=torch.float64), rtol=2e-6, atol=0
    )


def from_transformers(rope, base, dim, trained, seq_len=None, **config):
    config = LlamaConfig(
        hidden_size=dim * 2,
        num_attention_heads=2,
        head_dim=dim,
        max_position_embeddings=trained,
        rope_parameters={"rope_theta": base, **rope},
        **config,
    )
    return ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu", seq_len=seq_len)


@pytest.mark.parametrize("seed", SEEDS)
def test_native_is_what_the_model_holds(seed):
    base, dim, trained, _ = draw(seed)
    given = setting(base, dim, trained, native=torch.rand(dim // 2), scaling=1.3)
    assert METHODS["native"](given) is given.native


@pytest.mark.parametrize("seed", SEEDS)
def test_linear_divides_every_frequency_by_the_factor(seed):
    base, dim, trained, factor = draw(seed)
    rotation = METHODS["linear"](setting(base, dim, trained), factor=factor)
    assert_frequencies(rotation, [theta(base, dim, j) / factor for j in range(dim // 2)])
    expected, scaling = from_transformers({"rope_type": "linear", "factor": factor}, base, dim, trained)
    assert torch.equal(rotation.inv_freq, expected)
    assert rotation.attention_scaling == scaling == 1.0


@pytest.mark.parametrize("seed", SEEDS)
def test_linear_keeps_llama3_scaling_and_attention_scaling_of_the_model(seed):
    base, dim, trained, factor = draw(seed)
    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": trained,
    }
    native, _ = from_transformers(rope, base, dim, trained * 8)
    literal = []
    for j in range(dim // 2):
        frequency = theta(base, dim, j)
        wavelength = 2 * math.pi / frequency
        if wavelength > trained / 1.0:
            frequency /= 8.0
        elif wavelength >= trained / 4.0:
            smooth = (trained / wavelength - 1.0) / (4.0 - 1.0)
            frequency = (1 - smooth) * frequency / 8.0 + smooth * frequency
        literal.append(frequency / factor)
    rotation = METHODS["linear"](setting(base, dim, trained, native=native, scaling=1.25), factor=factor)
    assert_frequencies(rotation, literal)
    assert rotation.attention_scaling == 1.25


@pytest.mark.parametrize("seed", SEEDS)
def test_ntk_raises_the_base(seed):
    base, dim, trained, factor = draw(seed)
    rotation = METHODS["ntk"](setting(base, dim, trained, scaling=1.3), factor=factor)
    raised = base * factor ** (dim / (dim - 2))
    assert_frequencies(rotation, [theta(raised, dim, j) for j in range(dim // 2)])
    assert rotation.attention_scaling == 1.0
    slowest = theta(base, dim, dim // 2 - 1) / factor
    assert float(rotation.inv_freq[-1]) == pytest.approx(slowest, rel=1e-5), "the slowest pair is interpolated fully"


@pytest.mark.parametrize("seed", SEEDS)
def test_dynamic_ntk_grows_with_the_total_length(seed):
    base, dim, trained, factor = draw(seed)
    total = trained * 3 + 17
    rotation = METHODS["dynamic_ntk"](setting(base, dim, trained, total=total), factor=factor)
    raised = base * (factor * total / trained - (factor - 1)) ** (dim / (dim - 2))
    assert_frequencies(rotation, [theta(raised, dim, j) for j in range(dim // 2)])
    expected, scaling = from_transformers({"rope_type": "dynamic", "factor": factor}, base, dim, trained, seq_len=total)
    assert torch.equal(rotation.inv_freq, expected)
    assert rotation.attention_scaling == scaling == 1.0


@pytest.mark.parametrize("total", [1, 255, 256])
def test_dynamic_ntk_is_the_base_up_to_the_trained_length(total):
    rotation = METHODS["dynamic_ntk"](setting(1e4, 32, 256, total=total), factor=4.0)
    assert torch.equal(rotation.inv_freq, base_frequencies(1e4, 32))


@pytest.mark.parametrize("seed", SEEDS)
def test_yarn_ramps_from_extrapolation_to_interpolation(seed):
    base, dim, trained, factor = draw(seed)
    fast, slow = 32.0 + seed, 1.0 + seed / 2

    def correction(rotations):
        return dim * math.log(trained / (2 * math.pi * rotations)) / (2 * math.log(base))

    low, high = max(math.floor(correction(fast)), 0), min(math.ceil(correction(slow)), dim - 1)
    literal = []
    for j in range(dim // 2):
        ramp = min(max((j - low) / (high - low), 0.0), 1.0)
        literal.append(theta(base, dim, j) * (1 - ramp) + theta(base, dim, j) / factor * ramp)
    rotation = METHODS["yarn"](setting(base, dim, trained), factor=factor, beta_fast=fast, beta_slow=slow)
    assert_frequencies(rotation, literal)
    assert rotation.attention_scaling == pytest.approx(0.1 * math.log(factor) + 1)
    rope = {
        "rope_type": "yarn",
        "factor": factor,
        "beta_fast": fast,
        "beta_slow": slow,
        "original_max_position_embeddings": trained,
    }
    expected, scaling = from_transformers(rope, base, dim, trained)
    assert torch.equal(rotation.inv_freq, expected)
    assert rotation.attention_scaling == scaling


@pytest.mark.parametrize(
    ("base", "trained", "expected"), [(5e5, 8192, (18, 35)), (1e6, 32768, (23, 40))], ids=["llama-3", "qwen-2.5"]
)
def test_yarn_range_has_the_published_values(base, trained, expected):
    assert yarn_range(base, 128, trained, 32.0, 1.0) == expected


def test_yarn_attention_factor_has_the_published_value_and_can_be_given():
    given = setting(5e5, 128, 8192)
    assert METHODS["yarn"](given, factor=16.0).attention_scaling == pytest.approx(1.277, abs=5e-4)
    assert METHODS["yarn"](given, factor=16.0, attention_factor=0.9).attention_scaling == 0.9
    assert METHODS["yarn"](given, factor=0.5).attention_scaling == 1.0, "not below one for a factor below one"


def test_yarn_with_an_empty_ramp_is_a_step_as_in_transformers():
    rope = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 1.01, "beta_slow": 1.0}
    low, high = yarn_range(1e4, 16, 7, 1.01, 1.0)
    assert high - low <= 1
    expected, _ = from_transformers({**rope, "original_max_position_embeddings": 7}, 1e4, 16, 7)
    rotation = METHODS["yarn"](setting(1e4, 16, 7), factor=4.0, beta_fast=1.01, beta_slow=1.0)
    assert torch.equal(rotation.inv_freq, expected)
    assert torch.isfinite(rotation.inv_freq).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_longrope_scales_each_pair_by_its_own_factor(seed):
    base, dim, trained, _ = draw(seed)
    random = Random(seed)
    factors = tuple(random.uniform(1, 30) for _ in range(dim // 2))
    target = trained * 4
    rotation = METHODS["longrope"](setting(base, dim, trained, target=target), factors=factors)
    assert_frequencies(rotation, [1 / (factors[j] * base ** (2 * j / dim)) for j in range(dim // 2)])
    assert rotation.attention_scaling == pytest.approx(math.sqrt(1 + math.log(4) / math.log(trained)))
    rope = {
        "rope_type": "longrope",
        "factor": 4.0,
        "short_factor": [1.0] * (dim // 2),
        "long_factor": list(factors),
        "original_max_position_embeddings": trained,
    }
    expected, scaling = from_transformers(rope, base, dim, target, seq_len=target)
    assert torch.equal(rotation.inv_freq, expected)
    assert rotation.attention_scaling == scaling


def test_longrope_attention_factor_is_one_within_the_trained_length_and_can_be_given():
    factors = (2.0,) * 8
    assert METHODS["longrope"](setting(1e4, 16, 64, target=64), factors=factors).attention_scaling == 1.0
    given = METHODS["longrope"](setting(1e4, 16, 64, target=256), factors=factors, attention_factor=1.5)
    assert given.attention_scaling == 1.5


def test_the_signature_of_a_formula_is_the_schema_of_its_fields():
    assert {method: list(method_fields(method)) for method in METHODS} == {
        "native": [],
        "linear": ["factor"],
        "ntk": ["factor"],
        "dynamic_ntk": ["factor"],
        "yarn": ["factor", "beta_fast", "beta_slow", "attention_factor"],
        "longrope": ["factors", "attention_factor"],
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_the_native_rotation_of_a_dynamic_model_grows_beyond_its_length(seed):
    base, dim, trained, factor = draw(seed)
    given = setting(base, dim, trained // 2)  # the config's length counts, whatever is taken for the trained one
    for total in (0, trained, trained * 3 + 17):
        grown = replace(given, total_length=total, growth=Growth(factor, trained))
        expected, scaling = from_transformers(
            {"rope_type": "dynamic", "factor": factor}, base, dim, trained, seq_len=max(total, trained)
        )
        for method, fields, divisor in (("native", {}, 1.0), ("linear", {"factor": 2.5}, 2.5)):
            rotation = METHODS[method](grown, **fields)
            torch.testing.assert_close(rotation.inv_freq, expected / divisor, rtol=2e-6, atol=0)
            assert rotation.attention_scaling == scaling == 1.0
