"""`generate`, padded batches and given positions under a distance method give what the definition gives."""

import pytest
import torch
from transformers import DynamicCache, StaticCache

from ropewalk import PatchError
from tests.ropewalk.distance_cases import METHODS, ROUNDING, WINDOWED, Case, off, run
from tests.ropewalk.small_models import tokens


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


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
    case, ids = Case(method), tokens(40, batch=2)
    options = {"max_new_tokens": 6, "num_beams": 2, "do_sample": False}
    with case.patched():
        cached = case.model.generate(ids, **options)
        assert torch.equal(cached, case.model.generate(ids, use_cache=False, **options))
    literal = case.literal.model.generate(ids, use_cache=False, **options)
    assert torch.equal(cached, literal)


@pytest.mark.parametrize("options", [{"prompt_lookup_num_tokens": 4}, {"prefill_chunk_size": 16}], ids=str)
def test_generate_with_drafts_or_chunks(method, options):
    case, ids = Case(method), tokens(20).repeat(1, 3)
    with case.patched():
        got = case.model.generate(ids, max_new_tokens=12, do_sample=False, **options)
    assert torch.equal(got[:, 60:], case.literal.greedy(ids, 12))


def test_generate_pads_on_the_left(method):
    case = Case(method)
    long, short = tokens(60), tokens(43, seed=1)
    ids = torch.cat((long, torch.cat((torch.zeros(1, 17, dtype=torch.long), short), 1)))
    mask = (ids != 0).long()
    with case.patched():
        got = case.model.generate(ids, attention_mask=mask, max_new_tokens=10, do_sample=False)
    assert torch.equal(got[:1, 60:], case.literal.greedy(long, 10))
    assert torch.equal(got[1:, 60:], case.literal.greedy(short, 10))


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
            options = {"attention_mask": seen, "position_ids": positions[:, part], "cache": cache}
            split.append(run(case.model, ids[:, part], **options))
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
            options = {"attention_mask": mask[:, : part[-1] + 1], "cache": cache}
            pieces.append(run(case.model, ids[:, part], **options))
    assert off(got[mask == 1], expected[mask == 1]) < ROUNDING
    assert off(torch.cat(pieces, 1)[mask == 1], expected[mask == 1]) < ROUNDING


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize(("kind", "name"), [("gqa", "self_extend"), ("gqa", "dpe query heads"), ("sliding", "dpe")])
def test_chunks_that_are_nothing_but_padding(kind, name, static):
    case, ids = Case(name, kind), tokens(70, batch=2)
    mask = torch.ones_like(ids)
    mask[0, :23] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with case.patched():
        config = case.model.config
        cache = StaticCache(config=config, max_cache_len=80) if static else DynamicCache(config=config)
        parts = []
        for part in torch.arange(70).split([10, 5, 40, 13, 1, 1]):
            options = {"attention_mask": mask[:, : part[-1] + 1], "position_ids": positions[:, part]}
            parts.append(run(case.model, ids[:, part], cache, **options))
    got = torch.cat(parts, 1)
    assert torch.isfinite(got).all()
    for row in range(2):
        alone = case.literal.logits(ids[row : row + 1, mask[row] == 1])[0]
        assert off(got[row, mask[row] == 1], alone) < ROUNDING


def test_a_row_of_nothing_but_padding_harms_no_other(method):
    case, ids = Case(method), tokens(40, batch=2)
    mask = torch.ones_like(ids)
    mask[0] = 0
    with case.patched():
        got = run(case.model, ids, attention_mask=mask)
    assert torch.isfinite(got).all()
    assert off(got[1:], case.literal.logits(ids[1:])) < ROUNDING


def test_texts_packed_in_one_row_do_not_see_each_other(method):
    case, ids = Case(method), tokens(70)
    positions = torch.cat((torch.arange(40), torch.arange(30)))[None]
    expected = torch.cat((case.literal.logits(ids[:, :40]), case.literal.logits(ids[:, 40:])), 1)
    with case.patched():
        got = run(case.model, ids, position_ids=positions, use_cache=False)
    assert off(got, expected) < ROUNDING


@pytest.mark.parametrize("starts", [(5, 31), (131_003, 77)], ids=str)
def test_positions_that_begin_elsewhere_in_each_row(method, starts):
    case, ids = Case(method), tokens(50, batch=2)
    positions = torch.arange(50) + torch.tensor(starts)[:, None]
    expected = case.literal.logits(ids, position_ids=positions)
    with case.patched():
        got = run(case.model, ids, position_ids=positions)
        cache = DynamicCache(config=case.model.config)
        parts = [
            run(case.model, ids[:, part], cache, position_ids=positions[:, part])
            for part in torch.arange(50).split([30, 19, 1])
        ]
    assert off(got, expected) < ROUNDING
    assert off(torch.cat(parts, 1), expected) < ROUNDING


@pytest.mark.parametrize("name", ["self_extend", "dca"])
def test_a_jump_in_the_positions_is_honoured_or_refused(name):
    case, ids = Case(name), tokens(50)
    positions = torch.arange(50)[None] + 17 * (torch.arange(50)[None] >= 40)
    causal = torch.ones(50, 50).tril().bool()[None, None]
    expected = case.literal.logits(ids, position_ids=positions, attention_mask=causal)
    with case.patched():
        assert off(run(case.model, ids, position_ids=positions, attention_mask=causal), expected) < ROUNDING
        cache = DynamicCache(config=case.model.config)
        run(case.model, ids[:, :40], cache, position_ids=positions[:, :40])
        try:
            got = run(case.model, ids[:, 40:], cache, position_ids=positions[:, 40:])
        except PatchError as error:
            assert "position" in str(error)
        else:
            assert off(got, expected[:, 40:]) < ROUNDING
