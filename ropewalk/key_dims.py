"""Key dimensions of DPE: the dimension pairs of each head that contribute most to its scores (arXiv 2504.18857).

The contribution of pair j to query head h is c[h, j], the mean over tokens t of ‖q_t^(j)‖·‖k_t^(j)‖, query and key of
the same token, averaged over texts and over several lengths. By Cauchy-Schwarz it bounds the pair's share of a score.

A token's query and key depend only on the tokens before it, so one pass over the longest length serves all: token t
counts with weight mean over lengths l of [t < l]/l. Queries and keys are dropped as soon as their norms are added up.
"""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache

from ropewalk.distance import KeyDims
from ropewalk.errors import ProfileError, nearest
from ropewalk.fields import integer
from ropewalk.hooks import refuse_patched
from ropewalk.pairs import LayerPairs, attention_pairs
from ropewalk.probing import arrived, before_each, input_device, own_table, undisturbed
from ropewalk.rotary import attention_modules
from ropewalk.shape import ModelShape
from ropewalk.twin import has_weights

CHUNK = 2048
"""Tokens a forward; longer texts run in several over a KV cache."""

_PER = ("query_head", "kv_head")
_FRACTIONS = (8, 4, 2, 1)


def key_dims(
    model: nn.Module,
    tokenizer: Any,
    texts: Iterable[str],
    top_k: int,
    per: str = "query_head",
    lengths: Sequence[int] | None = None,
) -> KeyDims:
    """Choose the key dimension pairs of every head of a model, for the distance method `dpe`.

    The paper takes ten long texts, lengths up to the trained one and 48 of 64 pairs. Of equal contributions the lower
    pair is chosen; a layer without rotation contributes nothing, so it gets the lowest pairs, which nothing reads. The
    order of the texts makes no difference.

    Example:
        >>> chosen = key_dims(model, tokenizer, texts, top_k=48)
        >>> Distance("dpe", window=1024, scale_factors=(4, 4, 2, 16, 32, 32, 16, 128), key_dims=chosen)

    Args:
        model: a transformers model that no profile is applied to; not changed.
        tokenizer: its tokenizer; special tokens are added as it does by default.
        texts: each at least as long as the longest length; read one at a time.
        top_k: pairs chosen in each head, from 0 to all.
        per: `query_head` chooses for each query head; `kv_head` for each key/value head, by the sum over the query
            heads that share it, which makes dpe cheaper.
        lengths: in tokens; an eighth, a quarter, a half and the whole of the trained length when not given.

    Raises:
        ProfileError: as `contributions`, or top_k or per is not one of these.
    """
    if per not in _PER:
        raise ProfileError("key_dims.per", per, f"one of {nearest(per, _PER)}")
    top_k = integer("key_dims.top_k", top_k, 0)
    shape = ModelShape.from_config(model.config)
    if top_k > shape.rotary_dim // 2:
        raise ProfileError("key_dims.top_k", top_k, f"at most the model's {shape.rotary_dim // 2} rotated pairs")
    if isinstance(texts, str):
        raise ProfileError("key_dims.texts", texts, "several texts, not one")
    if lengths is None:
        lengths = sorted({max(1, shape.trained_length // fraction) for fraction in _FRACTIONS})
    values = contributions(model, (tokenizer(text)["input_ids"] for text in texts), lengths)
    layers, heads, pairs = values.shape
    if top_k > pairs:
        raise ProfileError("key_dims.top_k", top_k, f"at most the model's {pairs} rotated pairs")
    if per == "kv_head":
        values = values.view(layers, shape.num_kv_heads, heads // shape.num_kv_heads, pairs).sum(2)
    best = values.sort(dim=-1, descending=True, stable=True).indices[..., :top_k]
    chosen = torch.zeros(values.shape, dtype=torch.bool).scatter_(-1, best, True)
    return KeyDims.from_bools(per, chosen.tolist())


def contributions(
    model: nn.Module, token_sequences: Iterable[Sequence[int] | torch.Tensor], lengths: Sequence[int]
) -> torch.Tensor:
    """Contribution of every rotated pair to every query head.

    Args:
        model: a transformers model that no profile is applied to; not changed.
        token_sequences: token ids, each at least max(lengths) of them; read one at a time, never kept.
        lengths: in tokens, each at least 1 and at most what the model's rotation is made for.

    Returns:
        float64 [layers, query heads, pairs] on the CPU, the same to the last bit whatever the order of the sequences;
        0 in layers that do not rotate.

    Raises:
        ProfileError: a sequence is too short or no sequence is given, a length is too long, a profile is applied, the
            model rotates in a way that is not supported, or a contribution is not finite.
    """
    refuse_patched(model)
    if not has_weights(model):
        raise ProfileError("model.device", "meta", "a model with weights")
    lengths = _checked(lengths, _limit(model.config))
    attentions = attention_modules(model, _text_config(model.config).num_hidden_layers)
    run = _Run(model, attentions, attention_pairs(model, attentions), _weights(lengths))
    total, count = _ExactSum(), 0
    with undisturbed(model):
        for tokens in token_sequences:
            ids = _ids(model, f"key_dims.texts[{count}]", tokens, lengths[-1])
            total.add(run.of_text(ids))
            count += 1
    if not count:
        raise ProfileError("key_dims.texts", "no text", "at least one text")
    return total.value() / count


class _Run:
    """Contributions of one text after another."""

    def __init__(
        self, model: nn.Module, attentions: Sequence[nn.Module], pairs: Sequence[LayerPairs], weights: torch.Tensor
    ) -> None:
        self._model, self._attentions, self._pairs, self._weights = model, attentions, pairs, weights
        dims = {layer.rotary_dim for layer in pairs if layer.rotates}
        if len(dims) != 1:
            shown = ", ".join(map(str, sorted(dims))) or "none"
            raise ProfileError("model.rotary_dim", shown, "one number of rotated dimensions for all rotating layers")
        self._rotary_dim = dims.pop()
        self._start = 0
        self._sums: list[torch.Tensor | None] = []

    def of_text(self, ids: torch.Tensor) -> torch.Tensor:
        """ids [1, tokens] -> float64 [layers, query heads, pairs] on the CPU."""
        self._sums = [None] * len(self._attentions)
        parameters = inspect.signature(type(self._model).forward).parameters
        cached = next((name for name in ("cache", "past_key_values") if name in parameters), None)
        more: dict[str, Any] = {"use_cache": False}
        if cached is not None and ids.shape[1] > CHUNK:
            more = {"use_cache": True, cached: DynamicCache(config=self._model.config)}
        if "logits_to_keep" in parameters:
            more["logits_to_keep"] = 1
        size = CHUNK if more["use_cache"] else ids.shape[1]
        with before_each(self._attentions, self._add):
            for self._start in range(0, ids.shape[1], size):
                self._model(input_ids=ids[:, self._start : self._start + size], **more)
        sums, self._sums = self._sums, []
        if len({tuple(layer.shape) for layer in sums}) != 1:
            raise ProfileError("model.num_heads", "different in its layers", "as many query heads in every layer")
        for layer, values in enumerate(sums):
            if not (values < _ExactSum.LIMIT).all():
                raise ProfileError("model.attention", f"contributions of layer {layer} not finite", "finite numbers")
        return torch.stack([values.cpu() for values in sums])

    def _add(self, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        cos, sin = own_table(module, kwargs)
        got = arrived(module, args, kwargs, (torch.ones_like(cos), torch.zeros_like(sin)))
        heads, tokens = got.query.shape[1:3]
        if self._pairs[layer].rotates:
            query, key = (self._norms(x, self._pairs[layer].interleaved) for x in (got.query, got.key))
            key = key.repeat_interleave(heads // key.shape[0], dim=0)
            weights = self._weights[self._start : self._start + tokens].to(query.device)
            values = (query * key * weights[:, None]).sum(1)
        else:
            values = torch.zeros(heads, self._rotary_dim // 2, dtype=torch.float64, device=got.query.device)
        before = self._sums[layer]
        self._sums[layer] = values if before is None else before + values

    def _norms(self, x: torch.Tensor, interleaved: bool) -> torch.Tensor:
        """x [1, heads, tokens, head_dim] -> norms of its pairs, float64 [heads, tokens, pairs]."""
        x = x[0, ..., : self._rotary_dim].double()
        if interleaved:
            return torch.hypot(x[..., 0::2], x[..., 1::2])
        return torch.hypot(*x.chunk(2, dim=-1))


class _ExactSum:
    """A sum of float64 tensors of numbers from 0 to below `LIMIT` that does not depend on their order.

    Each number is cut into whole multiples of three powers of two, down to 2^-60, and these are added as integers.
    """

    LIMIT = 2.0**60
    _UNITS = (2.0**20, 2.0**-20, 2.0**-60)

    def __init__(self) -> None:
        self._parts: list[torch.Tensor | int] = [0, 0, 0]

    def add(self, values: torch.Tensor) -> None:
        for i, unit in enumerate(self._UNITS):
            part = (values / unit).floor()
            values = values - part * unit
            self._parts[i] = self._parts[i] + part.long()

    def value(self) -> torch.Tensor:
        return sum(part.double() * unit for part, unit in zip(self._parts, self._UNITS, strict=True))


def _weights(lengths: Sequence[int]) -> torch.Tensor:
    """What token t counts: the mean over lengths l of [t < l]/l, float64 [longest length]."""
    weights = torch.zeros(lengths[-1], dtype=torch.float64)
    for length in lengths:
        weights[:length] += 1 / (length * len(lengths))
    return weights


def _checked(lengths: Sequence[int], limit: int) -> list[int]:
    if isinstance(lengths, str) or not isinstance(lengths, Sequence) or not lengths:
        raise ProfileError("key_dims.lengths", lengths, "a list with at least one number of tokens")
    checked = sorted(integer(f"key_dims.lengths[{i}]", length, 1) for i, length in enumerate(lengths))
    if checked[-1] > limit:
        raise ProfileError("key_dims.lengths", checked[-1], f"at most the {limit} tokens the model is made for")
    return checked


def _limit(config: Any) -> int:
    """Longest length at which all tokens are rotated by the table of shorter ones, and that the model is made for."""
    trained = ModelShape.from_config(config).trained_length
    text = _text_config(config)
    if (getattr(text, "rope_parameters", None) or {}).get("rope_type") in ("dynamic", "longrope"):
        return trained
    return max(trained, getattr(text, "max_position_embeddings", None) or 0)


def _text_config(config: Any) -> Any:
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _ids(model: nn.Module, name: str, tokens: Sequence[int] | torch.Tensor, longest: int) -> torch.Tensor:
    """The first `longest` ids of a sequence, [1, longest], where the model wants them."""
    ids = torch.as_tensor(tokens).reshape(-1)
    if len(ids) < longest:
        raise ProfileError(name, f"{len(ids)} tokens", f"at least the longest of the lengths, {longest} tokens")
    ids = ids[:longest]
    vocabulary = model.get_input_embeddings().weight.shape[0]
    if ids.is_floating_point() or int(ids.min()) < 0 or int(ids.max()) >= vocabulary:
        raise ProfileError(name, "token ids out of range", f"ids from 0 to {vocabulary - 1}, by the model's tokenizer")
    return ids.long()[None].to(input_device(model))
