"""Token ids: joint tokenisation, what questions share, and lengths as they are."""

import pytest

from fitness.encoding import encode, longest, split
from fitness.errors import TaskError
from fitness.examples import Example, Question
from fitness.kv import KVTask


def kv(tokenizer, **fields):
    return KVTask(**{"pairs": 6, "keys": "hex4", "values": "hex4", "contexts": 2, **fields}).build(
        tokenizer, 0, "search"
    )


def test_ids_are_those_of_the_whole_text_with_its_sequence_start(tokenizer):
    for example in kv(tokenizer).examples:
        encoded = encode(tokenizer, example)
        for question, ids in zip(example.questions, encoded.questions, strict=True):
            text = example.context + question.prompt + question.answer
            assert [*encoded.shared, *ids.prompt, *ids.answer] == tokenizer(text).input_ids
            assert encoded.shared[0] == tokenizer.bos_token_id


def test_shared_ids_end_where_questions_differ(tokenizer):
    example = kv(tokenizer).examples[0]
    encoded = encode(tokenizer, example)
    assert tokenizer.decode(encoded.shared, skip_special_tokens=True).startswith(example.context)
    assert len({q.prompt[0] for q in encoded.questions}) > 1
    assert all(q.prompt for q in encoded.questions)


def test_a_single_question_keeps_a_prompt_token_of_its_own(tokenizer):
    encoded = encode(tokenizer, kv(tokenizer, questions=1).examples[0])
    assert len(encoded.questions[0].prompt) == 1


def test_an_answer_that_merges_with_its_prompt_is_tokenised_alone(greedy_tokenizer):
    example = Example("e", "value", (Question("q", ":", ' "b2"', (), 0),))
    joint = greedy_tokenizer('value: "b2"').input_ids
    head, tail = split(greedy_tokenizer, "value", ":", ' "b2"')
    assert joint[: len(head)] != head
    assert head == greedy_tokenizer("value:").input_ids
    assert tail == greedy_tokenizer(' "b2"').input_ids
    assert encode(greedy_tokenizer, example).questions[0].answer == tuple(tail)


def test_without_a_prompt_the_first_token_is_the_condition(tokenizer, greedy_tokenizer):
    assert split(tokenizer, "", "", "some text")[0] == [tokenizer.bos_token_id]
    head, tail = split(greedy_tokenizer, "", "", "some text")
    assert head + tail == greedy_tokenizer("some text").input_ids
    assert len(head) == 1


def test_an_answer_without_tokens_is_refused(tokenizer):
    with pytest.raises(TaskError, match="answer"):
        split(tokenizer, "context", "prompt", "")


def test_a_sequence_end_that_the_tokenizer_appends_does_not_cut_prompt_from_answer(tokenizer):
    class Ending:
        eos_token, eos_token_id = "</s>", tokenizer.eos_token_id

        def __call__(self, text, add_special_tokens=True, **kwargs):
            encoded = tokenizer(text, add_special_tokens=add_special_tokens, **kwargs)
            encoded["input_ids"] = (
                [*encoded["input_ids"], self.eos_token_id] if add_special_tokens else encoded["input_ids"]
            )
            return encoded

    assert split(Ending(), "a", " b", " c") == split(tokenizer, "a", " b", " c")


def test_longest_is_the_length_of_the_longest_question(tokenizer, greedy_tokenizer):
    for example in kv(tokenizer, keys="words", values="words").examples:
        for each in (tokenizer, greedy_tokenizer):
            texts = [example.context + q.prompt + q.answer for q in example.questions]
            assert longest(each, example) == max(len(each(text).input_ids) for text in texts)


def test_the_same_example_is_tokenised_once(tokenizer):
    example = kv(tokenizer).examples[0]
    assert encode(tokenizer, example) is encode(tokenizer, example)
