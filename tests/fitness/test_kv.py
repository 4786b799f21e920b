"""Key-value retrieval: the official prompt, lengths, positions, determinism, and whatever cannot be."""

import re

import pytest
from pydantic import ValidationError

from fitness.encoding import encode
from fitness.errors import TaskError
from fitness.kv import KVTask, context_of, spread

LITERAL_CONTEXT = """Extract the value corresponding to the specified key in the JSON object below.

JSON data:
{"k1": "v1",
 "k2": "v2",
 "k3": "v3"}"""

LITERAL_QUERY_FIRST = """Extract the value corresponding to the specified key in the JSON object below.

Key: "k2"

JSON data:
{"k1": "v1",
 "k2": "v2",
 "k3": "v3"}"""

PAIRS = [("k1", "v1"), ("k2", "v2"), ("k3", "v3")]


def small(**fields):
    return KVTask(**{"keys": "hex4", "values": "hex4", "contexts": 3, **fields})


def pairs_in(context):
    return re.findall(r'"([^"]+)": "([^"]+)"', context)


def test_the_context_is_the_official_one():
    assert context_of(PAIRS) == LITERAL_CONTEXT


def test_query_first_puts_the_question_before_the_data_too():
    assert context_of(PAIRS, asked="k2") == LITERAL_QUERY_FIRST


def test_a_question_is_the_official_one_and_its_answer_is_quoted(tokenizer):
    example = small(pairs=5, questions=3).build(tokenizer, 1, "search").examples[0]
    pairs = pairs_in(example.context)
    assert [q.position for q in example.questions] == [0, 2, 4]
    for question in example.questions:
        key, value = pairs[question.position]
        assert question.prompt == f'\n\nKey: "{key}"\nCorresponding value:'
        assert question.answer == f' "{value}"'
        assert question.references == (value,)


@pytest.mark.parametrize(
    ("form", "end", "answer"), [("quoted", "value:", ' "{}"'), ("bare", "value:", " {}"), ("opened", 'value: "', '{}"')]
)
def test_an_answer_can_be_quoted_bare_or_opened_by_the_prompt(tokenizer, form, end, answer):
    example = small(pairs=5, answer=form).build(tokenizer, 1, "search").examples[0]
    for question, (_, value) in zip(example.questions, pairs_in(example.context), strict=True):
        assert question.prompt.endswith(end)
        assert question.answer == answer.format(value)
        assert question.references == (value,)


def test_even_spread_gives_the_published_positions_and_holds_both_ends():
    assert spread(5, 75) == (0, 18, 37, 56, 74)
    assert spread(2, 9) == (0, 8)
    assert spread(1, 9) == (4,)
    assert all(len(set(spread(n, 40))) == n for n in range(1, 41))


def test_named_positions_are_asked_as_named(tokenizer):
    example = small(pairs=9, positions=(7, 1)).build(tokenizer, 0, "search").examples[0]
    assert [q.position for q in example.questions] == [7, 1]


def test_all_positions_are_asked_by_default(tokenizer):
    assert small(pairs=9).build(tokenizer, 0, "search").num_questions == 27


@pytest.mark.parametrize("form", ["uuid", "hex2", "hex7", "words"])
@pytest.mark.parametrize("query_first", [False, True])
def test_a_length_is_filled_with_as_many_pairs_as_fit(tokenizer, form, query_first):
    task = KVTask(length=600, keys=form, values=form, contexts=3, query_first=query_first, questions=2)
    examples = task.build(tokenizer, 3, "search")
    counts = {len(pairs_in(e.context)) for e in examples.examples}
    assert len(counts) == 1
    assert examples.length == max(encode(tokenizer, e).length for e in examples.examples) <= 600
    one_more = KVTask(**{**task.model_dump(), "length": None, "pairs": counts.pop() + 1, "questions": "all"})
    assert one_more.build(tokenizer, 3, "search").length > 600


def test_the_length_includes_the_answer(tokenizer):
    examples = small(length=200).build(tokenizer, 0, "search")
    longest = max(
        len(tokenizer(e.context + q.prompt + q.answer).input_ids) for e in examples.examples for q in e.questions
    )
    assert examples.length == longest


def test_keys_are_unique_within_a_context_even_when_nearly_all_are_used(tokenizer):
    for example in small(pairs=250, keys="hex2", questions=1).build(tokenizer, 0, "search").examples:
        assert len({key for key, _ in pairs_in(example.context)}) == 250


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ("uuid", r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
        ("hex5", "[0-9a-f]{5}"),
        ("words", "([bdfghjklmnprstvz][aeiou]){3}"),
    ],
)
def test_forms_look_as_named(tokenizer, form, pattern):
    example = KVTask(pairs=20, keys=form, values=form, contexts=1).build(tokenizer, 0, "search").examples[0]
    for pair in pairs_in(example.context):
        assert all(re.fullmatch(pattern, text) for text in pair)


def test_the_same_seed_gives_the_same_set_everywhere(tokenizer):
    examples = KVTask(pairs=4, contexts=2).build(tokenizer, 7, "heldout")
    assert examples.hash == "50e9c67f0ed4ed0ec5f2e5f60668532ae4c1ba074fdea2412c4fe0bc2236dcde"
    assert examples == KVTask(pairs=4, contexts=2).build(tokenizer, 7, "heldout")


