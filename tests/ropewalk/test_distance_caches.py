"""A text in pieces over a cache gives what the definition gives for the whole of it.

Chunks, tokens one by one, several questions over one context, static caches, and layers with a sliding window, whose
cache forgets.
"""

import copy

import pytest
import torch
from transformers import DynamicCache, StaticCache

from ropewalk import ProfileError
from tests.ropewalk.distance_cases import (
    KIND_AND_METHOD,
    METHODS,
    ROUNDING,
    SLIDING,
    Case,
    in_pieces,
    off,
    run,
)
from tests.ropewalk.small_models import tokens

LENGTH = 80


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


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
        got = in_pieces(case.model, ids, [56, 1])
    assert off(got, case.literal.logits(ids)) < ROUNDING


def test_questions_in_turn_over_one_context_that_is_cut_back(method):
    case, context = Case(method), tokens(55)
    with case.patched():
        cache = DynamicCache(config=case.model.config)
        run(case.model, context, cache=cache)
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
                cache=cache,
            )
            cache.crop(-len(owner))
            for question, part in zip(questions, got.split([q.shape[1] for q in questions], 1), strict=True):
                expected = case.literal.logits(torch.cat((context, question), 1))[:, 55:]
                assert off(part, expected) < ROUNDING


def test_packed_questions_over_contexts_padded_on_the_left(method):
    case, context, questions = Case(method), tokens(40, batch=2), tokens(8, batch=2, seed=3)
    mask = torch.ones_like(context)
    mask[0, :9] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    visible = torch.ones(8, 8).tril().bool()
    visible[4:, :4] = False
    visible = torch.cat((mask.bool()[:, None].expand(-1, 8, -1), visible.expand(2, -1, -1)), -1)[:, None]
    with case.patched():
        cache = DynamicCache(config=case.model.config)
        run(case.model, context, cache, attention_mask=mask, position_ids=positions)
        asked = positions[:, -1:] + 1 + torch.arange(4).repeat(2)
        got = run(case.model, questions, cache, attention_mask=visible, position_ids=asked)
    for row in range(2):
        alone = context[row : row + 1, mask[row] == 1]
        for part in (slice(0, 4), slice(4, 8)):
            whole = torch.cat((alone, questions[row : row + 1, part]), 1)
            assert off(got[row : row + 1, part], case.literal.logits(whole)[:, -4:]) < ROUNDING


def test_packed_questions_with_a_mask_of_numbers_to_add(method):
    case, ids = Case(method), tokens(60)
    visible = torch.ones(60, 60).tril().bool()
    visible[:, 3:9] &= torch.eye(60, dtype=torch.bool)[:, 3:9]
    added = torch.zeros(60, 60).masked_fill(~visible, torch.finfo(torch.float32).min)[None, None]
    expected = case.literal.logits(ids, attention_mask=visible[None, None])
    with case.patched():
        assert off(run(case.model, ids, attention_mask=visible[None, None]), expected) < ROUNDING
        assert off(run(case.model, ids, attention_mask=added), expected) < ROUNDING


def test_a_copied_cache_goes_on_where_it_was_copied(method):
    case, context = Case(method), tokens(50)
    with case.patched():
        cache = DynamicCache(config=case.model.config)
        run(case.model, context, cache=cache)
        for seed in (1, 2):
            question = tokens(12, seed=seed)
            got = in_pieces(case.model, question, [5, 1], cache=copy.deepcopy(cache))
            expected = case.literal.logits(torch.cat((context, question), 1))[:, 50:]
            assert off(got, expected) < ROUNDING
        assert cache.get_seq_length() == 50


def test_a_cache_repeated_and_reordered_over_the_batch(method):
    case, context, questions = Case(method), tokens(50, batch=2), tokens(12, batch=4, seed=1)
    with case.patched():
        cache = DynamicCache(config=case.model.config)
        run(case.model, context, cache=cache)
        cache.batch_repeat_interleave(2)
        cache.reorder_cache(torch.tensor([3, 0, 1, 2]))
        got = in_pieces(case.model, questions, [5, 1], cache=cache)
    whole = torch.cat((context[[1, 0, 0, 1]], questions), 1)
    assert off(got, case.literal.logits(whole)[:, 50:]) < ROUNDING


def test_generate_goes_on_from_a_cache(method):
    case, ids = Case(method), tokens(60)
    with case.patched():
        cache = DynamicCache(config=case.model.config)
        run(case.model, ids[:, :45], cache=cache)
        got = case.model.generate(ids, cache=cache, max_new_tokens=8, do_sample=False)
    assert torch.equal(got[:, 60:], case.literal.greedy(ids, 8))


def test_a_static_cache(method):
    case, ids = Case(method), tokens(LENGTH, batch=2)
    with case.patched():
        cache = StaticCache(config=case.model.config, max_cache_len=100)
        got = in_pieces(case.model, ids, [30, 17, 1], cache=cache)
    assert off(got, case.literal.logits(ids)) < ROUNDING


@pytest.mark.parametrize("name", ["rerope log_n", "dpe", "dpe query heads"])
@pytest.mark.parametrize("kind", SLIDING)
@pytest.mark.parametrize("window", [1, 29, 30, 31])
def test_chunks_and_decode_with_a_sliding_window(kind, name, window):
    fields = METHODS[name] | {"window": window}
    case, ids = Case(fields, kind), tokens(LENGTH)
    expected = case.literal.logits(ids)
    with case.patched():
        assert off(run(case.model, ids), expected) < ROUNDING
        assert off(in_pieces(case.model, ids, [40, 25, 1]), expected) < ROUNDING


@pytest.mark.parametrize("kind", SLIDING)
@pytest.mark.parametrize("static", [False, True], ids=["keeps everything", "static"])
def test_a_sliding_window_over_caches_of_other_kinds(kind, static):
    case, ids = Case("self_extend", kind), tokens(LENGTH, batch=2)
    with case.patched():
        cache = StaticCache(config=case.model.config, max_cache_len=90) if static else DynamicCache()
        got = in_pieces(case.model, ids, [40, 25, 1], cache=cache)
    assert off(got, case.literal.logits(ids)) < ROUNDING


@pytest.mark.parametrize("kind", SLIDING)
def test_dca_and_a_sliding_window_are_refused_by_name(kind):
    case = Case("dca", kind)
    before = case.model.config._attn_implementation
    with pytest.raises(ProfileError, match="sliding"):
        case.patched()
    assert case.model.config._attn_implementation == before
