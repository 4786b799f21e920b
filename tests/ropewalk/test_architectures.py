"""Each architecture of the list against its own rotary module, in every way a model is run; or refused by name."""

import copy

import pytest
import torch
from torch import nn

from ropewalk import Distance, Frequency, ModelShape, Profile, ProfileError, apply_profile
from ropewalk.rotary import attention_modules
from tests.ropewalk.architectures import (
    ARCHITECTURES,
    END,
    README,
    START,
    TRAINED_LENGTH,
    VOCABULARY,
    attends,
    table,
    works,
)
from tests.ropewalk.distance_cases import off
from tests.ropewalk.literal import LiteralModel, own_rotation

LENGTH = 60
TARGET = 96
ROUNDING = 1e-4
"""Of the largest logit, what float32 may lose in four layers."""
FACTORS = (1.5, 3.0, 1.0, 2.0)
CHUNKS = [(0, 25), (25, 52), *((i, i + 1) for i in range(52, LENGTH))]

every_architecture = pytest.mark.parametrize("architecture", works(), ids=lambda item: item.name)


def draw(length=LENGTH, batch=1, seed=0):
    return torch.randint(2, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


def run(model, ids, **kwargs):
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False, **kwargs).logits


def run_in_chunks(model, ids, chunks=CHUNKS):
    """Logits of a prefill in parts and a decode token by token over one cache."""
    cache, parts = None, []
    with torch.no_grad():
        for start, stop in chunks:
            outputs = model(input_ids=ids[:, start:stop], cache=cache, use_cache=True)
            cache = outputs.cache
            parts.append(outputs.logits)
    return torch.cat(parts, 1)


def profile_for(model, frequency, distance=None):
    shape = ModelShape.from_config(model.config)
    return Profile("test", shape, TARGET, frequency, distance or Distance())


def slowed(model, factor):
    """A copy whose own rotary module turns `factor` times slower, without any patch."""
    run(model, draw())  # longrope makes its long table in the first long forward
    model = copy.deepcopy(model)
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name.endswith("inv_freq"):
                buffer.div_(factor)
        if isinstance(getattr(module, "long_inv_freq", None), torch.Tensor):
            module.long_inv_freq = module.long_inv_freq / factor
    return model


def decoder_layers(model):
    attentions = attention_modules(model, model.config.num_hidden_layers)
    return next(
        module
        for module in model.modules()
        if isinstance(module, nn.ModuleList)
        and len(module) == len(attentions)
        and all(attention in layer.modules() for layer, attention in zip(module, attentions, strict=True))
    )


