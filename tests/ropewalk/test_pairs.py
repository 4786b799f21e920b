"""How each layer rotates is measured, on any architecture, and the model is as it was afterwards."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers
from accelerate import cpu_offload

from ropewalk.errors import PatchError, ProfileError
from ropewalk.pairs import LayerPairs, attention_pairs, known_table
from ropewalk.rotary import attention_modules

SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SLIDING = ["sliding_attention", "full_attention"] * 2
NOPE = [1, 1, 1, 0]
FULL = LayerPairs(True, False, 8, None)
STILL = LayerPairs(False, False, 0, None)
CASES = {
    "Llama": ({}, [FULL] * 4),
    "Qwen3": ({"layer_types": SLIDING, "use_sliding_window": True, "sliding_window": 5}, "alternating"),
    "Gemma2": ({"layer_types": SLIDING, "sliding_window": 5}, "alternating"),
    "GptOss": (
        {"layer_types": SLIDING, "sliding_window": 5, "num_local_experts": 4, "num_experts_per_tok": 2},
        "alternating",
    ),
    "Mistral": ({"sliding_window": 5}, [LayerPairs(True, False, 8, 5)] * 4),
    "Qwen2Moe": (
        {"layer_types": SLIDING, "use_sliding_window": True, "sliding_window": 5, "num_experts": 4},
        "alternating",
    ),
    "GPTNeoX": (
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        [LayerPairs(True, False, 4, None)] * 4,
    ),
    "Cohere": ({}, [LayerPairs(True, True, 8, None)] * 4),
    "Glm4": (
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        [LayerPairs(True, True, 4, None)] * 4,
    ),
    "SmolLM3": ({"no_rope_layers": NOPE}, [FULL, FULL, FULL, STILL]),
    "Cohere2": (
        {"layer_types": ["sliding_attention"] * 3 + ["full_attention"], "sliding_window": 5},
        [LayerPairs(True, True, 8, 5)] * 3 + [STILL],
    ),
    "Olmo2": ({}, [FULL] * 4),
    "Phi3": ({}, [FULL] * 4),
}


def build(name, device="cpu", **changes):
    config = getattr(transformers, f"{name}Config")(**{**SMALL, **CASES.get(name, ({},))[0], **changes})
    torch.manual_seed(0)
    with torch.device(device):
        return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def measured(model):
    return attention_pairs(model, attention_modules(model, model.config.num_hidden_layers))


def expected(name):
    wanted = CASES[name][1]
    return tuple([LayerPairs(True, False, 8, 5), FULL] * 2 if wanted == "alternating" else wanted)


def state(model):
    """Everything that could have been changed: weights, buffers, modes, hooks, configs."""
    return (
        {name: tensor.clone() for name, tensor in model.state_dict().items()},
        {name: tensor.clone() for name, tensor in model.named_buffers()},
        [module.training for module in model.modules()],
        [len(module._forward_pre_hooks) for module in model.modules()],
        [id(getattr(module, "config", None)) for module in model.modules()],
        repr(model.config),
        model.config._attn_implementation,
    )


def assert_same(a, b):
    for left, right in zip(a, b, strict=True):
        if isinstance(left, dict):
            assert left.keys() == right.keys()
            assert all(torch.equal(left[name], right[name]) for name in left)
        else:
            assert left == right


@pytest.mark.parametrize("name", CASES)
def test_each_architecture_is_measured(name):
    assert measured(build(name)) == expected(name)


@pytest.mark.parametrize("name", CASES)
def test_a_model_without_weights_is_measured_by_a_small_one(name):
    assert measured(build(name, "meta")) == expected(name)


@pytest.mark.parametrize("name", ["Llama", "Glm4", "Cohere2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_measured_alike(name, dtype):
    assert measured(build(name).to(dtype)) == expected(name)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_any_attention_implementation_is_measured(attention):
    assert measured(build("Llama", attn_implementation=attention)) == expected("Llama")


def test_large_shapes_on_the_meta_device_take_no_memory():
    sizes = {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8}
    model = build("Llama", "meta", **sizes, head_dim=128, intermediate_size=28672, vocab_size=128256)
    assert measured(model) == (LayerPairs(True, False, 128, None),) * 80


def test_offloaded_weights_are_measured():
    model = cpu_offload(build("Llama"), execution_device="cpu")
    assert measured(model) == expected("Llama")
    assert all(parameter.is_meta for parameter in model.model.layers.parameters())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["Llama", "GptOss"])
def test_the_model_and_the_random_state_are_as_before(name, training):
    model = build(name, attention_dropout=0.5).train(training)
    model.model.layers[0].mlp.eval()
    before, random = state(model), torch.get_rng_state()
    assert measured(model) == expected(name)
    assert_same(state(model), before)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_rotary_table_that_has_grown_stays():
    model = build("Llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0})
    with torch.no_grad():
        model(input_ids=torch.ones(1, 100, dtype=torch.long))
    rotary = model.model.rotary_emb
    grown = rotary.inv_freq
    assert not torch.equal(grown, rotary.original_inv_freq)
    before = state(model)
    assert measured(model) == expected("Llama")
    assert_same(state(model), before)
    assert rotary.inv_freq is grown
    assert rotary.max_seq_len_cached == 100


def test_the_random_state_is_as_before_without_weights():
    model = build("Llama", "meta")
    random = torch.get_rng_state()
    measured(model)
    assert torch.equal(torch.get_rng_state(), random)


def test_a_deep_copy_is_measured_on_its_own():
    model = build("SmolLM3")
    other = copy.deepcopy(model)
    other.model.layers[3].self_attn.use_rope = 1
    assert measured(model) == expected("SmolLM3")
    assert measured(other) == (FULL,) * 4


# What is refused


def refused(model, field):
    before = state(model)
    with pytest.raises(ProfileError) as caught:
        measured(model)
    assert caught.value.field == field
    assert_same(state(model), before)
    return str(caught.value)


def broken(method):
    """A tiny Llama whose layer 2 attends by another method."""
    model = build("Llama")
    attention = model.model.layers[2].self_attn
    base = type(attention)

    class Broken(base):
        forward = method(base.forward)

    attention.__class__ = Broken
    return model


def test_a_rotation_of_the_last_dimensions_is_refused():
    def method(forward):
        def reverse(self, hidden_states, position_embeddings=None, **kwargs):
            cos, sin = (x.clone() for x in position_embeddings)
            cos[..., 0], sin[..., 0] = 1, 0
            return forward(self, hidden_states, position_embeddings=(cos, sin), **kwargs)

        return reverse

    message = refused(broken(method), "model.rotation")
    assert "layer 2" in message


def test_a_norm_after_the_rotation_is_refused():
    model = build("HunYuanDenseV1")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.query_layernorm.weight.copy_(torch.linspace(0.5, 2, 8))
    refused(model, "model.rotation")


def test_an_attention_that_passes_no_keywords_on_is_refused():
    def method(forward):
        def deaf(self, hidden_states, position_embeddings=None, attention_mask=None, **kwargs):
            return forward(self, hidden_states, position_embeddings=position_embeddings, attention_mask=attention_mask)

        return deaf

    assert "keyword" in refused(broken(method), "model.attention")


def test_an_attention_that_takes_no_other_keywords_is_refused():
    def method(forward):
        def strict(
            self,
            hidden_states,
            position_embeddings=None,
            attention_mask=None,
            position_ids=None,
            cache=None,
            use_cache=None,
        ):
            return forward(self, hidden_states, position_embeddings=position_embeddings, attention_mask=attention_mask)

        return strict

    assert "keyword" in refused(broken(method), "model.attention")


def test_an_attention_of_its_own_is_refused():
    def method(forward):
        def own(self, hidden_states, position_embeddings=None, **kwargs):
            return hidden_states, None

        return own

    assert "AttentionInterface" in refused(broken(method), "model.attention")


def test_queries_that_are_not_numbers_are_refused():
    model = build("Llama")
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight.fill_(float("inf"))
    assert "layer 1" in refused(model, "model.attention")


def test_chunked_and_bidirectional_attention_is_refused():
    model = build("Llama")
    model.model.layers[0].self_attn.is_causal = False
    assert "both directions" in refused(model, "model.attention")
    model = build("Qwen3")
    model.config.layer_types = ["chunked_attention", "full_attention"] * 2
    assert "chunked_attention" in refused(model, "model.attention")


def test_a_mask_of_its_own_is_refused():
    assert "mask of its own" in refused(build("Doge"), "model.attention")


def test_several_calls_of_the_function_are_refused():
    assert "2 times" in refused(build("DiffLlama"), "model.attention")


def test_latent_attention_is_refused():
    model = build("DeepseekV3", head_dim=64, n_routed_experts=8)
    assert "64 rotated" in refused(model, "model.rotation")


def test_a_forward_of_another_thread_fails_rather_than_attends_to_nothing():
    model, errors = build("Llama"), []

    def forward():
        try:
            model(input_ids=torch.ones(1, 3, dtype=torch.long))
        except PatchError as error:
            errors.append(str(error))

    def meanwhile(*_):
        hook.remove()
        thread = threading.Thread(target=forward)
        thread.start()
        thread.join()

    before = state(model)
    hook = model.model.layers[0].self_attn.v_proj.register_forward_hook(meanwhile)
    assert measured(model) == expected("Llama")
    assert len(errors) == 1
    assert "another thread" in errors[0]
    assert_same(state(model), before)


def test_threads_that_measure_one_model_wait_for_one_another():
    model = build("Llama")
    before = state(model)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: measured(model), range(12))) == {expected("Llama")}
    assert_same(state(model), before)


def test_a_failing_forward_leaves_the_model_as_it_was():
    model = build("Llama").train()

    def stop(*_):
        raise RuntimeError("stopped")

    hook = model.model.layers[3].register_forward_hook(stop)
    before = state(model)
    with pytest.raises(RuntimeError, match="stopped"):
        measured(model)
    assert_same(state(model), before)
    hook.remove()


@pytest.mark.parametrize("layout", ["halves", "neighbours", "pairs"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_known_table_has_the_models_layout(layout, dtype):
    angles = torch.arange(5.0)[:, None] * 1e6 ** (-torch.arange(6) / 6)
    spread = {"halves": lambda x: torch.cat((x, x), -1), "neighbours": lambda x: x.repeat_interleave(2, -1)}.get(
        layout, lambda x: x
    )
    own = [spread(x)[None].to(dtype) for x in (angles.cos(), angles.sin())]
    table, exact = known_table(*own)
    for got, pairs, like in zip(table, exact, own, strict=True):
        assert got.shape == like.shape
        assert got.dtype == dtype
        assert torch.equal(got[0].double(), spread(pairs))
