"""Key dimension pairs are the ones the literal definition gives, deterministic, from any number of texts."""

import gc
import importlib
import itertools
import json
import math
import tracemalloc
from pathlib import Path

import pytest
import torch
import transformers
from transformers import AttentionInterface

from ropewalk import Frequency, ModelShape, Profile, apply_profile, load_profile
from ropewalk.distance import Distance, KeyDims
from ropewalk.errors import ProfileError
from ropewalk.key_dims import contributions, key_dims

module = importlib.import_module("ropewalk.key_dims")  # the function has the name too
HALF = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}
MODELS = {  # name: config, pairs as (first, second) dimensions by index, layers that do not rotate
    "mha": ("Llama", {"num_key_value_heads": 4}, lambda j: (j, j + 4), 4, ()),
    "gqa": ("Llama", {}, lambda j: (j, j + 4), 4, ()),
    "mqa": ("Llama", {"num_key_value_heads": 1}, lambda j: (j, j + 4), 4, ()),
    "query and key norms": ("Qwen3", {}, lambda j: (j, j + 4), 4, ()),
    "partial": ("GPTNeoX", HALF, lambda j: (j, j + 2), 2, ()),
    "interleaved": ("Cohere", {}, lambda j: (2 * j, 2 * j + 1), 4, ()),
    "partial and interleaved": ("Glm4", HALF, lambda j: (2 * j, 2 * j + 1), 2, ()),
    "sliding window": ("Mistral", {"sliding_window": 5}, lambda j: (j, j + 4), 4, ()),
    "soft cap": ("Gemma2", {"sliding_window": 5, "attn_logit_softcapping": 2.0}, lambda j: (j, j + 4), 4, ()),
    "layers without rotation": ("SmolLM3", {"no_rope_layers": [1, 0, 1]}, lambda j: (j, j + 4), 4, (1,)),
    "scaled cos and sin": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
        lambda j: (j, j + 4),
        4,
        (),
    ),
}
LENGTHS = (5, 11, 24)


def build(name, seed=0, **changes):
    kind, config = MODELS[name][:2]
    values = {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 32,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "attn_implementation": "eager",
        **config,
        **changes,
    }
    torch.manual_seed(seed)
    model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**values)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def texts(count, length=24, seed=0):
    return torch.randint(3, 97, (count, length), generator=torch.Generator().manual_seed(seed)).tolist()


class Words:
    """A tokenizer of numbers."""

    def __call__(self, text):
        return {"input_ids": [int(word) for word in text.split()]}


def written(sequences):
    return [" ".join(map(str, ids)) for ids in sequences]


def rotated_queries_and_keys(model, ids):
    """What the model's own attention is given, (q, k) [heads, tokens, head_dim] by layer."""
    seen = []
    own = importlib.import_module(type(model).__module__).eager_attention_forward

    def watched(layer, query, key, *args, **kwargs):
        seen.append((query[0].double(), key[0].double()))
        return own(layer, query, key, *args, **kwargs)

    AttentionInterface.register("watched_by_a_test", watched)
    transformers.AttentionMaskInterface.register("watched_by_a_test", transformers.masking_utils.eager_mask)
    before = model.config._attn_implementation
    model.config._attn_implementation = "watched_by_a_test"
    with torch.no_grad():
        model(input_ids=torch.tensor([ids]), use_cache=False)
    model.config._attn_implementation = before
    return seen


def literal(model, sequences, lengths, pair, pairs, still=(), scaling=1.0):
    """c[layer][head][pair] by loops; a forward for each text and length."""
    heads = model.config.num_attention_heads
    total = [[[0.0] * pairs for _ in range(heads)] for _ in range(model.config.num_hidden_layers)]
    for ids, length in itertools.product(sequences, lengths):
        for layer, (q, k) in enumerate(rotated_queries_and_keys(model, ids[:length])):
            for h, j in itertools.product(range(heads), range(0 if layer in still else pairs)):
                a, b = pair(j)
                group = h // (heads // k.shape[0])
                products = [
                    math.hypot(q[h, t, a], q[h, t, b]) * math.hypot(k[group, t, a], k[group, t, b])
                    for t in range(length)
                ]
                total[layer][h][j] += sum(products) / length / scaling**2
    return torch.tensor(total, dtype=torch.float64) / (len(sequences) * len(lengths))


@pytest.mark.parametrize("name", MODELS)
def test_contributions_are_the_literal_definition(name):
    model, sequences = build(name), texts(3)
    pair, pairs, still = MODELS[name][2:]
    scaling = getattr(getattr(model, "model", None), "rotary_emb", None)
    wanted = literal(model, sequences, LENGTHS, pair, pairs, still, getattr(scaling, "attention_scaling", 1.0))
    got = contributions(model, sequences, LENGTHS)
    assert got.dtype == torch.float64
    assert got.shape == (3, 4, pairs)
    torch.testing.assert_close(got, wanted, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["gqa", "partial", "sliding window", "soft cap"])
