"""Applying a profile to a transformers model."""

from torch import nn

from ropewalk.errors import ProfileError
from ropewalk.hooks import Handle, refuse_patched
from ropewalk.kernels import check_backend
from ropewalk.pairs import attention_pairs
from ropewalk.plan import plan_layers
from ropewalk.profile import Profile
from ropewalk.rotary import examine
from ropewalk.selfcheck import check_patch
from ropewalk.shape import ModelShape
from ropewalk.tables import RotaryTables


def apply_profile(model: nn.Module, profile: Profile, check: bool = True, backend: str = "auto") -> Handle:
    """Apply a profile to a model in memory; nothing is trained or saved.

    Example:
        >>> profile = load_profile("profile.json")
        >>> with apply_profile(model, profile):
        ...     model.generate(**inputs, max_new_tokens=64)

    A KV cache belongs to the profile it was filled under: start a new one after applying or removing. What
    `torch.compile` has compiled in the process is dropped on both, and compiled again when it is called.

    Args:
        model: a transformers model of the architecture the profile was made for.
        profile: what to apply.
        check: run the self-check, a few forwards over a few tokens. Worth it once per loaded model.
        backend: what computes the attention of a distance method. `sdpa` (PyTorch's kernels), `flash_attn` (the
            package), `flex` (compiled, CUDA), or `math`, explicit scores a block at a time. `auto` takes flash_attn
            where it is installed and fits, then sdpa, then math. Gradients and masks of any form always take math.
            Without a distance method the model's own attention implementation is used.

    Returns:
        The handle; `remove()` or leaving it as a context manager restores the model.

    Raises:
        ProfileError: the profile was made for another architecture, the model is not supported, a profile is already
            applied to it, or the backend does not exist or cannot be used.
        PatchError: the self-check failed; the model is then unpatched.
    """
    if not isinstance(model, nn.Module):
        raise ProfileError("model", model, "a model of transformers; a profile is the second argument")
    if not isinstance(profile, Profile):
        raise ProfileError("profile", profile, "a Profile; load_profile reads one from a file")
    refuse_patched(model)
    check_backend(backend)
    shape = ModelShape.from_config(model.config)
    profile.check_fits(shape)
    rotary = examine(model, shape)
    pairs, layers = None, None
    if profile.distance.method != "none":
        pairs = attention_pairs(model, rotary.attentions)
        layers = plan_layers(profile.distance, shape, pairs)
    if check:
        check_patch(model, rotary, shape, profile, pairs, backend)
    settings = rotary.settings(shape, profile.target_length)
    return Handle(model, profile, RotaryTables(profile.frequency, settings), rotary.attentions, layers, backend)
