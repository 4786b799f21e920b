"""RULER's variable tracking: a chain of four hops in its order, with a solved example in front."""

import re

import pytest

from fitness.encoding import token_ids
from fitness.ruler.templates import NOISE


def parts(example):
    """The solved example, and the task's own text."""
    return example.context.split("\n\n\n\n")


def chain(text):
    first, value = re.search(r"VAR ([A-Z]+) = (\d+)", text).groups()
    return value, first, re.findall(r"VAR ([A-Z]+) = VAR ([A-Z]+) ", text)


@pytest.mark.parametrize("seed", [0, 3])
def test_a_chain_hands_its_value_on_four_times_in_order(built, seed):
    for example in built("vt", 1000, seed=seed).examples:
        _, text = parts(example)
        value, name, copies = chain(text)
        names = [name]
        for new, old in copies:
            assert old == names[-1]
            names.append(new)
        (question,) = example.questions
        assert len(set(names)) == 5
        assert all(re.fullmatch("[A-Z]{5}", name) for name in names)
        assert tuple(names) == question.references
        assert question.answer == " " + " ".join(names)
        assert len(value) == 5
        assert question.prompt == (
            f"\nQuestion: Find all variables that are assigned the value {value} in the text above. Answer: According "
            "to the chain(s) of variable assignment in the text above, 5 variables are assgined the value "
            f"{value}, they are:"
        )


def test_everything_else_is_noise(built):
    (example,) = built("vt", 1000, contexts=1).examples
    for text in parts(example):
        body = text.split("following text.\n\n")[1].split("\nQuestion:")[0]
        rest = re.sub(r"VAR [A-Z]+ = (VAR [A-Z]+ |\d+)", "", body)
        assert rest.count(NOISE) >= 5
        assert not rest.replace(NOISE, "").strip()


def test_the_solved_example_has_short_names_and_its_answer_and_at_most_500_tokens(built, bpe):
    for example in built("vt", 1000).examples:
        shown, own = parts(example)
        value, name, copies = chain(shown)
        names = [name, *(new for new, _ in copies)]
        assert all(len(name) == 3 for name in names)
        assert shown.endswith(f"{value}, they are: {' '.join(names)}")
        assert 200 < len(token_ids(bpe, shown)) <= 500
        assert value not in own


def test_assignments_are_spread_over_the_text(built):
    shares = []
    for example in built("vt", 1500, contexts=8).examples:
        _, text = parts(example)
        shares += [match.start() / len(text) for match in re.finditer("VAR [A-Z]+ =", text)]
    assert min(shares) < 0.25
    assert max(shares) > 0.75