@pytest.mark.parametrize("size", [1, 7, 23])
def test_chunks_over_a_cache_give_the_same(name, size, monkeypatch):
    model, sequences = build(name), texts(2)
    whole = contributions(model, sequences, LENGTHS)
    monkeypatch.setattr(module, "CHUNK", size)
    forwards = []
    hook = model.register_forward_hook(lambda *_: forwards.append(1))
    torch.testing.assert_close(contributions(model, sequences, LENGTHS), whole, rtol=2e-5, atol=1e-7)
    hook.remove()
    assert len(forwards) == 1 + 2 * math.ceil(24 / size)  # one measures how the layers rotate


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_implementations_and_dtypes_agree(attention, dtype):
    reference = contributions(build("gqa"), texts(2), LENGTHS)
    got = contributions(build("gqa", attn_implementation=attention).to(dtype), texts(2), LENGTHS)
    torch.testing.assert_close(got, reference, rtol=0.1 if dtype == torch.bfloat16 else 1e-5, atol=1e-3)


def test_only_the_first_tokens_of_a_text_count():
    model, sequences = build("gqa"), texts(2, 30)
    assert torch.equal(
        contributions(model, sequences, [24, 8]), contributions(model, [ids[:24] for ids in sequences], (8, 24))
    )


# Determinism


def test_the_order_of_the_texts_makes_no_difference_to_the_last_bit():
    model, sequences = build("gqa"), texts(6)
    first = contributions(model, sequences, LENGTHS)
    for seed in range(5):
        order = torch.randperm(6, generator=torch.Generator().manual_seed(seed)).tolist()
        assert torch.equal(contributions(model, [sequences[i] for i in order], LENGTHS[::-1]), first)


def test_the_sum_is_exact_in_any_order():
    values = torch.randn(200, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).abs()
    values *= 10.0 ** torch.arange(200).remainder(12).sub(6)[:, None]
    sums = []
    for order in (range(200), reversed(range(200))):
        total = module._ExactSum()
        for i in order:
            total.add(values[i])
        sums.append(total.value())
    assert torch.equal(*sums)
    wanted = torch.tensor([math.fsum(column) for column in values.T.tolist()], dtype=torch.float64)
    torch.testing.assert_close(sums[0], wanted, rtol=1e-14, atol=0)


def test_the_random_state_and_the_model_are_as_before():
    model = build("gqa", attention_dropout=0.5).train()
    plain = contributions(build("gqa"), texts(1), LENGTHS)
    weights, random = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    assert torch.equal(contributions(model, texts(1), LENGTHS), plain)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(part.training for part in model.modules())
    assert not any(part._forward_pre_hooks for part in model.modules())
    assert model.config._attn_implementation == "eager"
    assert all(torch.equal(v, weights[k]) for k, v in model.state_dict().items())


def test_memory_does_not_grow_with_the_number_of_texts():
    model = build("gqa")
    alive, kept = [], []

    def draw(count):
        for i in range(count):
            alive.append(sum(type(x) is torch.Tensor for x in gc.get_objects()))
            yield torch.randint(3, 97, (24,), generator=torch.Generator().manual_seed(i))

    for count in (3, 30):
        alive.clear()
        tracemalloc.start()
        contributions(model, draw(count), LENGTHS)
        kept.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert max(alive[1:]) - alive[1] <= 2
    assert kept[1] < 1.5 * kept[0]


# Choice


def brute(values, top_k):
    """The top_k largest of each row, lower index first among equals."""
    return [
        [[j in sorted(range(len(row)), key=lambda j: (-row[j], j))[:top_k] for j in range(len(row))] for row in layer]
        for layer in values.tolist()
    ]


@pytest.mark.parametrize("top_k", range(5))
@pytest.mark.parametrize("per", ["query_head", "kv_head"])
def test_the_largest_pairs_of_each_head_are_chosen(top_k, per):
    model, sequences = build("gqa"), texts(2)
    values = contributions(model, sequences, LENGTHS)
    if per == "kv_head":
        values = torch.stack([values[:, :2].sum(1), values[:, 2:].sum(1)], 1)
    chosen = key_dims(model, Words(), written(sequences), top_k, per, LENGTHS)
    assert (chosen.top_k, chosen.per) == (top_k, per)
    assert chosen.bools(4) == brute(values, top_k)
    assert chosen == KeyDims.from_dict(json.loads(json.dumps(chosen.to_dict())))


