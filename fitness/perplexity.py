"""Perplexity of windows of a text, as an example whose answer is the text itself.

So it goes through the same scorer as every other task: the score of a window is the log-likelihood of its tokens,
each given all tokens of the window before it. Two ways to cut a text of PG19's kind (Rae et al., arXiv 1911.05507):

- truncated: every window starts fresh and all its tokens are scored. The length is the longest context; a token has
  half of it on average.
- sliding (Press et al., arXiv 2108.12409): the windows of a document move on by `stride` tokens, and of each only its
  last `stride` are scored, so every scored token has at least length − stride tokens before it. The first length −
  stride tokens of a document, which Press et al. score with less context, are read only: what is measured is this
  context length alone. A window is cut from the document's own tokens, never tokenised again.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fitness import splits
from fitness.encoding import token_ids
from fitness.errors import TaskError
from fitness.examples import Example, ExampleSet, Question
from fitness.texts import Document, HubData, documents, held

SHORT_TOKEN = 2  # characters a token has on average over a window of little more than single letters
STRIDE = 256  # of YaRN's evaluation (arXiv 2309.00071)
WINDOWS = 8
SLACK = 64  # characters behind the last token, so that it is the document's own and not the piece of a word


class PerplexityTask(BaseModel):
    """Perplexity as a campaign's `fitness:` section.

    Attributes:
        length: tokens of a window, its sequence start included.
        contexts: documents: of a single text, stretches spread over the split's part of it without overlap. Each
            split has a part of its own: the first 40 % for search, then 30 % heldout, 20 % guard, 10 % validation.
            The documents of a folder or data set are dealt out to the splits in the same shares.
        file: a text file in UTF-8, or a folder of them, one document a file; the built-in prose if none is named.
        dataset: a data set of the Hub instead, one document a row.
        skip_short: pass over documents of a folder or data set that do not fill a window; else they are an error. How
            many were passed over stands in the set's notes.
        mode: `truncated` or `sliding`, see the module.
        stride: tokens that a sliding window moves on; by default 256, at most half of the length.
        windows: sliding windows of a document; by default 8.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Literal["perplexity"] = "perplexity"
    length: int = Field(ge=2)
    contexts: int = Field(12, ge=1)
    file: str | None = None
    dataset: HubData | None = None
    skip_short: bool = False
    mode: Literal["truncated", "sliding"] = "truncated"
    stride: int | None = Field(None, ge=1)
    windows: int | None = Field(None, ge=1)
    metric: Literal["perplexity"] = "perplexity"
    scoring: Literal["teacher_forcing"] = "teacher_forcing"

    @model_validator(mode="after")
    def _consistent(self) -> "PerplexityTask":
        if self.file is not None and self.dataset is not None:
            raise TaskError("dataset", self.dataset.name, "either file or dataset")
        for field in ("stride", "windows"):
            if self.mode == "truncated" and getattr(self, field) is not None:
                raise TaskError(field, getattr(self, field), "nothing with mode: truncated; it belongs to sliding")
        if self.stride is not None and self.stride >= self.length - 1:
            raise TaskError("stride", self.stride, f"below length {self.length}, less one for the sequence start")
        return self

    def at_length(self, length: int | None, contexts: int | None = None) -> "PerplexityTask":
        """The same task with another length or number of documents; None leaves either as it is.

        A stride that the new length cannot hold becomes half of it.
        """
        length = length or self.length
        changes = {"length": length, "contexts": contexts or self.contexts}
        if self.stride is not None and self.stride >= length - 1:
            changes["stride"] = max(1, length // 2)
        return self.model_copy(update=changes)

    @property
    def span(self) -> int:
        """Tokens of a document that its windows cover."""
        return self.length if self.mode == "truncated" else self.length + (self._windows - 1) * self._stride

    @property
    def _stride(self) -> int:
        return self.stride or max(1, min(STRIDE, self.length // 2))

    @property
    def _windows(self) -> int:
        return self.windows or WINDOWS

    def build(self, tokenizer: Any, seed: int, split: str) -> ExampleSet:
        """The windows of one split; the same for the same arguments.

        Raises:
            TaskError: the split is unknown, a file cannot be read, or a text is too short.
        """
        splits.check(split)
        found = documents(self.file, self.dataset)
        notes: tuple[str, ...] = ()
        if len(found) == 1:
            texts = self._stretches(tokenizer, found[0], seed, split)
        else:
            texts, skipped = self._documents(tokenizer, found, seed, split)
            if skipped:
                notes = (f"{skipped} documents of fewer than {self.span} tokens were skipped",)
        examples = [e for i, text in enumerate(texts) for e in self._examples(tokenizer, f"{split}-{i}", text)]
        if self.mode == "sliding":
            length = self.length
        else:
            length = max(len(token_ids(tokenizer, e.questions[0].answer)) for e in examples)
        return ExampleSet(self.task, split, seed, length, tuple(examples), notes)

    def _stretches(self, tokenizer: Any, document: Document, seed: int, split: str) -> list[str]:
        """One text from each of as many stretches of a single document as there are contexts."""
        text = document.read()
        first, last = splits.stretch(split, len(text))
        taken = []
        for i in range(self.contexts):
            start = first + i * (last - first) // self.contexts
            stop = first + (i + 1) * (last - first) // self.contexts
            window = self._window(tokenizer, text[start:stop], splits.draw(seed, split, i))
            if window is None:
                filled = len(token_ids(tokenizer, text[start:stop])) - (self.span - self.length)
                raise TaskError(
                    "length",
                    self.length,
                    f"at most about {max(filled, 0)} tokens in {self.contexts} {self._called()} of split {split}, all "
                    f"that {document.name} can fill; fewer contexts leave room for longer ones",
                )
            taken.append(window)
        return taken

    def _documents(self, tokenizer: Any, found: Any, seed: int, split: str) -> tuple[list[str], int]:
        """One text from each of as many documents as there are contexts, and how many were too short."""
        rows = held(found, split)
        taken, skipped = [], 0
        for row in splits.sample(rows, len(rows), seed, split):
            if len(taken) == self.contexts:
                break
            text = found[row].read()
            window = self._window(tokenizer, text, splits.draw(seed, split, row))
            if window is not None:
                taken.append(window)
            elif self.skip_short:
                skipped += 1
            else:
                filled = max(len(token_ids(tokenizer, text)) - (self.span - self.length), 0)
                allowed = f"at most {filled} tokens, all that {found[row].name} can fill; or skip_short: true"
                raise TaskError("length", self.length, allowed)
        if len(taken) < self.contexts:
            source = self.file if self.dataset is None else self.dataset.name
            short = f", {skipped} more being too short" if skipped else ""
            raise TaskError(
                "contexts", self.contexts, f"at most {len(taken)}, the documents of {source} in split {split}{short}"
            )
        return taken, skipped

    def _called(self) -> str:
        return "windows" if self.mode == "truncated" else f"documents with {self._windows} windows each"

    def _examples(self, tokenizer: Any, name: str, text: str) -> Iterator[Example]:
        if self.mode == "truncated":
            yield Example(name, "", (Question(f"{name}/0", "", text, (), None),))
            return
        ids = token_ids(tokenizer, text)
        start = ids[:1] if ids[0] == tokenizer.bos_token_id else []  # every window gets one, as the model expects
        ids, room, stride = ids[len(start) :], self.length - len(start), self._stride
        for i in range(self._windows):
            window = ids[i * stride : i * stride + room]
            read, scored = window[:-stride], window[-stride:]
            question = Question(
                f"{name}/{i}", "", tokenizer.decode(scored), (), None, ids=(tuple(start + read), tuple(scored))
            )
            yield Example(name, tokenizer.decode(read), (question,))

    def _window(self, tokenizer: Any, segment: str, number: int) -> str | None:
        """A text in the segment that `span` tokens begin, from a word drawn by `number`; None if it is too short."""
        words = [match.start() for match in re.finditer(r"(?<!\S)\S", segment)]
        if not words:
            return None
        first = self._cut(tokenizer, segment[words[0] :])
        if first is None:
            return None
        room = len(segment) - len(first)
        starts = [start for start in words if start <= room]
        chosen = starts[number % len(starts)]
        text = self._cut(tokenizer, segment[chosen:])
        if text is None:
            chosen, text = words[0], first
        return text if self.mode == "truncated" else segment[chosen : chosen + len(text) + SLACK]

    def _cut(self, tokenizer: Any, text: str) -> str | None:
        """The longest beginning of `text` that has at most `span` tokens; None if all of it has fewer.

        Tokens are spread nearly evenly over a text, so most steps go where its end must then be; every third halves
        what is left, for texts where they are not.
        """
        span = self.span

        def size(end: int) -> int:
            return len(token_ids(tokenizer, text[:end]))

        low, fewest, step = 0, 0, 0
        high = min(len(text), SHORT_TOKEN * span)
        while (most := size(high)) <= span:
            if high == len(text):
                return text if most == span else None
            low, fewest, high = high, most, min(len(text), 2 * high)
        while high - low > 1:
            step += 1
            share = 0.5 if step % 3 == 0 else (span + 0.5 - fewest) / (most - fewest)
            middle = min(max(low + round(share * (high - low)), low + 1), high - 1)
            found = size(middle)
            if found <= span:
                low, fewest = middle, found
            else:
                high, most = middle, found
        return text[:low]
