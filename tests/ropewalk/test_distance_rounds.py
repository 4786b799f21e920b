"""A cache that goes on over rounds of padded text, as batched conversations do, keeps every key at its position."""

import pytest
import torch
from transformers import DynamicCache, StaticCache

from ropewalk import Frequency, PatchError, apply_profile
from tests.ropewalk.distance_cases import ROUNDING, Case, off, run
from tests.ropewalk.small_models import tokens


@pytest.fixture(params=["rerope log_n", "self_extend", "dca", "dpe query heads"])
def method(request):
    return request.param


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_tokens_behind_a_text_padded_on_the_right(method, static):
    case, ids, new = Case(method), tokens(50, batch=2), tokens(20, batch=2, seed=4)
    lengths = torch.tensor([[40], [50]])
    mask = (torch.arange(50) < lengths).long()
    with case.patched():
        config = case.model.config
        cache = StaticCache(config=config, max_cache_len=90) if static else DynamicCache(config=config)
        run(case.model, ids, cache, attention_mask=mask)
        parts = []
        for part in torch.arange(20).split([7, 1, 1, 10, 1]):
            mask = torch.cat((mask, torch.ones(2, len(part), dtype=torch.long)), 1)
            parts.append(run(case.model, new[:, part], cache, attention_mask=mask, position_ids=lengths + part))
    got = torch.cat(parts, 1)
    for row, length in enumerate(lengths[:, 0].tolist()):
        whole = torch.cat((ids[row : row + 1, :length], new[row : row + 1]), 1)
        assert off(got[row : row + 1], case.literal.logits(whole)[:, length:]) < ROUNDING


def test_several_rounds_each_padded_on_the_right(method):
    case, sizes = Case(method), (30, 20, 6)
    texts = [tokens(size, batch=2, seed=size) for size in sizes]
    lengths = [torch.tensor([[22], [30]]), torch.tensor([[20], [11]]), torch.tensor([[6], [6]])]
    masks = [(torch.arange(size) < length).long() for size, length in zip(sizes, lengths, strict=True)]
    with case.patched():
        cache, start = DynamicCache(config=case.model.config), torch.zeros(2, 1, dtype=torch.long)
        for round_, (text, length) in enumerate(zip(texts, lengths, strict=True)):
            got = run(
                case.model,
                text,
                cache,
                attention_mask=torch.cat(masks[: round_ + 1], 1),
                position_ids=start + torch.arange(text.shape[1]),
            )
            start = start + length
    for row in range(2):
        whole = torch.cat([t[row : row + 1, : n[row]] for t, n in zip(texts, lengths, strict=True)], 1)
        assert off(got[row : row + 1], case.literal.logits(whole)[:, -6:]) < ROUNDING


def test_padding_anywhere_with_positions_that_do_not_count_it(method):
    case, ids = Case(method), tokens(70, batch=2)
    mask = torch.ones_like(ids)
    mask[0, 20:31], mask[1, :4], mask[1, 30:33] = 0, 0, 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with case.patched():
        whole = run(case.model, ids, attention_mask=mask, position_ids=positions)
        cache, parts = DynamicCache(config=case.model.config), []
        for part in torch.arange(70).split([25, 44, 1]):
            options = {"attention_mask": mask[:, : part[-1] + 1], "position_ids": positions[:, part]}
            parts.append(run(case.model, ids[:, part], cache, **options))
    pieces = torch.cat(parts, 1)
    for row in range(2):
        expected = case.literal.logits(ids[row : row + 1, mask[row] == 1])[0]
        assert off(whole[row, mask[row] == 1], expected) < ROUNDING
        assert off(pieces[row, mask[row] == 1], expected) < ROUNDING


def test_a_mask_of_truth_values_over_a_static_cache(method):
    case, ids = Case(method), tokens(40)
    visible = torch.zeros(10, 64, dtype=torch.bool)
    visible[:, :40] = torch.ones(10, 40).tril(30)
    with case.patched():
        cache = StaticCache(config=case.model.config, max_cache_len=64)
        run(case.model, ids[:, :30], cache)
        options = {"attention_mask": visible[None, None], "position_ids": torch.arange(30, 40)[None]}
        got = run(case.model, ids[:, 30:], cache, **options)
    assert off(got, case.literal.logits(ids)[:, 30:]) < ROUNDING


def test_a_cache_goes_on_when_the_same_profile_is_applied_again(method):
    case, ids = Case(method), tokens(60)
    cache = DynamicCache(config=case.model.config)
    with case.patched():
        first = run(case.model, ids[:, :40], cache)
    with case.patched():
        second = run(case.model, ids[:, 40:], cache)
    assert off(torch.cat((first, second), 1), case.literal.logits(ids)) < ROUNDING


def test_a_total_length_that_is_changed_over_a_filled_cache_is_refused():
    case, ids = Case("self_extend", frequency=Frequency("dynamic_ntk", factor=2.0)), tokens(60)
    with case.patched() as handle:
        cache = DynamicCache(config=case.model.config)
        run(case.model, ids[:, :40], cache)
        handle.total_length = 80
        with pytest.raises(PatchError, match="cache"):
            run(case.model, ids[:, 40:], cache)


@pytest.mark.parametrize(
    ("visible", "said"),
    [
        (torch.ones(1, 4, 20, 20).tril().bool(), "heads"),
        (torch.ones(1, 1, 20, 20).bool(), "later keys"),
    ],
    ids=["one for each head", "later keys"],
)
def test_masks_that_no_method_is_defined_for_are_refused(method, visible, said):
    case = Case(method)
    with case.patched(), pytest.raises(PatchError, match=said):
        run(case.model, tokens(20), attention_mask=visible)


def test_a_model_without_a_head(method):
    case, ids = Case(method), tokens(60)
    with torch.no_grad():
        expected = case.literal.model.model(input_ids=ids, use_cache=False).last_hidden_state
        with apply_profile(case.model.model, case.profile):
            got = case.model.model(input_ids=ids).last_hidden_state
    assert off(got, expected) < ROUNDING
