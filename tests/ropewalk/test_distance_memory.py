"""The memory of a distance method grows with the context, not with its square; measured as bytes alive at once."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import DynamicCache, LlamaConfig, LlamaModel

from ropewalk import Distance, Frequency, KeyDims, ModelShape, Profile, apply_profile, dense

SCALES = (2.0, 8.0, 4.0, 16.0)
METHODS = {
    "rerope": Distance("rerope", window=32),
    "leaky_rerope": Distance("leaky_rerope", window=32, slope=8.0),
    "self_extend": Distance("self_extend", window=32, group_size=8),
    "dca": Distance("dca", chunk_size=48, local_size=16),
    "dpe": Distance("dpe", window=32, scale_factors=SCALES),
    "dpe, query heads": Distance(
        "dpe",
        window=32,
        scale_factors=SCALES,
        key_dims=KeyDims.from_bools(
            "query_head", [[[(pair + head) % 4 < 2 for pair in range(8)] for head in range(4)]]
        ),
    ),
}


class Alive(TorchDispatchMode):
    """Counts the bytes of the tensors that operators make, and the most that were alive at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = self.largest = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if torch.is_tensor(tensor):
                self._meet(tensor.untyped_storage())
        return result

    def _meet(self, storage) -> None:
        address, size = storage.data_ptr(), storage.nbytes()
        if address in self._known or size == 0:
            return
        self._known.add(address)
        self.now += size
        self.peak, self.largest = max(self.peak, self.now), max(self.largest, size)
        weakref.finalize(storage, self._lose, address, size)

    def _lose(self, address: int, size: int) -> None:
        self._known.discard(address)
        self.now -= size


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=64,
    )
    return LlamaModel(config).eval()


def peak(model, tokens: int, chunk: int | None = None) -> Alive:
    """Of a prefill, at once or in chunks, and one more token."""
    ids = torch.zeros(1, tokens, dtype=torch.long)
    parts = [*ids.split(chunk or tokens, dim=1), ids[:, :1]]
    with torch.no_grad(), Alive() as alive:
        cache = DynamicCache(config=model.config)
        for part in parts:
            model(part, use_cache=True, cache=cache)
    return alive


@pytest.mark.parametrize("backend", ["sdpa", "math"])
@pytest.mark.parametrize("method", METHODS)
def test_twice_the_context_takes_twice_the_memory(model, method, backend, monkeypatch):
    monkeypatch.setattr(dense, "BLOCK_SCORES", 2**15)
    profile = Profile(method, ModelShape.from_config(model.config), 4096, Frequency("native"), METHODS[method])
    with apply_profile(model, profile, backend=backend):
        small, large = peak(model, 1024), peak(model, 2048)
    assert 1.5 < large.peak / small.peak < 2.2
    assert large.largest < 2048 * 2048  # bytes: not even a truth value for each pair of tokens


def test_chunks_take_no_more_than_one_prefill(model):
    profile = Profile("x", ModelShape.from_config(model.config), 4096, Frequency("native"), METHODS["self_extend"])
    with apply_profile(model, profile):
        assert peak(model, 2048, chunk=256).peak < peak(model, 2048).peak


def test_the_measure_sees_a_square(model):
    """Eager attention, which keeps the scores of all pairs, is found out."""
    own = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        small, large = peak(model, 512), peak(model, 1024)
    finally:
        model.set_attn_implementation(own)
    assert large.peak / small.peak > 3
