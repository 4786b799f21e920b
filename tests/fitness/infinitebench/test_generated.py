"""Contexts made offline: each answer is what reading the context literally gives, and splits share nothing."""

import ast
import itertools
import re
import statistics

import pytest

from fitness.infinitebench.generated import HIGHEST, MAKERS, QUESTIONS, TARGETS

SPLITS = ("search", "heldout", "guard", "validation")


def made(name, units, index=0, questions=QUESTIONS, seed=0, split="search"):
    return MAKERS[name].make(units, index, questions, (seed, "infinitebench", split, name, index))


@pytest.mark.parametrize("index", range(6))
@pytest.mark.parametrize(("name", "digits"), [("passkey", 5), ("number_string", 10)])
def test_a_key_stands_twice_in_noise_at_its_depth(name, digits, index):
    result = made(name, 40, index)
    lines = result.context.split("\n")
    (place,) = [i for i, line in enumerate(lines) if "is green" not in line]
    [key, again] = re.findall(r"\d+", lines[place])
    assert len(lines) == 41
    assert result.questions[0].references == (key,) == (again,)
    assert len(key) == digits
    assert result.positions == (100 * place // 40,) == ((0, 25, 50, 75, 100)[index % 5],)


def test_a_number_string_writes_digits_twice():
    for index in range(20):
        (key,) = made("number_string", 0, index).questions[0].references
        assert len(list(itertools.groupby(key))) <= 5


@pytest.mark.parametrize("name", ["passkey", "number_string"])
def test_splits_share_no_key_whatever_their_seeds(name):
    keys = {
        split: {made(name, 0, i, seed=seed, split=split).questions[0].references for i in range(60) for seed in (0, 1)}
        for split in SPLITS
    }
    assert all(not keys[a] & keys[b] for a, b in itertools.combinations(SPLITS, 2))
    assert all(len(found) > 100 for found in keys.values())


@pytest.mark.parametrize("units", [2, 9, 30])
def test_pairs_are_asked_for_at_even_distances(units):
    result = made("kv_retrieval", units)
    pairs = ast.literal_eval(result.context.removeprefix("JSON data:\n"))
    assert len(pairs) == units
    assert len(result.questions) == min(units, QUESTIONS)
    keys = list(pairs)
    for asked, position in zip(result.questions, result.positions, strict=True):
        key = re.search(r'Key: "(.*)"\nThe value associated with the specified key is: $', asked.input)[1]
        assert asked.references == (pairs[key],)
        assert position == round(100 * keys.index(key) / (units - 1))


@pytest.mark.parametrize("index", range(7))
def test_a_list_is_asked_for_what_sorting_it_gives(index):
    result = made("math_find", 25, index)
    numbers = sorted(ast.literal_eval(result.context))
    assert len(set(numbers)) == 51
    expected = [numbers[-1], numbers[-2], numbers[-3], numbers[0], numbers[1], numbers[2], statistics.median(numbers)]
    [asked] = result.questions
    assert asked.references == (str(expected[index]),)
    assert list(TARGETS)[index] in asked.target
    assert asked.target in asked.input.lower()


@pytest.mark.parametrize("seed", range(4))
def test_running_values_are_those_of_the_expression_and_have_no_sign(seed):
    result = made("math_calc", 400, seed=seed)
    terms = result.context.replace("- ", "-").replace("+ ", "").split()
    values = list(itertools.accumulate(map(int, terms)))
    assert result.questions[0].references == tuple(map(str, values))
    assert min(values) >= 0
    assert max(values) <= HIGHEST
    assert {"+", "-"} <= set(result.context.split())


@pytest.mark.parametrize("index", range(9))
def test_a_call_gives_what_running_the_code_gives_and_runs_through_as_many_functions(index):
    result = made("code_run", 30, index)
    [asked] = result.questions
    scope = {}
    exec(result.context, scope)
    assert asked.references == (str(eval(asked.call, scope)),)
    bodies = dict(re.findall(r"def (func_\d+)\(x\):\n    return (.*)", result.context))
    assert len(bodies) == 30
    name, through = asked.call.partition("(")[0], 0
    while name:
        through += 1
        found = re.match(r"func_\d+", bodies[name])
        name = found and found[0]
    assert through == 2 + index
    assert asked.call in asked.input


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_label_gives_the_same_and_another_something_else(name):
    units = MAKERS[name].fewest + 6
    assert made(name, units, 3) == made(name, units, 3)
    others = [
        made(name, units, 3),
        made(name, units, 4),
        made(name, units, 3, seed=1),
        made(name, units, 3, split="guard"),
    ]
    assert len({other.context for other in others}) == 4
