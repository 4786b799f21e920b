"""Profile files: the same bytes each time, the same profile back, and every mistake refused by name."""

import copy
import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from ropewalk import Distance, Frequency, ModelShape, Profile, ProfileError, load_profile

SHAPE = ModelShape("org/model", "abc123", "llama", 3, 4, 2, 16, 10000.0, 32)

FILE = """\
{
  "schema": "ropewalk/profile/v1",
  "name": "café",
  "model": {
    "id": "org/model",
    "revision": "abc123",
    "model_type": "llama",
    "num_layers": 3,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 16,
    "rope_theta": 10000.0,
    "trained_length": 32
  },
  "target_length": 96,
  "frequency": {
    "method": "linear",
    "factor": [
      1.0,
      2.5,
      4.0
    ]
  },
  "distance": {
    "method": "none"
  },
  "provenance": {
    "seed": 7,
    "score": [
      0.5
    ]
  }
}
"""

FREQUENCIES = [
    Frequency("native"),
    Frequency("linear", factor=2),
    Frequency("linear", factor=(1.0, 2.0, 3.0)),
    Frequency("ntk", factor=0.1),
    Frequency("dynamic_ntk", factor=(1.0, 2.0, 1000.0)),
    Frequency("yarn", factor=4.0),
    Frequency("yarn", factor=(1.0, 2.0, 3.0), beta_fast=20, beta_slow=2, attention_factor=1.1),
    Frequency("longrope", factors=[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]),
    Frequency("longrope", factors=[[float(layer + pair) for pair in range(1, 9)] for layer in range(3)]),
]


def data(**changes):
    """The example file's data with parts replaced: data(frequency={...}, model__head_dim=7)."""
    result = json.loads(FILE)
    for key, value in changes.items():
        *path, last = key.split("__")
        target = result
        for part in path:
            target = target[part]
        target[last] = value
    return result


def refused(found):
    with pytest.raises(ProfileError) as caught:
        Profile.from_dict(found)
    return caught.value


# Files


def test_a_saved_file_has_exactly_these_bytes(tmp_path, example_profile):
    example_profile.save(tmp_path / "profile.json")
    assert (tmp_path / "profile.json").read_bytes() == FILE.encode()


def test_saving_what_was_loaded_gives_the_same_bytes(tmp_path):
    random = Random(3)
    for index, frequency in enumerate(
        [*FREQUENCIES, Frequency("linear", factor=[random.uniform(1, 9) for _ in "abc"])]
    ):
        first, second = tmp_path / f"{index}a.json", tmp_path / f"{index}b.json"
        profile = Profile("p", SHAPE, 96, frequency)
        profile.save(first)
        loaded = load_profile(first)
        assert loaded == profile
        loaded.save(second)
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("frequency", FREQUENCIES, ids=lambda frequency: frequency.method)
def test_a_profile_survives_dict_json_and_pickle(frequency):
    profile = Profile("p", SHAPE, 96, frequency, provenance={"a": [1, None, {"b": True}]})
    assert Profile.from_dict(profile.to_dict()) == profile
    assert Profile.from_dict(json.loads(json.dumps(profile.to_dict()))) == profile
    assert pickle.loads(pickle.dumps(profile)) == profile
    assert hash(profile) == hash(copy.deepcopy(profile))


def test_a_reader_never_sees_half_a_file(tmp_path, example_profile):
    path = tmp_path / "profile.json"
    example_profile.save(path)
    other = Profile("x" * 200_000, SHAPE, 96, Frequency("native"))

    def write(count):
        for index in range(count):
            (other if index % 2 else example_profile).save(path)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write, 40)
        while not writing.done():
            assert load_profile(path) in (example_profile, other)
        writing.result()
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json"]


def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path, example_profile, monkeypatch):
    path = tmp_path / "profile.json"
    example_profile.save(path)

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        Profile.identity(SHAPE, 96).save(path)
    assert path.read_text(encoding="utf-8") == FILE
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json"]


def test_saving_into_a_missing_folder_fails(tmp_path, example_profile):
    with pytest.raises(FileNotFoundError):
        example_profile.save(tmp_path / "missing" / "profile.json")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"a": NaN}', "finite"),
        (b'{"a": -Infinity}', "finite"),
        (b'{"a": 1, "a": 2}', "each key once"),
        (b"[" * 100_000, "JSON"),
        (b"[1]", "a JSON object"),
        (b"{}", "ropewalk/profile/v1"),
        (b'{"schema": "ropewalk/profile/v2"}', "ropewalk/profile/v1"),
    ],
)
def test_a_file_that_is_no_profile_is_refused(tmp_path, content, reason):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match=reason):
        load_profile(path)


def test_a_missing_file_or_a_folder_is_refused_by_name(tmp_path):
    with pytest.raises(ProfileError, match="no such file") as caught:
        load_profile(tmp_path / "absent.json")
    assert caught.value.field == str(tmp_path / "absent.json")
    with pytest.raises(ProfileError, match="readable"):
        load_profile(tmp_path)


