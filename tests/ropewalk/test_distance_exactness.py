"""A model under a distance method computes what the method's definition says, in every way a model is used.

The definition is `tests.ropewalk.literal`: scalar relative positions, a full score matrix, float64, no cache.
"""

import copy
import random

import pytest
import torch
from transformers import DynamicCache, StaticCache

from ropewalk import PatchError, ProfileError
from tests.ropewalk.distance_cases import METHODS, Case, key_dims, off, run, shape_of
from tests.ropewalk.literal import LiteralModel, in_doubles
from tests.ropewalk.small_models import KINDS, TRAINED, build, tokens

LENGTH = 80
ROUNDING = 2e-5
"""Of the largest logit: float32 through two layers. A distance wrong by one is three orders above it; see below."""

SLIDING = [kind for kind, parts in KINDS.items() if "sliding_window" in parts[2]]
WINDOWED = [method for method in METHODS if method != "dca"]
KIND_AND_METHOD = [(kind, method) for kind in KINDS for method in METHODS if kind not in SLIDING or method != "dca"]


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


def in_pieces(model, ids, sizes, cache=None, **options):
    """Logits of passes of these sizes over one cache; the last size is repeated to the end."""
    cache = DynamicCache(config=model.config) if cache is None else cache
    parts, start, sizes = [], 0, list(sizes)
    while start < ids.shape[1]:
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        parts.append(run(model, ids[:, start : start + size], past_key_values=cache, use_cache=True, **options))
        start += size
    return torch.cat(parts, 1)


# The yardstick


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


# One pass


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
        got = run(case.model, ids)
    assert got.dtype == torch.bfloat16
    assert (got.double() - expected).square().mean().sqrt() < 1.5 * without


# A cache


@pytest.mark.parametrize("sizes", [[1], [7], [16], [33], [3, 50, 2, 11, 40]], ids=str)
def test_chunked_prefill(method, sizes):
    case, ids = Case(method), tokens(LENGTH, batch=2)
    with case.patched():
        got = in_pieces(case.model, ids, sizes)
    assert off(got, case.literal.logits(ids)) < ROUNDING


@pytest.mark.parametrize(("kind", "name"), KIND_AND_METHOD)
def test_token_by_token_after_a_prefill(kind, name):
    case, ids = Case(name, kind), tokens(LENGTH)
    with case.patched():
        got = in_pieces(case.model, ids, [33, 1])
    assert off(got, case.literal.logits(ids)) < ROUNDING


def test_questions_in_turn_over_one_context_that_is_cut_back(method):
    case, context = Case(method), tokens(55)
    with case.patched():
        cache = DynamicCache(config=case.model.config)
        run(case.model, context, past_key_values=cache, use_cache=True)
        for seed, length in enumerate([9, 1, 25, 4]):
            question = tokens(length, seed=seed + 1)
            got = in_pieces(case.model, question, [3, 100], cache=cache)
            expected = case.literal.logits(torch.cat((context, question), 1))[:, 55:]
            assert off(got, expected) < ROUNDING
            cache.crop(-length)
            assert cache.get_seq_length() == 55


@pytest.mark.parametrize("chunk", [55, 20])
def test_questions_packed_side_by_side_over_one_context(method, chunk):
    case, context = Case(method), tokens(55)
    questions = [tokens(length, seed=length) for length in (9, 1, 20)]
    owner = torch.tensor([i for i, q in enumerate(questions) for _ in range(q.shape[1])])
    visible = (owner[:, None] == owner[None, :]).tril()
    visible = torch.cat((visible.new_ones(len(owner), 55), visible), 1)[None, None]
    positions = torch.cat([torch.arange(55, 55 + q.shape[1]) for q in questions])[None]
    with case.patched():
        cache = DynamicCache(config=case.model.config)
        in_pieces(case.model, context, [chunk], cache=cache)
        for _ in range(2):  # the cache is as good afterwards
            got = run(
                case.model,
                torch.cat(questions, 1),
                position_ids=positions,
                attention_mask=visible,
                past_key_values=cache,
                use_cache=True,
            )
            cache.crop(-len(owner))
            for question, part in zip(questions, got.split([q.shape[1] for q in questions], 1), strict=True):
                expected = case.literal.logits(torch.cat((context, question), 1))[:, 55:]
                assert off(part, expected) < ROUNDING


