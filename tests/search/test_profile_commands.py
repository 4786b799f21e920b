"""`ropewalk profile` as a user meets it, and profiles as they are written on the command line."""

import json

import pytest

from ropewalk import FieldError, Frequency, ModelShape, Profile, ProfileError
from ropewalk.published import PUBLISHED
from search.cli import main
from search.profile_argument import read
from tests.workers.tiny import save_model

SHAPE = ModelShape("tiny", None, "llama", 2, 4, 2, 32, 1e4, 64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(save_model(tmp_path_factory.mktemp("model")))


def test_the_list_names_every_published_profile_with_its_source(capsys):
    assert main(["profile", "list"]) == 0
    shown = capsys.readouterr().out
    for name, known in PUBLISHED.items():
        (line,) = [line for line in shown.splitlines() if line.split()[:1] == [name]]
        assert known.method in line
        assert known.source in line
    assert "4 4 2 16 32 32 16 128" in shown
    assert "top 48 of 64" in shown


def test_a_published_profile_is_shown_as_settings_or_made_for_a_model(folder, capsys):
    assert main(["profile", "show", "dca"]) == 0
    assert json.loads(capsys.readouterr().out)["distance"]["chunk_size"] == "3·L0/4"
    assert main(["profile", "show", "dca", "--model", folder, "--target-length", "256"]) == 0
    profile = Profile.from_dict(json.loads(capsys.readouterr().out))
    assert (profile.distance.chunk_size, profile.distance.local_size) == (48, 8)
    assert profile.target_length == 256


def test_a_published_profile_is_checked_against_a_model(folder, capsys):
    assert main(["profile", "check", "yarn", "--model", folder, "--target-length", "256"]) == 0
    assert "yarn: valid, yarn, 2 layers; fits" in capsys.readouterr().out
    assert main(["profile", "check", "dpe-llama-3-8b", "--model", folder]) == 2
    error = capsys.readouterr().err
    assert "num_layers: got 2; allowed: 32" in error
    assert main(["profile", "check", "self-extend", "--model", folder]) == 2
    error = capsys.readouterr().err
    assert "1024" in error
    assert "64" in error


def test_without_a_model_only_a_file_can_be_checked(capsys):
    assert main(["profile", "check", "yarn"]) == 2
    assert "--model" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["show", "check"])
@pytest.mark.parametrize("text", ["selfextend", "selfextend:window=8", "yarn:factor=2+self_extnd:window=8"])
def test_a_misspelt_name_is_told_before_a_model_is_asked_for(action, text, capsys):
    assert main(["profile", action, text]) == 2
    error = capsys.readouterr().err
    assert "did you mean self_extend?" in error
    assert "--model" not in error


def test_a_length_that_is_missing_or_too_long_is_told_by_its_option(folder, capsys):
    assert main(["profile", "show", "dca", "--model", folder]) == 2
    assert "--target-length: got nothing" in capsys.readouterr().err
    assert main(["profile", "check", "rerope:window=8", "--model", folder, "--target-length", "0"]) == 2
    assert "--target-length: got 0" in capsys.readouterr().err


def test_settings_are_shown_for_the_length_asked_for(capsys):
    assert main(["profile", "show", "dca", "--target-length", "512"]) == 0
    assert json.loads(capsys.readouterr().out)["target_length"] == 512
    assert main(["profile", "show", "dpe-llama-3-8b", "--target-length", "999999"]) == 2
    assert "at most 131072" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "frequency", "distance"),
    [
        ("linear:factor=4", {"method": "linear", "factor": 4.0}, {"method": "none"}),
        ("linear:factor=[1, 2.5]", {"method": "linear", "factor": [1.0, 2.5]}, {"method": "none"}),
        ("linear:factor=1.0e+1", {"method": "linear", "factor": 10.0}, {"method": "none"}),
        (
            "self_extend:window=8,group_size=4",
            {"method": "native"},
            {"method": "self_extend", "window": 8, "group_size": 4},
        ),
        (
            "self-extend:window=8,group_size=4",
            {"method": "native"},
            {"method": "self_extend", "window": 8, "group_size": 4},
        ),
        (
            "dpe:window=8,scale_factors=[8, 8]",
            {"method": "native"},
            {"method": "dpe", "window": 8, "scale_factors": [8.0, 8.0]},
        ),
        (
            "yarn:factor=2+rerope:window=8,log_n=true",
            {"method": "yarn", "factor": 2.0, "beta_fast": 32.0, "beta_slow": 1.0},
            {"method": "rerope", "window": 8, "log_n": True},
        ),
        (
            "dca+ntk",
            {"method": "ntk", "factor": 4.0},
            {"method": "dca", "chunk_size": 48, "local_size": 8},
        ),
    ],
)
def test_a_profile_written_out(text, frequency, distance):
    data = read(text, SHAPE, 256).build().to_dict()
    assert data["frequency"] == frequency
    assert data["distance"] == distance
    assert data["target_length"] == 256


def test_a_file_keeps_its_own_length(tmp_path):
    profile = Profile("found", SHAPE, 512, Frequency("linear", factor=8))
    profile.save(tmp_path / "winner.json")
    made = read(str(tmp_path / "winner.json"), SHAPE, 256)
    assert made.text == str(tmp_path / "winner.json")
    assert made.build() == profile


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("yarm", "did you mean yarn"),
        ("linear", "factor"),
        ("linear:factor", "field=value"),
        ("linear:factor=", "field=value"),
        ("linear:factor=2,factor=3", "once"),
        ("linear:factor=[1", "brackets"),
        ("linear:factro=2", "did you mean factor"),
        ("linear:factor=many", "many"),
        ("linear:factor=5000", "1000"),
        ("rerope:windwo=8", "did you mean window"),
        ("rerope:window=wide", "wide"),
        ("ntk+yarn", "one frequency method"),
        ("dca+rerope:window=8", "one distance method"),
        ("ntk+", "profile"),
        ("nowhere.json", "no such file"),
        ("", "profile"),
    ],
)
def test_what_is_malformed_is_refused_when_it_is_read(text, words):
    with pytest.raises(FieldError, match=words):
        read(text, SHAPE, 256)


@pytest.mark.parametrize("text", ["dpe-llama-3-8b", "dpe-llama-3-8b+ntk", "rerope", "linear:factor=[1, 2, 3]"])
def test_what_does_not_fit_the_model_is_found_when_it_is_built(text):
    made = read(text, SHAPE, 256)
    with pytest.raises(ProfileError):
        made.build()
