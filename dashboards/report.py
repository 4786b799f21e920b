"""One self-contained HTML file per campaign: summary first, then the evidence, then all that is needed to repeat it.

It opens offline: styles and figures are inside, nothing is fetched. Everything that comes from the campaign is escaped.
"""

import html
import json
import logging
import posixpath
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import fsspec

from dashboards.artifacts import campaign_yaml
from dashboards.figures import svg
from dashboards.findings import ROW_ORDER, interval, model_name, row, sentences, table, title
from dashboards.gallery import drawn
from dashboards.mlflow_store import redacted
from dashboards.record import Record
from dashboards.throughput import duration
from search.events import CampaignFailed, CampaignFinished, CampaignStopped, Event

NAME = "report.html"
_log = logging.getLogger(__name__)

STYLE = """
:root { color-scheme: light dark;
  --paper: #fff; --ink: #1b1f25; --soft: #5b6470; --line: #d7dce2; --mark: #eef4fa; --blue: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #15181d; --ink: #e6e9ed; --soft: #a0a9b4; --line: #363c45; --mark: #1e2833; --blue: #4ba3e3; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 74rem; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; }
p.about, caption { color: var(--soft); }
.summary { background: var(--mark); border-left: 4px solid var(--blue); padding: .75rem 1rem; margin: 1rem 0; }
.summary p { margin: .35rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .5rem; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: right; vertical-align: top; }
td { white-space: nowrap; } td:first-child { white-space: normal; min-width: 11rem; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
tr.winner { background: var(--mark); font-weight: 600; }
svg { display: block; width: 100%; max-width: 56rem; height: auto; margin: .75rem 0; }
pre { background: var(--mark); padding: .75rem 1rem; overflow-x: auto; font-size: .82rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.25rem; margin: .5rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
"""


class HtmlReport:
    """A listener that writes `report.html` when the campaign ends, also when it stopped or failed.

    Args:
        folder: of the campaign, a local path or any fsspec URL.
    """

    def __init__(self, folder: str | Path):
        self.folder = str(folder)
        self.record = Record()

    def __call__(self, event: Event) -> None:
        self.record.add(event)
        if isinstance(event, (CampaignFinished, CampaignStopped, CampaignFailed)) and self.record.started is not None:
            try:
                write(self.folder, page(self.record).encode())
            except OSError as error:  # a report that cannot be written does not undo the campaign
                _log.warning("%s in %s could not be written: %s", NAME, self.folder, error)


def write(folder: str, data: bytes) -> None:
    """Replace the report whole: by renaming on a local disk; elsewhere an upload is seen when it is complete."""
    fs, root = fsspec.core.url_to_fs(folder)
    fs.makedirs(root, exist_ok=True)
    path = posixpath.join(root, NAME)
    local = "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)
    beside = f"{path}.new" if local else path
    with fs.open(beside, "wb") as file:
        file.write(data)
    if local:
        Path(beside).replace(path)


def page(record: Record) -> str:
    """The report of a campaign that has started, with whatever it has come to."""
    started, report = record.started, record.report
    heading = (
        f"{started.campaign_id}: RoPE scale for {model_name(started)} at {started.campaign['target_length']} tokens"
    )
    parts = [f"<h1>{_e(heading)}</h1>", f'<p class="about">{_e(_about(record))}</p>', _summary(record)]
    parts.append("<h2>Evidence</h2>")
    if report is not None:
        headers, rows = table(report)
        parts.append(_table(title(report), headers, rows))
        parts.append(
            '<p class="about">“Winner − this” is the paired difference on the same questions; intervals are bootstrap '
            "intervals over contexts. “Search” scores are on the search's own examples, on which each profile was "
            "chosen, so they flatter it; compare the held-out scores.</p>"
        )
    parts += [svg(figure, f"{name}: see the tables") for name, figure in drawn(record).items()]
    if report is not None and (positions := _positions(report)) is not None:
        parts.append(_table(f"By gold position. {title(report)}", *positions))
    if report is not None and (by_part := _parts(report)) is not None:
        parts.append(_table(f"By part of the composite, each in its own metric. {title(report)}", *by_part))
    parts += ["<h2>To repeat it</h2>", *_repeat(record)]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_e(heading)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _e(text: Any) -> str:
    return html.escape(str(text))


