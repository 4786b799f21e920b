"""The reference is right: by hand on small cases, and equal to transformers where a method changes nothing."""

import math

import pytest
import torch

from tests.ropewalk.literal import (
    LiteralModel,
    Rope,
    attention,
    chosen_pairs,
    in_doubles,
    relative,
    relatives_matrix,
    scale_of,
    score_of,
    scores,
)
from tests.ropewalk.small_models import EAGER, INTERLEAVED, KINDS, ROTATES, build, tokens

# By hand


@pytest.mark.parametrize(
    ("fields", "m", "n", "expected"),
    [
        ({"method": "rerope", "window": 4}, 9, 6, 3),
        ({"method": "rerope", "window": 4}, 9, 5, 4),
        ({"method": "rerope", "window": 4}, 9, 0, 4),
        ({"method": "leaky_rerope", "window": 4, "slope": 2.0}, 9, 6, 3),
        ({"method": "leaky_rerope", "window": 4, "slope": 2.0}, 9, 5, 4),
        ({"method": "leaky_rerope", "window": 4, "slope": 2.0}, 9, 0, 6.5),
        ({"method": "self_extend", "window": 4, "group_size": 2}, 9, 6, 3),
        ({"method": "self_extend", "window": 4, "group_size": 2}, 9, 5, 4 - 2 + 4 - 2),
        ({"method": "self_extend", "window": 5, "group_size": 3}, 10, 5, 3 - 1 + 5 - 1),
        ({"method": "self_extend", "window": 5, "group_size": 3}, 11, 5, 3 - 1 + 5 - 1),
        ({"method": "self_extend", "window": 5, "group_size": 3}, 12, 5, 4 - 1 + 5 - 1),
        # chunks of c = 6 − 2 = 4 tokens
        ({"method": "dca", "chunk_size": 6, "local_size": 2}, 7, 4, 3),
        ({"method": "dca", "chunk_size": 6, "local_size": 2}, 4, 3, 1),
        ({"method": "dca", "chunk_size": 6, "local_size": 2}, 6, 3, 3),
        ({"method": "dca", "chunk_size": 6, "local_size": 2}, 7, 1, 5),
        ({"method": "dca", "chunk_size": 6, "local_size": 2}, 8, 1, 5),
        ({"method": "dca", "chunk_size": 6, "local_size": 2}, 15, 3, 3),
        ({"method": "none"}, 15, 3, 12),
    ],
)
def test_relative_positions_worked_out_by_hand(fields, m, n, expected):
    assert relative(fields, m, n) == expected


def test_dpe_scales_a_pair_by_its_group_and_keeps_the_others():
    fields = {"method": "dpe", "window": 5, "scale_factors": [1.0, 3.0], "group_bounds": [0, 1, 4]}
    assert relative(fields, 12, 5, 3.0) == 4 - 1 + 5 - 1
    assert relative(fields, 12, 5, 1.0) == 7
    assert relative(fields, 12, 8, 3.0) == 4
    assert relative(fields, 12, 5, None) == 7
    assert [scale_of(fields, 0, 0, 2, pair, 4) for pair in range(4)] == [1.0, 3.0, 3.0, 3.0]
    del fields["group_bounds"]
    assert [scale_of(fields, 0, 0, 2, pair, 4) for pair in range(4)] == [1.0, 1.0, 3.0, 3.0]
    fields["key_dims"] = {"per": "kv_head", "top_k": 1, "mask": [["8", "1"]]}
    assert [scale_of(fields, 0, 1, 2, pair, 4) for pair in range(4)] == [1.0, None, None, None]
    assert [scale_of(fields, 0, 2, 2, pair, 4) for pair in range(4)] == [None, None, None, 3.0]
    fields["key_dims"] = {"per": "query_head", "top_k": 1, "mask": [["8", "1", "4", "2"]]}
    assert [scale_of(fields, 0, 1, 2, pair, 4) for pair in range(4)] == [None, None, None, 3.0]


def test_hexadecimal_key_dims_begin_with_pair_0():
    assert chosen_pairs("8", 4) == [True, False, False, False]
    assert chosen_pairs("50", 6) == [False, True, False, True, False, False]


def test_the_distance_one_below_the_window_is_plain_and_the_window_itself_is_not():
    fields = {"method": "self_extend", "window": 7, "group_size": 4}
    for n in range(30):
        assert relative(fields, n + 6, n) == 6
        assert relative(fields, n + 7, n) == (n + 7) // 4 - n // 4 + 7 - 1


