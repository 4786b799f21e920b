"""How each task of InfiniteBench is asked: prompt, tokens of an answer, and which scorings make sense.

Prompts are those that the published code gives to models that continue a text (its templates for YaRN-Mistral,
`src/prompt.py`), since base models are what is patched most; budgets are its `DATA_NAME_TO_MAX_NEW_TOKENS`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Name = Literal[
    "code_debug",
    "code_run",
    "kv_retrieval",
    "longbook_choice_eng",
    "longbook_qa_chn",
    "longbook_qa_eng",
    "longbook_sum_eng",
    "longdialogue_qa_eng",
    "math_calc",
    "math_find",
    "number_string",
    "passkey",
]


@dataclass(frozen=True)
class Asked:
    """One question about a context, as the files of all tasks hold it.

    Attributes:
        input: the question itself.
        references: what the metric compares an output with.
        options: the four to choose from, or none.
        call: of code_run, the function call whose value is asked.
        target: of math_find, the number that is asked, in words.
    """

    input: str
    references: tuple[str, ...]
    options: tuple[str, ...] = ()
    call: str = ""
    target: str = ""


@dataclass(frozen=True)
class Format:
    """The prompt around a context, and how its answer is written and scored.

    Attributes:
        before, after: templates with the fields of `Asked`, `function` (of the call) and `A` to `D` (of the options).
        budget: tokens of a generation, as published.
        gold: the answer as a text, without a leading space.
        kind: of the answer. `short` has one wording: teacher forcing can say whether it is given exactly. `free` has
            many: only generation can. `list` is a short one for teacher forcing, whose exactness would be too rare to
            count, and generates no more than it needs. `summary` is generated only.
    """

    before: str
    after: str
    budget: int
    gold: Callable[[Asked], str]
    kind: Literal["short", "free", "list", "summary"] = "short"

    @property
    def refused(self) -> tuple[tuple[str, str], ...]:
        """Pairs of scoring and metric that make no sense here."""
        if self.kind == "short":
            return ()
        if self.kind == "summary":
            return tuple(("teacher_forcing", metric) for metric in ("exact", "likelihood", "perplexity"))
        return (("teacher_forcing", "exact"),)

    def render(self, context: str, asked: Asked) -> tuple[str, str]:
        """Everything up to the end of the context, and the prompt that follows it."""
        options = dict(zip("ABCD", asked.options, strict=False))
        fields = {"function": asked.call.partition("(")[0], "call": asked.call, "target": asked.target, **options}
        return self.before.format(**fields) + context, self.after.format(input=asked.input, **fields)


def lead(prompt: str) -> str:
    """The end of a prompt that already begins the answer, as `The pass key is` or `Answer:`; empty without one.

    Under a chat template it belongs to the model's turn: asked for the pass key, a model spends its budget on an
    introduction.
    """
    last = re.split(r"\n|(?<=[.?!]) ", prompt)[-1]
    return last if re.search(r"(\b(is|likely)|[:：])\s*$", last) else ""


def _first(asked: Asked) -> str:
    return asked.references[0]


def _letter(asked: Asked) -> str:
    return asked.references[1]


def _numbers(asked: Asked) -> str:
    return f"[{', '.join(asked.references)}]"


FORMATS: dict[str, Format] = {
    "code_debug": Format(
        "Following is a Python code where exactly one of the functions/methods has a deliberate error that makes it "
        "crash.\n\n",
        "\n\nOptions:\nA. {A}\nB. {B}\nC. {C}\nD. {D}\n\nThe correct option is:",
        5,
        _letter,
    ),
    "code_run": Format(
        "There is a function called {function} in the following Python code.\n\n",
        "\n\nPlease compute the exact value of {call}. The value of {call} is",
        5,
        _first,
    ),
    "kv_retrieval": Format(
        "Extract the value corresponding to the specified key in the JSON object below.\n\n",
        "\n\n{input}",
        50,
        _first,
    ),
    "longbook_choice_eng": Format(
        "Read the book and answer the question.\n\n",
        "\n\nQuestion: {input}\nA. {A}\nB. {B}\nC. {C}\nD. {D}\n\nThe letter of the correct answer is",
        40,
        _letter,
    ),
    "longbook_qa_chn": Format("阅读以下书籍然后回答问题。\n\n", "\n\n问题：{input}\n答案：", 40, _first, "free"),
    "longbook_qa_eng": Format(
        "Read the book and answer the question. Be very concise in your answer.\n\n",
        "\n\nQuestion: {input}\nAnswer:",
        40,
        _first,
        "free",
    ),
    "longbook_sum_eng": Format("Summarize the book below.\n\n", "\n\nSummary:", 1200, _first, "summary"),
    "longdialogue_qa_eng": Format(
        'Below is a dialogue script where one random occurrence of a character name is replaced with "$$MASK$$", and '
        "you should try to guess who that character is.\n\n",
        "\n\nThe name that has been replaced with $$MASK$$ is likely",
        40,
        _first,
    ),
    "math_calc": Format(
        "Let us calculate the intermediate values of an expression.\n\nExpression: 1 + 3 + 4\nValues: [1, 4, 8]\n\n"
        "Expression: 8 - 3 + 2 - 4\nValues: [8, 5, 7, 3]\n\nExpression: ",
        "\nValues:",
        30000,
        _numbers,
        "list",
    ),
    "math_find": Format("What is {target} in the following list?\n\n", "\n\n{input}", 3, _first),
    "number_string": Format(
        "There is an important info hidden inside a lot of irrelevant text. Find it. I will quiz you about the "
        "important information there.\n\n",
        "\n\n{input}\n\nThe sequence of digits is",
        12,
        _first,
    ),
    "passkey": Format(
        "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I will quiz you "
        "about the important information.\n\n",
        "\n\n{input}\n\nThe pass key is",
        6,
        _first,
    ),
}

RETRIEVAL = ("kv_retrieval", "number_string", "passkey")  # whose answer stands in the context, word for word
