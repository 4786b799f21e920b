"""The twelve tasks as a whole: prompts, lengths, files read and cut in the middle, splits, and what is refused."""

import gzip
import itertools
import json

import pytest
from pydantic import ValidationError

from fitness.encoding import encode, longest, split, token_ids
from fitness.errors import TaskError
from fitness.infinitebench.formats import FORMATS, lead
from fitness.infinitebench.generated import MAKERS
from fitness.infinitebench.task import InfiniteBenchTask
from fitness.scoring import score_example

SPLITS = ("search", "heldout", "guard", "validation")
QUESTIONS = {  # input, answer, options of a line, as the published files have them
    "code_debug": ("", ["walk_up"], ["walk_up", "walk_down", "turn_left", "turn_right"]),
    "code_run": ("Please give me the exact number of the return value of func_3(-8).", [-42], []),
    "kv_retrieval": ('\nKey: "k7"\nThe value associated with the specified key is: ', ["v7"], []),
    "longbook_choice_eng": ("Who came?", ["Bee", "B"], ["Ant", "Bee", "Cat", "Dog"]),
    "longbook_qa_chn": ("谁来了？", ["蜜蜂"], []),
    "longbook_qa_eng": ("Who came?", ["Bee", "the bee"], []),
    "longbook_sum_eng": ("", ["A bee came.\nThen it left."], []),
    "longdialogue_qa_eng": ("", ["BEE"], []),
    "math_calc": ("", [[1, 4, 8, 2]], []),
    "math_find": (
        "You should answer with only one number, no other words. The second largest number of the list is: ",
        7,
        [],
    ),
    "number_string": ("What is the sequence of digits?", "3366600122", []),
    "passkey": ("What is the pass key?", "71432", []),
}


def line(name, i, about=None, size=60, **changed):
    """A line about the context `about`, or one of its own."""
    text, answer, options = QUESTIONS[name]
    about = i if about is None else about
    words = " ".join(f"w{about}.{n}" for n in range(size))
    context = f"start{about} {words} end{about}"
    return json.dumps({"id": i, "context": context, "input": text, "answer": answer, "options": options, **changed})


@pytest.fixture
def file(tmp_path):
    def write(name, lines):
        path = tmp_path / f"{name}.jsonl.gz"
        path.write_bytes(gzip.compress("\n".join(lines).encode()))
        return str(path)

    return write


def reach(tokenizer, example, question):
    head, tail = split(tokenizer, example.context, question.prompt, question.answer)
    return len(head) + max(len(tail), question.budget or 0)


