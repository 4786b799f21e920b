"""A patched model in the hands of lm-evaluation-harness, an optional extra: `pip install 'ropewalk[lm-eval]'`.

The harness gets the model that is in memory, so its own tasks, prompts and metrics are measured under a profile. Told
nothing else it takes the trained length for the longest input and cuts what is longer from the left, which would undo
what a profile is for: here the length is the profile's target.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ropewalk import Profile, apply_profile
from ropewalk.errors import nearest
from search.errors import CampaignError
from workers.loading import LoadedModel

PACKAGE = "lm-eval"
INSTALL = "pip install 'ropewalk[lm-eval]'"


@dataclass(frozen=True)
class Settings:
    """What the harness is asked for.

    Attributes:
        tasks: names of its tasks, groups or tags.
        include: a folder with more task files.
        limit: examples of each task; None for all.
        shots: examples in the prompt; None for each task's own number.
        batch: sequences at once.
        max_length: tokens of the longest input; None is the longest target of the profiles.
        metadata: handed to the tasks; RULER's take `max_seq_lengths` and `tokenizer` from there.
    """

    tasks: tuple[str, ...]
    include: Path | None = None
    limit: int | None = None
    shots: int | None = None
    batch: int = 1
    max_length: int | None = None
    metadata: dict[str, Any] | None = None
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "tasks": list(self.tasks), "include": None if self.include is None else str(self.include)}


def harness_version() -> str:
    """The version of lm-evaluation-harness.

    Raises:
        CampaignError: it is not installed.
    """
    try:
        return version(PACKAGE)
    except PackageNotFoundError as error:
        raise CampaignError(PACKAGE, None, f"the optional extra, which is not installed: {INSTALL}") from error


class Harness:
    """Its tasks, found once.

    Raises:
        CampaignError: it is not installed, the folder does not exist, or a task is not known.
    """

    def __init__(self, settings: Settings):
        self.version, self.settings = harness_version(), settings
        if settings.include is not None and not settings.include.is_dir():
            raise CampaignError("--include", str(settings.include), "a folder with task files of lm-evaluation-harness")
        from lm_eval.tasks import TaskManager

        self._manager = TaskManager(include_path=settings.include, metadata=settings.metadata)
        known = set(self._manager.all_tasks)
        for name in settings.tasks:
            if name not in known:
                raise CampaignError("--tasks", name, f"a task of {PACKAGE} {self.version}{_like(name, known)}")

    def measure(self, loaded: LoadedModel, profile: Profile, max_length: int, *, chat: bool = False) -> dict[str, Any]:
        """The harness's own results under a profile, as plain data: `results`, `n-samples`, `versions`.

        Args:
            max_length: tokens of the longest input.
            chat: apply the tokenizer's chat template.

        Raises:
            ProfileError, PatchError: the profile does not fit the model, or does not take effect.
        """
        from lm_eval import simple_evaluate
        from lm_eval.models.huggingface import HFLM

        settings = self.settings
        with apply_profile(loaded.model, profile):
            model = HFLM(
                pretrained=loaded.model,
                tokenizer=loaded.tokenizer,
                backend="causal",
                batch_size=settings.batch,
                max_length=max_length,
            )
            found = simple_evaluate(
                model=model,
                tasks=list(settings.tasks),
                num_fewshot=settings.shots,
                limit=settings.limit,
                apply_chat_template=chat,
                log_samples=False,
                task_manager=self._manager,
                random_seed=settings.seed,
                numpy_random_seed=settings.seed,
                torch_random_seed=settings.seed,
                fewshot_random_seed=settings.seed,
            )
        kept = ("results", "groups", "n-samples", "versions", "higher_is_better")
        return {name: found[name] for name in kept if name in found}


def _like(name: str, known: Sequence[str]) -> str:
    words = nearest(name, sorted(known))
    return words[words.rindex(" (did you mean") :] if "(did you mean" in words else ""


def scores(results: dict[str, Any]) -> list[dict[str, Any]]:
    """One entry for each task and metric that has a number: `task`, `metric`, `filter`, `score`, `stderr`.

    RULER's tasks give −1 for every length that was not asked for; these are left out.
    """
    entries = []
    for task, found in results["results"].items():
        for key, value in found.items():
            metric, _, how = key.partition(",")
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not how or metric.endswith("_stderr") or not number or (metric.isdecimal() and value == -1):
                continue
            stderr = found.get(f"{metric}_stderr,{how}")
            stderr = stderr if isinstance(stderr, int | float) else None
            entries.append({"task": task, "metric": metric, "filter": how, "score": value, "stderr": stderr})
    return entries
