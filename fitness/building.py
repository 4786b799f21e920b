"""How everybody who needs an example set gets it: from the node's store if it is there, under a chat template if asked.

The length of a task counts everything that the model sees. So under a template the task is built as much shorter as
the template is long, and shorter again should a merge at a seam make it longer.
"""

from typing import Any

from fitness.chat import ChatTemplate, asked
from fitness.composite import CompositeTask, part_seed
from fitness.errors import TaskError
from fitness.examples import ExampleSet
from fitness.store import ExampleStore
from fitness.tasks import Task

TRIES = 8


def build(
    task: Task | CompositeTask,
    tokenizer: Any,
    seed: int,
    split: str,
    *,
    template: ChatTemplate | None = None,
    store: ExampleStore | None = None,
) -> ExampleSet:
    """The examples of one split of a task; the same for the same arguments.

    Args:
        template: to ask under; None asks as the task does.
        store: where sets are kept; None builds every time.

    Raises:
        TaskError: the task cannot be built; of a composite, the field begins with the part's name.
    """
    if isinstance(task, CompositeTask):
        sets = {}
        for variant in task.variants():
            try:
                own = part_seed(seed, variant.name)
                sets[variant.name] = build(variant.task, tokenizer, own, split, template=template, store=store)
            except TaskError as error:
                raise TaskError(f"{variant.name}.{error.field}", error.value, error.allowed) from error
        return task.combine(sets, seed, split)
    if store is None:
        return _built(task, tokenizer, seed, split, template)
    return store.get(task, tokenizer, seed, split, template, lambda: _built(task, tokenizer, seed, split, template))


def _built(task: Task, tokenizer: Any, seed: int, split: str, template: ChatTemplate | None) -> ExampleSet:
    if template is None:
        return task.build(tokenizer, seed, split)
    if task.length is None:
        return asked(tokenizer, task.build(tokenizer, seed, split), template)
    taken = template.overhead(tokenizer)
    for _ in range(TRIES):
        if task.length - taken < 2:
            break
        try:
            plain = task.model_copy(update={"length": task.length - taken}).build(tokenizer, seed, split)
        except TaskError as error:
            if error.field != "length":
                raise
            allowed = f"{error.allowed} and {taken} more, which the chat template takes"
            raise TaskError("length", task.length, allowed) from error
        found = asked(tokenizer, plain, template)
        if found is plain:
            return task.build(tokenizer, seed, split)  # a text that is only continued has no template to make room for
        if found.length <= task.length:
            return found
        taken += found.length - task.length
    raise TaskError("length", task.length, f"more than the {taken} tokens that the chat template takes")
