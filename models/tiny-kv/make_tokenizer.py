"""Build the tokenizer of tiny-kv: byte-level, lossless on any text, one token per pair of hex digits.

The whole vocabulary follows from the text of the key-value prompt, so nothing is downloaded:

* the 256 bytes, so any text can be encoded and decoded back;
* the 256 pairs of hex digits, because a key is then two tokens and an answer needs several decoding steps, as in an
  8B model; they are split off only inside a quoted run of hex pairs, so English words stay whole;
* the JSON separators and the words of the instruction.
"""

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from fitness.kv import INSTRUCTION, KEY_LINE

HEX_PAIR = r'[0-9a-f]{2}(?=(?:[0-9a-f]{2})*")'
SPLIT = Regex(HEX_PAIR + r'|": "|",\n "|\n+| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+')


def corpus() -> list[str]:
    """Text in which every token the vocabulary should hold occurs."""
    pairs = [f"{i:02x}" for i in range(256)]
    objects = ['{"' + '",\n "'.join(f'{p}{p}": "{p}{p}' for p in pairs) + '"}'] * 4
    return objects + [INSTRUCTION, KEY_LINE.format(key="0000"), ' "0000"'] * 8


def build() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(SPLIT, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096,  # an upper bound: merges end when the corpus is used up
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", model_max_length=256
    )


if __name__ == "__main__":
    build().save_pretrained(Path(__file__).parent)
