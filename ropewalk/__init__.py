"""Ropewalk's library: apply a profile of rotary position scaling to a Hugging Face model.

from ropewalk import apply_profile, load_profile

profile = load_profile("profile.json")
with apply_profile(model, profile):
    model.generate(**inputs)
"""

from importlib.metadata import PackageNotFoundError, version

from ropewalk.axes import Frequency
from ropewalk.distance import Distance, KeyDims
from ropewalk.errors import FieldError, PatchError, ProfileError
from ropewalk.hooks import Handle
from ropewalk.patch import apply_profile
from ropewalk.profile import SCHEMA, Profile, load_profile
from ropewalk.shape import ModelShape

try:
    __version__ = version("ropewalk")
except PackageNotFoundError:  # used from a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "SCHEMA",
    "Distance",
    "FieldError",
    "Frequency",
    "Handle",
    "KeyDims",
    "ModelShape",
    "PatchError",
    "Profile",
    "ProfileError",
    "__version__",
    "apply_profile",
    "load_profile",
]
