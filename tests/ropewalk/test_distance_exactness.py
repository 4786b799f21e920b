"""A model under a distance method computes what the method's definition says.

The definition is `tests.ropewalk.literal`: scalar relative positions, a full score matrix, float64, no cache. Here one
pass over a text and everything that varies there; caches, batches and frequency methods have files of their own.
"""

import copy
import random

import pytest
import torch

from ropewalk import PatchError, ProfileError
from tests.ropewalk.distance_cases import (
    KIND_AND_METHOD,
    METHODS,
    ROUNDING,
    SLIDING,
    Case,
    in_pieces,
    key_dims,
    off,
    run,
    shape_of,
)
from tests.ropewalk.literal import LiteralModel, in_doubles
from tests.ropewalk.small_models import KINDS, TRAINED, build, tokens

LENGTH = 80


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rerope", {"window": 8}),
        ("leaky_rerope", {"window": 10}),
        ("leaky_rerope", {"slope": 3.7}),
        ("self_extend", {"window": 11}),
        ("self_extend", {"group_size": 5}),
        ("dca", {"local_size": 8}),
        ("dpe", {"window": 12}),
        ("dpe", {"scale_factors": [1.0, 2.5, 4.0, 3.5]}),
        ("dpe query heads", {"key_dims": None}),
    ],
    ids=str,
)
def test_a_slightly_different_definition_is_far_outside_the_tolerance(name, change):
    case, ids = Case(name), tokens(LENGTH)
    other = LiteralModel(case.model, case.fields | change, trained_length=TRAINED)
    assert off(other.logits(ids), case.literal.logits(ids)) > 20 * ROUNDING


@pytest.mark.parametrize(("kind", "name"), KIND_AND_METHOD)
def test_full_prefill(kind, name):
    case, ids = Case(name, kind), tokens(LENGTH, batch=2)
    with case.patched():
        got = run(case.model, ids)
    assert got.dtype == torch.float32
    assert off(got, case.literal.logits(ids)) < ROUNDING


@pytest.mark.parametrize("head_dim", [64, 96, 128])
@pytest.mark.parametrize("name", ["self_extend", "dca", "dpe query heads", "dpe key heads"])
def test_head_dimensions(name, head_dim):
    case, ids = Case(name, head_dim=head_dim), tokens(60)
    with case.patched():
        got = run(case.model, ids)
        pieces = in_pieces(case.model, ids, [41, 1])
    expected = case.literal.logits(ids)
    assert off(got, expected) < ROUNDING
    assert off(pieces, expected) < ROUNDING


def test_a_float64_model(method):
    case, ids = Case(method), tokens(LENGTH)
    case.model.double()
    with case.patched():
        got = run(case.model, ids)
    assert got.dtype == torch.float64
    assert off(got, case.literal.logits(ids)) < ROUNDING


def test_bfloat16_loses_no_more_than_it_does_without_the_profile(method):
    case, ids = Case(method), tokens(LENGTH, batch=4)
    plain = in_doubles(case.model)
    with torch.no_grad():
        expected_plain = plain(input_ids=ids).logits
    expected = case.literal.logits(ids)
    inv_freq = case.model.model.rotary_emb.inv_freq
    case.model.bfloat16()
    case.model.model.rotary_emb.inv_freq = inv_freq  # float32, as in a model loaded in bfloat16
    without = (run(case.model, ids).double() - expected_plain).square().mean().sqrt()
    with case.patched():
        whole = run(case.model, ids)
        pieces = in_pieces(case.model, ids, [30, 30, 5])
    for got in (whole, pieces):
        assert got.dtype == torch.bfloat16
        assert (got.double() - expected).square().mean().sqrt() < 1.5 * without


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "self_extend", "window": 5, "group_size": 1},
        {"method": "rerope", "window": 64},
        {"method": "leaky_rerope", "window": 6, "slope": 1.0},
        {"method": "dpe", "window": 6, "scale_factors": [1.0, 1.0]},
        {"method": "dpe", "window": 6, "scale_factors": [4.0], "key_dims": 0},
        {"method": "dca", "chunk_size": 64, "local_size": 4},
    ],
    ids=str,
)
def test_what_changes_no_distance_is_the_plain_model(fields):
    model, ids = build(), tokens(60)
    if "key_dims" in fields:
        fields = fields | {"key_dims": key_dims(shape_of(model), "query_head", 0)}
    plain = run(model, ids)
    case = Case(fields)
    with case.patched():
        assert off(run(case.model, ids), plain) < ROUNDING
        assert off(in_pieces(case.model, ids, [31, 1]), plain) < ROUNDING


@pytest.mark.parametrize("per", ["query_head", "kv_head"])
@pytest.mark.parametrize("top_k", [0, 1, 7, 8])
def test_key_dimensions_from_none_to_all(per, top_k):
    shape = shape_of(build())
    fields = METHODS["dpe"] | {"key_dims": key_dims(shape, per, top_k)}
    case, ids = Case(fields), tokens(LENGTH)
    with case.patched():
        got = run(case.model, ids)
        pieces = in_pieces(case.model, ids, [31, 1])
    expected = case.literal.logits(ids)
    assert off(got, expected) < ROUNDING
    assert off(pieces, expected) < ROUNDING
    if top_k == 8:
        assert off(got, Case("dpe").literal.logits(ids)) < ROUNDING