def _about(record: Record) -> str:
    state = record.status if record.reason is None else f"{record.status} ({record.reason})"
    if record.finished is None:
        return f"Campaign {state}."
    cost = record.finished.result["cost"]
    return (
        f"Campaign {state}: {cost['evaluations']} evaluations, {cost['tokens']:,} tokens, {duration(cost['seconds'])}."
    )


def _summary(record: Record) -> str:
    if record.report is None:
        said = ["The campaign has not come to its held-out report; what follows is from the search's own examples."]
    else:
        said = sentences(record.report)
    return '<div class="summary">' + "".join(f"<p>{_e(s)}</p>" for s in said) + "</div>"


def _table(caption: str, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{_e(h)}</th>" for h in headers)
    lines = (
        f"<tr{' class=winner' if cells[0].startswith('winner') else ''}>" + "".join(f"<td>{_e(c)}</td>" for c in cells)
        for cells in rows
    )
    body = "</tr>\n".join(lines)
    return (
        f'<div class="wide"><table><caption>{_e(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tr></tbody></table></div>"
    )


def _positions(report: dict[str, Any]) -> tuple[list[str], list[list[str]]] | None:
    rows = [r for name in ROW_ORDER if (r := row(report, name)) is not None and r.get("by_position")]
    if not rows:
        return None
    cells = [{p["position"]: p for p in r["by_position"]} for r in rows]
    positions = sorted({position for by in cells for position in by})
    lines = [
        [str(p), str(next(by[p]["n"] for by in cells if p in by)), *(interval(by.get(p)) for by in cells)]
        for p in positions
    ]
    return ["position", "n", *(r["name"] for r in rows)], lines


def _parts(report: dict[str, Any]) -> tuple[list[str], list[list[str]]] | None:
    rows = [r for name in ROW_ORDER if (r := row(report, name)) is not None and r.get("parts")]
    if not rows:
        return None
    lines = [
        [
            part["part"],
            f"{part['metric']}, share {part['share']:.0%}",
            str(part["n"]),
            *(interval(r["parts"][i]) for r in rows),
            *(interval(r["parts"][i]["normalised"]) for r in rows),
        ]
        for i, part in enumerate(rows[0]["parts"])
    ]
    return ["part", "metric", "n", *(r["name"] for r in rows), *(f"{r['name']}, 0 to 1" for r in rows)], lines


def _repeat(record: Record) -> list[str]:
    started = record.started
    revision = started.versions.get("code_revision")
    facts = {
        "command": f"ropewalk run campaign.yaml --id {started.campaign_id}",
        "folder": redacted(started.folder),
        "seed": started.campaign["seed"],
        "model": started.campaign["model"]["id"],
        "model fingerprint": started.fingerprint,
        "code revision": revision or "not a git checkout",
    }
    facts |= {name: v for name, v in started.versions.items() if v and name != "code_revision"}
    for name, examples in started.examples.items():
        facts[f"{name} examples"] = ", ".join(f"{key} {value}" for key, value in examples.items())
    listed = "".join(f"<dt>{_e(key)}</dt><dd>{_e(value)}</dd>" for key, value in facts.items())
    parts = [f"<dl>{listed}</dl>"]
    parts.append(f"<h3>campaign.yaml, resolved</h3><pre>{_e(campaign_yaml(started.campaign))}</pre>")
    profile = record.finished.profile if record.finished else record.improved.profile if record.improved else None
    if profile is not None:
        text = json.dumps(profile, indent=1, ensure_ascii=False)
        parts.append(f"<h3>profile.json</h3><pre>{_e(text)}</pre>")
        code = (
            "from ropewalk import apply_profile, load_profile\n\n"
            'with apply_profile(model, load_profile("profile.json")):\n    model.generate(**inputs)'
        )
        parts.append(f"<h3>To apply it</h3><pre>{_e(code)}</pre>")
    return parts
