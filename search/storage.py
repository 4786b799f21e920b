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
            self.local = "file" in ([self.fs.protocol] if isinstance(self.fs.protocol, str) else self.fs.protocol)
            self.fs.makedirs(self.folder, exist_ok=True)
            self.write(".writable", b"")
            self.fs.rm_file(self._path(".writable"))
        except (OSError, ValueError, ImportError, NotImplementedError) as error:
            reason = str(error) or type(error).__name__
            raise CampaignError("storage", root, f"a folder or fsspec URL that can be written ({reason})") from error

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
        """Replace a file atomically: on a local disk written beside it, flushed and renamed over it; elsewhere as one
        object, which a store shows when it is complete."""
        if not self.local:
            self.fs.pipe_file(self._path(name), data)
            return
        beside = Path(self._path(f".{name}.new"))
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path(name))

    def append(self, name: str, data: bytes) -> None:
        """Add to the end of a file; a store whose objects cannot grow gets a longer one."""
        try:
            with self.fs.open(self._path(name), "ab") as file:
                file.write(data)
        except (NotImplementedError, ValueError):
            before = self.read(name) if self.exists(name) else b""
            self.write(name, before + data)
