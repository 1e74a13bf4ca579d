"""What the grid leaves: a CSV with every point, a heat map a disk, and a text that is computed from them.

They are in a folder of their own, `grid/`, beside the claims' report, which shows them where they are there: a rerun of the
claims leaves them as they are.
"""

from __future__ import annotations

import csv
import html
import io
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from semistream.experiments.case import Case, Measured
from semistream.experiments.grid import Contest, Outcome, outcomes
from semistream.experiments.heatmap import draw_winners
from semistream.experiments.studies import grid_winners
from semistream.experiments.studies.grid_winners import BY_POPULARITY, FULL_ROWS, UPDATES, Cell
from semistream.experiments.tables import COUNTS
from semistream.experiments.updating import CHANGED_SHARE
from semistream.experiments.verdicts import percent

FOLDER = "grid"
TITLE = "Which algorithm wins where"
_CLOSE = 1.02  # a lead that is none
_SETTINGS = ("disk_buffer", "block_pages", "front_share")


def introduction() -> str:
    """What was run, for people."""
    return (
        f"No paper's experiment: every algorithm and `auto` over skew, misses, memory, updates and disks, for a master of "
        f"{FULL_ROWS / 1e6:.0f} million rows of 120 bytes, shrunk as the claims' are; all are tuned by the cost model for each cell, "
        "counted by the real joins and priced on the disk's virtual clock. A miss asks for a key that the master does not have but "
        f"whose page it has. Updates are a new version of the master every {UPDATES[1] * FULL_ROWS / 1e6:.1f} million tuples, with "
        f"{percent(CHANGED_SHARE)} of its rows changed, anywhere; what moving on costs is counted. In-memory does not fit into any of "
        "these budgets. A colour and a name say which algorithm is fastest, the number is its rate as a multiple of auto's. A triangle marks "
        f"where a master stored in the order of popularity, over which {' and '.join(BY_POPULARITY)} run, would be faster than that, with "
        "its rate as a multiple of the winner's."
    )


def told(disk: str, contests: Sequence[Contest]) -> str:
    """Who won how often, how far auto was behind, and what an order by popularity would bring."""
    wins = Counter(contest.winner for contest in contests)
    share = "; ".join(f"{name} in {count}" for name, count in wins.most_common())
    leads = [contest.lead for contest in contests]
    worst = max(contests, key=lambda contest: contest.lead)
    best = sum(lead <= _CLOSE for lead in leads)
    ordered = [contest.by_popularity for contest in contests]
    faster = sum(factor > _CLOSE for factor in ordered)
    return (
        f"{disk}, {len(contests)} cells: fastest is {share}. The fastest has {median(leads):.2f} times auto's rate at the median and "
        f"{worst.lead:.2f} at worst ({where(worst.cell)}: {worst.winner}, where auto chose {_chosen(worst)}); in {best} cells auto is within "
        f"{percent(_CLOSE - 1)} of it. A master in the order of popularity would be faster still in {faster} cells, by up to "
        f"{max(ordered):.1f} times."
    )


def where(cell: Cell) -> str:
    """A cell in words."""
    updates = "with updates" if cell.updates else "no updates"
    return f"Zipf {cell.skew:g}, {percent(cell.misses)} misses, {percent(cell.memory_share)} of memory, {updates}"


def _chosen(contest: Contest) -> str:
    case = contest.outcomes["auto"].case
    return case.algorithm if case is not None else "nothing"


def as_csv(contests: Sequence[Contest]) -> str:
    """A row an algorithm and cell: the rate on the cell's disk, and what it was priced from."""
    counts = [name for name in COUNTS if name not in ("disk_seconds", "seconds", "predicted_rate")]
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    cell = ["disk", "skew", "misses", "memory_share", "version_every_rows"]
    rows.writerow([*cell, "algorithm", "runs", "tuples_per_s", *_SETTINGS, *counts, "why_not"])
    for each in outcomes(contests):
        rows.writerow(_text(value) for value in _row(each, counts))
    return text.getvalue()


