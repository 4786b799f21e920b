"""Train tiny-kv from nothing on two CPU cores: `python models/tiny-kv/train.py` (about 15 minutes).

Two phases, both at no more than the trained length of 256 tokens, so that everything longer is extrapolation:

1. Copying: a segment of random tokens comes again after a random gap, later with separators of the prompt scattered
   over both. This makes the induction heads, and then teaches them to look past the punctuation between a key and its
   value; key-value retrieval from a random start stays at chance for a long time.
2. Key-value retrieval in the very text of `fitness.kv` prompts, over a curriculum of 2 to 36 pairs, with as
   many questions behind one context as fit, so that each sequence teaches more. While the contexts are short, some
   batches ask by repeating the pair as it stands in the object, a smaller step from copying to retrieval.

Batches are built as token ids with numpy; a check at the start shows that they are what the tokenizer gives.
"""

import argparse
import itertools
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from make_tokenizer import build  # noqa: E402

from fitness.kv import INSTRUCTION, KEY_LINE  # noqa: E402

TRAINED_LENGTH = 256
IGNORE = -100
PEAK_RATE = 2e-3
NOISY = 36  # content tokens of a copying sequence from which on separators are scattered over it
PROMOTE = 0.9  # running share of right tokens at which the curriculum moves on


class Batches:
    """Token-level batches of both phases, from one random generator.

    Each method gives tokens, labels, and a mask of the labels that have to be retrieved (the rest follow from form).
    """

    def __init__(self, tokenizer, seed: int):
        self.rng = np.random.default_rng(seed)
        ids = lambda text: tokenizer(text, add_special_tokens=False).input_ids  # noqa: E731
        self.hex_ids = np.array([ids(f'"{i:02x}"')[1] for i in range(256)])
        self.head = [tokenizer.bos_token_id, *ids(INSTRUCTION + '{"')]
        self.colon, self.comma, self.close = ids('": "'), ids('",\n "'), ids('"}')
        before, after = KEY_LINE.split("{key}")
        self.before, self.after, self.end = ids(before), ids(after + ' "'), ids('"')
        self.parts = [[], self.colon, self.comma, self.close + self.before, self.after, self.end + self.before]
        self.eos = tokenizer.eos_token_id

    def hex(self, *shape: int) -> np.ndarray:
        return self.hex_ids[self.rng.integers(0, 256, shape)]

    def part(self, usual: list[int], wild: float) -> list[int]:
        """The usual separator, or with probability `wild` any other one or none."""
        if self.rng.random() < wild:
            return self.parts[self.rng.integers(0, len(self.parts))]
        return usual

    def copying(self, batch: int, length: int, wild: float) -> tuple[torch.Tensor, ...]:
        """Random tokens of which a segment comes again, with separators scattered anew over both occurrences."""
        rows, targets = [], []
        for _ in range(batch):
            size = int(self.rng.integers(length // 4, length // 2 + 1))
            first = int(self.rng.integers(0, length - 2 * size + 1))
            second = int(self.rng.integers(first + size, length - size + 1))
            content = self.hex(length)
            content[second : second + size] = content[first : first + size]
            row, target = [], []
            for i, token in enumerate(content.tolist()):
                if wild:
                    row += self.part([], wild)
                target += [IGNORE] * (len(row) - len(target)) + [token if second + 2 <= i < second + size else IGNORE]
                row.append(token)
            rows.append(row)
            targets.append(target)
        width = max(map(len, rows))
        tokens = torch.tensor([row + [self.eos] * (width - len(row)) for row in rows])
        labels = torch.tensor([target + [IGNORE] * (width - len(target)) for target in targets])
        return tokens, labels, labels != IGNORE

    def longest(self, pairs: int) -> int:
        """The most questions that fit behind a context of `pairs` within the trained length."""
        tail = len(self.before) + len(self.after) + len(self.end) + 4
        return (TRAINED_LENGTH - len(self.head) - 6 * pairs - 1) // tail

    def key_value(self, batch: int, pairs: int, questions: int, wild: float) -> tuple[torch.Tensor, ...]:
        """The text of `fitness.kv` prompts, several questions behind one context; `wild` as in `part`."""
        rows, targets, firsts = [], [], []
        for _ in range(batch):
            codes = self.rng.choice(65536, pairs, replace=False)
            keys = self.hex_ids[np.stack([codes >> 8, codes & 255], 1)].tolist()
            values = self.hex(pairs, 2).tolist()
            row = list(self.head)
            for i in range(pairs):
                row += [*keys[i], *self.part(self.colon, wild), *values[i]]
                row += self.part(self.comma, wild) if i < pairs - 1 else self.close
            target, first = [], []
            for i in self.rng.integers(0, pairs, questions):
                row += [*self.part(self.before, wild), *keys[i], *self.part(self.after, wild)]
                target += [IGNORE] * (len(row) - len(target))
                first.append(len(row))
                row += values[i]
                target += values[i]
                row += self.end
                target += self.end if not wild else [IGNORE]
            row.append(self.eos)
            target.append(self.eos)
            rows.append(row[:TRAINED_LENGTH])
            targets.append(target[:TRAINED_LENGTH])
            firsts.append([i for i in first if i < TRAINED_LENGTH])
        width = max(map(len, rows))
        tokens = torch.tensor([row + [self.eos] * (width - len(row)) for row in rows])
        labels = torch.tensor([target + [IGNORE] * (width - len(target)) for target in targets])
        asked = torch.zeros_like(tokens, dtype=torch.bool)
        for mask, first in zip(asked, firsts, strict=True):
            mask[first] = True
        return tokens, labels, asked


def config(tokenizer) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=224,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=TRAINED_LENGTH,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=HERE)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=22.0, help="the learning rate falls to zero at the end of it")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens per step")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    tokenizer = build()
    batches = Batches(tokenizer, args.seed)
    check, _, _ = batches.key_value(1, 5, 2, 0.0)
    text = tokenizer.decode(check[0], skip_special_tokens=True)
    assert tokenizer(text).input_ids == check[0, :-1].tolist(), "batches differ from what the tokenizer gives"

    model = LlamaForCausalLM(config(tokenizer)).train()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.05)
    begin = time.monotonic()
    phase, size, recent = "copy", 24, 0.0  # size: the content tokens of a copying sequence, or the pairs of a context
    most = max(n for n in range(100) if batches.longest(n) >= 1)
    right = {"copy": 0.0, "wild": 0.0, "exact": 0.0}
    for step in itertools.count():
        done = (time.monotonic() - begin) / (60 * args.minutes)
        if done >= 1:
            break
        optimizer.param_groups[0]["lr"] = PEAK_RATE * min(1.0, (step + 1) / 100, (1 - done) / 0.35)
        if phase == "copy" and recent > (PROMOTE if size < NOISY else 0.7):
            size, recent = size + 12, 0.0
            if size > NOISY + 12:
                phase, size = "key-value", 5
        elif phase == "key-value" and recent > PROMOTE and size < most:
            size, recent = min(most, int(size * 1.25) + 1), 0.0
        kind = "copy"
        if phase == "key-value":
            early = 1.0 if size < 10 else 0.4 if size < 20 else 0.1
            kind = batches.rng.choice(["copy", "wild", "exact"], p=[0.3 * early, 0.3 * early, 1 - 0.6 * early])
        if kind == "copy":
            length = size if phase == "copy" else NOISY + 12
            wild = 0.0 if length < NOISY else 0.5
            width = length * (1 + 2 * wild)
            tokens, labels, asked = batches.copying(int(args.tokens / width), length, wild)
        else:
            pairs = size if batches.rng.random() < 0.6 else int(batches.rng.integers(2, size + 1))
            questions = batches.longest(pairs)
            if batches.rng.random() < 0.3:
                questions = int(batches.rng.integers(1, questions + 1))
            length = TRAINED_LENGTH - 17 * (batches.longest(pairs) - questions)
            wild = 0.5 if kind == "wild" else 0.0
            tokens, labels, asked = batches.key_value(args.tokens // length, pairs, questions, wild)
        out = model(tokens, use_cache=False).logits[:, :-1]
        gold = labels[:, 1:]
        keep = gold != IGNORE
        loss = torch.nn.functional.cross_entropy(out[keep].float(), gold[keep])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        asked = asked[:, 1:]
        share = float((out[asked].argmax(-1) == gold[asked]).float().mean())
        right[kind] = 0.9 * right[kind] + 0.1 * share
        if (kind == "copy" and phase == "copy") or kind == "exact":
            recent = 0.9 * recent + 0.1 * share
        if step % 50 == 0:
            shares = " ".join(f"{name} {value:.3f}" for name, value in right.items())
            print(f"{step} {phase} {size}: {shares}, {60 * args.minutes * done:.0f} s", flush=True)
    model.eval().save_pretrained(args.output)
    tokenizer.save_pretrained(args.output)


if __name__ == "__main__":
    main()
