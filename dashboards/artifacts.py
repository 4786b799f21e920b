"""A campaign as text: its settings flat and as YAML, a generation as CSV, the whole as a Markdown note."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from dashboards.findings import model_name, sentences, table, title
from dashboards.mlflow_store import redacted
from dashboards.record import Record
from dashboards.throughput import duration
from search.events import GenerationFinished

LONGEST_PARAM = 500  # characters; longer values are in campaign.yaml, whole, instead of here, cut
NOT_COMPARED = ("schema", "name", "storage", "tracking")
LONGEST_NOTE = 7500  # characters; MLflow refuses tags of more than 8,000


def note(record: Record) -> str:
    """The Markdown that MLflow shows above the run."""
    started, report = record.started, record.report
    lines = [f"Campaign **{started.campaign_id}** on {model_name(started)}: {record.status}."]
    if record.reason:
        lines += ["", f"Reason: {record.reason}"]
    if report is not None:
        headers, rows = table(report)
        lines += ["", *(f"- {s}" for s in sentences(report)), "", f"**{title(report)}**", ""]
        lines += [_markdown(headers), _markdown(["---"] * len(headers)), *(_markdown(r) for r in rows)]
    if record.finished is not None:
        cost = record.finished.result["cost"]
        lines += [
            "",
            f"Cost: {cost['evaluations']} evaluations, {cost['tokens']:,} tokens, {duration(cost['seconds'])}.",
        ]
        lines += ["", f"Take the winner home: `ropewalk download {started.campaign_id} -o profile.json`"]
    text = "\n".join(lines)
    return (
        text
        if len(text) <= LONGEST_NOTE
        else f"{text[:LONGEST_NOTE]}\n\n(The rest of this note is in heldout/report.json.)"
    )


def campaign_yaml(campaign: dict[str, Any]) -> str:
    """The resolved campaign, fit to be run again; user names and passwords in URIs are left out."""
    return yaml.safe_dump(_without_secrets(campaign), sort_keys=False, allow_unicode=True)


def flattened(campaign: dict[str, Any]) -> dict[str, str]:
    """The campaign's scalar settings by dotted key, stages by name; what MLflow could not hold whole is left out."""
    flat: dict[str, str] = {}

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                add(f"{prefix}.{key}" if prefix else str(key), inner)
        elif isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
            for i, inner in enumerate(value):
                add(f"{prefix}.{inner.get('name', i)}", inner)
        elif value is not None and len(text := text_of(value)) < LONGEST_PARAM:
            flat[prefix] = text

    add("", _without_secrets({k: v for k, v in campaign.items() if k not in NOT_COMPARED}))
    return flat


def individuals_csv(event: GenerationFinished) -> str:
    """One line per individual, best first, failed ones last with their reason."""
    ordered = sorted(event.individuals, key=lambda i: (i.score is None, -(i.score or 0.0)))
    genes, layers = len(event.best_genome), len(event.best_factors)
    header = ["score", "origin", "hash", "reason"]
    header += [f"gene_{i}" for i in range(genes)] + [f"layer_{i}" for i in range(layers)]
    rows = [
        ["" if i.score is None else i.score, i.origin, i.hash, i.reason or "", *i.genome, *i.factors] for i in ordered
    ]
    return csv_text([header, *rows])


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _markdown(cells: Sequence[str]) -> str:
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_secrets(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(v) for v in value]
    return redacted(value) if isinstance(value, str) else value
