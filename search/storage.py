"""The folder of a campaign, on a local path or any fsspec URL. Every file is replaced whole or not at all."""

import os
import posixpath
from pathlib import Path

import fsspec

from search.errors import CampaignError


class Storage:
    """Files of one campaign under `root`/`campaign_id`.

    Raises:
        CampaignError: the folder cannot be made or written.
    """

    def __init__(self, root: str, campaign_id: str):
        try:
            self.fs, base = fsspec.core.url_to_fs(root)
            self.folder = posixpath.join(base, campaign_id)
            self.fs.makedirs(self.folder, exist_ok=True)
            self.write(".writable", b"")
            self.fs.rm_file(self._path(".writable"))
        except (OSError, ValueError, ImportError) as error:
            raise CampaignError("storage", root, f"a folder or fsspec URL that can be written ({error})") from error
        self.local = "file" in (self.fs.protocol if isinstance(self.fs.protocol, tuple) else (self.fs.protocol,))

    @property
    def url(self) -> str:
        return self.fs.unstrip_protocol(self.folder) if not self.local else self.folder

    def _path(self, name: str) -> str:
        return posixpath.join(self.folder, name)

    def exists(self, name: str) -> bool:
        return self.fs.exists(self._path(name))

    def read(self, name: str) -> bytes:
        return self.fs.cat_file(self._path(name))

    def write(self, name: str, data: bytes) -> None:
        """Replace a file atomically: written beside it, flushed to the disk, then renamed over it."""
        beside = self._path(f".{name}.new")
        with self.fs.open(beside, "wb") as file:
            file.write(data)
            file.flush()
            if hasattr(file, "fileno"):
                os.fsync(file.fileno())
        if "file" in self.fs.protocol:
            Path(beside).replace(self._path(name))
        else:
            self.fs.mv(beside, self._path(name))

    def append(self, name: str, data: bytes) -> None:
        with self.fs.open(self._path(name), "ab") as file:
            file.write(data)
