"""All that can be checked about a campaign before any worker starts: model, tokenizer, examples, storage."""

from dataclasses import asdict, dataclass
from typing import Any

from fitness.examples import ExampleSet
from ropewalk.shape import ModelShape
from search.campaign import Campaign
from search.errors import CampaignError
from search.seeds import derive
from workers.loading import load_tokenizer, read_shape

SETS = ("search", "heldout", "guard")


@dataclass(frozen=True)
class Prepared:
    """A campaign whose model and examples are known: `sets` by name, all on the same task."""

    campaign: Campaign
    shape: ModelShape
    sets: dict[str, ExampleSet]
    guard_length: int

    def identity(self) -> dict[str, str]:
        """What a checkpoint belongs to."""
        return {"campaign": self.campaign.hash, **{f"{name} examples": s.hash for name, s in self.sets.items()}}

    def describe_sets(self) -> dict[str, dict[str, Any]]:
        """The example sets without their text."""
        return {
            name: {
                "task": s.task,
                "seed": s.seed,
                "length": s.length,
                "contexts": len(s.examples),
                "n": s.num_questions,
                "hash": s.hash,
            }
            for name, s in self.sets.items()
        }

    def shape_dict(self) -> dict[str, Any]:
        return asdict(self.shape)


def prepare(campaign: Campaign) -> Prepared:
    """Read the model's configuration and build the example sets.

    Raises:
        ModelError: the model cannot be found or is not a causal language model with RoPE.
        TaskError: the task cannot be built at these lengths.
        CampaignError: the guard's length is not below the target length, or the sets share a context.
    """
    shape = read_shape(campaign.model)
    tokenizer = load_tokenizer(campaign.model)
    length = campaign.guard.length or min(shape.trained_length, campaign.target_length // 4)
    if length >= campaign.target_length:
        raise CampaignError("guard.length", length, f"below target_length {campaign.target_length}")
    guard_contexts = campaign.guard.contexts
    tasks = {
        "search": campaign.fitness,
        "heldout": campaign.fitness.at_length(campaign.fitness.length, campaign.heldout.contexts),
        "guard": campaign.fitness.at_length(length, guard_contexts),
    }
    sets = {name: task.build(tokenizer, derive(campaign.seed, name), name) for name, task in tasks.items()}
    _check_disjoint(sets)
    return Prepared(campaign, shape, sets, length)


def _check_disjoint(sets: dict[str, ExampleSet]) -> None:
    owner: dict[str, str] = {}
    for name, examples in sets.items():
        for context in {example.context for example in examples.examples}:
            if owner.setdefault(context, name) != name:
                raise CampaignError("fitness", f"{owner[context]} and {name} share a context", "disjoint example sets")