def through_layers(model, ids, given=None):
    """Inputs and outputs of each decoder layer in one forward; `given` replaces the inputs."""
    seen, hooks = {}, []

    def before(layer):
        def hook(module, args, kwargs):
            hidden = args[0] if args else kwargs["hidden_states"]
            if given is not None:
                hidden = given[layer][0]
                args, kwargs = ((hidden, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": hidden})
            seen[layer] = [hidden]
            return args, kwargs

        return hook

    def after(layer):
        def hook(module, args, output):
            seen[layer].append(output[0] if isinstance(output, tuple) else output)

        return hook

    for index, layer in enumerate(decoder_layers(model)):
        hooks.append(layer.register_forward_pre_hook(before(index), with_kwargs=True))
        hooks.append(layer.register_forward_hook(after(index)))
    try:
        run(model, ids)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


# Frequency methods


@every_architecture
def test_the_identity_gives_the_same_bits_within_the_original_length(architecture):
    model = architecture.build()
    ids = draw(TRAINED_LENGTH)
    plain = run(model, ids)
    with apply_profile(model, Profile.identity(ModelShape.from_config(model.config), TRAINED_LENGTH)):
        assert torch.equal(run(model, ids), plain)


@every_architecture
def test_the_identity_gives_the_same_bits_beyond_the_original_length(architecture):
    model = architecture.build()
    ids = draw()
    plain = run(model, ids)
    with apply_profile(model, Profile.identity(ModelShape.from_config(model.config), TARGET)):
        assert torch.equal(run(model, ids), plain)


@every_architecture
@pytest.mark.parametrize("attention", [{}, {"attn_implementation": "eager"}], ids=["usual", "eager"])
def test_a_uniform_factor_is_what_the_model_s_own_rotary_module_computes(architecture, attention):
    model = architecture.build(**attention)
    ids = draw(batch=2)
    plain, expected = run(model, ids), run(slowed(model, 2.5), ids)
    assert (expected - plain).abs().max() > 0.05
    with apply_profile(model, profile_for(model, Frequency("linear", factor=2.5))):
        torch.testing.assert_close(run(model, ids), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(run(model, ids), plain), "removal restores the bits"


@every_architecture
def test_each_layer_is_what_it_is_in_a_model_with_that_layer_s_factor(architecture):
    model = architecture.build()
    ids = draw()
    with apply_profile(model, profile_for(model, Frequency("linear", factor=FACTORS))):
        found = through_layers(model, ids)
    for layer, factor in enumerate(FACTORS):
        expected = through_layers(slowed(model, factor), ids, given=found)
        torch.testing.assert_close(found[layer][1], expected[layer][1], rtol=1e-5, atol=1e-5)


@every_architecture
@pytest.mark.parametrize(
    "frequency",
    [
        Frequency("native"),
        Frequency("linear", factor=FACTORS),
        Frequency("ntk", factor=FACTORS),
        Frequency("yarn", factor=FACTORS),
    ],
    ids=lambda item: item.method,
)
def test_prefill_in_parts_and_decode_give_what_one_forward_gives(architecture, frequency):
    model = architecture.build()
    ids = draw()
    with apply_profile(model, profile_for(model, frequency)):
        torch.testing.assert_close(run_in_chunks(model, ids), run(model, ids), rtol=1e-3, atol=1e-3)


@every_architecture
def test_longrope_takes_a_factor_for_each_rotated_pair(architecture):
    model = architecture.build()
    shape = ModelShape.from_config(model.config)
    ids = draw()
    with pytest.raises(ProfileError, match=f"{shape.rotary_dim // 2} numbers, one per rotated"):
        profile_for(model, Frequency("longrope", factors=(2.0,) * (shape.rotary_dim // 2 + 1)))
    plain = run(model, ids)
    factors = tuple(1.0 + pair for pair in range(shape.rotary_dim // 2))
    with apply_profile(model, profile_for(model, Frequency("longrope", factors=factors))):
        assert not torch.equal(run(model, ids), plain)
    assert torch.equal(run(model, ids), plain)


@pytest.mark.parametrize("architecture", [item for item in ARCHITECTURES if item.refused], ids=lambda item: item.name)
def test_what_is_refused_is_refused_with_the_reason(architecture):
    model = architecture.build()
    with pytest.raises(ProfileError) as caught:
        shape = ModelShape.from_config(model.config)
        apply_profile(model, Profile("test", shape, TARGET, Frequency("linear", factor=2.0)))
    assert architecture.message
    assert architecture.message in str(caught.value)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_profile_is_refused_by_a_model_that_rotates_another_share_of_its_heads():
    by_name = {item.name: item for item in ARCHITECTURES}
    quarter = by_name["GPT-NeoX, Pythia"]
    profile = profile_for(quarter.build(), Frequency("linear", factor=2.0))
    half = quarter.build(rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5})
    with pytest.raises(ProfileError, match=r"model\.rotary_dim: got 8; .* rotary_dim 4"):
        apply_profile(half, profile)


# Distance methods

WINDOW = 12
FAR = {
    "rerope": {"log_n": True},
    "leaky_rerope": {"slope": 3.0},
    "self_extend": {"group_size": 5},
    "dpe": {"scale_factors": (2.0, 5.0)},
}
DISTANCES = {
    **{method: Distance(method, window=WINDOW, **fields) for method, fields in FAR.items()},
    "dca": Distance("dca", chunk_size=16, local_size=5),
}
UNCHANGED = {
    **{method: Distance(method, window=TRAINED_LENGTH, **fields) for method, fields in {**FAR, "rerope": {}}.items()},
    "dca": Distance("dca", chunk_size=TRAINED_LENGTH, local_size=5),
}


ARCHITECTURE_AND_METHOD = [
    pytest.param(item, method, id=f"{item.name}-{method}")
    for item in attends()
    for method in DISTANCES
    if not (item.window and method == "dca")
]
every_distance = pytest.mark.parametrize(("architecture", "method"), ARCHITECTURE_AND_METHOD)


@every_distance
def test_distance_methods_decode_what_they_prefill(architecture, method):
    model = architecture.build()
    ids = draw()
    plain = run(model, ids)
    frequency = Frequency("linear", factor=(1.0, 1.5, 1.0, 1.25))
    with apply_profile(model, profile_for(model, frequency, DISTANCES[method])):
        whole = run(model, ids)
        torch.testing.assert_close(run_in_chunks(model, ids), whole, rtol=1e-3, atol=1e-3)
    with apply_profile(model, profile_for(model, frequency)):
        assert not torch.equal(run(model, ids), whole), "the distance method has an effect of its own"
    assert torch.equal(run(model, ids), plain), "removal restores the bits"


@every_distance
def test_a_window_that_holds_everything_is_plain_attention(architecture, method):
    model = architecture.build()
    ids = draw(TRAINED_LENGTH)
    shape = ModelShape.from_config(model.config)
    plain = run(model, ids)
    profile = Profile("test", shape, TRAINED_LENGTH, Frequency("native"), UNCHANGED[method])
    with apply_profile(model, profile):
        torch.testing.assert_close(run(model, ids), plain, rtol=1e-4, atol=1e-4)


@every_distance
def test_distance_methods_are_their_definition(architecture, method):
    """The definition knows from the list alone how the architecture pairs dimensions and which layers rotate."""
    model = architecture.build()
    ids = draw()
    run(model, ids)  # a longrope model now holds its long table
    rotary = next(module for module in model.modules() if type(module).__name__.endswith("RotaryEmbedding"))
    layer_types = getattr(model.config, "layer_types", None) or [None] * len(FACTORS)
    own = [own_rotation(rotary, kind) for kind in layer_types]
    literal = LiteralModel(
        model,
        DISTANCES[method].to_dict(),
        inv_freqs=[inv_freq.double() / factor for (inv_freq, _), factor in zip(own, FACTORS, strict=True)],
        scalings=[scaling for _, scaling in own],
        trained_length=TRAINED_LENGTH,
        interleaved=architecture.neighbours,
        rotates=[layer not in architecture.still for layer in range(len(FACTORS))],
    )
    with apply_profile(model, profile_for(model, Frequency("linear", factor=FACTORS), DISTANCES[method])):
        assert off(run(model, ids), literal.logits(ids)) < ROUNDING


@pytest.mark.parametrize("architecture", [item for item in attends() if item.window], ids=lambda item: item.name)
def test_dca_is_refused_beside_a_sliding_window(architecture):
    model = architecture.build()
    with pytest.raises(ProfileError, match=r"dca.*sliding window of 20"):
        apply_profile(model, profile_for(model, Frequency("native"), DISTANCES["dca"]))
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    "architecture", [item for item in works() if item.distance_refused], ids=lambda item: item.name
)
def test_refused_distance_methods_are_refused_with_the_reason(architecture):
    model = architecture.build()
    with pytest.raises(ProfileError) as caught:
        apply_profile(model, profile_for(model, Frequency("native"), DISTANCES["self_extend"]))
    assert architecture.distance_message
    assert architecture.distance_message in str(caught.value)
    assert not any(module._forward_pre_hooks for module in model.modules())


# The table


def test_the_readme_has_the_table_of_this_list():
    text = README.read_text(encoding="utf-8")
    assert text.split(START)[1].split(END)[0].strip() == table()
