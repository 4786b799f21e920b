"""RULER's needle tasks: the published numbers of keys, values and questions, their wording, and where needles stand."""

import re

import pytest

from fitness.ruler.needles import Needle, answer_of, context_of, query_of
from fitness.ruler.retrieval import DEPTHS
from fitness.ruler.templates import NOISE

UUID = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
NUMBER = r"\d{7}"
WORD = r"[\w' .&-]+-[\w' .&-]+"
PARAMETERS = {  # haystack, key form, value form, hidden keys, values of each, keys asked for
    "niah_single_1": ("noise", WORD, NUMBER, 1, 1, 1),
    "niah_single_2": ("essay", WORD, NUMBER, 1, 1, 1),
    "niah_single_3": ("essay", WORD, UUID, 1, 1, 1),
    "niah_multikey_1": ("essay", WORD, NUMBER, 4, 1, 1),
    "niah_multikey_2": ("needle", WORD, NUMBER, 1, 1, 1),
    "niah_multikey_3": ("needle", UUID, UUID, 1, 1, 1),
    "niah_multivalue": ("essay", WORD, NUMBER, 1, 4, 1),
    "niah_multiquery": ("essay", WORD, NUMBER, 4, 1, 4),
}


def needles(context):
    return re.findall(r"One of the special magic (\w+) for (\S+(?: \S+)?) is: (\S+)\.(?=\s|$)", context)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_the_published_ones(built, name):
    haystack, key_form, value_form, keys, values, asked = PARAMETERS[name]
    for example in built(name, 1200).examples:
        found = needles(example.context)
        assert all(re.fullmatch(key_form, key) and re.fullmatch(value_form, value) for _, key, value in found)
        assert {form for form, _, _ in found} == {"uuids" if value_form == UUID else "numbers"}
        distinct = {key for _, key, _ in found}
        if haystack == "needle":
            lines = example.context.split("\n")[1:]
            assert len(lines) == len(found) == len(distinct) > 5
        else:
            assert (len(distinct), len(found)) == (keys, keys * values)
        if haystack == "noise":
            lines = example.context.split("\n")[1:]
            assert lines.count(NOISE) == len(lines) - 1
        (question,) = example.questions
        mentioned = [key for key in distinct if key in question.prompt]
        assert len(mentioned) == asked
        assert set(question.references) == {value for _, key, value in found if key in mentioned}
        assert len(question.references) == asked * values


def test_needles_of_an_essay_stand_between_sentences_at_published_depths(built):
    assert (len(DEPTHS), DEPTHS[:3], DEPTHS[-1]) == (40, (0.0, 0.03, 0.05), 1.0)
    places = set()
    for example in built("niah_single_2", 900, contexts=8).examples:
        text = example.context.split("\n", 1)[1]
        before, after = re.split(r"One of the special magic .*?: \d+\.", text)
        assert not before or not after or before.rstrip().rstrip("\"')]}”’").endswith((".", "!", "?"))
        places.add(round(len(before) / len(text), 1))
    assert len(places) > 3


def test_needles_among_lines_stand_anywhere(built):
    places = []
    for example in built("niah_multikey_2", 900, contexts=12).examples:
        lines = example.context.split("\n")[1:]
        places.append(
            next(i for i, line in enumerate(lines) if example.questions[0].references[0] in line) / len(lines)
        )
    assert min(places) < 0.3
    assert max(places) > 0.7


def test_wording_for_one_value_is_singular():
    assert str(Needle("blue-car", "123", "numbers")) == "One of the special magic numbers for blue-car is: 123."
    assert context_of("TEXT", "uuids", single=True) == (
        "A special magic uuid is hidden within the following text. Make sure to memorize it. "
        "I will quiz you about the uuid afterwards.\nTEXT"
    )
    assert query_of(["blue-car"], "numbers", single=True) == (
        "\nWhat is the special magic number for blue-car mentioned in the provided text?",
        " The special magic number for blue-car mentioned in the provided text is",
    )
    assert answer_of(["7"]) == " 7"


def test_wording_for_several_values_is_plural():
    assert context_of("TEXT", "numbers", single=False).startswith("Some special magic numbers are hidden within")
    assert query_of(["a", "b", "c"], "numbers", single=False) == (
        "\nWhat are all the special magic numbers for a, b, and c mentioned in the provided text?",
        " The special magic numbers for a, b, and c mentioned in the provided text are",
    )
    assert answer_of(["1", "2", "3"]) == " 1, 2, and 3"


def test_essays_of_the_users_own_are_the_haystack(built, tmp_path):
    path = tmp_path / "essays.txt"
    path.write_text(" ".join(f"Essay sentence number{i} here." for i in range(400)), encoding="utf-8")
    found = built("niah_multivalue", 500, essays=str(path))
    assert found.notes == ()
    for example in found.examples:
        words = re.sub(r"One of the special magic .*?: \d+\.", "", example.context.split("\n", 1)[1]).split()
        assert len([word for word in words if word.startswith("number")]) > 8
        assert {word for word in words if not word.startswith("number")} <= {"Essay", "sentence", "here."}
