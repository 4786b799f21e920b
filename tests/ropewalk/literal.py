"""The distance methods written down from their definitions, to compare the engine with.

Nothing of the engine is used. A relative position is one scalar function of (m, n, pair); scores are a full matrix in
float64; a whole model runs on them without a cache. Slow and quadratic on purpose.

Notation as in the papers: query position m, key position n ≤ m, d = m − n, window w, pair j of J rotated pairs.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

NAME = "literal"
Fields = dict[str, Any]


# The definitions: one scalar each


def _rerope(fields: Fields, m: int, n: int, scale: None) -> float:
    """Beyond the window every distance is w (ReRoPE)."""
    w = fields["window"]
    return m - n if m - n < w else w


def _leaky_rerope(fields: Fields, m: int, n: int, scale: None) -> float:
    """w + (d − w)/k (Leaky ReRoPE)."""
    w = fields["window"]
    return m - n if m - n < w else w + (m - n - w) / fields["slope"]


def _self_extend(fields: Fields, m: int, n: int, scale: None) -> float:
    """⌊m/G⌋ − ⌊n/G⌋ + w − ⌊w/G⌋ (arXiv 2401.01325)."""
    w, group = fields["window"], fields["group_size"]
    return m - n if m - n < w else m // group - n // group + w - w // group


def _dpe(fields: Fields, m: int, n: int, scale: float) -> float:
    """As Self-Extend with the scale of the pair's group (arXiv 2504.18857, factorised)."""
    w = fields["window"]
    return m - n if m - n < w else math.floor(m / scale) - math.floor(n / scale) + w - math.floor(w / scale)


def _dca(fields: Fields, m: int, n: int, scale: None) -> float:
    """Same chunk d; chunk before min(m mod c + c, s) − n mod c; earlier s − n mod c (arXiv 2402.17463)."""
    s = fields["chunk_size"]
    c = s - fields["local_size"]
    chunks_between = m // c - n // c
    if chunks_between == 0:
        return m - n
    if chunks_between == 1:
        return min(m % c + c, s) - n % c
    return s - n % c


def _none(fields: Fields, m: int, n: int, scale: None) -> float:
    return m - n


RELATIVE: dict[str, Callable[[Fields, int, int, Any], float]] = {
    "none": _none,
    "rerope": _rerope,
    "leaky_rerope": _leaky_rerope,
    "self_extend": _self_extend,
    "dca": _dca,
    "dpe": _dpe,
}


def dpe_paper(m: int, n: int, window: int, scale: int) -> int:
    """The relative position as the DPE paper writes it, ⌊(m − n − w)/s⌋ + w beyond the window."""
    return m - n if m - n < window else (m - n - window) // scale + window


def chosen_pairs(digits: str, pairs: int) -> list[bool]:
    """Key dimensions of one head: four pairs a hexadecimal digit, the first pair its most significant bit."""
    chosen = []
    for digit in digits:
        number = "0123456789abcdef".index(digit)
        chosen += [number >= 8, number % 8 >= 4, number % 4 >= 2, number % 2 == 1]
    return chosen[:pairs]


