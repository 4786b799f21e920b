"""Official key-value files: read as they are, dealt out to disjoint splits, refused with file and line."""

import gzip
import json
import re
from pathlib import Path

import pytest

from fitness.errors import TaskError
from fitness.kv import KVTask
from fitness.rows import read_rows

OFFICIAL = Path(__file__).parents[3] / "shared/data/kv-retrieval-75_keys.jsonl.gz"
SPLITS = ("search", "heldout", "guard", "validation")


def pairs_in(context):
    return re.findall(r'"([^"]+)": "([^"]+)"', context)


@pytest.fixture(params=["written", *(["official"] if OFFICIAL.exists() else [])])
def file(request, official_lines, tmp_path):
    """A small gzip file of the official form, and the official file itself where it is at hand."""
    if request.param == "official":
        return str(OFFICIAL)
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(official_lines).encode()))
    return str(path)


@pytest.fixture
def lines(file):
    with gzip.open(file, "rt", encoding="utf-8") as handle:
        return [json.loads(line) for line in handle]


def test_every_row_is_read_as_written(file, lines):
    for row, line in zip(read_rows(file), lines, strict=True):
        assert [list(pair) for pair in row.records] == line["ordered_kv_records"]
        assert row.records[row.gold] == (line["key"], line["value"])


def test_a_plain_file_gives_the_same_rows_as_a_compressed_one(file, lines, written):
    plain = written([json.dumps(line) for line in lines])
    assert list(read_rows(plain)) == list(read_rows(file))


def test_splits_share_no_row_whatever_their_seeds(file, tokenizer):
    seen = set()
    for seed, split in enumerate(SPLITS):
        examples = KVTask(pairs=5, file=file, contexts=3).build(tokenizer, seed, split)
        keys = {key for e in examples.examples for key, _ in pairs_in(e.context)}
        assert not seen & keys
        seen |= keys


def test_a_context_is_the_beginning_of_its_row(file, lines, tokenizer):
    for example in KVTask(pairs=5, file=file, contexts=3).build(tokenizer, 0, "search").examples:
        row = lines[int(example.id.removeprefix("row-"))]["ordered_kv_records"]
        assert [list(pair) for pair in pairs_in(example.context)] == row[:5]


def test_the_official_protocol_takes_the_gold_pair_out_and_puts_it_back(file, lines, tokenizer):
    task = KVTask(pairs=5, file=file, contexts=2, protocol="official", positions=(0, 2, 4))
    for example in task.build(tokenizer, 0, "search").examples:
        line = lines[int(example.id.removeprefix("row-"))]
        gold = [line["key"], line["value"]]
        expected = [pair for pair in line["ordered_kv_records"] if pair != gold][:4]
        expected.insert(example.questions[0].position, gold)
        assert [list(pair) for pair in pairs_in(example.context)] == expected


def test_seeds_choose_among_the_rows_of_a_split(file, tokenizer):
    chosen = {
        tuple(e.id for e in KVTask(pairs=5, file=file, contexts=3).build(tokenizer, seed, "search").examples)
        for seed in range(5)
    }
    assert len(chosen) > 1


def test_a_length_beyond_the_rows_is_refused_with_what_they_fill(file, tokenizer):
    task = KVTask(length=100_000, file=file, contexts=1, questions=1)
    with pytest.raises(TaskError, match=r"length: got 100000; allowed: at most (\d+) tokens") as caught:
        task.build(tokenizer, 0, "search")
    filled = int(re.search(r"at most (\d+)", str(caught.value))[1])
    assert task.at_length(filled).build(tokenizer, 0, "search").length <= filled


def test_more_pairs_or_contexts_than_the_file_has_are_refused(file, tokenizer):
    with pytest.raises(TaskError, match=r"pairs: got 99; allowed: at most \d+, the pairs of a row"):
        KVTask(pairs=99, file=file, contexts=1).build(tokenizer, 0, "search")
    with pytest.raises(TaskError, match=r"contexts: got 999; allowed: at most \d+, the rows of .* in split guard"):
        KVTask(pairs=5, file=file, contexts=999).build(tokenizer, 0, "guard")


def test_a_missing_file_is_named():
    with pytest.raises(TaskError, match=r"file: got 'nowhere\.jsonl'.*No such file"):
        KVTask(pairs=5, file="nowhere.jsonl").build(None, 0, "search")


def test_an_empty_file_is_refused(written):
    with pytest.raises(TaskError, match="at least one row"):
        list(read_rows(written([])))


def test_a_file_cut_off_is_refused_with_its_line(tmp_path, official_lines):
    whole = gzip.compress("\n".join(official_lines).encode())
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TaskError, match=r"cut\.jsonl\.gz, line \d+'; allowed: a whole file"):
        list(read_rows(str(path)))


def test_a_file_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "noise.jsonl"
    path.write_bytes(b"\xff\xfe\x00 noise")
    with pytest.raises(TaskError, match="a whole file of JSON lines"):
        list(read_rows(str(path)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda row: row[:40], "delimiter|Unterminated|Expecting"),
        (lambda row: "[1, 2]", "it is of type list"),
        (lambda row: row.replace('"key"', '"kee"'), "key is missing"),
        (lambda row: row.replace("ordered_kv_records", "records"), "ordered_kv_records is missing"),
        (lambda row: json.dumps({**json.loads(row), "ordered_kv_records": []}), "at least two pairs"),
        (lambda row: json.dumps({**json.loads(row), "ordered_kv_records": [["a", 1], ["b", "c"]]}), "not a pair"),
        (lambda row: json.dumps({**json.loads(row), "value": "other"}), "not among the pairs"),
        (
            lambda row: json.dumps(
                {"ordered_kv_records": [["a", "b"], ["a", "c"], ["d", "e"]], "key": "d", "value": "e"}
            ),
            "a key occurs twice",
        ),
    ],
)
def test_a_garbled_line_is_refused_with_file_and_line(official_lines, written, change, says):
    official_lines[6] = change(official_lines[6])
    with pytest.raises(TaskError, match=rf"rows\.jsonl, line 7'.*({says})"):
        list(read_rows(written(official_lines)))
