"""Perplexity of windows of a text, as an example whose answer is the text itself.

So it goes through the same scorer as every other task: the score of a window is the log-likelihood of its tokens,
each given all tokens of the window before it. Windows are truncated, not sliding: a window starts fresh, so its
length is the context length that is measured.
"""

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fitness import splits
from fitness.encoding import token_ids
from fitness.errors import TaskError
from fitness.examples import Example, ExampleSet, Question
from fitness.prose import builtin_prose

SHORT_TOKEN = 2  # characters a token has on average over a window of little more than single letters


class PerplexityTask(BaseModel):
    """Perplexity as a campaign's `fitness:` section.

    Attributes:
        length: tokens of a window, its sequence start included.
        contexts: windows, spread over the split's part of the text without overlap. Each split has a part of its own:
            the first 40 % of the text for search, then 30 % heldout, 20 % guard and 10 % validation.
        file: a text file in UTF-8; the built-in prose if none is named.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Literal["perplexity"] = "perplexity"
    length: int = Field(ge=2)
    contexts: int = Field(12, ge=1)
    file: str | None = None
    metric: Literal["perplexity"] = "perplexity"
    scoring: Literal["teacher_forcing"] = "teacher_forcing"

    def at_length(self, length: int | None, contexts: int | None = None) -> "PerplexityTask":
        """The same task with another length or number of windows; None leaves either as it is."""
        return self.model_copy(update={"length": length or self.length, "contexts": contexts or self.contexts})

    def build(self, tokenizer: Any, seed: int, split: str) -> ExampleSet:
        """The windows of one split; the same for the same arguments.

        Raises:
            TaskError: the split is unknown, the file cannot be read, or the text is too short.
        """
        text = self._text()
        first, last = splits.stretch(split, len(text))
        examples = []
        for i in range(self.contexts):
            start = first + i * (last - first) // self.contexts
            stop = first + (i + 1) * (last - first) // self.contexts
            window = self._window(tokenizer, text[start:stop], splits.draw(seed, split, i))
            if window is None:
                filled = len(token_ids(tokenizer, text[start:stop]))
                raise TaskError(
                    "length",
                    self.length,
                    f"at most about {filled} tokens in {self.contexts} windows of split {split}, all that "
                    f"{self.file or 'the built-in prose'} can fill; fewer contexts leave room for longer ones",
                )
            question = Question(f"{split}-{i}/0", "", window, (), None)
            examples.append(Example(f"{split}-{i}", "", (question,)))
        length = max(len(token_ids(tokenizer, e.questions[0].answer)) for e in examples)
        return ExampleSet(self.task, split, seed, length, tuple(examples))

    def _text(self) -> str:
        if self.file is None:
            return builtin_prose()
        try:
            return Path(self.file).read_text(encoding="utf-8")
        except OSError as error:
            raise TaskError("file", self.file, f"a readable text file ({error.strerror})") from error
        except UnicodeDecodeError as error:
            raise TaskError("file", self.file, f"a text file in UTF-8 ({error})") from error

    def _window(self, tokenizer: Any, segment: str, number: int) -> str | None:
        """A window in the segment, from the start of a word drawn by `number`; None if the segment is too short."""
        words = [match.start() for match in re.finditer(r"(?<!\S)\S", segment)]
        first = self._cut(tokenizer, segment[words[0] :]) if words else None
        if first is None:
            return None
        room = len(segment) - len(first)
        starts = [start for start in words if start <= room]
        return self._cut(tokenizer, segment[starts[number % len(starts)] :]) or first

    def _cut(self, tokenizer: Any, text: str) -> str | None:
        """The longest beginning of `text` that has at most `length` tokens; None if all of it has fewer.

        Tokens are spread nearly evenly over a text, so most steps go where its end must then be; every third halves
        what is left, for texts where they are not.
        """

        def size(end: int) -> int:
            return len(token_ids(tokenizer, text[:end]))

        low, fewest, step = 0, 0, 0
        high = min(len(text), SHORT_TOKEN * self.length)
        while (most := size(high)) <= self.length:
            if high == len(text):
                return text if most == self.length else None
            low, fewest, high = high, most, min(len(text), 2 * high)
        while high - low > 1:
            step += 1
            share = 0.5 if step % 3 == 0 else (self.length + 0.5 - fewest) / (most - fewest)
            middle = min(max(low + round(share * (high - low)), low + 1), high - 1)
            found = size(middle)
            if found <= self.length:
                low, fewest = middle, found
            else:
                high, most = middle, found
        return text[:low]
