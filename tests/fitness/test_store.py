"""Example sets on disk: the same set again without building it, never an outdated one, never half of one."""

import copy
import json
import multiprocessing
import os
from dataclasses import replace

import pytest

from fitness import store as store_module
from fitness.building import build
from fitness.chat import ChatTemplate
from fitness.composite import CompositeTask
from fitness.kv import KVTask
from fitness.perplexity import PerplexityTask
from fitness.store import ExampleStore, key_of, read, tokenizer_fingerprint
from fitness.texts import HubData

KV = {"contexts": 2, "questions": 3, "keys": "hex4", "values": "hex4"}
TASKS = [
    KVTask(**KV, length=120),
    KVTask(**KV, pairs=5, answer="opened", scoring="generation"),
    PerplexityTask(length=60, contexts=2),
    PerplexityTask(length=60, contexts=2, mode="sliding", stride=10, windows=3),
    CompositeTask(length=100, parts=[{"of": {"task": "kv", **KV}}, {"of": {"task": "perplexity", "contexts": 2}}]),
]


@pytest.fixture
def store(tmp_path):
    return ExampleStore(tmp_path / "examples")


@pytest.fixture
def never(monkeypatch):
    """After this, whoever builds a set fails the test."""

    def forbid():
        def build(self, *args):
            raise AssertionError("built again")

        for kind in (KVTask, PerplexityTask):
            monkeypatch.setattr(kind, "build", build)

    return forbid


@pytest.mark.parametrize("task", TASKS, ids=lambda t: f"{t.task}-{t.scoring}-{getattr(t, 'mode', '')}")
@pytest.mark.parametrize("template", [None, ChatTemplate("<u>", "<a>")], ids=["plain", "chat"])
def test_a_set_comes_back_from_disk_as_it_was_built(store, tokenizer, never, task, template):
    built = build(task, tokenizer, 7, "heldout", template=template)
    first = build(task, tokenizer, 7, "heldout", template=template, store=store)
    never()
    again = build(task, tokenizer, 7, "heldout", template=template, store=store)
    assert built == first == again
    assert built.hash == again.hash
    assert hash(again.examples[0]) == hash(built.examples[0])  # tuples all the way down


def test_whatever_a_set_follows_from_is_in_its_key(tokenizer, tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_text("some words " * 400, encoding="utf-8")
    task = PerplexityTask(length=60, contexts=2, file=str(path))
    other = copy.deepcopy(tokenizer)
    other.add_tokens(["somewords"])
    plain = key_of(task, tokenizer, 1, "search", None)
    assert plain == key_of(task.model_copy(), copy.deepcopy(tokenizer), 1, "search", None)
    keys = {
        "plain": plain,
        "length": key_of(task.at_length(61), tokenizer, 1, "search", None),
        "seed": key_of(task, tokenizer, 2, "search", None),
        "split": key_of(task, tokenizer, 1, "guard", None),
        "template": key_of(task, tokenizer, 1, "search", ChatTemplate("a", "b")),
        "tokenizer": key_of(task, other, 1, "search", None),
    }
    path.write_text("other words " * 400, encoding="utf-8")
    keys["file"] = key_of(task, tokenizer, 1, "search", None)
    monkeypatch.setattr(store_module, "_code", lambda: "changed")
    keys["code"] = key_of(task, tokenizer, 1, "search", None)
    assert len(set(keys.values())) == len(keys), keys


def test_a_file_changed_within_a_folder_changes_the_key(tokenizer, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("words", encoding="utf-8")
    task = PerplexityTask(length=60, file=str(tmp_path))
    before = key_of(task, tokenizer, 1, "search", None)
    os.utime(tmp_path / "b.txt", ns=(1, 1))
    assert key_of(task, tokenizer, 1, "search", None) != before


def test_a_task_moved_to_a_length_is_not_the_one_that_was_asked_for_there(tokenizer):
    asked = KVTask(length=100, questions=9, keys="hex4", values="hex4")
    moved = KVTask(length=200, questions=9, keys="hex4", values="hex4").at_length(100)
    assert asked.model_dump() == moved.model_dump()
    assert key_of(asked, tokenizer, 0, "search", None) != key_of(moved, tokenizer, 0, "search", None)


def test_data_of_the_hub_is_kept_only_at_a_revision(tokenizer):
    def key(revision):
        data = HubData(name="some/books", revision=revision)
        return key_of(PerplexityTask(length=60, dataset=data), tokenizer, 0, "search", None)

    assert key(None) is None
    assert key("abc") != key("abd")
    assert None not in (key("abc"), key("abd"))


def test_tokenizers_that_cut_or_begin_a_text_differently_have_different_fingerprints(tokenizer, greedy_tokenizer):
    bare = copy.deepcopy(tokenizer)
    bare.backend_tokenizer.post_processor = None
    found = {tokenizer_fingerprint(t) for t in (tokenizer, greedy_tokenizer, bare)}
    assert len(found) == 3
    assert tokenizer_fingerprint(copy.deepcopy(tokenizer)) in found


@pytest.mark.parametrize(
    "damage", [lambda t: t[: len(t) // 2], lambda t: t.replace("search", "guards"), lambda t: "{}"]
)
def test_a_damaged_file_is_built_again_and_replaced(store, tokenizer, damage):
    task = TASKS[0]
    built = build(task, tokenizer, 0, "search", store=store)
    (path,) = store.folder.glob("*.json")
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    assert read(path) is None
    assert build(task, tokenizer, 0, "search", store=store) == built
    assert read(path) == built


def test_a_file_of_another_set_under_this_name_is_not_taken(store, tokenizer):
    built = build(TASKS[0], tokenizer, 0, "search", store=store)
    (path,) = store.folder.glob("*.json")
    data = json.loads(path.read_text(encoding="utf-8"))
    data["examples"]["seed"] = 1
    path.write_text(json.dumps(data), encoding="utf-8")
    assert read(path) is None
    assert replace(built, seed=1).hash != built.hash


def test_a_folder_that_cannot_be_made_costs_a_warning(tmp_path, tokenizer, caplog):
    (tmp_path / "file").write_text("", encoding="utf-8")
    store = ExampleStore(tmp_path / "file" / "examples")
    assert build(TASKS[0], tokenizer, 0, "search", store=store) == TASKS[0].build(tokenizer, 0, "search")
    assert "cannot be kept" in caplog.text


def test_a_build_that_fails_leaves_nothing_and_frees_the_lock(store, tokenizer, monkeypatch):
    def fail(self, *args):
        raise RuntimeError("no")

    with monkeypatch.context() as patched:
        patched.setattr(KVTask, "build", fail)
        with pytest.raises(RuntimeError, match="no"):
            build(TASKS[0], tokenizer, 0, "search", store=store)
    assert not list(store.folder.glob("*.json"))
    assert build(TASKS[0], tokenizer, 0, "search", store=store).num_contexts == 2


def _build_slowly(folder, tokenizer, built):
    task = KVTask(**KV, length=120)
    real = KVTask.build

    def slow(self, *args):
        built.put(os.getpid())
        import time

        time.sleep(0.3)
        return real(self, *args)

    KVTask.build = slow
    build(task, tokenizer, 0, "search", store=ExampleStore(folder))


def test_of_several_processes_one_builds_and_the_others_wait(store, tokenizer):
    context = multiprocessing.get_context("fork")
    built = context.Queue()
    workers = [context.Process(target=_build_slowly, args=(store.folder, tokenizer, built)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert built.get(timeout=1)
    assert built.empty()
