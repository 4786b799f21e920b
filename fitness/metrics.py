"""What a generated output scores against its references: pure functions from texts to a number of 0 to 1.

A question names its metric (`Question.metric`). Each follows the evaluation code that was published with its task, so
that the same output gets the same score here and there; tests hold them to outputs scored by hand.
"""

import re
import string
from collections.abc import Callable

from fitness.errors import TaskError
from fitness.infinitebench.scores import SCORES

PUNCTUATION = str.maketrans("", "", string.punctuation)


def contains_any(output: str, references: tuple[str, ...]) -> float:
    """1.0 if any reference stands in the output, both in lower case, as the official KV evaluation does."""
    return float(any(reference.lower() in output.lower() for reference in references))


def string_match_all(output: str, references: tuple[str, ...]) -> float:
    """The share of the references that stand in the output, in lower case: RULER's metric of all tasks but QA.

    Raises:
        TaskError: there are no references.
    """
    if not references:
        raise TaskError("references", references, "at least one text to look for")
    return sum(reference.lower() in output.lower() for reference in references) / len(references)


def normalised(text: str) -> str:
    """Lower case without punctuation, articles and superfluous white space, as SQuAD's evaluation compares texts."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(PUNCTUATION)).split())


def mdqa(output: str, references: tuple[str, ...]) -> float:
    """1.0 if any normalised reference stands in the normalised first line of the output (lost in the middle).

    The line is the first, even if it is empty: a model that starts with a line break has answered nothing. As in the
    official code, an answer of nothing but punctuation stands in any line.
    """
    line = normalised(output.split("\n", 1)[0])
    return float(any(normalised(reference) in line for reference in references))


METRICS: dict[str, Callable[[str, tuple[str, ...]], float]] = {
    **SCORES,
    "contains_any": contains_any,
    "mdqa": mdqa,
    "string_match_all": string_match_all,
    "string_match_part": contains_any,  # RULER's name for it, in its QA tasks
}
