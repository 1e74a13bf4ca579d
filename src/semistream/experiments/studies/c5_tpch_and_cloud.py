"""CACHING figures 5(e) and 5(f): TPC-H and cloud reports over memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from semistream.experiments.case import Case
from semistream.experiments.scale import Scale
from semistream.experiments.setups import CACHING_CLOUD_ROWS, cloud_reports, tpch_orders
from semistream.experiments.studies.c1_memory import LINES, PAIRS, gains
from semistream.experiments.study import Axis, Run, Study
from semistream.experiments.tuning import usual_settings
from semistream.experiments.verdicts import NOISE, Verdict, decide, percent, ratios, times
from semistream.workload.cloud import LONGITUDES

PAPER_TPCH = {"cmeshjoin": 3.7, "chybridjoin": 2.5}
FINER = 20.0  # times the scale of CACHING's other studies, else 1 % of this smaller master is five pages
SKEWED = ", customers by Zipf 1"
SHARES = (5, 35)  # % of the memory for hot rows: no model knows such a stream, so both are tried


def tpch_case(scale: Scale, line: str, x: float) -> Case:
    """Orders as they are; or, to tell what their even keys cost, with customers drawn by Zipf's law."""
    algorithm, skewed, _ = line.partition(SKEWED)
    finer = replace(scale, caching=min(1.0, FINER * scale.caching))
    return tpch_orders(finer, algorithm, memory_share=x / 100, exponent=1.0 if skewed else 0.0)


def judge_tpch(run: Run) -> Mapping[str, Verdict]:
    """C5: a gain at 1 % of memory."""
    found, first = gains(run), run.xs[0]
    skewed = {c: run.at(c + SKEWED, first).rate / run.at(p + SKEWED, first).rate for c, p in PAIRS}
    return {
        "C5": decide(
            "; ".join(
                f"{line} {values[0]:.2f}x at {first:g} % ({values[0] / PAPER_TPCH[line]:.2f} of the paper's)"
                for line, values in found.items()
            ),
            holds={f"{line} gains": values[0] > 1.2 for line, values in found.items()},
            why="dbgen draws customers evenly: tuned, "
            + " and ".join(_answers_of(run, line, first) for line, _ in PAIRS)
            + " of the orders; with customers drawn by Zipf's law, exponent 1, the same orders bring "
            + " and ".join(f"{line} {gain:.2f}x" for line, gain in skewed.items())
            + ".",
            details="; ".join(_held(run, line, plain, first) for line, plain in PAIRS)
            + ". With customers by Zipf's law "
            + " and ".join(_skewed(run, line, plain, first) for line, plain in PAIRS)
            + ".",
        )
    }


def _answers_of(run: Run, cached: str, x: float) -> str:
    return f"{cached}'s front stage answers {percent(run.at(cached, x).front_share)}"


def _skewed(run: Run, cached: str, plain: str, x: float) -> str:
    point, without = run.at(cached + SKEWED, x), run.at(plain + SKEWED, x)
    return (
        f"{cached}'s answers {percent(point.front_share)}, and a read answers {point.per_access:.1f} tuples behind it and "
        f"{without.per_access:.1f} without it"
    )


def _held(run: Run, cached: str, plain: str, x: float) -> str:
    """What a front stage has, answers and takes."""
    point = run.at(cached, x)
    rows = point.held / run.study.case(run.scale, cached, x).master.rows
    return (
        f"{cached}'s front stage has {percent(point.used.get('front stage', 0) / sum(point.used.values()))} of the memory, {percent(rows)} of the master's rows, and answers "
        f"{percent(point.front_share)}; the join behind keeps {point.behind_rate / run.at(plain, x).rate:.2f} of its rate, answering {point.per_access:.2f} tuples a read"
    )


def with_share(algorithm: str, share: int) -> str:
    """The name of a line."""
    return f"{algorithm}, {share} % hot"


def share_of(line: str, case: Callable[[str], Case]) -> Case:
    """The case of a line, with its share of the memory for hot rows where it has one."""
    algorithm, _, share = line.partition(", ")
    found = case(algorithm)
    if not share:
        return found
    settings = replace(usual_settings(found), front_share=int(share.split()[0]) / 100)
    return replace(found, settings=settings)


def best_shares(run: Run, cached: str) -> list[tuple[int, float]]:
    """At every x the share that is fastest, and its rate."""
    return [
        max(
            ((share, run.study.value(run.at(with_share(cached, share), x))) for share in SHARES),
            key=lambda pair: pair[1],
        )
        for x in run.xs
    ]


def judge_cloud(run: Run) -> Mapping[str, Verdict]:
    """C6: a gain at every budget."""
    best = {cached: best_shares(run, cached) for cached, _ in PAIRS}
    found = {cached: ratios([rate for _, rate in best[cached]], run.curve(plain)) for cached, plain in PAIRS}
    last = run.xs[-1]
    told = [_answers(run, cached, share, last) for cached, _ in PAIRS for share in SHARES]
    any_point, case = run.at(PAIRS[0][1], last), run.study.case(run.scale, PAIRS[0][1], last)
    return {
        "C6": decide(
            "; ".join(f"{line} {times(values, digits=2)}" for line, values in found.items()),
            holds={f"{line} is ahead at every budget": min(values) > NOISE for line, values in found.items()},
            why=f"Both sides are reports of the same stations, so a longitude that the stream asks for often has as many more rows: a tuple meets "
            f"{any_point.rows / any_point.answered:.0f}, where a longitude has {case.master.rows / LONGITUDES:.1f} on average, and a key is in the front stage with all its rows or not at all.",
            details=f"At {last:g} % {'; '.join(told)}. The reports are a model of the archive's.",
        )
    }


def _answers(run: Run, cached: str, share: int, x: float) -> str:
    point, plain = run.at(with_share(cached, share), x), run.at(dict(PAIRS)[cached], x)
    held = (
        point.used.get("front stage", 0)
        / run.study.case(run.scale, with_share(cached, share), x).master.nbytes
    )
    return (
        f"{cached}'s with {share} % of the memory has the bytes of {percent(held)} of the master, answers {percent(point.front_share)} and leaves the "
        f"join behind {point.behind_rate / plain.rate:.2f} of its rate"
    )


STUDIES = (
    Study(
        name="c5_tpch",
        figure="CACHING, figure 5(e)",
        title="TPC-H: Orders into Customer over memory",
        claims=("C5",),
        x=Axis("memory, % of the master"),
        lines=(*LINES, *(line + SKEWED for line in LINES)),
        xs=(1.0, 10.0),
        case=tpch_case,
        judge=judge_tpch,
        small_xs=(5.0, 10.0),
    ),
    Study(
        name="c6_cloud",
        figure="CACHING, figure 5(f)",
        title="Cloud reports of 128 bytes over memory",
        claims=("C6",),
        x=Axis("memory, % of the master"),
        lines=(
            *(with_share(cached, share) for cached, _ in PAIRS for share in SHARES),
            *(plain for _, plain in PAIRS),
        ),
        xs=(1.0, 4.0, 10.0),
        case=lambda scale, line, x: share_of(
            line,
            lambda algorithm: cloud_reports(
                scale, algorithm, rows=CACHING_CLOUD_ROWS, row_bytes=128, memory_share=x / 100
            ),
        ),
        judge=judge_cloud,
        small_xs=(5.0, 10.0),
    ),
)
