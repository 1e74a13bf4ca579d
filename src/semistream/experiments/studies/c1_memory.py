"""CACHING figures 5(a), 5(b), 5(d), 6 and 9(d): the front stage over memory, the master's size and the skew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from semistream.experiments.case import Case, Measured
from semistream.experiments.scale import Scale
from semistream.experiments.setups import ROW_BYTES, caching
from semistream.experiments.study import Axis, Run, Study
from semistream.experiments.verdicts import NOISE, Verdict, decide, head_share, percent, ratios, rises

LINES = ("cmeshjoin", "meshjoin", "chybridjoin", "hybridjoin")
PAIRS = (("cmeshjoin", "meshjoin"), ("chybridjoin", "hybridjoin"))
PAPER_FRONT_SHARE = 0.51
HALF_WITHIN = 0.1  # of the stream: "about half" is from 40 to 60 %
LITTLE_MEMORY, FINER = (
    1.0,
    30.0,
)  # % of the master, up to which points are run at so many times the scale: else a read answers a tuple or two
PAPER_GAINS = {"cmeshjoin": {1.0: 4.0, 10.0: 6.5}, "chybridjoin": {1.0: 2.4, 10.0: 2.8}}
PAPER_GAINS_BY_ROWS = {"cmeshjoin": {20.0: 4.7, 100.0: 6.5}, "chybridjoin": {20.0: 3.0, 100.0: 2.8}}


def gains(run: Run) -> dict[str, list[float]]:
    """What the front stage multiplies each join's rate by."""
    return {cached: ratios(run.curve(cached), run.curve(plain)) for cached, plain in PAIRS}


def ends(run: Run, unit: str, paper: Mapping[str, Mapping[float, float]]) -> str:
    """The gains at both ends of the range, each beside the paper's."""
    return "; ".join(
        f"{line} "
        + ", ".join(_beside(found[run.xs.index(x)], x, unit, paper[line].get(x)) for x in _both(run))
        for line, found in gains(run).items()
    )


def _beside(gain: float, x: float, unit: str, paper: float | None) -> str:
    known = f" ({gain / paper:.2f} of the paper's)" if paper else ""
    return f"{gain:.1f}x at {x:g}{unit}{known}"


def _both(run: Run) -> list[float]:
    """The ends of the range, or the one point there is."""
    return list(dict.fromkeys((run.xs[0], run.xs[-1])))


def explained(run: Run, xs: Iterable[float], unit: str) -> str:
    """What a front stage that answers a share f can bring: 1 / (1 - f) where the join behind goes on as before."""
    return " ".join(f"At {x:g}{unit} {_brings(run, x)}." for x in xs)


def _brings(run: Run, x: float) -> str:
    parts = []
    for cached, plain in PAIRS:
        with_stage, without = run.at(cached, x), run.at(plain, x)
        share = with_stage.front_share
        parts.append(
            f"{cached}'s front stage answers {percent(share)}, which alone would bring {1 / (1 - share):.1f}x, and the "
            f"join behind keeps {with_stage.behind_rate / without.rate:.2f} of its rate, answering {with_stage.per_access:.1f} tuples a read and not {without.per_access:.1f}"
        )
    return "; ".join(parts)


def of_its_own_law(run: Run, x: float) -> str:
    """What the same share of hot rows draws here and at the paper's size: a Zipf law over more keys has more in its head."""
    if run.scale.caching >= 1:
        return ""
    point, rows = run.at("cmeshjoin", x), run.study.case(run.scale, "cmeshjoin", x).master.rows
    held = point.used.get("front stage", 0) / ROW_BYTES
    here, there = (
        head_share(factor * held, factor * rows, exponent=1.0) for factor in (1.0, 1 / run.scale.caching)
    )
    return (
        f" The scale takes a part: that front stage has the bytes of {percent(held / rows)} of the rows, and the most popular so many draw "
        f"{percent(here)} of a Zipf stream over {rows:,} keys, but {percent(there)} over {rows / run.scale.caching:,.0f}, which alone would "
        f"bring {1 / (1 - there):.1f}x."
    )