def _row(outcome: Outcome, counts: Sequence[str]) -> list[object]:
    case: Case | None = outcome.case
    counted: Measured | None = outcome.counted
    settings = [getattr(case.settings, name, None) if case is not None else None for name in _SETTINGS]
    values = [getattr(counted, name, None) for name in counts]
    runs = case.algorithm if case is not None else ""
    cell = asdict(outcome.cell).values()
    return [*cell, outcome.algorithm, runs, outcome.rate, *settings, *values, outcome.why_not]


def _text(cell: object) -> str:
    if cell is None:
        return ""
    return f"{cell:.9g}" if isinstance(cell, float) else str(cell)


def write_grid(contests: Sequence[Contest], manifest: Mapping[str, object], out: Path) -> Path:
    """Everything below `out`/grid; the page in Markdown is what is given back. A claims' report beside it is brought up to date."""
    before = KeptGrid.shown(out)
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "grid.csv").write_text(as_csv(contests), newline="")
    by_disk: dict[str, list[Contest]] = {}
    for contest in contests:
        by_disk.setdefault(contest.cell.disk, []).append(contest)
    said = {disk: told(disk, found) for disk, found in by_disk.items()}
    for disk, found in by_disk.items():
        (folder / f"{disk}.svg").write_text(draw_winners(disk, found))
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    (folder / "summary.json").write_text(
        json.dumps({"about": introduction(), "disks": said}, indent=2) + "\n"
    )
    page = folder / "README.md"
    page.write_text(_page(said, folder))
    for name, section in KeptGrid.shown(out).items():
        report = out / name
        if name in before and report.exists():
            report.write_text(report.read_text().replace(before[name], section))
    return page


def _page(said: Mapping[str, str], folder: Path) -> str:
    study = Path(os.path.relpath(Path(grid_winners.__file__).resolve(), folder.resolve())).as_posix()
    text = [
        f"# {TITLE}\n",
        f"{introduction()}\n",
        "Made by `semistream reproduce --grid`: [manifest](manifest.json), [CSV](grid.csv), "
        f"[study]({study}).",
    ]
    for disk, sentence in said.items():
        text.append(f"\n## {disk}\n\n{sentence}\n\n![Winners on {disk}]({disk}.svg)")
    return "\n".join(text) + "\n"


@dataclass(frozen=True)
class KeptGrid:
    """A grid that was run before, as the claims' report shows it."""

    about: str
    disks: Mapping[str, str]
    folder: Path

    @staticmethod
    def find(out: Path) -> KeptGrid | None:
        """The one beside a report."""
        path = out / FOLDER / "summary.json"
        if not path.exists():
            return None
        kept = json.loads(path.read_text())
        return KeptGrid(kept["about"], kept["disks"], path.parent)

    @staticmethod
    def shown(out: Path) -> dict[str, str]:
        """What the claims' report says of it, by file; nothing where there is none."""
        found = KeptGrid.find(out)
        return {} if found is None else {"README.md": found.as_markdown(), "report.html": found.as_html()}

    def as_markdown(self) -> str:
        """A section of the page."""
        lines = [f"- {sentence}" for sentence in self.disks.values()]
        return (
            f'\n<a id="{FOLDER}"></a>\n\n## {TITLE}\n\n{self.about} [Heat maps]({FOLDER}/README.md)\n\n'
            + "\n".join(lines)
        )

    def as_html(self) -> str:
        """The same, with the pictures in it."""
        parts = [f'<h2 id="{FOLDER}">{html.escape(TITLE)}</h2><p>{html.escape(self.about)}</p>']
        for disk, sentence in self.disks.items():
            svg = (self.folder / f"{disk}.svg").read_text()
            parts.append(f"<section><p>{html.escape(sentence)}</p><figure>{svg}</figure></section>")
        return "\n".join(parts)
