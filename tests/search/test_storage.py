"""A campaign's folder: files replaced whole, on a local disk and on any fsspec URL."""

import json

import pytest

from search.errors import CampaignError
from search.journal import Journal
from search.runner import Runner
from search.storage import Storage
from tests.search.fake import FakeEvaluator, prepared


@pytest.fixture(params=["plain", "file", "memory"])
def root(request, tmp_path):
    return {"plain": str(tmp_path), "file": f"file://{tmp_path}", "memory": f"memory:/{tmp_path}"}[request.param]


def test_files_are_replaced_and_nothing_else_is_left(root):
    storage = Storage(root, "it")
    storage.write("a.json", b"1")
    storage.write("a.json", b"22")
    assert storage.read("a.json") == b"22"
    assert [path.rsplit("/", 1)[-1] for path in storage.fs.ls(storage.folder, detail=False)] == ["a.json"]
    assert Storage(root, "it").exists("a.json")
    assert not storage.exists("b.json")


def test_lines_are_appended(root):
    storage = Storage(root, "it")
    for line in (b"1\n", b"2\n"):
        storage.append("lines", line)
    assert storage.read("lines") == b"1\n2\n"


def test_where_files_cannot_grow_they_are_replaced_by_longer_ones(tmp_path, monkeypatch):
    storage = Storage(f"memory:/{tmp_path}", "it")

    def refuse(path, mode="rb", **kwargs):
        if mode == "ab":
            raise NotImplementedError
        return opened(path, mode, **kwargs)

    opened = storage.fs.open
    monkeypatch.setattr(storage.fs, "open", refuse)
    for line in (b"1\n", b"2\n"):
        storage.append("lines", line)
    assert storage.read("lines") == b"1\n2\n"


def test_a_campaign_leaves_the_same_profile_anywhere(root, tmp_path):
    profiles = []
    for place in (root, str(tmp_path / "local")):
        storage = Storage(place, "it")
        Runner(prepared(), "it", storage, [Journal(storage)]).run(FakeEvaluator(), resume=True)
        profiles.append(storage.read("profile.json"))
    assert profiles[0] == profiles[1]
    assert all(json.loads(line) for line in Storage(root, "it").read("events.jsonl").splitlines())


@pytest.mark.parametrize("root", ["nosuch://x", "http://127.0.0.1:1/x", "/proc/nowhere"])
def test_a_place_that_cannot_be_written_is_refused(root):
    with pytest.raises(CampaignError, match=r"storage: got .* a folder or fsspec URL that can be written"):
        Storage(root, "it")