def test_gradients_are_those_of_the_definition(method):
    case, ids = Case(method), tokens(40, batch=2)
    weights = torch.randn(2, 40, 97, generator=torch.Generator().manual_seed(5))
    (case.literal.graph(ids) * weights.double()).sum().backward()
    with case.patched():
        (case.model(input_ids=ids, use_cache=False).logits * weights).sum().backward()
    expected = dict(case.literal.model.named_parameters())
    for name, parameter in case.model.named_parameters():
        if expected[name].grad is not None:
            assert off(parameter.grad, expected[name].grad) < 10 * ROUNDING, name


def test_gradients_with_activation_checkpointing(method):
    case, ids = Case(method), tokens(40)
    case.literal.graph(ids).square().sum().backward()
    with case.patched():
        case.model.train()
        case.model.activation_checkpointing_enable()
        case.model(input_ids=ids, use_cache=False).logits.square().sum().backward()
    expected = dict(case.literal.model.named_parameters())
    for name, parameter in case.model.named_parameters():
        if expected[name].grad is not None:
            assert off(parameter.grad, expected[name].grad) < 10 * ROUNDING, name


@pytest.mark.parametrize("name", ["self_extend", "dpe query heads"])
def test_gradients_after_a_forward_in_inference_mode(name):
    case, ids = Case(name), tokens(40)
    with case.patched():
        with torch.inference_mode():
            case.model(input_ids=ids)
        case.model(input_ids=ids, use_cache=False).logits.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in case.model.parameters() if p.grad is not None)


@pytest.mark.parametrize("backend", ["sdpa", "math"])
def test_backends_give_the_same(method, backend):
    case, ids = Case(method), tokens(LENGTH, batch=2)
    expected = case.literal.logits(ids)
    with case.patched(backend=backend):
        assert off(run(case.model, ids), expected) < ROUNDING
        assert off(in_pieces(case.model, ids, [45, 20, 1]), expected) < ROUNDING


@pytest.mark.parametrize("backend", ["flash_attn", "flex"])
def test_a_backend_that_cannot_work_here_is_refused_by_name(backend):
    case, ids = Case("self_extend"), tokens(LENGTH)
    before = case.model.config._attn_implementation
    try:
        with case.patched(backend=backend):
            got = run(case.model, ids)
    except (PatchError, ProfileError) as error:
        assert backend in str(error)
        assert case.model.config._attn_implementation == before
    else:
        assert off(got, case.literal.logits(ids)) < ROUNDING


def test_an_unknown_backend_is_refused_with_the_known_ones():
    case = Case("self_extend")
    with pytest.raises((PatchError, ProfileError, ValueError), match="math"):
        case.patched(backend="maths")


def drawn(seed):
    """A random method, model, text and way of running it."""
    rng = random.Random(seed)
    method = rng.choice(["rerope", "leaky_rerope", "self_extend", "dca", "dpe"])
    window = rng.choice([1, 2, TRAINED, rng.randint(3, TRAINED - 1), rng.randint(3, TRAINED - 1)])
    kinds = [kind for kind in KINDS if method != "dca" or kind not in SLIDING]
    kind = rng.choice(kinds)
    shape = shape_of(build(kind))
    fields = {
        "rerope": lambda: {"window": window, "log_n": rng.random() < 0.5},
        "leaky_rerope": lambda: {"window": window, "slope": rng.uniform(1, 30)},
        "self_extend": lambda: {"window": window, "group_size": rng.randint(1, 40)},
        "dca": lambda: {"chunk_size": (size := max(window, 2)), "local_size": rng.randint(1, size - 1)},
        "dpe": lambda: {"window": window, "scale_factors": [rng.choice([1.0, rng.uniform(1, 30)]) for _ in range(4)]},
    }[method]() | {"method": method}
    if method == "dpe" and rng.random() < 0.7:
        per = rng.choice(["query_head", "kv_head"])
        fields["key_dims"] = key_dims(shape, per, rng.randint(0, shape.rotary_dim // 2), seed)
    sizes = [rng.randint(1, 30) for _ in range(3)] + [rng.choice([1, 3, 80])]
    return kind, fields, rng.randint(40, LENGTH), sizes


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_drawn(seed):
    kind, fields, length, sizes = drawn(seed)
    case, ids = Case(fields, kind, seed=seed), tokens(length, batch=2, seed=seed)
    expected = case.literal.logits(ids)
    with case.patched():
        assert off(run(case.model, ids), expected) < ROUNDING, (kind, fields)
        assert off(in_pieces(case.model, ids, sizes), expected) < ROUNDING, (kind, fields, sizes)


@pytest.mark.parametrize("kind", KINDS)
def test_the_self_check_passes(kind):
    case = Case("dpe query heads", kind)
    ids = tokens(LENGTH)
    with case.patched(check=True):
        assert off(run(case.model, ids), case.literal.logits(ids)) < ROUNDING


def test_a_copy_of_a_patched_model_computes_the_same(method):
    case, ids = Case(method), tokens(LENGTH)
    with case.patched():
        twin = copy.deepcopy(case.model)
        assert torch.equal(run(twin, ids), run(case.model, ids))
    assert off(run(twin, ids), case.literal.logits(ids)) < ROUNDING
