"""The self-check: shows on the model at hand that the patch does what it says.

The patch relies on how transformers passes cos and sin to the layers. If an upgrade changes that, it could stop having
an effect without an error, and a campaign would compare a model with itself. So a short forward is run with and
without: the identity must give the same bits, a real profile other ones, and removal the first ones again. Ropewalk's
own attention must give the model's outputs when it maps no distance, and others when it maps them all, at once and with
a cache alike.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ropewalk.axes import Frequency
from ropewalk.distance import Distance
from ropewalk.errors import PatchError
from ropewalk.frequencies import MIN_FACTOR
from ropewalk.hooks import Handle
from ropewalk.interface import cache_argument
from ropewalk.pairs import LayerPairs
from ropewalk.plan import plan_layers
from ropewalk.profile import Profile
from ropewalk.rotary import RotaryModel
from ropewalk.shape import ModelShape
from ropewalk.tables import RotaryTables

Run = Callable[[nn.Module, torch.Tensor], torch.Tensor]
TOKENS = 32
_CAUSE = "a change in this version of transformers may be the cause"


def check_patch(
    model: nn.Module,
    rotary: RotaryModel,
    shape: ModelShape,
    profile: Profile,
    pairs: Sequence[LayerPairs] | None = None,
    backend: str = "auto",
) -> None:
    """Run the self-check on an unpatched model and leave it unpatched.

    The identity is run for a target of the check's own few tokens: some models rotate otherwise in longer contexts.

    Args:
        pairs: how each layer rotates, when the profile has a distance method.

    Raises:
        PatchError: says what failed.
    """
    with _evaluation_mode(model):
        tokens = _random_tokens(model)

        def patched(
            frequency: Frequency, length: int, distance: Distance | None = None, run: Run = _forward
        ) -> torch.Tensor:
            layers = None if distance is None else plan_layers(distance, shape, pairs)
            tables = RotaryTables(frequency, rotary.settings(shape, length))
            with (
                _each_called(rotary.attentions),
                Handle(model, profile, tables, rotary.attentions, layers, backend) as handle,
            ):
                handle.total_length = max(length, TOKENS)
                outputs = run(model, tokens)
            if not torch.isfinite(outputs).all():
                raise PatchError(f"self-check: profile {profile.name!r} gives outputs that are not finite")
            return outputs

        plain = _forward(model, tokens)
        if not torch.isfinite(plain).all():
            raise PatchError("self-check: the unpatched model gives outputs that are not finite")
        if not torch.equal(patched(Frequency("native"), TOKENS), plain):
            raise PatchError(f"self-check: the identity profile changes the model's outputs; {_CAUSE}")
        if profile.frequency.method != "native":
            changed = patched(profile.frequency, profile.target_length)
            if torch.equal(changed, plain):
                # Legitimate for a profile that is the identity in effect, or too close to it for this dtype and length;
                # so ask the mechanism itself, with every frequency ten times what it was.
                strong = Frequency("linear", factor=MIN_FACTOR)
                if torch.equal(patched(strong, profile.target_length), plain):
                    raise PatchError(f"self-check: the patch has no effect on the model's outputs; {_CAUSE}")
        if pairs is not None:
            _check_distance(plain, profile, patched)
        if not torch.equal(_forward(model, tokens), plain):
            raise PatchError(f"self-check: removing the patch does not restore the model's outputs; {_CAUSE}")


def _check_distance(plain: torch.Tensor, profile: Profile, patched: Callable[..., torch.Tensor]) -> None:
    """The attention of distance methods, mapping no distance, nearly all of them, and those of the profile."""
    native, strong = Frequency("native"), Distance("self_extend", window=1, group_size=4)
    _agree(patched(native, TOKENS, Distance()), plain, "ropewalk's attention and the model's own give the same outputs")
    far = patched(native, TOKENS, strong)
    if torch.equal(far, plain):
        raise PatchError(f"self-check: a distance method has no effect on the model's outputs; {_CAUSE}")
    _agree(patched(native, TOKENS, strong, _cached_forward), far, "a KV cache gives the outputs of one forward")
    patched(profile.frequency, profile.target_length, profile.distance)


def _agree(got: torch.Tensor, wanted: torch.Tensor, statement: str) -> None:
    """Raise unless outputs are equal up to a rounding that grows with the layers."""
    tolerance = 1e-3 if wanted.dtype in (torch.float32, torch.float64) else 0.1
    error = float((got.float() - wanted.float()).abs().max())
    if error > tolerance * float(wanted.float().abs().max()):
        raise PatchError(f"self-check: it is not so that {statement} (they differ by {error:.3g}); {_CAUSE}")


@contextmanager
def _each_called(attentions: Sequence[nn.Module]) -> Iterator[None]:
    """Every layer's attention must be called in what is run, and all as often."""
    calls = [0] * len(attentions)

    def count(layer: int) -> None:
        calls[layer] += 1

    counters = [
        module.register_forward_pre_hook(lambda *_, layer=layer: count(layer))
        for layer, module in enumerate(attentions)
    ]
    try:
        yield
    finally:
        for counter in counters:
            counter.remove()
    for layer, number in enumerate(calls):
        if number != max(calls[0], 1):
            raise PatchError(
                f"self-check: the attention of layer {layer} is called {number} times, not {max(calls[0], 1)}; {_CAUSE}"
            )


def _forward(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Logits, or last hidden states of a model without a head, [1, tokens, …]."""
    with torch.no_grad():
        outputs = model(input_ids=tokens, use_cache=False)
    return outputs.logits if hasattr(outputs, "logits") else outputs.last_hidden_state


def _cached_forward(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """The same outputs from three forwards over one KV cache, the last of a single token."""
    parts: list[torch.Tensor] = []
    cache: Any = None
    with torch.no_grad():
        for begin, end in ((0, TOKENS // 2), (TOKENS // 2, TOKENS - 1), (TOKENS - 1, TOKENS)):
            outputs = model(input_ids=tokens[:, begin:end], use_cache=True, **{cache_argument(model): cache})
            cache = outputs.past_key_values
            parts.append(outputs.logits if hasattr(outputs, "logits") else outputs.last_hidden_state)
    return torch.cat(parts, dim=1)


def _random_tokens(model: nn.Module) -> torch.Tensor:
    """Token ids [1, TOKENS], the same at each call and without touching the global random state."""
    embeddings = model.get_input_embeddings()
    generator = torch.Generator(device="cpu").manual_seed(0)
    tokens = torch.randint(embeddings.num_embeddings, (1, TOKENS), generator=generator, device="cpu")
    # Weights on the meta device are offloaded by accelerate, whose own hook then moves the tokens to where it computes.
    return tokens if embeddings.weight.is_meta else tokens.to(embeddings.weight.device)


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Dropout off during the check, and every module's mode as it was afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