# Validation


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"schema": None}, "schema"),
        ({"name": " "}, "name"),
        ({"target_length": 0}, "target_length"),
        ({"target_length": 96.0}, "target_length"),
        ({"target_length": True}, "target_length"),
        ({"model": 3}, "model"),
        ({"model__head_dim": 7}, "model.head_dim"),
        ({"frequency": []}, "frequency"),
        ({"frequency__method": "pi"}, "frequency.method"),
        ({"frequency__method": ["linear"]}, "frequency.method"),
        ({"frequency__factor": None}, "frequency.factor"),
        ({"frequency__factor": "4"}, "frequency.factor"),
        ({"frequency__factor": True}, "frequency.factor"),
        ({"frequency__factor": 0.09}, "frequency.factor"),
        ({"frequency__factor": 1000.1}, "frequency.factor"),
        ({"frequency__factor": float("nan")}, "frequency.factor"),
        ({"frequency__factor": float("inf")}, "frequency.factor"),
        ({"frequency__factor": 10**400}, "frequency.factor"),
        ({"frequency__factor": []}, "frequency.factor"),
        ({"frequency__factor": {"a": 1}}, "frequency.factor"),
        ({"frequency__factor": [1.0, 2.0]}, "frequency.factor"),
        ({"frequency__factor": [1.0, 2.0, 3.0, 4.0]}, "frequency.factor"),
        ({"frequency__factor": [1.0, "2", 3.0]}, "frequency.factor[1]"),
        ({"frequency__factor": [1.0, 2.0, float("nan")]}, "frequency.factor[2]"),
        ({"frequency": {"method": "native", "factor": 2.0}}, "frequency.factor"),
        ({"frequency": {"method": "linear", "factor": 2.0, "beta_fast": 32.0}}, "frequency.beta_fast"),
        ({"frequency": {"method": "ntk", "factor": 2.0, "attention_factor": 1.0}}, "frequency.attention_factor"),
        ({"frequency": {"method": "yarn"}}, "frequency.factor"),
        ({"frequency": {"method": "yarn", "factor": 2.0, "beta_fast": 1.0}}, "frequency.beta_fast"),
        ({"frequency": {"method": "yarn", "factor": 2.0, "beta_slow": 0.0}}, "frequency.beta_slow"),
        ({"frequency": {"method": "yarn", "factor": 2.0, "attention_factor": -1}}, "frequency.attention_factor"),
        ({"frequency": {"method": "longrope", "factor": 2.0}}, "frequency.factor"),
        ({"frequency": {"method": "longrope"}}, "frequency.factors"),
        ({"frequency": {"method": "longrope", "factors": 2.0}}, "frequency.factors"),
        ({"frequency": {"method": "longrope", "factors": [2.0] * 7}}, "frequency.factors"),
        ({"frequency": {"method": "longrope", "factors": [[2.0] * 8] * 2}}, "frequency.factors"),
        ({"frequency": {"method": "longrope", "factors": [[2.0] * 8, [2.0] * 9, [2.0] * 8]}}, "frequency.factors"),
        ({"frequency": {"method": "longrope", "factors": [[2.0] * 8, 2.0, [2.0] * 8]}}, "frequency.factors[1]"),
        ({"frequency": {"method": "longrope", "factors": [2.0, 0.0] * 4}}, "frequency.factors[1]"),
        ({"distance": {}}, "distance.method"),
        ({"distance": {"method": "yarn"}}, "distance.method"),
        ({"distance": {"method": "dpe", "window": 16}}, "distance.scale_factors"),
        ({"distance": {"method": "none", "window": 16}}, "distance.window"),
        ({"distance": {"method": "self_extend", "window": 64, "group_size": 8}}, "distance.window"),
        ({"distance": {"method": "self_extend", "window": 16, "group_size": 0}}, "distance.group_size"),
        ({"distance": {"method": "self_extend", "window": 16, "group_size": 8, "slope": 2}}, "distance.slope"),
        ({"distance": {"method": "rerope", "window": 0}}, "distance.window"),
        ({"distance": {"method": "rerope", "window": 16, "log_n": 1}}, "distance.log_n"),
        ({"distance": {"method": "leaky_rerope", "window": 16, "slope": 0.5}}, "distance.slope"),
        ({"distance": {"method": "dca", "chunk_size": 24, "local_size": 24}}, "distance.local_size"),
        ({"distance": {"method": "dca", "chunk_size": 48, "local_size": 8}}, "distance.chunk_size"),
        ({"provenance": []}, "provenance"),
        ({"provenance": {"score": float("nan")}}, "provenance.score"),
    ],
)
def test_a_wrong_value_is_refused_by_name(changes, field):
    error = refused(data(**changes))
    assert error.field == field
    assert error.allowed
    assert field in str(error) and error.allowed in str(error)


