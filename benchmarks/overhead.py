"""What the patch costs: a patched forward pass against an unpatched one, side by side in one run.

    python -m benchmarks.overhead [--model DIR] [--length 1024] [--rounds 15]

By default a random Llama of SmolLM2-135M's shape. The two are timed in alternation and the ratio is taken round by
round, so a change of the machine's speed hits both. Aim: the median ratio within 1 % for every method.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM

from ropewalk import Frequency, ModelShape, Profile, apply_profile
from workers import ModelSpec
from workers.loading import load_model

SMOLLM2 = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    "tie_word_embeddings": True,
}


def profiles(shape: ModelShape, target: int) -> dict[str, Profile]:
    """One profile a method, with a different factor in every layer: the dearest case."""
    factors = tuple(1.0 + 0.1 * layer for layer in range(shape.num_layers))
    made = {m: Frequency(m, factor=factors) for m in ("linear", "ntk", "dynamic_ntk", "yarn")}
    made["linear, uniform"] = Frequency("linear", factor=2.0)
    return {name: Profile(name, shape, target, frequency) for name, frequency in made.items()}


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="local folder or Hub id (default: random weights)")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.model:
        model = load_model(ModelSpec(id=args.model)).model
    else:
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(**SMOLLM2)).eval()
    shape = ModelShape.from_config(model.config, id=args.model or "random SmolLM2-135M shape")
    ids = torch.randint(0, model.config.vocab_size, (1, args.length), generator=torch.Generator().manual_seed(0))

    def forward() -> None:
        with torch.inference_mode():
            model(ids, use_cache=False, logits_to_keep=1)

    title = f"{shape.id}, {args.length} tokens, {args.threads} threads, {model.dtype}, {args.rounds} rounds"
    table = Table(
        "method", "unpatched s", "patched s", "ratio: median", "lower quartile", "upper quartile", title=title
    )
    forward()
    for name, profile in profiles(shape, 4 * shape.trained_length).items():
        plain, patched = [], []
        for _ in range(args.rounds):
            plain.append(seconds(forward))
            with apply_profile(model, profile, check=False):
                patched.append(seconds(forward))
        ratios = [b / a for a, b in zip(plain, patched, strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4)
        middle = statistics.median(ratios)
        table.add_row(
            name,
            f"{statistics.median(plain):.3f}",
            f"{statistics.median(patched):.3f}",
            f"{middle:.4f}",
            f"{low:.4f}",
            f"{high:.4f}",
        )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
