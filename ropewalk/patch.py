"""Applying a profile to a transformers model."""

from torch import nn

from ropewalk.hooks import Handle, refuse_patched
from ropewalk.profile import Profile
from ropewalk.rotary import examine
from ropewalk.selfcheck import check_patch
from ropewalk.shape import ModelShape
from ropewalk.tables import RotaryTables


def apply_profile(model: nn.Module, profile: Profile, check: bool = True) -> Handle:
    """Apply a profile to a model in memory; nothing is trained, saved or recompiled.

    Example:
        >>> profile = load_profile("profile.json")
        >>> with apply_profile(model, profile):
        ...     model.generate(**inputs, max_new_tokens=64)

    A KV cache belongs to the profile it was filled under: start a new one after applying or removing.

    Args:
        model: a transformers model of the architecture the profile was made for.
        profile: what to apply.
        check: run the self-check, three to five forwards over a few tokens. Worth it once per loaded model.

    Returns:
        The handle; `remove()` or leaving it as a context manager restores the model.

    Raises:
        ProfileError: the profile was made for another architecture, the model is not supported, or a profile is
            already applied to it.
        PatchError: the self-check failed; the model is then unpatched.
    """
    refuse_patched(model)
    shape = ModelShape.from_config(model.config)
    profile.check_fits(shape)
    rotary = examine(model, shape)
    if check:
        check_patch(model, rotary, shape, profile)
    settings = rotary.settings(shape, profile.target_length)
    return Handle(profile, RotaryTables(profile.frequency, settings), rotary.attentions)
