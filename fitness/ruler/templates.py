"""Prompt templates of RULER, NVIDIA/RULER, `scripts/data/synthetic/constants.py` and `niah.py` (Apache License 2.0,
Copyright (c) 2024 NVIDIA CORPORATION). Word for word, the misspelling included: other words would give other scores.

Changed: placeholders are named for this package; each template is cut where the context ends, so that questions can
share it; and the answer's beginning of variable tracking loses its trailing space, as in lm-evaluation-harness, because
a token boundary after the space would split the first variable from it.
"""

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
NEEDLE = "One of the special magic {form} for {key} is: {value}."

NEEDLE_CONTEXT = (
    "Some special magic {form} are hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the {form} afterwards.\n{context}"
)
NEEDLE_QUERY = "\nWhat are all the special magic {form} for {query} mentioned in the provided text?"
NEEDLE_ANSWER = " The special magic {form} for {query} mentioned in the provided text are"

TRACKING_CONTEXT = "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{context}"
TRACKING_QUERY = "\nQuestion: Find all variables that are assigned the value {value} in the text above."
TRACKING_ANSWER = (
    " Answer: According to the chain(s) of variable assignment in the text above, "
    "{count} variables are assgined the value {value}, they are:"
)

COMMON_CONTEXT = (
    "Below is a numbered list of words. In these words, some appear more often than others. "
    "Memorize the ones that appear most often.\n{context}"
)
COMMON_QUERY = "\nQuestion: What are the 10 most common words in the above list?"
COMMON_ANSWER = " Answer: The top 10 words that appear most often in the list are:"

FREQUENT_CONTEXT = (
    "Read the following coded text and track the frequency of each coded word. "
    "Find the three most frequently appeared coded words. {context}"
)
FREQUENT_QUERY = (
    "\nQuestion: Do not provide any explanation. Please ignore the dots '....'. "
    "What are the three most frequently appeared words in the above coded text?"
)
FREQUENT_ANSWER = " Answer: According to the coded text above, the three most frequently appeared words are:"

DOCUMENT = "Document {number}:\n{document}"
QA_INSTRUCTION = (
    "Answer the question based on the given documents. Only give me the answer and do not output any other words."
)
QA_CONTEXT = QA_INSTRUCTION + "\n\nThe following are given documents.\n\n{context}"
QA_QUERY = "\n\n" + QA_INSTRUCTION + "\n\nQuestion: {query}"
QA_ANSWER = " Answer:"