@pytest.mark.parametrize(
    ("field", "nearest"),
    [
        ("target_lenght", "target_length"),
        ("model__num_layer", "num_layers"),
        ("frequency__facotr", "factor"),
        ("frequency__betafast", "beta_fast"),
        ("distance__methods", "method"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(field, nearest):
    error = refused(data(**{field: 1}))
    assert error.field == field.replace("__", ".")
    assert f"did you mean {nearest}?" in str(error)


@pytest.mark.parametrize("path", ["schema", "name", "model", "target_length", "frequency", "model__num_heads"])
def test_a_missing_key_is_refused_by_name(path):
    found = data()
    *parents, last = path.split("__")
    target = found
    for part in parents:
        target = target[part]
    del target[last]
    error = refused(found)
    assert error.field == path.replace("__", ".")
    assert "got nothing" in str(error)


def test_an_unsupported_method_is_refused_with_what_is_allowed():
    assert "native, linear, ntk, dynamic_ntk, yarn, longrope (did you mean linear?)" in str(
        refused(data(frequency__method="linaer"))
    )
    assert "did you mean self_extend?" in str(refused(data(distance={"method": "selfextend"})))


def test_distance_and_provenance_may_be_left_out():
    found = data()
    del found["distance"], found["provenance"]
    profile = Profile.from_dict(found)
    assert profile.distance == Distance("none")
    assert profile.provenance == {}


def test_a_profile_built_in_python_is_held_to_the_same_rules(example_profile):
    with pytest.raises(ProfileError, match=r"frequency\.factor"):
        Profile("p", SHAPE, 96, Frequency("linear", factor=[1.0, 2.0]))
    with pytest.raises(ProfileError, match="a Frequency"):
        Profile("p", SHAPE, 96, {"method": "native"})
    with pytest.raises(ProfileError, match="plain JSON data"):
        example_profile.with_provenance({"path": Path("x")})
    with pytest.raises(ProfileError, match="string keys"):
        example_profile.with_provenance({"scores": {1: 2}})


@pytest.mark.parametrize("method", ["ntk", "dynamic_ntk"])
def test_ntk_needs_two_dimension_pairs(method):
    with pytest.raises(ProfileError, match=r"model\.head_dim"):
        Profile("p", ModelShape("m", None, "llama", 1, 1, 1, 2, 1e4, 32), 96, Frequency(method, factor=2.0))


def test_the_caller_s_provenance_is_copied(example_profile):
    mine = {"scores": [1]}
    profile = example_profile.with_provenance(mine)
    mine["scores"].append(2)
    profile.to_dict()["provenance"]["scores"].append(3)
    assert profile.provenance == {"scores": [1]}


# Hash


def test_the_hash_of_a_fixed_profile_never_changes(example_profile):
    assert example_profile.hash == "182bf57bdaa1a06b9dac192caa4f3a02e0131db1eeda19369adf28675e2fec4e"


def test_the_hash_covers_what_is_applied_and_nothing_else(example_profile):
    changed = {
        Profile.from_dict(data(**change)).hash
        for change in (
            {"target_length": 97},
            {"frequency__factor": [1.0, 2.5, 4.25]},
            {"frequency": {"method": "ntk", "factor": [1.0, 2.5, 4.0]}},
            {"model__num_heads": 8},
            {"model__rope_theta": 20000.0},
            {"model__trained_length": 64},
        )
    }
    assert len(changed) == 6
    assert example_profile.hash not in changed
    for change in ({"name": "other"}, {"provenance": {}}, {"model__id": "x"}, {"model__revision": None}):
        assert Profile.from_dict(data(**change)).hash == example_profile.hash


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Frequency("linear", factor=4), Frequency("linear", factor=(4.0, 4.0, 4.0))),
        (Frequency("yarn", factor=4), Frequency("yarn", factor=4.0, beta_fast=32, beta_slow=1)),
        (Frequency("longrope", factors=[2] * 8), Frequency("longrope", factors=[[2.0] * 8] * 3)),
    ],
    ids=["one factor", "defaults", "one row"],
)
def test_ways_of_writing_the_same_have_the_same_hash(one, other):
    assert Profile("a", SHAPE, 96, one).hash == Profile("b", SHAPE, 96, other).hash


# Fitting a model


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", "qwen2"),
        ("num_layers", 4),
        ("num_heads", 8),
        ("num_kv_heads", 4),
        ("head_dim", 32),
        ("rope_theta", 500000.0),
        ("trained_length", 64),
    ],
)
def test_another_architecture_is_refused_with_both_values(example_profile, field, value):
    other = ModelShape.from_dict({**SHAPE.to_dict(), field: value})
    with pytest.raises(ProfileError) as caught:
        example_profile.check_fits(other)
    assert caught.value.field == f"model.{field}"
    assert str(value) in str(caught.value) and str(getattr(SHAPE, field)) in str(caught.value)


def test_id_and_revision_need_not_match(example_profile):
    example_profile.check_fits(ModelShape.from_dict({**SHAPE.to_dict(), "id": "local", "revision": None}))


def test_an_error_keeps_its_parts_across_processes():
    error = pickle.loads(pickle.dumps(ProfileError("frequency.factor", 0.0, "a number from 0.1 to 1000")))
    assert (error.field, error.value, error.allowed) == ("frequency.factor", 0.0, "a number from 0.1 to 1000")
    assert str(error) == "frequency.factor: got 0.0; allowed: a number from 0.1 to 1000"