def test_packed_questions_with_a_mask_of_numbers_to_add(method):
    case, ids = Case(method), tokens(60)
    visible = torch.ones(60, 60).tril().bool()
    visible[:, 3:9] &= torch.eye(60, dtype=torch.bool)[:, 3:9]
    added = torch.zeros(60, 60).masked_fill(~visible, torch.finfo(torch.float32).min)[None, None]
    expected = case.literal.logits(ids, attention_mask=visible[None, None])
    with case.patched():
        assert off(run(case.model, ids, attention_mask=visible[None, None]), expected) < ROUNDING
        assert off(run(case.model, ids, attention_mask=added), expected) < ROUNDING


def test_a_static_cache(method):
    case, ids = Case(method), tokens(LENGTH, batch=2)
    with case.patched():
        cache = StaticCache(config=case.model.config, max_cache_len=100)
        got = in_pieces(case.model, ids, [30, 17, 1], cache=cache)
    assert off(got, case.literal.logits(ids)) < ROUNDING


@pytest.mark.parametrize("name", WINDOWED)
@pytest.mark.parametrize("kind", SLIDING)
@pytest.mark.parametrize("window", [1, 12, 29, 30, 31, 60])
def test_chunks_and_decode_with_a_sliding_window(kind, name, window):
    fields = METHODS[name] | {"window": window}
    case, ids = Case(fields, kind), tokens(LENGTH)
    expected = case.literal.logits(ids)
    with case.patched():
        assert off(run(case.model, ids), expected) < ROUNDING
        assert off(in_pieces(case.model, ids, [40, 13, 1]), expected) < ROUNDING


@pytest.mark.parametrize("kind", SLIDING)
def test_dca_and_a_sliding_window_are_refused_by_name(kind):
    case = Case("dca", kind)
    before = case.model.config._attn_implementation
    with pytest.raises(ProfileError, match="sliding"):
        case.patched()
    assert case.model.config._attn_implementation == before


# generate


def test_generate_gives_the_tokens_of_the_definition(method):
    case, ids = Case(method), tokens(60, batch=2)
    with case.patched():
        got = case.model.generate(ids, max_new_tokens=12, do_sample=False)
    assert torch.equal(got[:, 60:], case.literal.greedy(ids, 12))


@pytest.mark.parametrize("name", WINDOWED)
def test_generate_with_a_sliding_window(name):
    case, ids = Case(name, "sliding"), tokens(60)
    with case.patched():
        got = case.model.generate(ids, max_new_tokens=12, do_sample=False)
    assert torch.equal(got[:, 60:], case.literal.greedy(ids, 12))


def test_generate_with_a_static_cache(method):
    case, ids = Case(method), tokens(60)
    with case.patched():
        got = case.model.generate(ids, max_new_tokens=12, do_sample=False, cache_implementation="static")
    assert torch.equal(got[:, 60:], case.literal.greedy(ids, 12))


def test_beam_search_with_a_cache_finds_what_it_finds_without(method):
    case, ids = Case(method), tokens(50, batch=2)
    options = {"max_new_tokens": 10, "num_beams": 3, "do_sample": False}
    with case.patched():
        cached = case.model.generate(ids, **options)
        assert torch.equal(cached, case.model.generate(ids, use_cache=False, **options))
    literal = case.literal.model.generate(ids, use_cache=False, **options)
    assert torch.equal(cached, literal)


def test_generate_pads_on_the_left(method):
    case = Case(method)
    long, short = tokens(60), tokens(43, seed=1)
    ids = torch.cat((long, torch.cat((torch.zeros(1, 17, dtype=torch.long), short), 1)))
    mask = (ids != 0).long()
    with case.patched():
        got = case.model.generate(ids, attention_mask=mask, max_new_tokens=10, do_sample=False)
    assert torch.equal(got[:1, 60:], case.literal.greedy(long, 10))
    assert torch.equal(got[1:, 60:], case.literal.greedy(short, 10))


# Padding and positions


@pytest.mark.parametrize("kind", ["gqa", "sliding", "partial"])
@pytest.mark.parametrize("name", WINDOWED)
def test_left_padding(name, kind):
    case, ids = Case(name, kind), tokens(70, batch=3)
    mask = torch.ones_like(ids)
    mask[0, :23], mask[2, :1] = 0, 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with case.patched():
        counted = run(case.model, ids, attention_mask=mask, position_ids=positions)
        default = run(case.model, ids, attention_mask=mask)
        split = []
        cache = DynamicCache(config=case.model.config)
        for part in torch.arange(70).split([40, 29, 1]):
            seen = mask[:, : part[-1] + 1]
            options = {"attention_mask": seen, "position_ids": positions[:, part], "past_key_values": cache}
            split.append(run(case.model, ids[:, part], use_cache=True, **options))
    real = mask == 1
    for row in range(3):
        alone = case.literal.logits(ids[row : row + 1, mask[row] == 1])[0]
        assert off(counted[row, mask[row] == 1], alone) < ROUNDING
        assert off(torch.cat(split, 1)[row, mask[row] == 1], alone) < ROUNDING
    assert off(default[real], case.literal.logits(ids, attention_mask=mask)[real]) < ROUNDING
    assert torch.isfinite(counted).all()


