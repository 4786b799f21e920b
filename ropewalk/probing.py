"""Queries and keys of one attention module, taken as they arrive at its attention function.

The module is called once more with its own arguments. For that call its `config` is a private copy that names an
attention function which keeps what it is given and returns zeros; the model's own config, masks and caches are not
touched, and what the model computes stays as it was.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, Cache

from ropewalk.errors import PatchError, ProfileError

_IMPLEMENTATION = "ropewalk_probe"
_MARK = "ropewalk_probe"
_one_at_a_time = threading.RLock()
Table = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Arrived:
    """What an attention function was given.

    Attributes:
        query: [batch, query heads, tokens, head_dim].
        key: [batch, key/value heads, tokens, head_dim].
        mask: whatever it was given as `attention_mask`.
        options: the keywords beside these.
    """

    query: torch.Tensor
    key: torch.Tensor
    mask: Any
    options: dict[str, Any]


_arrived: ContextVar[list[Arrived] | None] = ContextVar("ropewalk_arrived", default=None)


def _keep(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    seen = _arrived.get()
    if seen is None:
        raise PatchError(f"{type(module).__name__} was called while another thread measures this model")
    seen.append(Arrived(query, key, attention_mask, options))
    batch, heads, tokens, _ = query.shape
    return value.new_zeros(batch, tokens, heads, value.shape[-1]), None


AttentionInterface.register(_IMPLEMENTATION, _keep)


@contextmanager
def before_each(
    attentions: Sequence[nn.Module],
    measure: Callable[[int, nn.Module, tuple[Any, ...], dict[str, Any]], None],
) -> Iterator[None]:
    """Call `measure(layer, module, args, kwargs)` before each attention of this thread's forwards.

    Not before the calls that `measure` makes itself.
    """

    thread = threading.get_ident()

    def hook(layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if _arrived.get() is None and threading.get_ident() == thread:
            measure(layer, module, args, kwargs)

    hooks = []
    try:
        for layer, module in enumerate(attentions):
            hooks.append(module.register_forward_pre_hook(partial(hook, layer), with_kwargs=True))
        yield
    finally:
        for registered in hooks:
            registered.remove()


def arrived(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], table: Table) -> Arrived:
    """Call an attention module with another cos and sin and without a cache, and keep what its function is given.

    Args:
        module: takes `position_embeddings` by keyword and has a `config`.
        args, kwargs: of the model's own call.
        table: cos and sin to call it with.

    Raises:
        ProfileError: the module has no config, rejects unknown keywords or does not pass them on, or calls no
            function of transformers' `AttentionInterface`.
    """
    name, config = type(module).__name__, getattr(module, "config", None)
    if config is None:
        raise ProfileError("model.attention", name, "modules that hold the config that names the attention function")
    private = copy.copy(config)
    private._attn_implementation_internal = _IMPLEMENTATION
    kwargs = {key: None if isinstance(value, Cache) else value for key, value in kwargs.items()}
    kwargs |= {"position_embeddings": table, _MARK: True}
    seen: list[Arrived] = []
    token = _arrived.set(seen)
    module.config = private
    try:
        module(*args, **kwargs)
    except TypeError as error:
        if _MARK not in str(error):
            raise
        raise ProfileError(
            "model.attention", name, f"modules that take any keyword; calling it gave: {error}"
        ) from None
    finally:
        module.config = config
        _arrived.reset(token)
    if len(seen) != 1:
        raise ProfileError(
            "model.attention",
            f"{name}, which calls the function {len(seen)} times",
            "modules that call one function of transformers' AttentionInterface once",
        )
    if _MARK not in seen[0].options:
        raise ProfileError("model.attention", name, "modules that pass any keyword on to the attention function")
    return seen[0]


def own_table(module: nn.Module, kwargs: dict[str, Any]) -> Table:
    """The cos and sin that the model passes to an attention module, or `ProfileError`."""
    table = kwargs.get("position_embeddings")
    if isinstance(table, tuple | list) and len(table) == 2 and all(map(torch.is_tensor, table)):
        cos, sin = table
        if cos.shape == sin.shape and not cos.is_complex():
            return cos, sin
    raise ProfileError(
        "model.attention", type(module).__name__, "modules that get cos and sin by the keyword position_embeddings"
    )


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run forwards in evaluation mode and without gradients, and leave every mode and rotary table as it was.

    Some rotary modules replace their frequencies by the length of a forward; these go back to what they were. Threads
    that measure wait for one another; a forward of another thread on the same model may fail meanwhile, but is not
    wrong.
    """
    with _one_at_a_time:
        yield from _undisturbed(model)


def _undisturbed(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    rotary = [
        (module, dict(vars(module)), dict(module._buffers))
        for module in model.modules()
        if any("inv_freq" in name for name in module._buffers)
    ]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module, attributes, buffers in rotary:
            vars(module).clear()
            vars(module).update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)
        for module in training:
            module.training = True


def input_device(model: nn.Module) -> torch.device:
    """Where a model's token ids go; the CPU when accelerate keeps the embedding elsewhere and moves them itself."""
    device = model.get_input_embeddings().weight.device
    return torch.device("cpu") if device.type == "meta" else device