def test_dca_never_passes_the_chunk_size():
    fields = {"method": "dca", "chunk_size": 24, "local_size": 7}
    matrix = relatives_matrix(fields, range(120), torch.ones(120, 120).tril().bool(), None)
    assert matrix.max() == 24
    for m in range(120):  # the local part stays as it is, across the border of a chunk as well
        for n in range(max(0, m - 6), m + 1):
            assert matrix[m, n] == m - n


@pytest.mark.parametrize("interleaved", [False, True])
def test_scores_are_those_of_scalar_arithmetic(interleaved):
    generator = torch.Generator().manual_seed(3)
    q, k = torch.randn(4, 9, 10, generator=generator), torch.randn(2, 9, 10, generator=generator)
    rope = Rope(torch.tensor([1.0, 0.3, 0.02]).double(), 1.2, interleaved)  # 6 of 10 dimensions
    fields = {
        "method": "dpe",
        "window": 3,
        "scale_factors": [2.0, 3.0, 1.5],
        "key_dims": {"per": "query_head", "top_k": 2, "mask": [["c", "a", "6", "c"]]},
    }
    visible = torch.ones(9, 9).tril().bool()
    got = scores(q, k, fields, rope, range(9), visible)
    for head in range(4):
        for m in range(9):
            for n in range(m + 1):
                of_pairs = [relative(fields, m, n, scale_of(fields, 0, head, 2, pair, 3)) for pair in range(3)]
                expected = score_of(q[head, m].tolist(), k[head // 2, n].tolist(), of_pairs, rope)
                assert got[head, m, n].item() == pytest.approx(expected, abs=1e-12)


def test_a_rotated_score_of_one_pair_by_hand():
    rope = Rope(torch.tensor([0.5], dtype=torch.float64))
    assert score_of([1.0, 0.0], [1.0, 0.0], [3.0], rope) == pytest.approx(math.cos(1.5))
    assert score_of([1.0, 0.0], [0.0, 1.0], [3.0], rope) == pytest.approx(math.sin(1.5))


def test_attention_of_two_tokens_by_hand():
    rope = Rope(torch.tensor([0.5], dtype=torch.float64))
    q = k = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    v = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    visible = torch.ones(2, 2).tril().bool()
    fields = {"method": "none"}
    near, far = math.exp(2.0), math.exp(2.0 * math.cos(0.5))

    def second(**options):
        return attention(q, k, v, fields, rope, range(2), visible, scaling=2.0, **options)[0, 1].tolist()

    assert second() == pytest.approx([far / (near + far), near / (near + far)])
    sink = torch.tensor([0.7])
    total = near + far + math.exp(0.7)
    assert second(sinks_H=sink) == pytest.approx([far / total, near / total])
    assert second(sliding_window=1) == pytest.approx([0.0, 1.0])
    near, far = math.exp(math.tanh(2.0)), math.exp(math.tanh(2.0 * math.cos(0.5)))
    assert second(softcap=1.0) == pytest.approx([far / (near + far), near / (near + far)])


# Against transformers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fields", [{"method": "none"}, {"method": "rerope", "window": 64}], ids=str)
def test_an_identity_is_the_model_itself(kind, fields):
    model = build(kind)
    ids = tokens(50, batch=2)
    literal = LiteralModel(model, fields, interleaved=kind in INTERLEAVED, rotates=ROTATES.get(kind))
    with torch.no_grad():
        plain = in_doubles(model)(input_ids=ids).logits
    tolerance = 1e-5 if kind in EAGER else 1e-10  # eager attention takes its softmax in float32
    torch.testing.assert_close(literal.logits(ids), plain, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_positions_and_masks_are_those_of_the_model(kind):
    model = build(kind)
    ids = tokens(40, batch=2)
    mask = torch.ones_like(ids)
    mask[0, :7] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    literal = LiteralModel(model, {"method": "none"}, interleaved=kind in INTERLEAVED, rotates=ROTATES.get(kind))
    options = {"attention_mask": mask, "position_ids": positions}
    # Eager attention gives NaN for a query that sees nothing in float64, whose mask float32's softmax cannot hold.
    compared, tolerance = (model, 1e-4) if kind in EAGER else (in_doubles(model), 1e-10)
    with torch.no_grad():
        plain = compared(input_ids=ids, **options).logits.double()
    got = literal.logits(ids, **options)
    torch.testing.assert_close(got[mask == 1], plain[mask == 1], rtol=0, atol=tolerance)