def test_left_padding_with_dca():
    test_left_padding("dca", "gqa")


def test_right_padding(method):
    case, ids = Case(method), tokens(70, batch=3)
    mask = torch.ones_like(ids)
    mask[0, 40:], mask[2, 69:] = 0, 0
    with case.patched():
        got = run(case.model, ids, attention_mask=mask)
    for row in range(3):
        alone = case.literal.logits(ids[row : row + 1, mask[row] == 1])[0]
        assert off(got[row, mask[row] == 1], alone) < ROUNDING


def test_a_hole_in_the_attention_mask(method):
    case, ids = Case(method), tokens(70, batch=2)
    mask = torch.ones_like(ids)
    mask[0, 20:31] = 0
    expected = case.literal.logits(ids, attention_mask=mask)
    with case.patched():
        got = run(case.model, ids, attention_mask=mask)
        pieces = []
        cache = DynamicCache(config=case.model.config)
        for part in torch.arange(70).split([25, 44, 1]):
            options = {"attention_mask": mask[:, : part[-1] + 1], "past_key_values": cache}
            pieces.append(run(case.model, ids[:, part], use_cache=True, **options))
    assert off(got[mask == 1], expected[mask == 1]) < ROUNDING
    assert off(torch.cat(pieces, 1)[mask == 1], expected[mask == 1]) < ROUNDING


def test_positions_that_begin_elsewhere_in_each_row(method):
    case, ids = Case(method), tokens(50, batch=2)
    positions = torch.arange(50) + torch.tensor([[5], [31]])
    with case.patched():
        got = run(case.model, ids, position_ids=positions)
    assert off(got, case.literal.logits(ids, position_ids=positions)) < ROUNDING


# Identities


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


# Frequency methods beside


def theta(base=10000.0):
    return [base ** (-2 * j / 16) for j in range(8)]


def yarn_by_hand(factor):
    """arXiv 2309.00071 for d = 16, base 10000, L0 = 64: no pair turns 32 times, so the ramp begins at pair 0."""
    import math

    def correction(turns):
        return 16 * math.log(64 / (2 * math.pi * turns)) / (2 * math.log(10000.0))

    low, high = max(math.floor(correction(32)), 0), min(math.ceil(correction(1)), 15)
    ramp = [min(max((j - low) / (high - low), 0.0), 1.0) for j in range(8)]
    return [t * (1 - r) + t / factor * r for t, r in zip(theta(), ramp, strict=True)], 0.1 * math.log(factor) + 1


def with_frequency(name, method):
    from ropewalk import Frequency

    one = lambda rows: [torch.tensor(row, dtype=torch.float64) for row in rows]
    if name == "linear":
        rows, scalings = [[t / s for t in theta()] for s in (1.5, 3.0)], [1.0, 1.0]
        return Case(method, frequency=Frequency("linear", factor=(1.5, 3.0)), inv_freqs=one(rows), scalings=scalings)
    if name == "yarn":
        (rows, scalings) = zip(*[yarn_by_hand(factor) for factor in (2.0, 4.0)], strict=True)
        return Case(method, frequency=Frequency("yarn", factor=(2.0, 4.0)), inv_freqs=one(rows), scalings=scalings)
    if name == "longrope":
        factors = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
        rows = [[t / f for t, f in zip(theta(), factors, strict=True)]] * 2
        frequency = Frequency("longrope", factors=factors, attention_factor=1.3)
        return Case(method, frequency=frequency, inv_freqs=one(rows), scalings=[1.3, 1.3])
    base = 10000.0 * (2.0 * LENGTH / TRAINED - 1.0) ** (16 / 14)
    return Case(method, frequency=Frequency("dynamic_ntk", factor=2.0), inv_freqs=one([theta(base)] * 2))


@pytest.mark.parametrize("frequency", ["linear", "yarn", "longrope", "dynamic_ntk"])
def test_frequency_methods_combine_with_every_distance_method(frequency, method):
    case, ids = with_frequency(frequency, method), tokens(LENGTH, batch=2)
    expected = case.literal.logits(ids)
    with case.patched() as handle:
        assert off(run(case.model, ids), expected) < ROUNDING
        if frequency == "dynamic_ntk":
            handle.total_length = LENGTH
        assert off(in_pieces(case.model, ids, [45, 20, 1]), expected) < ROUNDING


# Gradients


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


# Backends


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


# Whatever is drawn


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
