"""Needle in a haystack: a magic number hidden at a depth of running text, or four of them, one in each quarter.

`needle: single` is the usual grid of lengths and depths. Every depth costs a context of its own (`protocol: official`),
or the needles of all depths, each with a key of its own, stand in one context and their questions share its prefill
(`protocol: shared`), which is RULER's multi-key variant rather than a lone needle.

`needle: quarters` gives one key four values, one in each quarter of the text, and asks for all of them: the task that
DPE finds its scales with (arXiv 2504.18857), scored by the share found. Words of needles and questions are RULER's.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fitness import splits
from fitness.dice import Dice
from fitness.errors import TaskError
from fitness.examples import Example, ExampleSet, Question
from fitness.filling import Draft, Filled, Filler
from fitness.haystacks import Haystack, Passage, source_of
from fitness.modes import check_metric
from fitness.ruler.needles import Form, Needle, answer_of, context_of, distinct, query_of
from fitness.texts import HubData

QUARTERS = 4
DEPTHS = 5

Depth = Annotated[float, Field(ge=0, le=1)]


class NIAHTask(BaseModel):
    """Needle in a haystack as a campaign's `fitness:` section.

    Attributes:
        length: tokens of context, question and answer (of a generation: its budget), in the model's own tokenizer.
        contexts: independently drawn texts and needles.
        needle: `single` or `quarters`, see the module.
        depths: of single needles: how many, evenly spread from the first word to the last, or a list of numbers from 0
            to 1. A score's position is its depth in percent. A needle stands before the sentence that its depth is in,
            unless that starts more than 5 % of the text earlier.
        protocol: of single needles: `official` or `shared`, see the module.
        values: numbers | uuids | words; keys are words.
        haystack: a text file, a folder of them, or a data set of the Hub; by default the built-in prose.
        budget: tokens that a generation may take.
        metric: `exact` is the share of the values found; `likelihood` and `perplexity` as in key-value retrieval.
        scoring: `teacher_forcing` (of single needles) or `generation`. By default the former for single needles and the
            latter for quarters, whose four values may be given in any order: teacher forcing gives them no `exact`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    refused: ClassVar[tuple[tuple[str, str], ...]] = ()

    task: Literal["niah"] = "niah"
    length: int = Field(ge=1)
    contexts: int = Field(12, ge=1)
    needle: Literal["single", "quarters"] = "single"
    depths: Annotated[int, Field(ge=1, le=101)] | Annotated[tuple[Depth, ...], Field(min_length=1)] | None = None
    protocol: Literal["official", "shared"] = "official"
    values: Form = "numbers"
    haystack: str | HubData | None = None
    budget: int = Field(128, ge=1)
    metric: Literal["exact", "likelihood", "perplexity"] = "exact"
    scoring: Literal["teacher_forcing", "generation"] = "teacher_forcing"

    @model_validator(mode="before")
    @classmethod
    def _usual(cls, data: Any) -> Any:
        """Quarters are generated unless said otherwise, single needles stand at five depths."""
        if not isinstance(data, dict):
            return data
        if data.get("needle") != "quarters":
            return data if data.get("depths") is not None else {**data, "depths": DEPTHS}
        generated = "scoring" not in data and data.get("metric", "exact") == "exact"
        return {**data, "scoring": "generation"} if generated else data

    @model_validator(mode="after")
    def _consistent(self) -> "NIAHTask":
        quarters = self.needle == "quarters"
        check_metric(self.scoring, self.metric, (("teacher_forcing", "exact"),) if quarters else ())
        if quarters and self.depths is not None:
            raise TaskError("depths", self.depths, "none with needle: quarters, which draws a depth in each quarter")
        if quarters and self.protocol == "shared":
            raise TaskError("protocol", self.protocol, "official with needle: quarters, which asks one question")
        if not quarters and len(set(self._percent())) < len(self._percent()):
            raise TaskError("depths", self.depths, "each depth once, in whole percent")
        return self

    def at_length(self, length: int | None, contexts: int | None = None) -> "NIAHTask":
        """The same task with another length or number of contexts; None leaves either as it is."""
        return self.model_copy(update={"length": length or self.length, "contexts": contexts or self.contexts})

    def build(self, tokenizer: Any, seed: int, split: str) -> ExampleSet:
        """The examples of one split; the same for the same arguments on every machine.

        Raises:
            TaskError: the split is unknown, the haystack cannot be read, or the length cannot be met.
        """
        splits.check(split)
        filler = Filler(tokenizer, self.length)
        haystack = Haystack(*source_of(self.haystack), split)
        filled: list[Filled] = []
        for i in range(self.contexts):
            label = (seed, split, i)
            passage = haystack.passage(self.length, *label, "passage")
            sizes = [0, *accumulate(filler.counts([f" {word}" for word in passage.words]))]
            for hidden in self._hidden(split, label):
                found = filler.fill(self._draft(filler, f"{split}-{i}", passage, sizes, hidden))
                haystack.used(passage, found.count)
                filled.append(found)
        length = max(found.length for found in filled)
        return ExampleSet(self.task, split, seed, length, tuple(found.example for found in filled), haystack.notes)

    def _percent(self) -> list[int]:
        """Depths of single needles."""
        if isinstance(self.depths, tuple):
            return [round(100 * depth) for depth in self.depths]
        if self.depths == 1:
            return [50]
        return [round(100 * i / (self.depths - 1)) for i in range(self.depths)]

    def _hidden(self, split: str, label: tuple[object, ...]) -> list[list[tuple[float, Needle]]]:
        """The needles of each context that is made of one text, with their depths."""
        dice = Dice(*label, "needles")
        if self.needle == "quarters":
            (key,) = distinct("words", 1, split, dice)
            values = distinct(self.values, QUARTERS, split, dice)
            return [[((i + dice.share()) / QUARTERS, self._needle(key, value)) for i, value in enumerate(values)]]
        depths = [percent / 100 for percent in self._percent()]
        if self.protocol == "official":
            (key,), (value,) = distinct("words", 1, split, dice), distinct(self.values, 1, split, dice)
            return [[(depth, self._needle(key, value))] for depth in depths]
        keys, values = (distinct(form, len(depths), split, dice) for form in ("words", self.values))
        return [[(d, self._needle(k, v)) for d, k, v in zip(depths, keys, values, strict=True)]]

    def _needle(self, key: str, value: str) -> Needle:
        return Needle(key, value, self.values)

    def _draft(
        self,
        filler: Filler,
        name: str,
        passage: Passage,
        sizes: Sequence[int],
        hidden: Sequence[tuple[float, Needle]],
    ) -> Draft:
        questions = self._questions(name, hidden)
        single = self.needle == "single"
        texts = [context_of("", self.values, single=single), questions[0].prompt]
        fixed = sum(filler.counts([*texts, *(f" {needle}" for _, needle in hidden)]))

        def build(count: int) -> Example:
            if single:
                places = [passage.place(depth, count) for depth, _ in hidden]
            else:
                places = [passage.place_within(d, i, QUARTERS, count) for i, (d, _) in enumerate(hidden)]
            needles = [(place, str(needle)) for place, (_, needle) in zip(places, hidden, strict=True)]
            text = passage.with_needles(count, needles)
            return Example(name, context_of(text, self.values, single=single), questions)

        fewest = 1 if single else QUARTERS
        return Draft(build, lambda count: fixed + sizes[count], fewest, len(passage.words), "words")

    def _questions(self, name: str, hidden: Sequence[tuple[float, Needle]]) -> tuple[Question, ...]:
        if self.needle == "quarters":
            needles = [needle for _, needle in hidden]
            return (self._question(f"{name}/0", needles, None),)
        percents = [round(100 * depth) for depth, _ in hidden]
        pairs = zip(percents, hidden, strict=True)
        return tuple(self._question(f"{name}/{percent}", [needle], percent) for percent, (_, needle) in pairs)

    def _question(self, name: str, needles: Sequence[Needle], position: int | None) -> Question:
        values = tuple(needle.value for needle in needles)
        query, lead = query_of([needles[0].key], self.values, single=len(needles) == 1)
        budget = self.budget if self.scoring == "generation" else None
        return Question(
            name, query + lead, answer_of(values), values, position, "string_match_all", budget=budget, lead=lead
        )
