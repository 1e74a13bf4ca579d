"""The report: one HTML page that needs nothing beside it, and the same as Markdown with its pictures."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from semistream.experiments.claims import CLAIMS
from semistream.experiments.grid_report import KeptGrid
from semistream.experiments.plots import draw
from semistream.experiments.registry import operators_of, source_of
from semistream.experiments.runner import Reproduction, StudyResult
from semistream.experiments.scale import Scale
from semistream.experiments.tables import table_name, write_tables
from semistream.experiments.tuning import BLOCK_BYTES, SCAN_SHARE
from semistream.experiments.verdicts import CLOSE, Verdict

SCALING = (
    "At a scale below the papers' sizes a master, the memory, the disk buffer and what an access costs before its first byte "
    "(seek, rotation, command) shrink by the same factor. As many times fewer tuples share an access, so tuples per second are "
    "those of the full size. Where a read would answer only a tuple or two, a study runs at a finer scale: FINER in its file. An index nested loop reads a page a tuple, whatever the master's size; for it the disk stays as it is."
)
CLOCKS = (
    "hdd-2007 is a virtual clock: every page that the join reads, and every tuple that it probes, keeps, removes and puts out, is "
    "counted and priced as on a machine and a disk of that time. The same seed gives the same numbers on any machine. "
    "This machine is the wall clock, with direct reads and the product's own settings, at the size of this run."
)
MODELS = (
    "The cost models are given the virtual clock's own prices. So a claim about a model tells whether its numbers of reads, probes and waiting "
    f"tuples are those of the run, within {100 * CLOSE:g} %, and not whether its prices are those of a real machine."
)
SETTINGS = (
    "The parameters of a point are the best by the cost model unless the study varies them. No model knows streams of many rows a key or of popularity "
    f"that moves, so M4, M6, C6 and C7 use constants: a scan's disk buffer has {100 * SCAN_SHARE:g} % of the memory, HYBRIDJOIN's block is {BLOCK_BYTES / 1e6:g} MB "
    "at the paper's size, and each share of the memory for hot rows that a figure names is tried. C11, C12 and C13 hold what they do not vary."
)
KEY_ONLY = (
    "At the papers' sizes CACHING's masters of up to 100 million rows are key-only: of a row's 120 bytes the 112 of payload, which no operator "
    "looks at, are zeros that the file system does not store. Pages, rows a page, bytes read and bytes in memory are those of whole rows, "
    "and so are all counts and prices; pages are of 128 KiB. Masters that an index nested loop looks up in are stored whole."
)
_MARKS = {"reproduced": "✓", "in part": "◐", "not reproduced": "✗", "not run": "·"}
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-top: 1px solid #ccc; padding-top: 1rem; }
table { border-collapse: collapse; width: 100%; font-size: 13px; table-layout: fixed; overflow-wrap: break-word; }
th, td { text-align: left; vertical-align: top; padding: .35rem .5rem; } td b, td span { white-space: nowrap; }
tbody { border-top: 1px solid #ddd; } tr.why td { padding-top: 0; color: #444; }
.reproduced { color: #1b6e2d; } .part { color: #8a5a00; } .not { color: #a3201d; } .none { color: #666; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; } a { color: #1f5fa8; }
tbody, section { break-inside: avoid; }
@page { size: A4; margin: 14mm; }
@media print { body { font-size: 9.5pt; max-width: none; margin: 0; padding: 0; } table { font-size: 8.5pt; } h2 { break-after: avoid; } }
"""
_COLUMNS = {  # and how wide each is, in per cent
    "": 6,
    "claim": 26,
    "paper": 17,
    "ours, hdd-2007": 21,
    "ours, this machine": 13,
    "verdict": 17,
}


@dataclass(frozen=True)
class Row:
    """One line of the summary."""

    claim: str
    paper: str
    says: str
    numbers: str
    ours: str
    on_machine: str
    outcome: str
    why: str
    studies: tuple[str, ...]


