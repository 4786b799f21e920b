"""One request on one loaded model: what a local evaluator and an actor both do."""

import resource
import sys
import time
from collections.abc import Mapping

import torch

from fitness.errors import NonFiniteError
from fitness.examples import ExampleSet
from fitness.scoring import score_example
from ropewalk import Frequency, Profile, ProfileError, apply_profile
from workers.loading import LoadedModel
from workers.messages import Request, Result


def self_check(loaded: LoadedModel) -> None:
    """Apply a profile that changes every layer, once per loaded model, with the library's own check of the patch.

    Raises:
        PatchError: the patch does not take effect on this model.
        ProfileError: the model cannot be patched.
    """
    profile = Profile("self-check", loaded.shape, 2 * loaded.shape.trained_length, Frequency("linear", factor=2.0))
    with apply_profile(loaded.model, profile, check=True):
        pass


def evaluate(
    loaded: LoadedModel, sets: Mapping[str, ExampleSet], request: Request, *, chunk: int | None, worker: str
) -> Result:
    """Scores of the request's examples. What is the candidate's own fault is a failed result with its reason;
    everything else is raised: it is a fault of the worker.

    A candidate fails when its logits are not finite, its profile does not fit the model, or memory runs out.
    """
    begin = time.perf_counter()
    scores, tokens, reason = [], 0, None
    try:
        profile = Profile.from_dict(request.profile)
        with apply_profile(loaded.model, profile, check=False) as handle:
            for example in sets[request.example_set].slice(request.start, request.stop):
                found = score_example(
                    loaded.model, loaded.tokenizer, example, request.scoring, chunk=chunk, handle=handle
                )
                scores.extend(found.scores)
                tokens += found.tokens
    except (NonFiniteError, ProfileError) as error:
        reason = f"{type(error).__name__}: {error}"
    except (torch.OutOfMemoryError, MemoryError) as error:
        reason = f"out of memory: {error}"
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return Result(
        request_id=request.id,
        status="failed" if reason else "ok",
        reason=reason,
        scores=() if reason else tuple(scores),
        tokens=tokens,
        seconds=time.perf_counter() - begin,
        peak_memory_bytes=peak_memory(),
        worker=worker,
    )


def peak_memory() -> int:
    """Bytes: the most that was allocated on the GPUs of this process, else the most its resident set ever was."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return sum(torch.cuda.max_memory_allocated(device) for device in range(torch.cuda.device_count()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
