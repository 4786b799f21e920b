"""Greedy generation from the same prompt ids that teacher forcing scores, by transformers' own `generate`."""

from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList

from fitness.cached import cache_argument, fork, prefill
from fitness.encoding import EncodedExample
from fitness.errors import NonFiniteError

MARGIN = 8  # tokens more than the gold answer has, for a longer way to say it, where the task sets no budget


class _Finite(LogitsProcessor):
    """Stops a generation whose logits are not numbers; left alone, argmax would quietly pick token 0.

    As in teacher forcing, NaN and positive infinity count: a token ruled out (minus infinity) is no fault.
    """

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        if not torch.isfinite(scores.logsumexp(dim=-1)).all():
            raise NonFiniteError(f"logits at token {input_ids.shape[1]} are not finite")
        return scores


@torch.inference_mode()
def generated(model: Any, tokenizer: Any, encoded: EncodedExample, chunk: int | None) -> tuple[list[str], int]:
    """Outputs of all questions in their order, and the tokens run.

    Raises:
        NonFiniteError: a logit of a generated token is NaN or infinite.
    """
    outputs = []
    prefix = prefill(model, encoded.shared, chunk)
    tokens = len(encoded.shared)
    for question in encoded.questions:
        most = question.budget or len(question.answer) + MARGIN
        ids = greedy(model, encoded.shared + question.prompt, most, fork(prefix))
        tokens += len(question.prompt) + len(ids) - 1
        outputs.append(tokenizer.decode(ids, skip_special_tokens=True))
    return outputs, tokens


def greedy(model: Any, prompt: tuple[int, ...], most: int, cache: Any = None) -> list[int]:
    """At most `most` new ids. `cache`, if given, holds a beginning of `prompt`, which is then not run again.

    What a model's own generation settings say of sampling, beams or repetition does not apply.
    """
    ids = torch.tensor([prompt], device=model.device)
    known = {} if cache is None or not cache.get_seq_length() else {cache_argument(model): cache}
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=most,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        pad_token_id=_padding(model),
        logits_processor=LogitsProcessorList([_Finite()]),
        **known,
    )
    return output[0, len(prompt) :].tolist()


def _padding(model: Any) -> int:
    """Never used with one sequence, but `generate` warns without one."""
    settings = model.generation_config
    if settings.pad_token_id is not None:
        return settings.pad_token_id
    end = settings.eos_token_id
    return (end[0] if isinstance(end, list) else end) or 0