def scale_of(fields: Fields, layer: int, query_head: int, heads_per_key: int, pair: int, pairs: int) -> float | None:
    """Scale of dpe's group of a pair, None where the pair keeps the plain distance."""
    if fields.get("key_dims"):
        dims = fields["key_dims"]
        head = query_head if dims["per"] == "query_head" else query_head // heads_per_key
        if not chosen_pairs(dims["mask"][layer][head], pairs)[pair]:
            return None
    scales = fields["scale_factors"]
    bounds = fields.get("group_bounds") or [i * pairs // len(scales) for i in range(len(scales) + 1)]
    return next(s for i, s in enumerate(scales) if bounds[i] <= pair < bounds[i + 1])


def log_n(fields: Fields, m: int, trained_length: int) -> float:
    """What the query at m is multiplied by: max(1, ln(m + 1)/ln L0) for rerope with log_n."""
    return max(1.0, math.log(m + 1) / math.log(trained_length)) if fields.get("log_n") else 1.0


def relative(fields: Fields, m: int, n: int, scale: float | None = None) -> float:
    """Relative position that a pair is rotated by; `scale` only for dpe, whose unscaled pairs keep m − n."""
    assert 0 <= n <= m, f"query {m} sees key {n}"
    if fields["method"] == "dpe" and scale is None:
        return m - n
    return RELATIVE[fields["method"]](fields, m, n, scale)


# One head and one layer


@dataclass
class Rope:
    """What a layer rotates with.

    Attributes:
        inv_freq: float64 [J].
        scaling: multiplies cos and sin of query and of key, so the rotated part of the score twice.
        interleaved: pair j is dimensions (2j, 2j + 1) instead of (j, j + J).
        rotates: False for a layer without positions.
    """

    inv_freq: torch.Tensor
    scaling: float = 1.0
    interleaved: bool = False
    rotates: bool = True


def dims_of(pair: int, rope: Rope) -> tuple[int, int]:
    """The two dimensions of a pair."""
    return (2 * pair, 2 * pair + 1) if rope.interleaved else (pair, pair + rope.inv_freq.numel())


def score_of(q: Sequence[float], k: Sequence[float], relatives: Sequence[float], rope: Rope) -> float:
    """q·k with each pair of q turned by relative position × frequency; scalar arithmetic only, for the hand-made cases.

    Args:
        q, k: one head's vector each.
        relatives: relative position of each pair.
    """
    total, rotated = 0.0, set()
    for j, frequency in enumerate(rope.inv_freq.tolist()):
        a, b = dims_of(j, rope)
        rotated |= {a, b}
        angle = relatives[j] * frequency
        turned_a = q[a] * math.cos(angle) - q[b] * math.sin(angle)
        turned_b = q[b] * math.cos(angle) + q[a] * math.sin(angle)
        total += (turned_a * k[a] + turned_b * k[b]) * rope.scaling**2
    return total + sum(q[i] * k[i] for i in range(len(q)) if i not in rotated)


def relatives_matrix(
    fields: Fields, positions: Sequence[int], visible_TT: torch.Tensor, scale: float | None
) -> torch.Tensor:
    """Relative positions float64 [T, T], one scalar call for each visible (m, n); 0 elsewhere."""
    rows, known = [], {}
    for m, row in zip(positions, visible_TT.tolist(), strict=True):
        line = []
        for n, seen in zip(positions, row, strict=True):
            if seen and (m, n) not in known:
                known[m, n] = float(relative(fields, m, n, scale))
            line.append(known[m, n] if seen else 0.0)
        rows.append(line)
    return torch.tensor(rows, dtype=torch.float64)


def scores(
    q_HTD: torch.Tensor,
    k_KTD: torch.Tensor,
    fields: Fields,
    rope: Rope,
    positions: Sequence[int],
    visible_TT: torch.Tensor,
    *,
    layer: int = 0,
    trained_length: int = 64,
) -> torch.Tensor:
    """Unscaled scores float64 [H, T, T] of one row of a batch from queries and keys that are not rotated."""
    q_HTD, k_KTD = q_HTD.double(), k_KTD.double()
    heads, keys = q_HTD.shape[0], k_KTD.shape[0]
    pairs, dpe = rope.inv_freq.numel(), fields["method"] == "dpe"
    matrices: dict[float | None, torch.Tensor] = {}
    all_scores = []
    for head in range(heads):
        q, k = q_HTD[head], k_KTD[head // (heads // keys)]
        if not rope.rotates:
            all_scores.append(q @ k.T)
            continue
        rotated = [dim for pair in range(pairs) for dim in dims_of(pair, rope)]
        passed = [dim for dim in range(q.shape[-1]) if dim not in set(rotated)]
        total = q[:, passed] @ k[:, passed].T
        for pair in range(pairs):
            scale = scale_of(fields, layer, head, heads // keys, pair, pairs) if dpe else None
            if scale not in matrices:
                matrices[scale] = relatives_matrix(fields, positions, visible_TT, scale)
            a, b = dims_of(pair, rope)
            angle = matrices[scale] * rope.inv_freq[pair].double()
            along = torch.outer(q[:, a], k[:, a]) + torch.outer(q[:, b], k[:, b])
            across = torch.outer(q[:, a], k[:, b]) - torch.outer(q[:, b], k[:, a])
            total = total + rope.scaling**2 * (along * angle.cos() + across * angle.sin())
        factors = torch.tensor([log_n(fields, m, trained_length) for m in positions], dtype=torch.float64)
        all_scores.append(factors[:, None] * total)
    return torch.stack(all_scores)


def attention(
    q_HTD: torch.Tensor,
    k_KTD: torch.Tensor,
    v_KTD: torch.Tensor,
    fields: Fields,
    rope: Rope,
    positions: Sequence[int],
    visible_TT: torch.Tensor,
    *,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    sinks_H: torch.Tensor | None = None,
    layer: int = 0,
    trained_length: int = 64,
) -> torch.Tensor:
    """Output float64 [H, T, D] of one row; rows of queries that see nothing are 0."""
    if sliding_window is not None:
        at = torch.tensor(list(positions))
        visible_TT = visible_TT & (at[:, None] - at[None, :] < sliding_window)
    s_HTT = scores(q_HTD, k_KTD, fields, rope, positions, visible_TT, layer=layer, trained_length=trained_length)
    s_HTT = s_HTT * scaling
    if softcap is not None:
        s_HTT = softcap * torch.tanh(s_HTT / softcap)
    s_HTT = s_HTT.masked_fill(~visible_TT, -math.inf)
    if sinks_H is not None:
        s_HTT = torch.cat((s_HTT, sinks_H.double()[:, None, None].expand(-1, s_HTT.shape[1], 1)), -1)
    blind_T = ~visible_TT.any(-1)
    s_HTT = s_HTT.masked_fill(blind_T[:, None], 0.0)
    weights = s_HTT.softmax(-1)[..., : visible_TT.shape[1]].masked_fill(blind_T[:, None], 0.0)
    v_HTD = v_KTD.double().repeat_interleave(q_HTD.shape[0] // v_KTD.shape[0], 0)
    return weights @ v_HTD


# A whole model


def _literal_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    layer: _Layer = module.literal_layer
    assert query.shape[2] == key.shape[2], "the reference has no cache"
    positions_BT = layer.positions.expand(query.shape[0], -1).tolist()
    visible = attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0
    visible = visible.expand(query.shape[0], 1, -1, -1)[:, 0]
    outputs = [
        attention(
            query[row],
            key[row],
            value[row],
            layer.fields,
            layer.rope,
            positions_BT[row],
            visible[row],
            scaling=scaling,
            sliding_window=sliding_window,
            softcap=softcap,
            sinks_H=s_aux,
            layer=layer.index,
            trained_length=layer.trained_length,
        )
        for row in range(query.shape[0])
    ]
    return torch.stack(outputs).transpose(1, 2).to(query.dtype).contiguous(), None


AttentionInterface.register(NAME, _literal_attention)
AttentionMaskInterface.register(NAME, eager_mask)


@dataclass
class _Layer:
    """What the reference's attention knows of its layer; the hook notes the positions of each forward."""

    index: int
    fields: Fields
    rope: Rope
    trained_length: int
    positions: torch.Tensor | None = None

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        self.positions = kwargs["position_ids"]
        cos, sin = kwargs["position_embeddings"]
        return args, {**kwargs, "position_embeddings": (torch.ones_like(cos), torch.zeros_like(sin))}


def attentions_of(model: nn.Module) -> list[nn.Module]:
    """Attention modules in the order of the layers."""
    return [m for name, m in model.named_modules() if name.endswith((".self_attn", ".attention"))]


def in_doubles(model: nn.Module) -> nn.Module:
    """A copy that computes in float64 throughout, in its norms and rotary tables too, which transformers casts."""
    model = copy.deepcopy(model).double()
    for module in model.modules():
        kind = type(module).__name__
        if "RMSNorm" in kind:
            module.forward = _rms_norm(module, 1.0 if kind.startswith("Gemma") else 0.0)
        elif kind == "CohereLayerNorm":
            module.forward = _layer_norm(module)
        elif kind.endswith("RotaryEmbedding"):
            module.forward = _rotary(module, kind)
    return model


def _rms_norm(module: nn.Module, offset: float) -> Callable[[torch.Tensor], torch.Tensor]:
    eps = getattr(module, "variance_epsilon", None) or module.eps

    def forward(x: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * (offset + module.weight)

    return forward


def _layer_norm(module: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        x = x - x.mean(-1, keepdim=True)
        return x / (x.square().mean(-1, keepdim=True) + module.variance_epsilon).sqrt() * module.weight

    return forward


def _rotary(module: nn.Module, kind: str) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    def forward(
        x: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        inv_freq, scaling = own_rotation(module, layer_type)
        angles = position_ids[..., None].double() * inv_freq
        if kind.startswith("Cohere"):
            angles = angles.repeat_interleave(2, -1)
        elif not kind.startswith("GptOss"):
            angles = torch.cat((angles, angles), -1)
        return angles.cos() * scaling, angles.sin() * scaling

    return forward


def own_rotation(rotary: nn.Module, layer_type: str | None = None) -> tuple[torch.Tensor, float]:
    """Inverse frequencies and attention scaling of a rotary module, which may have one of each per layer type."""
    prefix = f"{layer_type}_" if hasattr(rotary, f"{layer_type}_inv_freq") else ""
    return getattr(rotary, f"{prefix}inv_freq"), getattr(rotary, f"{prefix}attention_scaling")


class LiteralModel:
    """A model under the definition of a distance method, in float64 and without a cache.

    Args:
        model: not patched; copied, not changed.
        fields: the distance axis as in a profile file: `method` and its fields.
        inv_freqs: float64 [J] of each layer; the model's own when not given.
        scalings: attention scaling of each layer.
        trained_length: L0, for log_n.
        interleaved: layout of the pairs.
        rotates: of each layer; all when not given.
    """

    def __init__(
        self,
        model: nn.Module,
        fields: Fields,
        *,
        inv_freqs: Sequence[torch.Tensor] | None = None,
        scalings: Sequence[float] | None = None,
        trained_length: int = 64,
        interleaved: bool = False,
        rotates: Sequence[bool] | None = None,
    ) -> None:
        self.model = in_doubles(model)
        self.model.config._attn_implementation = NAME
        rotary = next(m for m in self.model.modules() if type(m).__name__.endswith("RotaryEmbedding"))
        layer_types = getattr(self.model.config, "layer_types", None)
        attentions = attentions_of(self.model)
        for index, module in enumerate(attentions):
            own = own_rotation(rotary, layer_types[index] if layer_types else None)
            rope = Rope(
                inv_freqs[index] if inv_freqs else own[0],
                scalings[index] if scalings else own[1],
                interleaved,
                rotates[index] if rotates else True,
            )
            module.literal_layer = _Layer(index, fields, rope, trained_length)
            module.register_forward_pre_hook(module.literal_layer, with_kwargs=True)

    def logits(
        self,
        ids_BT: torch.Tensor,
        *,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """float64 [B, T, vocabulary]; `attention_mask` as the model takes it."""
        with torch.no_grad():
            return self.graph(ids_BT, attention_mask=attention_mask, position_ids=position_ids)

    def graph(self, ids_BT: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """The same with autograd's graph."""
        return self.model(input_ids=ids_BT, use_cache=False, **kwargs).logits

    def greedy(self, ids_BT: torch.Tensor, count: int) -> torch.Tensor:
        """`count` tokens [B, count], each the argmax of a forward over everything before it."""
        for _ in range(count):
            ids_BT = torch.cat((ids_BT, self.logits(ids_BT)[:, -1:].argmax(-1)), -1)
        return ids_BT[:, -count:]