def test_equal_contributions_choose_the_lower_pair():
    model = build("gqa")
    with torch.no_grad():
        model.model.layers[1].self_attn.k_proj.weight.zero_()
    chosen = key_dims(model, Words(), written(texts(1)), 2, lengths=LENGTHS).bools(4)
    assert chosen[1] == [[True, True, False, False]] * 4
    assert chosen[0] != chosen[1]


def test_a_layer_without_rotation_has_the_lowest_pairs():
    model = build("layers without rotation")
    chosen = key_dims(model, Words(), written(texts(1)), 3, "kv_head", LENGTHS).bools(4)
    assert chosen[1] == [[True, True, True, False]] * 2


def test_the_default_lengths_end_at_the_trained_length():
    model, sequences = build("gqa"), texts(2, 32)
    chosen = key_dims(model, Words(), written(sequences), 2)
    assert chosen == key_dims(model, Words(), written(sequences), 2, lengths=(4, 8, 16, 32))


def test_texts_are_read_one_at_a_time():
    model, sequences = build("gqa"), texts(3)
    chosen = key_dims(model, Words(), iter(written(sequences)), 2, lengths=LENGTHS)
    assert chosen == key_dims(model, Words(), written(sequences), 2, lengths=LENGTHS)


def test_the_result_fits_a_profile_of_the_model():
    model = build("gqa")
    chosen = key_dims(model, Words(), written(texts(1)), 2, lengths=LENGTHS)
    distance = Distance("dpe", window=8, scale_factors=(1, 2, 2, 4), key_dims=chosen)
    profile = Profile("dpe", ModelShape.from_config(model.config), 64, Frequency("native"), distance)
    assert Profile.from_dict(profile.to_dict()).distance.key_dims == chosen


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch):
    root = Path(__file__).parents[2]
    section = (root / "README.md").read_text(encoding="utf-8").split("## Key dimensions of DPE\n")[1]
    for name in ("README.md", "models"):
        (tmp_path / name).symlink_to(root / name)
    monkeypatch.chdir(tmp_path)
    exec(section.split("```python\n")[1].split("```")[0], {})
    chosen = load_profile("dpe.json").distance.key_dims
    assert chosen.top_k == 12
    assert len(chosen.mask) == 8


# Bad input


def refused(field, call, *args, **kwargs):
    with pytest.raises(ProfileError) as caught:
        call(*args, **kwargs)
    assert caught.value.field == field
    return str(caught.value)


def test_a_text_that_is_too_short_is_refused_with_both_numbers():
    sequences = [*texts(2), texts(1, 23)[0]]
    message = refused("key_dims.texts[2]", contributions, build("gqa"), sequences, LENGTHS)
    assert "23 tokens" in message
    assert "24 tokens" in message


@pytest.mark.parametrize("lengths", [[], "24", [0], [2.5], [24, True], 24])
def test_wrong_lengths_are_refused(lengths):
    with pytest.raises(ProfileError, match=r"key_dims\.lengths"):
        contributions(build("gqa"), texts(1), lengths)


def test_a_length_beyond_the_model_is_refused_with_both_numbers():
    message = refused("key_dims.lengths", contributions, build("gqa"), texts(1, 40), [33])
    assert "33" in message
    assert "32" in message


def test_no_text_and_one_text_for_several_are_refused():
    refused("key_dims.texts", contributions, build("gqa"), [], LENGTHS)
    refused("key_dims.texts", key_dims, build("gqa"), Words(), "1 2 3", 2)


@pytest.mark.parametrize("ids", [[-1] * 24, [97] * 24, [0.5] * 24])
def test_ids_of_another_vocabulary_are_refused(ids):
    assert "96" in refused("key_dims.texts[0]", contributions, build("gqa"), [ids], LENGTHS)


@pytest.mark.parametrize("name", ["gqa", "partial"])
@pytest.mark.parametrize("top_k", [-1, 5, 1.0, True, None])
def test_a_wrong_top_k_is_refused(name, top_k):
    refused("key_dims.top_k", key_dims, build(name), Words(), written(texts(1)), top_k, lengths=LENGTHS)


def test_a_wrong_kind_of_head_is_refused():
    message = refused("key_dims.per", key_dims, build("gqa"), Words(), written(texts(1)), 2, "query_heads", LENGTHS)
    assert "query_head" in message


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_contributions_that_are_not_finite_are_refused(value):
    model, ids = build("gqa"), texts(1)
    with torch.no_grad():
        model.model.embed_tokens.weight[50] = value
    ids[0][9] = 50
    assert "layer 0" in refused("model.attention", contributions, model, ids, LENGTHS)
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_a_patched_model_and_one_without_weights_are_refused():
    model = build("gqa")
    with apply_profile(model, Profile.identity(ModelShape.from_config(model.config), 32)):
        refused("model", contributions, model, texts(1), LENGTHS)
    refused("model.device", contributions, model.to("meta"), texts(1), LENGTHS)
