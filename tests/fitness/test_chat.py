"""Chat templates: for which models, what the text then is, that it fits the length, and what is refused."""

import copy

import pytest

from fitness.building import build
from fitness.chat import NOTE, ChatTemplate, asked, chosen, is_instruct, template_of, under_template
from fitness.composite import CompositeTask
from fitness.encoding import encode, longest
from fitness.errors import TaskError
from fitness.kv import KVTask
from fitness.perplexity import PerplexityTask
from fitness.scoring import score_example

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>\n{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>\n{% endif %}"
)
KV = {"length": 200, "contexts": 2, "questions": 3, "keys": "hex4", "values": "hex4"}


@pytest.fixture
def chatty(tokenizer):
    made = copy.deepcopy(tokenizer)
    made.chat_template = TEMPLATE
    return made


@pytest.mark.parametrize(
    ("name", "instruct"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", True),
        ("google/gemma-3-4b-it", True),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", True),
        ("/home/me/chat/Llama-2-7b-chat-hf/", True),
        ("meta-llama/Llama-3.1-8B", False),
        ("/data/instruct/Qwen2.5-7B", False),
        ("Instruct-Base", False),
        ("models/bitter", False),
    ],
)
def test_a_models_name_says_whether_it_follows_turns(name, instruct):
    assert is_instruct(name) == instruct


def test_off_by_default_for_base_models_and_on_for_instruct_models(tokenizer, chatty):
    assert chosen("auto", "Some-7B", chatty) is None
    assert chosen("auto", "Some-7B-Instruct", chatty) == template_of(chatty)
    assert chosen("auto", "Some-7B-Instruct", tokenizer) is None
    assert chosen("off", "Some-7B-Instruct", chatty) is None
    assert chosen("on", "Some-7B", chatty) == template_of(chatty)


def test_asked_for_and_absent_broken_or_unknown_it_is_an_error(tokenizer, chatty):
    with pytest.raises(TaskError, match=r"chat_template: got 'on'; allowed: off: .* no chat template"):
        chosen("on", "Some-7B", tokenizer)
    with pytest.raises(TaskError, match="auto, on, off"):
        chosen("yes", "Some-7B", chatty)
    chatty.chat_template = "{{ raise_exception('no users here') }}"
    with pytest.raises(TaskError, match="no users here"):
        template_of(chatty)
    chatty.chat_template = "always the same"
    with pytest.raises(TaskError, match="leaves the question out"):
        template_of(chatty)


def test_the_text_is_what_the_tokenizer_itself_makes_of_the_question(chatty):
    task = KVTask(**KV, answer="quoted")
    plain = task.build(chatty, 3, "search")
    made = asked(chatty, plain, template_of(chatty))
    for before, after in zip(plain.examples, made.examples, strict=True):
        for old, new in zip(before.questions, after.questions, strict=True):
            whole = chatty.apply_chat_template(
                [{"role": "user", "content": before.context + old.prompt}], tokenize=False, add_generation_prompt=True
            )
            assert chatty.bos_token + after.context + new.prompt == whole
            assert new.answer == old.answer.lstrip() == f'"{old.references[0]}"'
    ids = encode(chatty, made.examples[0])
    assert (*ids.shared, *ids.questions[0].prompt).count(chatty.bos_token_id) == 1


def test_the_beginning_of_the_answer_is_in_the_models_own_turn(chatty):
    made = asked(chatty, KVTask(**KV, answer="opened").build(chatty, 3, "search"), template_of(chatty))
    for question in made.examples[0].questions:
        assert question.prompt.endswith('Corresponding value:\n<assistant>\n"')
        assert question.answer == f'{question.references[0]}"'


def test_references_positions_and_ids_stay(chatty):
    plain = KVTask(**KV).build(chatty, 3, "search")
    made = asked(chatty, plain, template_of(chatty))
    for old, new in zip(plain.examples, made.examples, strict=True):
        assert old.id == new.id
        for a, b in zip(old.questions, new.questions, strict=True):
            assert (a.id, a.references, a.position, a.metric) == (b.id, b.references, b.position, b.metric)
    assert made.hash != plain.hash


@pytest.mark.parametrize("after", ["<|after|>", " x", "\n" * 7, "A much longer text than any template has. " * 3])
@pytest.mark.parametrize("length", [200, 257])
def test_the_length_counts_the_template_and_is_not_exceeded(tokenizer, length, after):
    template = ChatTemplate("Before: ", after)
    task = KVTask(**{**KV, "length": length})
    examples = build(task, tokenizer, 1, "heldout", template=template)
    sizes = [longest(tokenizer, e) for e in examples.examples]
    assert examples.length == max(sizes) <= length
    assert examples.length > length - 40  # a pair more would not fit
    assert under_template(examples)
    assert not under_template(build(task, tokenizer, 1, "heldout"))


def test_named_positions_are_kept_under_a_template(tokenizer):
    task = KVTask(length=250, contexts=1, positions=(0, 3), keys="hex4", values="hex4")
    (example,) = build(task, tokenizer, 0, "search", template=ChatTemplate("<u>", "<a>")).examples
    assert [q.position for q in example.questions] == [0, 3]


def test_a_length_that_the_template_leaves_nothing_of_is_refused(tokenizer):
    long = ChatTemplate("word " * 15, "")
    with pytest.raises(
        TaskError, match=r"length: got 100; allowed: at least \d+ tokens.* and \d+ more, which the chat"
    ):
        build(KVTask(**{**KV, "length": 100}), tokenizer, 0, "search", template=long)
    with pytest.raises(TaskError, match="length: got 30; allowed: more than the"):
        build(KVTask(**{**KV, "length": 30}), tokenizer, 0, "search", template=long)


@pytest.mark.parametrize("mode", ["truncated", "sliding"])
def test_a_text_that_is_only_continued_is_no_question(tokenizer, mode):
    task = PerplexityTask(length=80, contexts=2, mode=mode)
    template = ChatTemplate("<u>", "<a>")
    assert build(task, tokenizer, 0, "search", template=template) == task.build(tokenizer, 0, "search")


def test_a_composite_asks_its_questions_under_the_template(tokenizer):
    task = CompositeTask(
        length=150, parts=[{"of": {"task": "kv", **KV, "length": 150}}, {"of": {"task": "perplexity"}}]
    )
    examples = build(task, tokenizer, 0, "search", template=ChatTemplate("<u>", "<a>"))
    assert examples.notes == (f"kv@150: {NOTE}",)
    assert under_template(examples)
    assert {e.id.split("@")[0] for e in examples.examples if e.context.startswith("<u>")} == {"kv"}


def test_without_a_template_a_composite_is_what_it_builds_itself(tokenizer):
    task = CompositeTask(length=150, parts=[{"of": {"task": "kv", **KV, "length": 150}}])
    assert build(task, tokenizer, 4, "guard") == task.build(tokenizer, 4, "guard")
    with pytest.raises(TaskError, match=r"kv@20\.length"):
        build(task.at_length(20), tokenizer, 4, "guard")


def test_a_templates_questions_can_be_scored(make_llama, chatty):
    examples = build(KVTask(**KV), chatty, 0, "search", template=template_of(chatty))
    for scoring in ("teacher_forcing", "generation"):
        scores = score_example(make_llama(), chatty, examples.examples[0], scoring).scores
        assert len(scores) == 3
