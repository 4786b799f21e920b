"""RULER's thirteen tasks (Hsieh et al., arXiv 2404.06654; NVIDIA/RULER) as one kind of task with a name."""

from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fitness import splits
from fitness.errors import TaskError
from fitness.examples import ExampleSet
from fitness.filling import Filler
from fitness.modes import check_metric
from fitness.ruler.answering import HotpotQuestions, SquadQuestions
from fitness.ruler.counting import CommonWords, FrequentWords
from fitness.ruler.drawing import Drawing
from fitness.ruler.retrieval import (
    NiahMultikey1,
    NiahMultikey2,
    NiahMultikey3,
    NiahMultiquery,
    NiahMultivalue,
    NiahSingle1,
    NiahSingle2,
    NiahSingle3,
)
from fitness.ruler.tracking import VariableTracking
from fitness.texts import HubData

SHORTFALL = 0.95  # a set with an example that fills less than this of the length says so

Name = Literal[  # in the order of the published tables
    "niah_single_1",
    "niah_single_2",
    "niah_single_3",
    "niah_multikey_1",
    "niah_multikey_2",
    "niah_multikey_3",
    "niah_multivalue",
    "niah_multiquery",
    "vt",
    "cwe",
    "fwe",
    "qa_1",
    "qa_2",
]
NAMES: tuple[str, ...] = get_args(Name)
DRAWINGS: dict[str, type[Drawing]] = {
    "niah_single_1": NiahSingle1,
    "niah_single_2": NiahSingle2,
    "niah_single_3": NiahSingle3,
    "niah_multikey_1": NiahMultikey1,
    "niah_multikey_2": NiahMultikey2,
    "niah_multikey_3": NiahMultikey3,
    "niah_multivalue": NiahMultivalue,
    "niah_multiquery": NiahMultiquery,
    "vt": VariableTracking,
    "cwe": CommonWords,
    "fwe": FrequentWords,
    "qa_1": SquadQuestions,
    "qa_2": HotpotQuestions,
}


class RulerTask(BaseModel):
    """A task of RULER as a campaign's `fitness:` section.

    Attributes:
        name: of the task.
        length: tokens of context, prompt and the answer's budget, in the model's own tokenizer. The published lengths
            count the same: 128 for needles, 30 for vt, 120 for cwe, 50 for fwe, 32 for QA.
        contexts: independently drawn examples of one question each; published results have 500.
        essays: running text for the needles of niah_single_2, _3, multikey_1, multivalue and multiquery: a text file, a
            folder of them, or a data set of the Hub; by default the built-in prose. Published: Paul Graham's essays.
        squad: SQuAD 2.0 for qa_1, JSON as published, plain or gzip, or the data set on the Hub. Published: its dev set.
        hotpotqa: the same for qa_2: HotpotQA's dev set with distractors.
        distractors: of QA; `split` takes them from the documents of the split, so that searches and reports share none,
            `all` from the whole file, which long contexts may need.
        metric: `exact` is the share of the references found (for QA: whether any is); `likelihood` and `perplexity`
            those of the gold answer, as in key-value retrieval.
        scoring: `generation` as published, or `teacher_forcing`, which gives `exact` only where a single text is the
            answer: niah_single and niah_multikey.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Literal["ruler"] = "ruler"
    name: Name
    length: int = Field(ge=1)
    contexts: int = Field(12, ge=1)
    essays: str | HubData | None = None
    squad: str | HubData | None = None
    hotpotqa: str | HubData | None = None
    distractors: Literal["split", "all"] = "split"
    metric: Literal["exact", "likelihood", "perplexity"] = "exact"
    scoring: Literal["generation", "teacher_forcing"] = "generation"

    @model_validator(mode="after")
    def _consistent(self) -> "RulerTask":
        drawing = DRAWINGS[self.name]
        check_metric(self.scoring, self.metric, () if drawing.SINGLE else (("teacher_forcing", "exact"),))
        if drawing.NEEDS is not None and getattr(self, drawing.NEEDS) is None:
            raise TaskError(
                drawing.NEEDS, None, f"the JSON file that {self.name} is made of, or its data set on the Hub"
            )
        return self

    def at_length(self, length: int | None, contexts: int | None = None) -> "RulerTask":
        """The same task with another length or number of examples; None leaves either as it is."""
        return self.model_copy(update={"length": length or self.length, "contexts": contexts or self.contexts})

    def build(self, tokenizer: Any, seed: int, split: str) -> ExampleSet:
        """The examples of one split; the same for the same arguments on every machine.

        Raises:
            TaskError: the split is unknown, a source cannot be read or is too small, or the length cannot be met.
        """
        splits.check(split)
        filler = Filler(tokenizer, self.length)
        drawing = DRAWINGS[self.name](self, filler, seed, split)
        examples, length, least = [], 0, self.length
        for i in range(self.contexts):
            filled = filler.fill(drawing.draft(f"{split}-{i}", (seed, split, i)))
            drawing.used(filled.count)
            examples.append(filled.example)
            length, least = max(length, filled.length), min(least, filled.length)
        notes = drawing.notes
        if least < SHORTFALL * self.length:
            notes = (*notes, f"{self.name}: the shortest example fills {least} of {self.length} tokens")
        return ExampleSet(self.task, split, seed, length, tuple(examples), notes)
