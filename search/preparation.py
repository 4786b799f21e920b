"""All that can be checked about a campaign before any worker starts: model, tokenizer, examples, storage."""

from dataclasses import asdict, dataclass
from typing import Any

from fitness.building import build
from fitness.chat import ChatTemplate, chosen, under_template
from fitness.errors import TaskError
from fitness.examples import ExampleSet
from fitness.measures import Measure, measure_of
from fitness.store import ExampleStore
from fitness.tasks import Task
from ropewalk.shape import ModelShape
from search.campaign import Campaign
from search.errors import CampaignError
from search.seeds import derive
from workers.loading import load_tokenizer, read_shape

SPLITS = {"feasibility": "validation"}  # of the example sets that are not named for theirs


@dataclass(frozen=True)
class Prepared:
    """A campaign whose model and examples are known.

    `sets` by name, all on the same task: search, heldout, guard, and feasibility where the guard is enforced.
    """

    campaign: Campaign
    shape: ModelShape
    sets: dict[str, ExampleSet]
    guard_length: int

    def identity(self) -> dict[str, str]:
        """What a checkpoint belongs to."""
        return {"campaign": self.campaign.hash, **{f"{name} examples": s.hash for name, s in self.sets.items()}}

    def measure(self, name: str) -> Measure:
        """What scores on a set amount to; the parts of a composite have other lengths on the guard's."""
        return measure_of(_tasks(self.campaign, self.guard_length)[name])

    def describe_sets(self) -> dict[str, dict[str, Any]]:
        """The example sets without their text."""
        return {
            name: {
                "task": s.task,
                "seed": s.seed,
                "length": s.length,
                "contexts": s.num_contexts,
                "n": s.num_questions,
                "hash": s.hash,
                "chat_template": "on" if under_template(s) else "off",
                **({"notes": list(s.notes)} if s.notes else {}),
            }
            for name, s in self.sets.items()
        }

    def shape_dict(self) -> dict[str, Any]:
        return asdict(self.shape)


def prepare(campaign: Campaign, store: ExampleStore | None = None) -> Prepared:
    """Read the model's configuration and build the example sets, or take them from the store.

    Raises:
        ModelError: the model cannot be found or is not a causal language model with RoPE.
        CampaignError: the task cannot be built at these lengths, the guard's length is not below the target length,
            the sets share a context, or a chat template is asked for and there is none.
    """
    shape = read_shape(campaign.model)
    tokenizer = load_tokenizer(campaign.model)
    length = campaign.guard.length or min(shape.trained_length, max(2, campaign.target_length // 4))
    if length >= campaign.target_length:
        raise CampaignError("guard.length", length, f"below target_length {campaign.target_length}")
    try:
        template = chosen(campaign.model.chat_template, campaign.model.called, tokenizer)
    except TaskError as error:
        raise CampaignError(f"model.{error.field}", error.value, error.allowed) from error
    sets = {
        name: _build(task, tokenizer, derive(campaign.seed, name), name, template, store)
        for name, task in _tasks(campaign, length).items()
    }
    _check_disjoint(sets)
    return Prepared(campaign, shape, sets, length)


def _tasks(campaign: Campaign, guard_length: int) -> dict[str, Task]:
    """The task of every example set by name."""
    tasks = {
        "search": campaign.fitness,
        "heldout": campaign.fitness.at_length(campaign.fitness.length, campaign.heldout.contexts),
        "guard": campaign.fitness.at_length(guard_length, campaign.guard.contexts),
    }
    if campaign.guard.enforce:
        tasks["feasibility"] = tasks["guard"]
    return tasks


def _build(
    task: Task, tokenizer: Any, seed: int, name: str, template: ChatTemplate | None, store: ExampleStore | None
) -> ExampleSet:
    """The examples of one set; an error names the field of the campaign that the value comes from."""
    try:
        return build(task, tokenizer, seed, SPLITS.get(name, name), template=template, store=store)
    except TaskError as error:
        own = {"search": (), "heldout": ("contexts",)}.get(name, ("contexts", "length"))
        section = ("heldout" if name == "heldout" else "guard") if error.field in own else "fitness"
        raise CampaignError(f"{section}.{error.field}", error.value, error.allowed) from error


def _check_disjoint(sets: dict[str, ExampleSet]) -> None:
    """What a set shows the model must not stand in another: its contexts, or the texts and questions where there is
    no context."""
    owner: dict[str, str] = {}
    for name, examples in sets.items():
        for shown in {e.context or q.prompt + q.answer for e in examples.examples for q in e.questions}:
            if owner.setdefault(shown, name) != name:
                raise CampaignError("fitness", f"{owner[shown]} and {name} share a context", "disjoint example sets")
