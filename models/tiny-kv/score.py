"""What tiny-kv scores at 1, 2, 4 and 8 times its trained length with each frequency method, as a Markdown table.

`python models/tiny-kv/score.py` (about 3 minutes on two cores). The factor of each method is the best of 15 on
search examples; the score is that of held-out ones, with a 95 % cluster bootstrap interval over contexts.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from fitness.examples import ExampleSet  # noqa: E402
from fitness.kv import KVTask  # noqa: E402
from fitness.scoring import Score, score_example  # noqa: E402
from fitness.statistics import bootstrap_mean, values  # noqa: E402
from ropewalk import Frequency, ModelShape, Profile, apply_profile  # noqa: E402

FACTORS = 15


def candidates(method: str, shape: ModelShape, length: int) -> Iterator[Frequency]:
    """The settings of a method to choose from: factors spread geometrically from 1 to twice the stretch."""
    if method == "native":
        yield Frequency("native")
        return
    for factor in np.geomspace(1.0, 2 * length / shape.trained_length, FACTORS).round(3).tolist():
        if method == "longrope":  # the wavelengths of NTK scaling, with LongRoPE's attention factor
            pairs = shape.head_dim // 2
            stretch = tuple(factor ** (j / (pairs - 1)) for j in range(pairs))
            yield Frequency("longrope", factors=stretch)
        else:
            yield Frequency(method, factor=factor)


def scores(model: object, tokenizer: object, examples: ExampleSet, profile: Profile) -> list[Score]:
    with apply_profile(model, profile, check=False) as handle:
        return [
            score
            for example in examples.examples
            for score in score_example(model, tokenizer, example, "teacher_forcing", handle=handle).scores
        ]


def main() -> None:
    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(HERE, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(HERE)
    shape = ModelShape.from_config(model.config, id="tiny-kv")
    print("| length | method | factor | held-out accuracy | 95 % interval | n |\n| --- | --- | --- | --- | --- | --- |")
    for stretch in (1, 2, 4, 8):
        length = stretch * shape.trained_length
        task = KVTask(length=length, contexts=4, questions=24, keys="hex4", values="hex4", answer="opened")
        search = task.build(tokenizer, 1, "search")
        heldout = task.at_length(length, 24).build(tokenizer, 2, "heldout")
        for method in ("native", "linear", "ntk", "dynamic_ntk", "yarn", "longrope"):
            tried = []
            for frequency in candidates(method, shape, length):
                profile = Profile(method, shape, length, frequency)
                found = values(scores(model, tokenizer, search, profile), "exact")
                tried.append((sum(found), profile))
            profile = max(tried, key=lambda pair: pair[0])[1]
            found = scores(model, tokenizer, heldout, profile)
            interval = bootstrap_mean(values(found, "exact"), [s.example_id for s in found], seed=0)
            factor = profile.frequency.factor
            if method == "longrope":
                factor = round(profile.frequency.factors[-1], 3)
            print(
                f"| {length} ({stretch}×) | {method} | {factor or '–'} | {interval.mean:.3f} "
                f"| {interval.low:.3f} – {interval.high:.3f} | {len(found)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
