"""Published profiles: the figures of their sources, the models they fit, and the refusals of those they do not."""

import json

import pytest

from ropewalk import KeyDims, ModelShape, Profile, ProfileError
from ropewalk.published import PUBLISHED, published

LLAMA = ModelShape("llama-3-8b", None, "llama", 32, 32, 8, 128, 5e5, 8192)
MISTRAL = ModelShape("mistral-7b", None, "mistral", 32, 32, 8, 128, 1e6, 32768)
QWEN = ModelShape("qwen2.5-7b", None, "qwen2", 28, 28, 4, 128, 1e6, 32768)
TINY = ModelShape("tiny", None, "llama", 2, 4, 2, 32, 1e4, 256)

DPE = {
    "dpe-llama-3-8b": (LLAMA, (4, 4, 2, 16, 32, 32, 16, 128)),
    "dpe-llama-3-8b-alt": (LLAMA, (2, 8, 2, 8, 32, 32, 32, 4)),
    "dpe-mistral-7b-v0.2": (MISTRAL, (4, 16, 2, 16, 32, 16, 16, 2)),
    "dpe-llama-3.1-8b": (LLAMA, (2, 32, 32, 2, 2, 2, 2, 1)),
    "dpe-qwen2.5-7b": (QWEN, (2, 16, 8, 8, 32, 8, 2, 4)),
}


def changed(shape, field, value):
    """The shape with another value, all of a head rotated."""
    data = {**shape.to_dict(), field: value}
    data.pop("rotary_dim", None)
    return ModelShape.from_dict(data)


@pytest.mark.parametrize("name", DPE)
def test_dpe_has_the_published_factors_in_eight_equal_groups(name):
    shape, factors = DPE[name]
    profile = published(name, shape)
    assert profile.target_length == 131072
    assert profile.frequency.method == "native"
    distance = profile.distance
    assert (distance.method, distance.window, distance.key_dims) == ("dpe", 1024, None)
    assert distance.scale_factors == factors
    assert distance.bounds(64) == (0, 8, 16, 24, 32, 40, 48, 56, 64)
    assert "key_dims" in profile.provenance["note"]


def test_the_two_sets_for_llama_3_8b_are_told_apart():
    first, second = PUBLISHED["dpe-llama-3-8b"].description, PUBLISHED["dpe-llama-3-8b-alt"].description
    assert "released predictions" in first
    assert "conflict" in second


@pytest.mark.parametrize(
    ("name", "axis", "expected"),
    [
        ("self-extend", "distance", {"method": "self_extend", "window": 1024, "group_size": 32}),
        ("rerope", "distance", {"method": "rerope", "window": 1024, "log_n": False}),
        ("leaky-rerope", "distance", {"method": "leaky_rerope", "window": 1024, "slope": 64512 / 7168}),
        ("dca", "distance", {"method": "dca", "chunk_size": 6144, "local_size": 1024}),
        ("pi", "frequency", {"method": "linear", "factor": 8.0}),
        ("ntk", "frequency", {"method": "ntk", "factor": 8.0}),
        ("dynamic-ntk", "frequency", {"method": "dynamic_ntk", "factor": 8.0}),
        ("yarn", "frequency", {"method": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0}),
    ],
)
def test_settings_that_follow_from_model_and_length(name, axis, expected):
    assert published(name, LLAMA, 65536).to_dict()[axis] == expected


def test_qwen_has_half_the_local_window_of_dca():
    assert published("dca", QWEN, 131072).distance.local_size == 2048
    assert published("dca", MISTRAL, 131072).distance.local_size == 4096


def test_a_target_within_the_trained_length_is_not_scaled():
    assert published("yarn", LLAMA, 4096).frequency.factor == 1.0
    assert published("leaky-rerope", LLAMA, 4096).distance.slope == 1.0


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_one_of_them_is_a_whole_profile_file_with_its_source(name):
    shape = DPE[name][0] if name in DPE else LLAMA
    profile = published(name, shape, 131072)
    assert Profile.from_dict(json.loads(profile.to_json())) == profile
    assert profile.name == profile.provenance["published"] == name
    assert profile.provenance["source"] == PUBLISHED[name].source
    assert profile.provenance["description"]


@pytest.mark.parametrize("name", DPE)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_layers", 16),
        ("num_heads", 64),
        ("num_kv_heads", 2),
        ("head_dim", 96),
        ("rope_theta", 3e5),
        ("trained_length", 4096),
        ("model_type", "gemma"),
    ],
)
def test_factors_found_on_one_model_are_refused_for_another_architecture_with_both_values(name, field, value):
    shape = DPE[name][0]
    with pytest.raises(ProfileError) as caught:
        published(name, changed(shape, field, value))
    assert caught.value.field == f"model.{field}"
    wanted = getattr(shape, field)
    assert str(value) in str(caught.value) or f"{value:g}" in str(caught.value)
    assert (f"{wanted:g}" if isinstance(wanted, float) else str(wanted)) in caught.value.allowed


@pytest.mark.parametrize("name", ["self-extend", "rerope", "leaky-rerope"])
def test_a_window_beyond_the_trained_length_is_refused_with_both_numbers(name):
    with pytest.raises(ProfileError, match=r"window.*1024.*256"):
        published(name, TINY, 1024)
    assert published(name, TINY, 1024, window=64).distance.window == 64


def test_a_length_beyond_the_one_the_figures_are_for_is_refused_with_both_numbers():
    with pytest.raises(ProfileError, match=r"262144.*131072"):
        published("dpe-llama-3-8b", LLAMA, 262144)
    assert published("dpe-llama-3-8b", LLAMA, 65536).target_length == 65536
    assert published("self-extend", LLAMA, 200000).target_length == 200000


def test_where_no_length_is_published_one_has_to_be_named():
    with pytest.raises(ProfileError, match="target_length"):
        published("yarn", LLAMA)


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(ProfileError, match="did you mean self-extend"):
        published("self-extent", LLAMA)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("self-extend", {"group_sise": 8}, "did you mean group_size"),
        ("self-extend", {"slope": 2.0}, "method self_extend takes"),
        ("yarn", {"window": 64}, "frequency.window"),
        ("leaky-rerope", {"window": "wide"}, "distance.window"),
    ],
)
def test_a_field_that_the_method_has_not_or_a_wrong_value_is_refused(name, given, words):
    with pytest.raises(ProfileError, match=words):
        published(name, LLAMA, 65536, **given)


def test_measured_key_dimensions_complete_a_published_set():
    pairs = [True] * 48 + [False] * 16
    measured = KeyDims.from_bools("query_head", [[pairs] * 32] * 32)
    profile = published("dpe-llama-3-8b", LLAMA, key_dims=measured)
    assert profile.distance.key_dims == measured
    assert profile.provenance["changed"] == ["key_dims"]
    with pytest.raises(ProfileError, match=r"32 heads.*28"):
        published("dpe-qwen2.5-7b", QWEN, key_dims=KeyDims.from_bools("query_head", [[pairs] * 32] * 28))