def judge_memory(run: Run) -> Mapping[str, Verdict]:
    """C1: a gain everywhere; C14: the share that the front stage serves."""
    found, most = gains(run), run.at("cmeshjoin", run.xs[-1])
    return {
        "C1": decide(
            ends(run, " %", PAPER_GAINS),
            holds={
                **{f"{line} gains at every budget": min(values) > NOISE for line, values in found.items()},
                "CMESHJOIN gains at least twice": min(found["cmeshjoin"]) > 2,
                "CHYBRIDJOIN gains at least twice": min(found["chybridjoin"]) > 2,
            },
            why=explained(run, run.xs[-1:], " %"),
            details=f"{explained(run, _both(run)[:-1], ' %')} The paper's own {percent(PAPER_FRONT_SHARE)} (C14) would bring "
            f"{1 / (1 - PAPER_FRONT_SHARE):.1f}x at most.{of_its_own_law(run, run.xs[-1])}".strip(),
        ),
        "C14": decide(
            f"{percent(most.front_share)} ({most.front_share / PAPER_FRONT_SHARE:.1f} of the paper's)",
            holds={"about half of the stream (40 to 60 %)": abs(most.front_share - 0.5) <= HALF_WITHIN},
            why=_for_so_much(run, run.xs[-1]),
        ),
    }


def judge_size(run: Run) -> Mapping[str, Verdict]:
    """C2: a gain for every master, more for CMESHJOIN as it grows."""
    found = gains(run)
    return {
        "C2": decide(
            ends(run, " million", PAPER_GAINS_BY_ROWS),
            holds={
                **{f"{line} gains for every master": min(values) > NOISE for line, values in found.items()},
                "CMESHJOIN's gain grows with the master": found["cmeshjoin"][-1]
                > NOISE * found["cmeshjoin"][0],
                "CHYBRIDJOIN's falls a little": NOISE * found["chybridjoin"][-1] < found["chybridjoin"][0],
            },
            why="The memory stays as it is while the master grows: tuned, cmeshjoin's front stage has "
            + " and ".join(_held(run, x) for x in _both(run))
            + " of the stream.",
            details=explained(run, _both(run), " million"),
        )
    }


def _held(run: Run, x: float) -> str:
    """What cmeshjoin's front stage has of a master, and what that answers."""
    point = run.at("cmeshjoin", x)
    rows = run.study.case(run.scale, "cmeshjoin", x).master.rows
    return (
        f"{percent(_front_memory(point))} of it at {x:g} million rows, holding {percent(point.held / rows)} of them and answering "
        f"{percent(point.front_share)}"
    )


def _for_so_much(run: Run, x: float) -> str:
    """How few rows the paper's share takes, beside what the front stage has."""
    point, case = run.at("cmeshjoin", x), run.study.case(run.scale, "cmeshjoin", x)
    keys = round(case.master.rows / case.scale)
    few, many = 1, keys
    while few < many:  # the least that draw so much
        middle = (few + many) // 2
        enough = head_share(middle, keys, exponent=1.0) >= PAPER_FRONT_SHARE
        few, many = (few, middle) if enough else (middle + 1, many)
    return (
        f"Tuned, the front stage has {percent(_front_memory(point))} of the memory and {percent(point.held / case.master.rows)} of the rows; {percent(PAPER_FRONT_SHARE)} of a Zipf "
        f"stream over {keys:,} keys ask for {few:,} of them, whose rows are {percent(few * ROW_BYTES * case.scale / case.memory_bytes)} of the memory."
    )


def _memory_case(scale: Scale, line: str, x: float) -> Case:
    """Within x % of memory; where that is little, at a finer scale."""
    finer = replace(scale, caching=min(1.0, FINER * scale.caching)) if x <= LITTLE_MEMORY else scale
    return caching(finer, line, memory_share=x / 100)


def judge_stay(run: Run) -> Mapping[str, Verdict]:
    """C8: less time in the join with the front stage, and more saved for larger masters."""
    seconds = {line: run.curve(line) for line in LINES}
    saved = {
        cached: [a - b for a, b in zip(run.curve(plain), run.curve(cached), strict=True)]
        for cached, plain in PAIRS
    }
    factor = {cached: ratios(run.curve(plain), run.curve(cached)) for cached, plain in PAIRS}
    return {
        "C8": decide(
            "; ".join(
                f"{cached} {seconds[cached][0]:.1f} s and not {seconds[plain][0]:.1f} at {run.xs[0]:g} million rows, {seconds[cached][-1]:.1f} s and not "
                f"{seconds[plain][-1]:.1f} at {run.xs[-1]:g}"
                for cached, plain in PAIRS
            ),
            holds={
                **{f"{line} is at least twice as quick": min(values) > 2 for line, values in factor.items()},
                "the seconds saved grow with the master": all(rises(values) for values in saved.values()),
            },
            why="; ".join(
                f"{cached} saves {saved[cached][0]:.1f} s and then {saved[cached][-1]:.1f} s, {factor[cached][0]:.1f} times and then {factor[cached][-1]:.1f} times less"
                for cached, _ in PAIRS
            )
            + ".",
        )
    }