def test_another_seed_or_split_gives_other_pairs(tokenizer):
    seen = set()
    for seed in (0, 1):
        for split in ("search", "heldout", "guard", "validation"):
            examples = KVTask(pairs=6, contexts=4).build(tokenizer, seed, split)
            keys = {key for e in examples.examples for key, _ in pairs_in(e.context)}
            assert len(keys) == 24
            assert not seen & keys
            seen |= keys


def test_question_ids_are_unique_and_variants_of_one_context_share_its_id(tokenizer):
    examples = small(pairs=4, query_first=True).build(tokenizer, 0, "search")
    assert len(examples.examples) == 12
    assert examples.num_contexts == 3
    assert len({q.id for e in examples.examples for q in e.questions}) == 12
    for example in examples.examples:
        (question,) = example.questions
        assert example.context.count(question.prompt.split("\n")[2]) == 1


def test_the_official_protocol_moves_one_gold_pair_through_the_same_others(tokenizer):
    examples = small(pairs=5, contexts=1, protocol="official").build(tokenizer, 0, "search").examples
    assert len(examples) == 5
    golds, others = set(), set()
    for position, example in enumerate(examples):
        pairs = pairs_in(example.context)
        golds.add(pairs.pop(position))
        others.add(tuple(pairs))
        assert example.questions[0].position == position
    assert len(golds) == len(others) == 1


def test_the_official_protocol_fills_a_length(tokenizer):
    examples = small(length=300, protocol="official", questions=3).build(tokenizer, 0, "search")
    assert 280 < examples.length <= 300


def test_moving_a_task_to_a_shorter_length_asks_no_more_questions_than_it_has_pairs(tokenizer):
    task = small(length=400, positions=(0, 10, 20, 30)).at_length(80, contexts=2)
    examples = task.build(tokenizer, 0, "guard")
    assert len(examples.examples) == 2
    assert examples.num_questions == 2 * min(4, len(pairs_in(examples.examples[0].context)))
    assert examples.length <= 80


def test_moving_a_task_nowhere_keeps_its_size():
    task = small(pairs=7, positions=(2, 3))
    assert task.at_length(None, 9) == task.model_copy(update={"contexts": 9})


def test_a_resolved_task_reads_back_as_itself():
    for task in (small(pairs=5), small(length=100, positions=(1, 0)), small(pairs=5, questions=2)):
        assert KVTask(**task.model_dump(mode="json")) == task


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "exactly one of length and pairs"),
        ({"length": 100, "pairs": 5}, "exactly one of length and pairs"),
        ({"pairs": 5, "questions": 6}, "questions: got 6; allowed: at most 5"),
        ({"pairs": 5, "positions": (0, 5)}, "allowed: 0 to 4"),
        ({"pairs": 5, "positions": (1, 1)}, "each position once"),
        ({"pairs": 5, "positions": (1,), "questions": 2}, "either questions or positions"),
        ({"pairs": 300, "keys": "hex1"}, "keys: got 'hex1'; allowed: a form of at least 300 distinct values"),
        ({"pairs": 5, "keys": "hex0"}, "keys"),
        ({"pairs": 5, "keys": "hex33"}, "keys"),
        ({"pairs": 5, "metric": "likelihood", "scoring": "generation"}, "gives no likelihood"),
        ({"pairs": 1}, "greater than or equal to 2"),
        ({"pairs": 5, "kees": "hex4"}, "kees"),
    ],
)
def test_a_contradiction_is_refused_where_it_is_written(fields, says):
    with pytest.raises(ValidationError, match=re.escape(says)):
        KVTask(**fields)


def test_a_length_too_short_for_two_pairs_is_refused_with_what_they_need(tokenizer):
    with pytest.raises(TaskError, match=r"length: got 40; allowed: at least (\d+) tokens") as caught:
        small(length=40, questions=1).build(tokenizer, 0, "search")
    needed = int(re.search(r"at least (\d+)", str(caught.value))[1])
    examples = small(length=needed, questions=1).build(tokenizer, 0, "search")
    assert len(pairs_in(examples.examples[0].context)) == 2


def test_a_length_beyond_all_keys_of_a_form_is_refused_with_what_they_fill(tokenizer):
    with pytest.raises(TaskError, match=r"at most \d+ tokens, all that 16 distinct keys of the form hex1"):
        small(length=1000, keys="hex1").build(tokenizer, 0, "search")


def test_positions_and_questions_beyond_the_pairs_of_a_length_are_refused(tokenizer):
    with pytest.raises(TaskError, match="positions"):
        small(length=100, positions=(90,)).build(tokenizer, 0, "search")
    with pytest.raises(TaskError, match="questions"):
        small(length=100, questions=90).build(tokenizer, 0, "search")


def test_an_unknown_split_is_refused_with_the_known_ones(tokenizer):
    with pytest.raises(TaskError, match="search, heldout, guard, validation"):
        small(pairs=4).build(tokenizer, 0, "train")
