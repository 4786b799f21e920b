"""RULER's counting tasks: published repeats of common words, and frequencies that follow the zeta distribution."""

import math
import re
from collections import Counter

import pytest

from fitness.ruler.counting import FEWEST_CODED, occurrences
from fitness.wordlist import words


def listed(text):
    numbers, found = zip(*re.findall(r"(\d+)\. (.+?)(?= \d+\. |$)", text), strict=True)
    assert [int(number) for number in numbers] == list(range(1, len(numbers) + 1))
    return Counter(found)


def lists(example):
    return [part.split("\nQuestion")[0] for part in example.context.split("appear most often.\n")[1:]]


@pytest.mark.parametrize(("length", "shown", "own"), [(1300, (3, 1, 20), (6, 1)), (4500, (10, 3, 40), (30, 3))])
def test_common_words_repeat_as_published(built, length, shown, own):
    for example in built("cwe", length, contexts=2).examples:
        often, seldom, count = shown
        first, second = map(listed, lists(example))
        assert sorted(set(first.values())) == [seldom, often]
        assert len(first) == count
        assert list(first.values()).count(often) == 10
        often, seldom = own
        common = {word for word, times in second.items() if times == often}
        assert set(second.values()) == {often, seldom}
        (question,) = example.questions
        assert common == set(question.references)
        assert len(common) == 10
        assert question.answer == " " + " ".join(f"{i}. {word}" for i, word in enumerate(question.references, 1))
        assert set(first) | set(second) <= set(words("noun", "adjective", "verb"))


def test_the_solved_example_ends_with_its_answer(built):
    (example,) = built("cwe", 1300, contexts=1).examples
    shown = example.context.split("\nBelow is")[0]
    answer = shown.split("appear most often in the list are: ")[1]
    common = {word for word, times in listed(lists(example)[0]).items() if times == 3}
    assert set(listed(answer)) == common


def test_the_word_list_is_all_nouns_adjectives_and_verbs_once():
    assert len(words("noun", "adjective", "verb")) == 8166
    assert list(words("verb")) == sorted(set(words("verb")))


@pytest.mark.parametrize("count", [FEWEST_CODED, 1000, 54_321])
def test_coded_words_are_as_frequent_as_the_zeta_distribution_says(count):
    found = occurrences(count, 500)
    total = sum(1 / k**2 for k in range(1, 2_000_000))
    assert math.isclose(total, math.pi**2 / 6, rel_tol=1e-6)
    assert all(abs(times - count / (k**2 * total)) <= 1.01 for k, times in enumerate(found, 1))
    assert found == sorted(found, reverse=True)


def test_the_third_answer_is_more_frequent_than_any_other_word_at_every_size():
    for count in range(FEWEST_CODED, 3000):
        _, first, second, third, other = occurrences(count, 5)
        assert first > second > third > other


def test_a_coded_text_holds_dots_and_its_three_most_frequent_words_are_the_answer(built):
    for example in built("fwe", 1500).examples:
        text = re.search(r"Find the three most frequently appeared coded words\. (.*)", example.context)[1]
        counts = Counter(text.split(" "))
        (dots, most), *others = counts.most_common()
        assert dots == "..."
        assert most / sum(counts.values()) == pytest.approx(0.64, abs=0.05)  # 1/ζ(2) = 0.61, less what rounds to none
        assert tuple(word for word, _ in others[:3]) == example.questions[0].references
        assert all(re.fullmatch("[a-z]{6}", word) for word, _ in others)
        assert len(counts) <= 1500 // 50
