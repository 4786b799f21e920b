"""InfiniteBench's metric of each task, one output against its references.

They follow the published evaluation (OpenBMB/InfiniteBench, `src/compute_scores.py` at 88b3daa), with what it leaves to
chance: only the first of a run of digits counts, a sign never does, and a letter may be taken for an option wherever it
stands. Where that code would stop on an output (a decimal where an integer is asked for), the output is wrong here.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

LETTERS = "ABCD"
PUNCTUATION = str.maketrans("", "", string.punctuation)
# CJK and full-width punctuation, which the published normalisation of Chinese answers drops beside ASCII's.
FULL_WIDTH = "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】"
OTHERS = "〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏"
CHINESE = str.maketrans("", "", string.punctuation + FULL_WIDTH + OTHERS)

References = tuple[str, ...]


def _spaced(text: str, pieces: Iterable[str]) -> str:
    for piece in pieces:
        text = text.replace(piece, " ")
    return text


def _words(text: str) -> list[str]:
    return _spaced(text, "\n:\"'.,?!{}").split()


def first_integer(output: str, references: References) -> float:
    """1.0 if the first run of digits is the reference: passkey and number string."""
    digits = re.search(r"[0-9]+", output)
    return float(digits is not None and digits[0] == references[0])


def kv_retrieval(output: str, references: References) -> float:
    """1.0 if the reference is a word of the output."""
    return float(references[0] in _words(output))


def code_run(output: str, references: References) -> float:
    """1.0 if the last word is the reference, as integers."""
    words = _spaced(output, "\n.`'\":").split()
    try:
        return float(int(words[-1]) == int(references[0]))
    except (ValueError, IndexError):
        return 0.0


def _after_prefix(text: str, prefixes: Iterable[str]) -> str | None:
    """What follows the first of the prefixes that occurs, and the one character behind it; None if none does."""
    for prefix in prefixes:
        place = text.find(prefix)
        if place >= 0:
            return text[place + len(prefix) + 1 :]
    return None


def code_debug(output: str, references: References) -> float:
    """1.0 if the output starts with the letter of the function, or names either of them after `answer is:` or the like.

    Args:
        references: the function's name, and its letter among the options.
    """
    name, letter = references
    text = output.strip()
    if text[:2] in (f"{letter}.", f"{letter}:"):
        return 1.0
    text = _spaced(text, ("\n", "`", "'", '"', "-", "*", "Option", "option"))
    answer = _after_prefix(re.sub(" {2,}", " ", text), ("answer is:", "is:", "answer:", "correct option is:"))
    return float(bool(answer) and answer.startswith((letter, name)))


def math_find(output: str, references: References) -> float:
    """1.0 if the first number is the reference; of the kind that the reference is, integer or decimal."""
    number = re.search(r"\d+\.\d+|\d+", output)
    if number is None:
        return 0.0
    if "." in references[0]:
        return float(float(number[0]) == float(references[0]))
    return float("." not in number[0] and int(number[0]) == int(references[0]))


def math_calc(output: str, references: References) -> float:
    """The share of the references that the output gives in their order before its first wrong number."""
    numbers = map(int, re.findall(r"[0-9]+", output))
    right = 0
    for number, reference in zip(numbers, references, strict=False):
        if number != int(reference):
            break
        right += 1
    return right / len(references)


def longdialogue_qa(output: str, references: References) -> float:
    """1.0 if the first reference is a word of the output in upper case."""
    return float(references[0] in [word.upper() for word in _words(output)])


def longbook_choice(output: str, references: References) -> float:
    """1.0 if the option that the output names is the right one.

    Args:
        references: the text of the right option and its letter.
    """
    text = output.strip()
    if not text:
        return 0.0
    if text[0] in LETTERS:
        return float(text[0] in references)
    if text in references:
        return 1.0
    text = re.sub(" {2,}", " ", _spaced(text, "\n\"'.,?!{}"))
    answer = _after_prefix(text, ("answer is:", "answer:", "answer is", "option is"))
    if answer is not None:
        return float(bool(answer) and answer.startswith(references))
    named = next((word for word in text.split() if word in LETTERS), None)
    return float(named in references)


def f1(output: Sequence[str], reference: Sequence[str]) -> float:
    """Harmonic mean of precision and recall of the tokens in common, each as often as it occurs in both."""
    same = sum((Counter(output) & Counter(reference)).values())
    return 2 * same / (len(output) + len(reference)) if same else 0.0


def _english(text: str) -> list[str]:
    return re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(PUNCTUATION)).split()


def _chinese(text: str) -> list[str]:
    return list("".join(text.lower().translate(CHINESE).split()))


def longbook_qa_eng(output: str, references: References) -> float:
    """The best F1 of words, after SQuAD's normalisation."""
    return max(f1(_english(output), _english(reference)) for reference in references)


def longbook_qa_chn(output: str, references: References) -> float:
    """The best F1 of characters, without punctuation and white space."""
    return max(f1(_chinese(output), _chinese(reference)) for reference in references)


def rouge_lsum(output: str, references: References) -> float:
    """The best ROUGE-Lsum F1 (Lin, 2004, summary level): lines are sentences, as the package rouge_score has it."""
    return max(_summary_f1(_sentences(output), _sentences(reference)) for reference in references)


def _sentences(text: str) -> list[list[str]]:
    return [re.sub("[^a-z0-9]+", " ", line.lower()).split() for line in text.split("\n")]


def _summary_f1(output: Sequence[Sequence[str]], reference: Sequence[Sequence[str]]) -> float:
    """Hits are the words of each reference sentence in its longest common subsequence with any output sentence; a word
    hits no more often than it occurs in either text."""
    left = Counter(word for sentence in output for word in sentence)
    most = Counter(word for sentence in reference for word in sentence)
    total = left.total() + most.total()
    hits = 0
    for sentence in reference:
        union = sorted({i for other in output for i in _common(sentence, other)})
        for word in (sentence[i] for i in union):
            if left[word] and most[word]:
                hits += 1
                left[word] -= 1
                most[word] -= 1
    return 2 * hits / total if hits else 0.0


def _common(reference: Sequence[str], output: Sequence[str]) -> list[int]:
    """Indices of a longest common subsequence in the reference; of several, the one that rouge_score finds."""
    table = [[0] * (len(output) + 1)]
    for word in reference:
        above, row = table[-1], [0]
        for j, other in enumerate(output):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
        table.append(row)
    found, i, j = [], len(reference), len(output)
    while i and j:
        if reference[i - 1] == output[j - 1]:
            i, j = i - 1, j - 1
            found.append(i)
        elif table[i][j - 1] > table[i - 1][j]:
            j -= 1
        else:
            i -= 1
    return found


SCORES: dict[str, Callable[[str, References], float]] = {
    "infinitebench_code_debug": code_debug,
    "infinitebench_code_run": code_run,
    "infinitebench_kv_retrieval": kv_retrieval,
    "infinitebench_longbook_choice_eng": longbook_choice,
    "infinitebench_longbook_qa_chn": longbook_qa_chn,
    "infinitebench_longbook_qa_eng": longbook_qa_eng,
    "infinitebench_longbook_sum_eng": rouge_lsum,
    "infinitebench_longdialogue_qa_eng": longdialogue_qa,
    "infinitebench_math_calc": math_calc,
    "infinitebench_math_find": math_find,
    "infinitebench_number_string": first_integer,
    "infinitebench_passkey": first_integer,
}