@pytest.mark.parametrize("scoring", ["generation", "teacher_forcing"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_made_context_fills_its_length_to_a_unit_and_never_exceeds_it(tokenizer, name, scoring):
    metric = "exact" if scoring == "generation" else "likelihood"
    for seed, length in enumerate((700, 911)):
        task = InfiniteBenchTask(name=name, length=length, contexts=3, scoring=scoring, metric=metric)
        built = task.build(tokenizer, seed, "heldout")
        sizes = [max(reach(tokenizer, e, q) for q in e.questions) for e in built.examples]
        assert sizes == [encode(tokenizer, e).length for e in built.examples]
        assert built.length == max(sizes) <= length
        assert min(sizes) > length - 110  # less than the largest unit, a pair of two UUIDs in letters
        assert built.num_contexts == 3
        assert (built.task, built.split, built.seed) == (f"infinitebench {name}", "heldout", seed)
        assert built.notes == ()


PUBLISHED = {
    "passkey": 6,
    "number_string": 12,
    "kv_retrieval": 50,
    "longbook_sum_eng": 1200,
    "longbook_choice_eng": 40,
    "longbook_qa_eng": 40,
    "longbook_qa_chn": 40,
    "longdialogue_qa_eng": 40,
    "math_find": 3,
    "math_calc": 30000,
    "code_run": 5,
    "code_debug": 5,
}


def test_budgets_are_as_published_and_hold_a_short_answer(tokenizer):
    assert {name: kind.budget for name, kind in FORMATS.items()} == PUBLISHED

    def budget(name, **fields):
        task = InfiniteBenchTask(name=name, length=900, contexts=1, **fields)
        return task.build(tokenizer, 0, "search").examples[0].questions[0].budget

    answer = InfiniteBenchTask(name="passkey", length=900, contexts=1).build(tokenizer, 0, "search").examples[0]
    needed = len(tokenizer(answer.questions[0].answer, add_special_tokens=False).input_ids)
    assert budget("passkey") == max(6, needed)
    assert budget("kv_retrieval") >= 50  # letters one by one take more
    assert budget("passkey", budget=3) == 3
    assert budget("math_calc") < 900
    assert budget("passkey", scoring="teacher_forcing") is None


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_line_of_a_file_is_asked_as_published(file, tokenizer, name):
    path = file(name, [line(name, i, size=3) for i in range(10)])
    task = InfiniteBenchTask(name=name, file=path, length=2000, contexts=2)
    built = task.build(tokenizer, 1, "search")
    assert built.notes == ()
    for example in built.examples:
        number = example.id.removeprefix("context-")
        [question] = example.questions
        context = f"start{number} w{number}.0 w{number}.1 w{number}.2 end{number}"
        assert example.context.endswith(context)
        assert question.metric == f"infinitebench_{name}"
        before, after = example.context.removesuffix(context), question.prompt
        expected = {
            "code_debug": (
                "Following is a Python code where exactly",
                "A. walk_up\nB. walk_down\nC. turn_left\nD. turn_right",
            ),
            "code_run": (
                "There is a function called func_3 in",
                "exact value of func_3(-8). The value of func_3(-8) is",
            ),
            "kv_retrieval": ("Extract the value", '\n\n\nKey: "k7"\nThe value associated with the specified key is: '),
            "longbook_choice_eng": (
                "Read the book",
                "Who came?\nA. Ant\nB. Bee\nC. Cat\nD. Dog\n\nThe letter",
            ),
            "longbook_qa_chn": ("阅读以下书籍", "\n\n问题：谁来了？\n答案："),
            "longbook_qa_eng": ("Read the book", "\n\nQuestion: Who came?\nAnswer:"),
            "longbook_sum_eng": ("Summarize the book below.", "\n\nSummary:"),
            "longdialogue_qa_eng": (
                "Below is a dialogue script",
                "The name that has been replaced with $$MASK$$ is likely",
            ),
            "math_calc": ("Let us calculate", "\nValues:"),
            "math_find": (
                "What is the second largest number in the following list?",
                "The second largest number of the list is: ",
            ),
            "number_string": (
                "There is an important info",
                "What is the sequence of digits?\n\nThe sequence of digits is",
            ),
            "passkey": ("There is an important info", "What is the pass key?\n\nThe pass key is"),
        }[name]
        assert before.startswith(expected[0])
        assert expected[1] in after
        gold = {
            "code_debug": (" A", ("walk_up", "A")),
            "code_run": (" -42", ("-42",)),
            "kv_retrieval": ("v7", ("v7",)),
            "longbook_choice_eng": (" B", ("Bee", "B")),
            "longbook_qa_chn": ("蜜蜂", ("蜜蜂",)),
            "longbook_qa_eng": (" Bee", ("Bee", "the bee")),
            "longbook_sum_eng": (" A bee came.\nThen it left.", ("A bee came.\nThen it left.",)),
            "longdialogue_qa_eng": (" BEE", ("BEE",)),
            "math_calc": (" [1, 4, 8, 2]", ("1", "4", "8", "2")),
            "math_find": ("7", ("7",)),
            "number_string": (" 3366600122", ("3366600122",)),
            "passkey": (" 71432", ("71432",)),
        }[name]
        assert (question.answer, question.references) == gold


@pytest.mark.parametrize("length", [330, 407, 800])
@pytest.mark.parametrize("name", ["longbook_qa_eng", "code_run", "longbook_choice_eng", "longbook_qa_chn"])
def test_a_long_context_loses_its_middle_and_fills_the_length(file, tokenizer, name, length):
    path = file(name, [line(name, i, size=500 + i) for i in range(10)])
    task = InfiniteBenchTask(name=name, file=path, length=length, contexts=2)
    built = task.build(tokenizer, 0, "heldout")
    assert length - 6 <= built.length <= length
    assert built.notes == (f"{name}: 2 of 2 contexts lost their middle to fit {length} tokens",)
    for example in built.examples:
        number = example.id.removeprefix("context-")
        whole = json.loads(line(name, int(number), size=500 + int(number)))["context"]
        kept = example.context[example.context.index(f"start{number} ") :]
        front = next(n for n in range(len(kept), 0, -1) if whole.startswith(kept[:n]))
        assert whole.endswith(kept[front:])
        assert kept.endswith(f"end{number}")
        assert reach(tokenizer, example, example.questions[0]) <= length
        both = [
            len(token_ids(tokenizer, example.context[: -len(kept)] + kept[:front])),
            len(token_ids(tokenizer, kept[front:] + example.questions[0].prompt)),
        ]
        assert abs(both[0] - both[1]) < 12


def test_a_question_longer_than_half_is_kept_and_one_that_does_not_fit_is_refused(file, tokenizer):
    path = file("longbook_qa_eng", [line("longbook_qa_eng", i, size=300, input="why " * 60) for i in range(10)])
    needed = len(token_ids(tokenizer, "\n\nQuestion: " + "why " * 60 + "\nAnswer:")) + 40
    task = InfiniteBenchTask(name="longbook_qa_eng", file=path, length=needed + 30, contexts=2)
    for example in task.build(tokenizer, 0, "search").examples:
        assert example.questions[0].prompt.count("why ") == 60
        assert longest(tokenizer, example) <= needed + 30
    with pytest.raises(TaskError, match=r"length: got 90; allowed: more than \d+ tokens, which the question"):
        task.at_length(90).build(tokenizer, 0, "search")


def test_answers_that_stood_in_what_was_cut_are_counted(file, tokenizer):
    lines = []
    for i in range(10):
        words = [f"w{n}" for n in range(400)]
        words[200 if i % 2 else 0] = "71432"
        lines.append(line("passkey", i, context=f"{i} " + " ".join(words)))
    task = InfiniteBenchTask(name="passkey", file=file("passkey", lines), length=400, contexts=4)
    built = task.build(tokenizer, 0, "search")
    gone = sum("71432" not in example.context for example in built.examples)
    assert gone == 2  # rows 0 to 3 are those of the split
    assert built.notes[1] == "passkey: 2 answers stood in what was cut, and cannot be found"


def test_questions_about_one_book_share_its_context_and_its_split(file, tokenizer):
    lines = [line("longbook_qa_eng", i, about=i % 7, size=40, input=f"What about {i}?") for i in range(30)]
    path = file("longbook_qa_eng", lines)
    seen = {}
    for seed, name in enumerate(("search", "heldout")):
        task = InfiniteBenchTask(name="longbook_qa_eng", file=path, length=220, contexts=3)
        built = task.build(tokenizer, seed, name)
        assert len(built.examples) == built.num_contexts == 3
        for example in built.examples:
            about = int(example.id.removeprefix("context-"))
            expected = [f"\n\nQuestion: What about {i}?\nAnswer:" for i in range(about, 30, 7)]
            assert [question.prompt for question in example.questions] == expected
            assert longest(tokenizer, example) <= 220
        seen[name] = {example.id for example in built.examples}
    assert not seen["search"] & seen["heldout"]
    fewer = InfiniteBenchTask(name="longbook_qa_eng", file=path, length=220, contexts=3, questions=2)
    assert fewer.build(tokenizer, 0, "search").num_questions == 6


def test_questions_that_change_what_stands_before_the_context_have_their_own(file, tokenizer):
    wordings = ["The largest number of the list is: ", "The median of the list is: "]
    lines = [line("math_find", i, about=i // 2, size=5, input=wordings[i % 2]) for i in range(20)]
    task = InfiniteBenchTask(name="math_find", file=file("math_find", lines), length=500, contexts=3)
    built = task.build(tokenizer, 0, "search")
    assert len(built.examples) == 6
    assert built.num_contexts == 3
    heads = {example.context.partition("?")[0] for example in built.examples}
    assert heads == {"What is the largest number in the following list", "What is the median in the following list"}


@pytest.mark.parametrize("source", ["file", "made"])
def test_splits_share_no_context_whatever_their_seeds(file, tokenizer, source):
    path = file("kv_retrieval", [line("kv_retrieval", i, size=5) for i in range(20)]) if source == "file" else None
    for name in ["kv_retrieval"] if path else MAKERS:
        task = InfiniteBenchTask(name=name, file=path, length=700, contexts=2)
        found = [{e.context for e in task.build(tokenizer, seed, s).examples} for seed, s in enumerate(SPLITS)]
        assert all(not a & b for a, b in itertools.combinations(found, 2))


def test_the_same_arguments_give_the_same_set(tokenizer):
    for name in MAKERS:
        task = InfiniteBenchTask(name=name, length=600, contexts=2)
        first = task.build(tokenizer, 7, "heldout").hash
        assert task.build(tokenizer, 7, "heldout").hash == first
        assert task.build(tokenizer, 8, "heldout").hash != first


def test_a_long_answer_is_kept_as_far_as_the_budget_goes(file, tokenizer):
    summary = "It was long ago. " * 80
    path = file("longbook_sum_eng", [line("longbook_sum_eng", i, answer=[summary]) for i in range(10)])
    task = InfiniteBenchTask(name="longbook_sum_eng", file=path, length=300, contexts=1, budget=50)
    [example] = task.build(tokenizer, 0, "search").examples
    [question] = example.questions
    assert (" " + summary).startswith(question.answer)
    assert len(tokenizer(question.answer, add_special_tokens=False).input_ids) <= 50
    assert question.references == (summary,)
    assert longest(tokenizer, example) <= 300


@pytest.mark.parametrize("name", MAKERS)
def test_a_model_is_scored_on_it(make_llama, tokenizer, name):
    model = make_llama()
    [example, *_] = (
        InfiniteBenchTask(name=name, length=560, contexts=1, budget=4).build(tokenizer, 0, "search").examples
    )
    for score in score_example(model, tokenizer, example, "generation").scores:
        assert 0 <= score.exact <= 1
    task = InfiniteBenchTask(name=name, length=560, contexts=1, metric="likelihood")
    [example, *_] = task.build(tokenizer, 0, "search").examples
    for score in score_example(model, tokenizer, example, task.scoring).scores:
        assert score.logprob < 0


def test_what_an_answer_allows_is_what_its_task_allows():
    refused = {name: FORMATS[name].refused for name in FORMATS}
    assert refused["passkey"] == ()
    assert refused["longbook_qa_eng"] == refused["math_calc"] == (("teacher_forcing", "exact"),)
    assert len(refused["longbook_sum_eng"]) == 3
    assert InfiniteBenchTask(name="passkey", length=9, scoring="teacher_forcing").metric == "exact"
    with pytest.raises(ValidationError, match="likelihood, perplexity with scoring: teacher_forcing"):
        InfiniteBenchTask(name="math_calc", length=9, scoring="teacher_forcing")
    with pytest.raises(ValidationError, match="nothing with scoring: teacher_forcing"):
        InfiniteBenchTask(name="longbook_sum_eng", file="f", length=9, metric="likelihood")
    with pytest.raises(ValidationError, match="no likelihood"):
        InfiniteBenchTask(name="passkey", length=9, scoring="generation", metric="likelihood")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": "longbook_qa_eng"}, "file: got nothing; allowed: the JSON lines of longbook_qa_eng"),
        ({"name": "passkey", "questions": 2}, "1 of a made context of passkey"),
        ({"name": "pass"}, "passkey"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, says):
    with pytest.raises(ValidationError, match=says):
        InfiniteBenchTask(length=64, **fields)


@pytest.mark.parametrize("name", MAKERS)
def test_a_length_that_holds_no_unit_is_refused_with_the_least(tokenizer, name):
    with pytest.raises(TaskError, match=r"length: got 20; allowed: at least (\d+) tokens, which \d+ ") as caught:
        InfiniteBenchTask(name=name, length=20, contexts=1).build(tokenizer, 0, "search")
    least = int(str(caught.value).split("at least ")[1].split()[0])
    assert InfiniteBenchTask(name=name, length=least, contexts=1).build(tokenizer, 0, "search").length == least


@pytest.mark.parametrize(
    ("name", "changed", "says"),
    [
        ("passkey", {"context": ""}, "context is not a text"),
        ("passkey", {"context": None}, "context is not a text"),
        ("passkey", {"input": None}, "input is not a text"),
        ("passkey", {"answer": []}, "answer is missing or empty"),
        ("passkey", {"answer": [{}]}, "neither a text, a number nor a list"),
        ("passkey", {"answer": "abc"}, "the answer 'abc' is not a number"),
        ("math_calc", {"answer": [1, 2.5]}, "the answer '2.5' is not a number"),
        ("code_run", {"input": "What?"}, "names no call like"),
        ("math_find", {"input": "What?"}, "asks for no number"),
        ("code_debug", {"options": ["a"]}, "options is not a list of four texts"),
        ("code_debug", {"answer": ["elsewhere"]}, "the answer 'elsewhere' is not among the options"),
    ],
)
def test_a_garbled_line_is_refused_with_file_and_line(file, tokenizer, name, changed, says):
    path = file(name, [line(name, i, **(changed if i == 6 else {})) for i in range(10)])
    with pytest.raises(TaskError, match=rf"{name}\.jsonl\.gz, line 7'.*{says}"):
        InfiniteBenchTask(name=name, file=path, length=500, contexts=1).build(tokenizer, 0, "search")


def test_more_contexts_than_the_file_has_are_refused(file, tokenizer):
    path = file("passkey", [line("passkey", i) for i in range(10)])
    with pytest.raises(TaskError, match=r"contexts: got 9; allowed: at most 2, the contexts of .* in split guard"):
        InfiniteBenchTask(name="passkey", file=path, length=500, contexts=9).build(tokenizer, 0, "guard")


def test_a_folder_holds_the_files_of_all_tasks_under_their_names(file, tokenizer, tmp_path):
    for name in ("passkey", "code_run"):
        path = file(name, [line(name, i) for i in range(10)])
        tasks = [InfiniteBenchTask(name=name, file=of, length=900, contexts=2) for of in (path, str(tmp_path))]
        assert len({task.build(tokenizer, 0, "search").hash for task in tasks}) == 1
    missing = InfiniteBenchTask(name="math_calc", file=str(tmp_path), length=900)
    with pytest.raises(TaskError, match=r"a folder with math_calc\.jsonl or math_calc\.jsonl\.gz"):
        missing.build(tokenizer, 0, "search")


def test_a_tokenizer_that_knows_no_places_cannot_cut(file, tokenizer):
    class Slow:
        is_fast = False

        def __call__(self, text, **settings):
            return tokenizer(text, **settings)

        def __getattr__(self, name):
            return getattr(tokenizer, name)

    path = file("longbook_qa_eng", [line("longbook_qa_eng", i, size=300) for i in range(10)])
    task = InfiniteBenchTask(name="longbook_qa_eng", file=path, length=300, contexts=1)
    with pytest.raises(TaskError, match="tokenizer: got 'Slow'; allowed: a fast tokenizer"):
        task.build(Slow(), 0, "search")
    assert task.at_length(5000).build(Slow(), 0, "search").num_questions == 1


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("\n\nWhat is the pass key?\n\nThe pass key is", "The pass key is"),
        ("\n\nPlease compute the exact value of func_1(3). The value of func_1(3) is", "The value of func_1(3) is"),
        (
            '\n\nKey: "a-b"\nThe value associated with the specified key is: ',
            "The value associated with the specified key is: ",
        ),
        (
            "\n\nAnswer with only one number, no other words. The largest number of the list is:",
            "The largest number of the list is:",
        ),
        ("\n\n问题：谁？\n答案：", "答案："),
        (
            "\n\nThe name that has been replaced with $$MASK$$ is likely",
            "The name that has been replaced with $$MASK$$ is likely",
        ),
        ("\n\nWhat is the largest number?", ""),
    ],
)
def test_the_beginning_of_an_answer_is_the_models_to_say(prompt, expected):
    assert lead(prompt) == expected


@pytest.mark.parametrize("name", MAKERS)
def test_made_tasks_begin_the_answer(name, tokenizer):
    task = InfiniteBenchTask(name=name, length=700, contexts=1)
    for question in task.build(tokenizer, 0, "search").examples[0].questions:
        assert question.lead and question.prompt.endswith(question.lead)
