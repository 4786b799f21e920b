"""Chat templates: what is asked of an instruct model in a turn of its own, and what it answers in the next.

The template's text goes around the question: before the context, and between the prompt and the answer. Text that is
only continued (perplexity) is no question and stays as it is.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

from fitness.encoding import longest, token_ids
from fitness.errors import TaskError
from fitness.examples import Example, ExampleSet, Question

SETTINGS = ("auto", "on", "off")
INSTRUCT = {"instruct", "chat", "it", "assistant"}  # words in the name of a model that was tuned to follow turns
NOTE = "asked under the model's chat template"
MARK = "RopewalkPutsTheQuestionHere"


@dataclass(frozen=True)
class ChatTemplate:
    """The text before what the user says, and the text from there to where the model's turn begins."""

    before: str
    after: str

    def overhead(self, tokenizer: Any) -> int:
        """Tokens that the template adds to a question, give or take a merge at its seams."""
        return len(token_ids(tokenizer, f"{self.before}x{self.after}")) - len(token_ids(tokenizer, "x"))


def chosen(setting: str, name: str, tokenizer: Any) -> ChatTemplate | None:
    """The template to ask a model under; None asks without one.

    Args:
        setting: `on`, `off`, or `auto`: on for a model whose name says that it was tuned for turns (`-Instruct`,
            `-chat`, `-it`) and whose tokenizer has a template. A template alone says little: base models carry one too.
        name: the model's id, its file or folder included.

    Raises:
        TaskError: the setting is not known, or is `on` and the tokenizer has no template.
    """
    if setting not in SETTINGS:
        raise TaskError("chat_template", setting, ", ".join(SETTINGS))
    if setting == "off" or (
        setting == "auto" and not (is_instruct(name) and getattr(tokenizer, "chat_template", None))
    ):
        return None
    return template_of(tokenizer)


def is_instruct(name: str) -> bool:
    """Whether the last part of a model's name has one of the words `INSTRUCT`, and not `base`."""
    words = set(re.split(r"[^a-z]+", name.rstrip("/").rsplit("/", 1)[-1].lower()))
    return bool(words & INSTRUCT) and "base" not in words


def template_of(tokenizer: Any) -> ChatTemplate:
    """The tokenizer's template for one question.

    A sequence start that the tokenizer adds by itself is left out, so that there is one.

    Raises:
        TaskError: there is no template, or it fails, or leaves the question out.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise TaskError("chat_template", "on", "off: this model's tokenizer has no chat template")
    from jinja2 import TemplateError

    try:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": MARK}], tokenize=False, add_generation_prompt=True
        )
    except (TemplateError, ValueError, TypeError) as error:
        raise TaskError("chat_template", "on", f"off: this model's chat template fails ({error})") from error
    before, mark, after = text.partition(MARK)
    if not mark:
        raise TaskError("chat_template", "on", "off: this model's chat template leaves the question out")
    start = tokenizer.bos_token
    if start and before.startswith(start) and token_ids(tokenizer, "x")[0] == tokenizer.bos_token_id:
        before = before.removeprefix(start)
    return ChatTemplate(before, after)


def asked(tokenizer: Any, examples: ExampleSet, template: ChatTemplate) -> ExampleSet:
    """The same questions under a template, with the length that they then have."""
    made = tuple(_example(example, template) for example in examples.examples)
    if made == examples.examples:
        return examples
    length = max(longest(tokenizer, example) for example in made)
    return replace(examples, examples=made, length=length, notes=(*examples.notes, NOTE))


def under_template(examples: ExampleSet) -> bool:
    """Whether any questions of a set are asked under a template."""
    return any(note.endswith(NOTE) for note in examples.notes)


def _example(example: Example, template: ChatTemplate) -> Example:
    if any(question.ids is not None or not example.context + question.prompt for question in example.questions):
        return example
    questions = tuple(_question(question, template) for question in example.questions)
    return replace(example, context=template.before + example.context, questions=questions)


def _question(question: Question, template: ChatTemplate) -> Question:
    """The model's turn begins with the question's lead, if it has one; no turn begins with a space."""
    said = question.prompt.removesuffix(question.lead)
    lead = question.lead.lstrip()
    answer = question.answer if lead else question.answer.lstrip()
    return replace(question, prompt=said + template.after + lead, lead=lead, answer=answer)