def notes(scale: Scale) -> list[str]:
    """What a reader must know about the clocks and the sizes of a run."""
    return [CLOCKS, MODELS, SETTINGS, KEY_ONLY if scale.key_only else SCALING]


def summary(reproduction: Reproduction) -> list[Row]:
    """A row a claim."""
    rows = []
    for name in reproduction.claims:
        claim, verdict = CLAIMS[name], reproduction.verdict(name)
        machine = reproduction.verdict(name, on_machine=True)
        studies = tuple(r.study.name for r in reproduction.results if name in r.study.claims)
        rows.append(
            Row(
                name,
                claim.paper,
                claim.says,
                claim.numbers,
                verdict.ours,
                _on_machine(machine),
                verdict.outcome,
                verdict.why,
                studies,
            )
        )
    return rows


def _on_machine(verdict: Verdict) -> str:
    """What this machine gave, and which parts do not hold on it."""
    failed = f"; does not hold: {'; '.join(verdict.failed)}" if verdict.failed else ""
    return f"{verdict.ours} ({verdict.outcome}{failed})" if verdict.ours else ""


def _details(result: StudyResult) -> list[tuple[str, str]]:
    """By claim, what a row of the summary has no room for."""
    return [(claim, verdict.details) for claim, verdict in result.verdicts.items() if verdict.details]


def counts(rows: list[Row]) -> str:
    """How many claims came out how."""
    outcomes = [row.outcome for row in rows]
    return ", ".join(f"{outcomes.count(kind)} {kind}" for kind in _MARKS if kind in outcomes)


def write_report(reproduction: Reproduction, out: Path) -> Path:
    """Everything below `out`: report.html, README.md with figures/, csv/, summary.json, manifest.json."""
    out.mkdir(parents=True, exist_ok=True)
    rows = summary(reproduction)
    write_tables(reproduction, out)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    figures = {r.study.name: draw(r.run) for r in reproduction.results if r.run is not None}
    for name, svg in figures.items():
        (out / "figures" / f"{name}.svg").write_text(svg)
    (out / "manifest.json").write_text(json.dumps(reproduction.manifest, indent=2) + "\n")
    (out / "summary.json").write_text(json.dumps([vars(row) for row in rows], indent=2) + "\n")
    (out / "README.md").write_text(as_markdown(reproduction, rows, out))
    page = out / "report.html"
    page.write_text(as_html(reproduction, rows, figures, out))
    return page


