"""Teacher forcing over a shared prefix: the context is run once, then all its questions over the one cache.

Where the attention takes any mask (sdpa, eager, that of a distance method), questions are packed into one pass: each
continues the positions of the context and is masked from the others. Otherwise they run one by one and the cache is cut
back in between. Both give what a full forward pass of each question alone gives; a test holds them to it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fitness.cached import fork, forward, is_plain, prefill
from fitness.encoding import EncodedExample, EncodedQuestion
from fitness.errors import NonFiniteError

MASKABLE = ("sdpa", "eager", "ropewalk")  # attention implementations that take any 4D mask
PACK_TOKENS = 1024
MASK_ELEMENTS = 2**27
LOGIT_ELEMENTS = 2**26  # 256 MiB in float32


@dataclass(frozen=True)
class Forced:
    """Whether every answer token is the argmax, and the sum of their log-probabilities."""

    exact: bool
    logprob: float


@torch.inference_mode()
def forced(model: Any, encoded: EncodedExample, chunk: int | None) -> tuple[list[Forced], int]:
    """Outcomes of all questions in their order, and the tokens run.

    Raises:
        NonFiniteError: a logit of an answer token is NaN or infinite.
    """
    cache = prefill(model, encoded.shared, chunk)
    tokens = len(encoded.shared)
    packable = is_plain(cache) and model.config._attn_implementation in MASKABLE
    piece = max(1, min(chunk or PACK_TOKENS, LOGIT_ELEMENTS // model.config.get_text_config().vocab_size))
    outcomes: list[Forced] = []
    packs = _packs(encoded, piece) if packable else ([question] for question in encoded.questions)
    for pack in packs:
        if len(pack) > 1:
            outcomes += _packed(model, cache, len(encoded.shared), pack)
        else:
            outcomes.append(_alone(model, cache, pack[0], piece, last=len(outcomes) + 1 == len(encoded.questions)))
        tokens += sum(question.length - 1 for question in pack)
    return outcomes, tokens


def _packs(encoded: EncodedExample, limit: int) -> Iterator[list[EncodedQuestion]]:
    """Consecutive questions that fit in one pass: its tokens, its mask and its logits are bounded."""
    pack: list[EncodedQuestion] = []
    size = 0
    for question in encoded.questions:
        grown = size + question.length - 1
        if pack and (grown > limit or grown * (grown + len(encoded.shared)) > MASK_ELEMENTS):
            yield pack
            pack, grown = [], question.length - 1
        pack.append(question)
        size = grown
    yield pack


def _packed(model: Any, cache: Any, start: int, pack: Sequence[EncodedQuestion]) -> list[Forced]:
    """Questions side by side in one pass over the shared cache, which is cut back to `start` afterwards."""
    ids: list[int] = []
    positions: list[int] = []
    keep: list[int] = []
    owners: list[int] = []
    for number, question in enumerate(pack):
        run = [*question.prompt, *question.answer[:-1]]
        keep += range(len(ids) + len(question.prompt) - 1, len(ids) + len(run))
        ids += run
        positions += range(start, start + len(run))
        owners += [number] * len(run)
    owner = torch.tensor(owners, device=model.device)
    visible = (owner[:, None] == owner[None, :]).tril()
    visible = torch.cat([visible.new_ones(len(ids), start), visible], dim=1)[None, None]
    logits = forward(
        model,
        cache,
        ids,
        keep=torch.tensor(keep, device=model.device),
        positions=positions,
        mask=_as_taken(model, visible),
    )
    cache.crop(-len(ids))
    parts = logits.split([len(question.answer) for question in pack])
    return [_merge([_judge(part, q.answer)]) for part, q in zip(parts, pack, strict=True)]


def _alone(model: Any, cache: Any, question: EncodedQuestion, piece: int, *, last: bool) -> Forced:
    """One question in passes of at most `piece` tokens, whose logits are judged and dropped one pass at a time."""
    croppable = is_plain(cache)
    used = cache if croppable or last else fork(cache)
    run = [*question.prompt, *question.answer[:-1]]
    first = len(question.prompt) - 1  # the token whose logits predict the first answer token
    judged = []
    for begin in range(0, len(run), piece):
        part = run[begin : begin + piece]
        wanted = min(len(part), begin + len(part) - first)
        logits = forward(model, used, part, keep=max(wanted, 1))
        if wanted > 0:
            answered = begin + len(part) - wanted - first
            judged.append(_judge(logits, question.answer[answered : answered + wanted]))
    if croppable and not last:
        used.crop(-len(run))
    return _merge(judged)


def _as_taken(model: Any, visible: torch.Tensor) -> torch.Tensor:
    """The mask as the attention takes it: truth values for sdpa, numbers to add to the scores for eager."""
    if model.config._attn_implementation != "eager":
        return visible
    return torch.zeros(visible.shape, dtype=model.dtype, device=visible.device).masked_fill(
        ~visible, torch.finfo(model.dtype).min
    )


def _judge(logits_TV: torch.Tensor, answer: Sequence[int]) -> torch.Tensor:
    """[2, T] in float64 on the model's device: whether each answer token is the argmax, and its log-probability."""
    gold = torch.tensor(answer, device=logits_TV.device)
    logits_TV = logits_TV.float()
    logprobs = logits_TV.gather(1, gold[:, None])[:, 0] - logits_TV.logsumexp(dim=1)
    return torch.stack([(logits_TV.argmax(dim=1) == gold).double(), logprobs.double()])


def _merge(judged: Sequence[torch.Tensor]) -> Forced:
    """One transfer per question. A NaN or a positive infinity anywhere in a row of logits shows in its log-sum-exp."""
    right, logprobs = torch.cat(list(judged), dim=1).cpu()
    total = float(logprobs.sum())
    if not math.isfinite(total):
        raise NonFiniteError(f"log-probability of the answer is {total}")
    return Forced(bool(right.all()), total)