def judge_skew(run: Run) -> Mapping[str, Verdict]:
    """C4: behind without skew, ahead from moderate skew on, growing."""
    found = gains(run)
    moderate = [i for i, x in enumerate(run.xs) if x >= 0.5]
    return {
        "C4": decide(
            "; ".join(
                f"{line} " + ", ".join(f"{x:g}: {v:.2f}x" for x, v in zip(run.xs, values, strict=True))
                for line, values in found.items()
            ),
            holds={
                **{
                    f"{line} is ahead from exponent 0.5 on": all(values[i] > NOISE for i in moderate)
                    for line, values in found.items()
                },
                "both lose a little without skew": all(
                    0.5 < values[0] < 1 / NOISE for values in found.values()
                ),
                "the gain grows with the skew": all(rises(values, slack=0.02) for values in found.values()),
            },
            why=_at_most(run, run.xs[moderate[0]]),
            details="Tuned, "
            + "; ".join(
                f"at {x:g} cmeshjoin's front stage has {percent(_front_memory(run.at('cmeshjoin', x)))} of the memory and answers "
                f"{percent(run.at('cmeshjoin', x).front_share)}, while the join behind keeps "
                f"{run.at('cmeshjoin', x).behind_rate / run.at('meshjoin', x).rate:.2f} of its rate"
                for x in run.xs
            )
            + ".",
        )
    }


def _at_most(run: Run, x: float) -> str:
    """What the best of all front stages would bring: always the most popular rows, each in its own bytes."""
    master = run.study.case(run.scale, "cmeshjoin", x).master
    memory = run.study.case(run.scale, "cmeshjoin", x).memory_bytes / master.nbytes
    best, share = max(
        ((1 - share) / (1 - head_share(share * memory * master.rows, master.rows, exponent=x)), share)
        for share in (0.005 * step for step in range(1, 200))
    )
    return (
        f"At {x:g} even a front stage that always had the most popular rows, in {ROW_BYTES} bytes each, would bring {best:.2f}x at best, with "
        f"{percent(share)} of the memory."
    )


def _front_memory(point: Measured) -> float:
    """Its part of all bytes taken."""
    return point.used.get("front stage", 0) / sum(point.used.values())


def stay(measured: Measured) -> float:
    """Seconds in the join, at the paper's size: a window that is s times as large is passed in s times the time."""
    return measured.stay_seconds / measured.scale


def _size_case(scale: Scale, line: str, x: float) -> Case:
    return caching(scale, line, rows=x * 1e6)


_ROWS = (20.0, 60.0, 100.0)
_MASTER = Axis("master, million rows")

STUDIES = (
    Study(
        name="c1_memory",
        figure="CACHING, figures 5(a) and 9(d)",
        title="With and without the front stage over memory, Zipf 1, 100 million rows",
        claims=("C1", "C14"),
        x=Axis("memory, % of the master"),
        lines=LINES,
        xs=(1.0, 4.0, 10.0),
        case=_memory_case,
        judge=judge_memory,
        small_xs=(5.0, 10.0),
        machine_xs=(10.0,),
    ),
    Study(
        name="c2_master_size",
        figure="CACHING, figure 5(b)",
        title="With and without the front stage over the size of the master, within 1.12 GB",
        claims=("C2",),
        x=_MASTER,
        lines=LINES,
        xs=_ROWS,
        case=_size_case,
        judge=judge_size,
        small_xs=(20.0, 100.0),
    ),
    Study(
        name="c4_skew",
        figure="CACHING, figure 5(d)",
        title="With and without the front stage over the skew, at 10 % of memory",
        claims=("C4",),
        x=Axis("Zipf exponent"),
        lines=LINES,
        xs=(0.0, 0.5, 0.75, 1.0),
        case=lambda scale, line, x: caching(scale, line, exponent=x),
        judge=judge_skew,
        small_xs=(0.0, 0.75, 1.0),
    ),
    Study(
        name="c8_processing_time",
        figure="CACHING, figure 6",
        title="How long a tuple is in the join, over the size of the master",
        claims=("C8",),
        x=_MASTER,
        y=Axis("seconds in the join", log=True),
        lines=LINES,
        xs=_ROWS,
        case=_size_case,
        judge=judge_stay,
        value=stay,
        small_xs=(20.0, 100.0),
    ),
)
