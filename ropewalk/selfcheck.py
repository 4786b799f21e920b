"""The self-check: shows on the model at hand that the patch does what it says.

The patch relies on how transformers passes cos and sin to the layers. If an upgrade changes that, it could stop having
an effect without an error, and a campaign would compare a model with itself. So a short forward is run with and
without: the identity must give the same bits, a real profile other ones, and removal the first ones again.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ropewalk.axes import Frequency
from ropewalk.errors import PatchError
from ropewalk.frequencies import MIN_FACTOR
from ropewalk.hooks import Handle
from ropewalk.profile import Profile
from ropewalk.rotary import RotaryModel
from ropewalk.shape import ModelShape
from ropewalk.tables import RotaryTables

TOKENS = 32
_CAUSE = "a change in this version of transformers may be the cause"


def check_patch(model: nn.Module, rotary: RotaryModel, shape: ModelShape, profile: Profile) -> None:
    """Run the self-check on an unpatched model and leave it unpatched.

    The identity is run for a target of the check's own few tokens: some models rotate otherwise in longer contexts.

    Raises:
        PatchError: says what failed.
    """
    with _evaluation_mode(model):
        tokens = _random_tokens(model)

        def patched(frequency: Frequency, length: int) -> torch.Tensor:
            tables = RotaryTables(frequency, rotary.settings(shape, length))
            tables.total_length = max(length, TOKENS)
            return _patched(model, rotary, profile, tables, tokens)

        plain = _forward(model, tokens)
        if not torch.isfinite(plain).all():
            raise PatchError("self-check: the unpatched model gives outputs that are not finite")
        if not torch.equal(patched(Frequency("native"), TOKENS), plain):
            raise PatchError(f"self-check: the identity profile changes the model's outputs; {_CAUSE}")
        if profile.frequency.method != "native":
            changed = patched(profile.frequency, profile.target_length)
            if not torch.isfinite(changed).all():
                raise PatchError(f"self-check: profile {profile.name!r} gives outputs that are not finite")
            if torch.equal(changed, plain):
                # Legitimate for a profile that is the identity in effect, or too close to it for this dtype and length;
                # so ask the mechanism itself, with every frequency ten times what it was.
                strong = Frequency("linear", factor=MIN_FACTOR)
                if torch.equal(patched(strong, profile.target_length), plain):
                    raise PatchError(f"self-check: the patch has no effect on the model's outputs; {_CAUSE}")
        if not torch.equal(_forward(model, tokens), plain):
            raise PatchError(f"self-check: removing the patch does not restore the model's outputs; {_CAUSE}")


def _patched(
    model: nn.Module,
    rotary: RotaryModel,
    profile: Profile,
    tables: RotaryTables,
    tokens: torch.Tensor,
) -> torch.Tensor:
    """Outputs under these tables; every layer's attention must be called once."""
    calls = [0] * len(rotary.attentions)

    def count(layer: int) -> None:
        calls[layer] += 1

    counters = [
        module.register_forward_pre_hook(lambda *_, layer=layer: count(layer))
        for layer, module in enumerate(rotary.attentions)
    ]
    try:
        with Handle(profile, tables, rotary.attentions):
            outputs = _forward(model, tokens)
    finally:
        for counter in counters:
            counter.remove()
    for layer, number in enumerate(calls):
        if number != 1:
            raise PatchError(f"self-check: one forward calls the attention of layer {layer} {number} times; {_CAUSE}")
    return outputs


def _forward(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Logits, or last hidden states of a model without a head, [1, tokens, …]."""
    with torch.no_grad():
        outputs = model(input_ids=tokens, use_cache=False)
    return outputs.logits if hasattr(outputs, "logits") else outputs.last_hidden_state


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
