"""The tables of one model under several threads, on several devices, and in copies."""

import copy
import gc
import pickle
import threading

import pytest
import torch
from accelerate import init_empty_weights
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from transformers import AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig

from ropewalk import Distance, Frequency, ModelShape, Profile, ProfileError, apply_profile
from ropewalk.frequencies import Growth, Rotation, Setting, base_frequencies
from ropewalk.tables import LAYOUTS, RotaryTables, rotation_table

POSITIONS = torch.arange(20)[None]


def setting(**fields):
    values = {"rope_theta": 1e4, "trained_length": 8, "target_length": 32, **fields}
    return Setting(Rotation(base_frequencies(values["rope_theta"], 16), 1.0), **values)


def own_cos(columns=16, length=20):
    return torch.zeros(1, length, columns)


# Layouts


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_holds_the_angle_of_each_pair(layout):
    inv_freq = base_frequencies(1e4, 16)
    cos, sin = rotation_table(POSITIONS, inv_freq, 1.5, torch.float32, layout)
    pair_of_column = {"halves": [*range(8), *range(8)], "neighbours": [j // 2 for j in range(16)], "once": range(8)}
    angles = POSITIONS[..., None] * inv_freq[list(pair_of_column[layout])]
    torch.testing.assert_close(cos, 1.5 * angles.cos())
    torch.testing.assert_close(sin, 1.5 * angles.sin())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layer_gets_the_layout_of_its_model(layout):
    tables = RotaryTables(Frequency("linear", factor=2.0), [setting(layout=layout)] * 2)
    own = own_cos(8 if layout == "once" else 16)
    cos, _ = tables.for_layer(0, own, POSITIONS)
    expected, _ = rotation_table(POSITIONS, base_frequencies(1e4, 16) / 2, 1.0, torch.float32, layout)
    assert torch.equal(cos, expected)


# The rotation itself


def test_the_rotation_of_a_layer_is_given_also_where_it_is_the_model_s_own():
    local, whole = setting(), setting(rope_theta=1e6)
    tables = RotaryTables(Frequency("linear", factor=(1.0, 2.0, 2.0, 1.0)), [local, whole, local, whole])
    own = own_cos()
    for layer, (theta, factor) in enumerate([(1e4, 1.0), (1e6, 2.0), (1e4, 2.0), (1e6, 1.0)]):
        inv_freq, scaling = tables.rotation(layer, own, POSITIONS)
        assert torch.equal(inv_freq, base_frequencies(theta, 16) / factor)
        assert inv_freq.dtype == torch.float32
        assert scaling == 1.0
        assert (tables.for_layer(layer, own, POSITIONS) is None) == (factor == 1.0)


@pytest.mark.parametrize(
    ("frequency", "growth"),
    [(Frequency("dynamic_ntk", factor=2.0), None), (Frequency("native"), Growth(2.0, 8))],
    ids=["method", "config"],
)
def test_the_rotation_follows_the_length_of_the_forward_or_the_pinned_one(frequency, growth):
    tables = RotaryTables(frequency, [setting(growth=growth, steady=growth is None)])
    for pinned, total in ((None, 20), (50, 50)):
        tables.total_length = pinned
        inv_freq, _ = tables.rotation(0, own_cos(), POSITIONS)
        raised = 1e4 * (2.0 * total / 8 - 1.0) ** (16 / 14)
        torch.testing.assert_close(inv_freq, base_frequencies(raised, 16))


def test_a_layer_that_the_model_does_not_rotate_steadily_is_never_left_to_it():
    tables = RotaryTables(Frequency("native"), [setting(steady=False)])
    cos, _ = tables.for_layer(0, own_cos(), POSITIONS)
    assert torch.equal(cos, rotation_table(POSITIONS, base_frequencies(1e4, 16), 1.0, torch.float32)[0])


# Threads


@pytest.mark.parametrize("method", ["linear", "dynamic_ntk"])
def test_threads_do_not_see_each_other_s_tables(build, tokens, logits, profile_for, method):
    model = build()
    inputs = [tokens(length, seed=length) for length in (90, 40, 60)]
    barrier = threading.Barrier(len(inputs), timeout=30)
    with apply_profile(model, profile_for(model, method, factor=(2.0, 3.0, 2.0))):
        expected = [logits(model, ids) for ids in inputs]
        found = [None] * len(inputs)

        def forward(index):
            for _ in range(3):
                found[index] = logits(model, inputs[index])

        def meet(*_):
            barrier.wait()

        waiting = [layer.self_attn.q_proj.register_forward_pre_hook(meet) for layer in model.model.layers]
        threads = [threading.Thread(target=forward, args=(index,)) for index in range(len(inputs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for hook in waiting:
            hook.remove()
    for got, wanted in zip(found, expected, strict=True):
        assert torch.equal(got, wanted)


def test_two_models_in_two_threads_carry_different_profiles(build, tokens, logits, profile_for):
    models, ids = [build(), build()], tokens(60)
    frequencies = [("linear", 2.0), ("ntk", 4.0)]
    expected, found = [], [None, None]
    for model, (method, factor) in zip(models, frequencies, strict=True):
        with apply_profile(model, profile_for(model, method, factor=factor)):
            expected.append(logits(model, ids))
    barrier = threading.Barrier(2, timeout=30)

    def work(index):
        method, factor = frequencies[index]
        barrier.wait()
        with apply_profile(models[index], profile_for(models[index], method, factor=factor)):
            barrier.wait()
            found[index] = logits(models[index], ids)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not torch.equal(*expected)
    for got, wanted in zip(found, expected, strict=True):
        assert torch.equal(got, wanted)


# Copies


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_patched_model_is_patched_with_tables_of_its_own(build, tokens, logits, profile_for, duplicate):
    model, ids = build(), tokens(60)
    plain = logits(model, ids)
    handle = apply_profile(model, profile_for(model, "dynamic_ntk", factor=(2.0, 3.0, 2.0)))
    patched = logits(model, ids)
    other = duplicate(model)
    assert torch.equal(logits(other, ids), patched)
    handle.remove()
    assert torch.equal(logits(model, ids), plain)
    assert torch.equal(logits(other, ids), patched)


def test_a_copy_made_within_a_forward_has_none_of_its_tables():
    tables = RotaryTables(Frequency("linear", factor=2.0), [setting()] * 2)
    own = own_cos()
    tables.for_layer(0, own, POSITIONS)
    for other in (copy.deepcopy(tables), pickle.loads(pickle.dumps(tables))):
        assert not other._forwards
        assert torch.equal(other.for_layer(1, own, POSITIONS)[0], tables.for_layer(0, own, POSITIONS)[0])
    assert len(tables._forwards) == 1
    del own
    gc.collect()
    assert not tables._forwards


def test_local_and_global_layers_share_one_table_each_a_forward(monkeypatch):
    config = Gemma3TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=6,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        layer_types=["sliding_attention", "full_attention"] * 3,
    )
    model = Gemma3ForCausalLM(config).eval()
    made = []
    with apply_profile(model, Profile("p", ModelShape.from_config(config), 64, Frequency("linear", factor=2.0))):
        monkeypatch.setattr("ropewalk.tables.rotation_table", lambda *args: made.append(args) or rotation_table(*args))
        with torch.no_grad():
            model(torch.arange(20)[None])
    assert len(made) == 2


# Devices


def test_layers_on_another_device_get_their_tables_there(build, tokens, profile_for):
    model = build(num_hidden_layers=4)
    seen = {}
    with apply_profile(model, profile_for(model, "linear", factor=(2.0, 3.0, 2.0, 3.0))):
        for layer in model.model.layers:
            layer.self_attn.register_forward_pre_hook(
                lambda module, _, kwargs: seen.update(
                    {module.layer_idx: [table.device.type for table in kwargs["position_embeddings"]]}
                ),
                with_kwargs=True,
            )
        for part in (*model.model.layers[2:], model.model.norm, model.lm_head):
            part.to("meta")
            add_hook_to_module(part, AlignDevicesHook(execution_device="meta", io_same_device=False))
        with torch.no_grad():
            outputs = model(tokens(20), use_cache=False)
    assert outputs.logits.is_meta
    assert seen == {0: ["cpu", "cpu"], 1: ["cpu", "cpu"], 2: ["meta", "meta"], 3: ["meta", "meta"]}


LLAMA_70B = {
    "vocab_size": 128256,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}


def test_a_profile_is_checked_against_a_70b_config_alone():
    shape = ModelShape.from_config(LlamaConfig(**LLAMA_70B))
    assert (shape.num_layers, shape.head_dim, shape.rotary_dim, shape.trained_length) == (80, 128, 128, 8192)
    Profile("p", shape, 32768, Frequency("linear", factor=tuple(1 + layer / 40 for layer in range(80))))
    with pytest.raises(ProfileError, match=r"81 numbers.*80 layers"):
        Profile("p", shape, 32768, Frequency("linear", factor=(2.0,) * 81))
    with pytest.raises(ProfileError, match=r"63 numbers.*64 numbers"):
        Profile("p", shape, 32768, Frequency("longrope", factors=(2.0,) * 63))


def test_a_70b_model_without_memory_is_patched_in_all_its_layers():
    config = LlamaConfig(**LLAMA_70B)
    with init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(config).eval()
    assert sum(parameter.numel() for parameter in model.parameters()) > 70e9
    assert all(parameter.is_meta for parameter in model.parameters())
    shapes = []
    profile = Profile(
        "p", ModelShape.from_config(config), 32768, Frequency("linear", factor=tuple(1 + i / 40 for i in range(80)))
    )
    with apply_profile(model, profile, check=False):
        for layer in model.model.layers:
            layer.self_attn.register_forward_pre_hook(
                lambda module, _, kwargs: shapes.extend(
                    (table.device.type, tuple(table.shape)) for table in kwargs["position_embeddings"]
                ),
                with_kwargs=True,
            )
        with torch.no_grad():
            # The mask is given because making one looks at the positions, which have no values here.
            mask = torch.zeros(1, 1, 512, 512, device="meta")
            outputs = model(torch.zeros(1, 512, dtype=torch.long, device="meta"), attention_mask=mask, use_cache=False)
    assert outputs.logits.shape == (1, 512, 128256)
    assert shapes == [("meta", (1, 512, 128))] * 160


def test_a_distance_method_is_planned_for_every_layer_of_a_70b_model_without_memory():
    config = LlamaConfig(**LLAMA_70B)
    with init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(config).eval()
    shape = ModelShape.from_config(config)
    implementation = model.config._attn_implementation
    distance = Distance("dpe", window=4096, scale_factors=(2.0, 4.0, 8.0, 8.0))
    with apply_profile(model, Profile("p", shape, 32768, Frequency("native"), distance), check=False):
        assert sum(len(layer.self_attn._forward_pre_hooks) for layer in model.model.layers) == 80
    assert model.config._attn_implementation == implementation
    assert all(parameter.is_meta for parameter in model.parameters())
    with pytest.raises(ProfileError, match=r"16384.*8192 tokens"):
        Profile("p", shape, 32768, Frequency("native"), Distance("rerope", window=16384))
    with pytest.raises(ProfileError, match=r"3 groups.*64 rotated pairs"):
        Profile("p", shape, 32768, Frequency("native"), Distance("dpe", window=4096, scale_factors=(2.0, 4.0, 8.0)))


def test_a_model_whose_frequencies_are_not_loaded_is_refused_without_allocating():
    config = LlamaConfig(**LLAMA_70B)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config).eval()
    profile = Profile("p", ModelShape.from_config(config), 32768, Frequency("linear", factor=2.0))
    with pytest.raises(ProfileError, match="rotary frequencies are loaded"):
        apply_profile(model, profile)