def as_html(reproduction: Reproduction, rows: list[Row], figures: dict[str, str], out: Path) -> str:
    """The page."""
    told = ", ".join(
        f"{key}: {value}" for key, value in reproduction.manifest.items() if key not in ("claims", "versions")
    )
    body = [
        "<h1>The papers' claims, rerun</h1>",
        f"<p>{html.escape(counts(rows))}. Scale <b>{reproduction.scale.name}</b>, seed {reproduction.seed}.</p>",
        *(f"<p>{html.escape(note)}</p>" for note in notes(reproduction.scale)),
        _html_table(rows, _sources(reproduction, out)),
        *([grid.as_html()] if (grid := KeptGrid.find(out)) is not None else []),
        *(_html_study(reproduction, result, figures, out) for result in reproduction.results),
        f"<h2>The run</h2><p>{html.escape(told)}</p>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>The papers\' claims, rerun</title>'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _sources(reproduction: Reproduction, out: Path) -> dict[str, str]:
    """Where each study is written, so that a row leads there in one click; its operators are one further, beside its figure."""
    return {r.study.name: _relative(source_of(r.study), out) for r in reproduction.results}


def _html_table(rows: list[Row], sources: Mapping[str, str]) -> str:
    head = "".join(f'<th style="width: {width}%">{name}</th>' for name, width in _COLUMNS.items())
    lines = []
    for row in rows:
        links = ", ".join(
            f'<a href="#{name}">{name}</a> (<a href="{html.escape(sources[name])}">study</a>)'
            for name in row.studies
        )
        style = {"reproduced": "reproduced", "in part": "part", "not reproduced": "not"}.get(
            row.outcome, "none"
        )
        cells = (
            f"<b>{row.claim}</b>",
            f"{html.escape(row.says)}<br>{links}",
            f"{row.paper}{': ' if row.numbers else ''}{html.escape(row.numbers)}",
            html.escape(row.ours),
            html.escape(row.on_machine),
            f'<span class="{style}">{_MARKS[row.outcome]} {row.outcome}</span>',
        )
        line = "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        if row.why:
            line += f'<tr class="why"><td></td><td colspan="{len(cells) - 1}"><i>Why it differs:</i> {html.escape(row.why)}</td></tr>'
        lines.append(f"<tbody>{line}</tbody>")
    return f"<table><thead><tr>{head}</tr></thead>\n" + "\n".join(lines) + "\n</table>"


def _html_study(reproduction: Reproduction, result: StudyResult, figures: dict[str, str], out: Path) -> str:
    study = result.study
    links = " · ".join(
        f'<a href="{html.escape(target)}">{html.escape(text)}</a>'
        for text, target in _links(result, reproduction.scale, out)
    )
    figure = figures.get(study.name, f"<p>Not run: {html.escape(result.why_not)}</p>")
    details = "".join(f"<p><b>{claim}.</b> {html.escape(text)}</p>" for claim, text in _details(result))
    return (
        f'<section><h2 id="{study.name}">{html.escape(study.title)}</h2><p>{html.escape(study.figure)}. Claims '
        f"{', '.join(study.claims)}. {links}</p><figure>{figure}</figure>{details}</section>"
    )


def _links(result: StudyResult, scale: Scale, out: Path) -> list[tuple[str, str]]:
    """The study's file, its operators', its numbers."""
    study = result.study
    found = [("study", _relative(source_of(study), out))]
    algorithms = dict.fromkeys(case.algorithm for case in study.points(scale).values())
    found += [(path.name, _relative(path, out)) for path in operators_of(list(algorithms))]
    if result.run is not None:
        found.append(("CSV", f"csv/{table_name(study.name)}"))
    if result.machine is not None:
        found.append(("CSV of this machine", f"csv/{table_name(study.name, on_machine=True)}"))
    return found


def _relative(path: Path, out: Path) -> str:
    return Path(os.path.relpath(path.resolve(), out.resolve())).as_posix()


def as_markdown(reproduction: Reproduction, rows: list[Row], out: Path) -> str:
    """The same for people who read the repository."""
    text = [
        "# The papers' claims, rerun\n",
        f"{counts(rows)}. Made by `semistream reproduce --scale {reproduction.scale.name} --seed {reproduction.seed}`; "
        "[manifest](manifest.json), [page to print](report.html).\n",
        *(f"{note}\n" for note in notes(reproduction.scale)),
        "| | claim | paper | ours, hdd-2007 | ours, this machine | verdict | why it differs |",
        "|---|---|---|---|---|---|---|",
    ]
    sources = _sources(reproduction, out)
    for row in rows:
        studies = ", ".join(f"[{name}](#{name}) ([study]({sources[name]}))" for name in row.studies)
        numbers = f"{row.paper}{': ' if row.numbers else ''}{row.numbers}"
        cells = (
            row.claim,
            f"{row.says} {studies}",
            numbers,
            row.ours,
            row.on_machine,
            f"{_MARKS[row.outcome]} {row.outcome}",
            row.why,
        )
        text.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    grid = KeptGrid.find(out)
    if grid is not None:
        text.append(grid.as_markdown())
    for result in reproduction.results:
        study = result.study
        links = " · ".join(f"[{name}]({target})" for name, target in _links(result, reproduction.scale, out))
        text.append(
            f'\n<a id="{study.name}"></a>\n\n## {study.title}\n\n{study.figure}. Claims {", ".join(study.claims)}. {links}\n'
        )
        text.append(
            f"![{study.title}](figures/{study.name}.svg)" if result.run else f"Not run: {result.why_not}"
        )
        text += [f"\n**{claim}.** {details}" for claim, details in _details(result)]
    return "\n".join(text) + "\n"
