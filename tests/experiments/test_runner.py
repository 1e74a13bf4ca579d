"""A run: kept, resumed, repeated byte for byte; and the report it leaves."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from semistream.experiments import Runner, runner, scale_named
from semistream.experiments.case import Measured
from semistream.experiments.registry import studies_of
from semistream.experiments.report import summary, write_report
from semistream.experiments.tables import table_of, write_tables
from semistream.experiments.verdicts import Verdict

SMALL = replace(scale_named("small"), mesh=1 / 100)
CLAIMS = ("M3", "D4")


def files(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "csv").iterdir())}


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, Runner(folder, SMALL, on_machine=False).reproduce(CLAIMS)


def test_two_runs_of_a_seed_give_the_same_bytes_and_another_seed_others(reproduced, tmp_path):
    folder, first = reproduced
    write_tables(first, folder)
    write_tables(Runner(tmp_path / "again", SMALL, on_machine=False).reproduce(CLAIMS), tmp_path / "again")
    write_tables(
        Runner(tmp_path / "other", SMALL, seed=2, on_machine=False).reproduce(CLAIMS), tmp_path / "other"
    )
    assert files(folder) == files(tmp_path / "again")
    assert files(folder) != files(tmp_path / "other")


def test_so_do_front_stages_and_blocks_chosen_by_tuples(tmp_path):
    """What depends on who entered and left when: CMESHJOIN's and X-HYBRIDJOIN's counts, predictions and settings."""
    tiny = replace(SMALL, caching=1 / 5000, hybrid=1 / 100)
    for name in ("one", "two"):
        out = tmp_path / name
        write_tables(Runner(out, tiny, on_machine=False).reproduce(("C12", "X5")), out)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert set(files(tmp_path / "one")) == {"c12_threshold.csv", "x5_tuning.csv"}


def test_two_processes_count_what_one_does(reproduced, tmp_path):
    _, first = reproduced
    both = Runner(tmp_path, SMALL, jobs=2, on_machine=False).reproduce(CLAIMS)
    assert [table_of(r.run) for r in first.results] == [table_of(r.run) for r in both.results]


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """The second run measures only what the first did not finish, and ends with the same numbers."""
    ran: list[str] = []
    measure = runner.measure

    def counting(case, folder, *, seed) -> Measured:
        if len(ran) == stop_after:
            raise KeyboardInterrupt
        ran.append(case.algorithm)
        return measure(case, folder, seed=seed)

    monkeypatch.setattr(runner, "measure", counting)
    stop_after = 2
    with pytest.raises(KeyboardInterrupt):
        Runner(tmp_path, SMALL, on_machine=False).reproduce(("D4",))
    stop_after = 10**9
    told: list[tuple[str, int, int]] = []
    result = Runner(tmp_path, SMALL, on_machine=False, told=lambda *said: told.append(said)).reproduce(
        ("D4",)
    )
    points = len(set(studies_of(("D4",))[0].points(SMALL).values()))
    assert len(ran) == points
    assert told[0] == ("kept from before", 2, points)
    assert told[-1][1:] == (points, points)
    Runner(tmp_path, SMALL, on_machine=False).reproduce(("D4",))
    assert len(ran) == points
    assert result.results[0].run is not None


def test_points_of_another_seed_or_other_code_are_not_taken(tmp_path, monkeypatch):
    case = next(iter(studies_of(("D4",))[0].points(SMALL).values()))
    mine = Runner(tmp_path, SMALL)._path(case)
    assert mine != Runner(tmp_path, SMALL, seed=2)._path(case)
    assert mine != Runner(tmp_path, SMALL)._path(replace(case, memory_bytes=case.memory_bytes + 1))
    monkeypatch.setattr(runner, "code_fingerprint", lambda: "other")
    assert mine != Runner(tmp_path, SMALL)._path(case)


def test_the_report_needs_nothing_beside_it(reproduced):
    folder, result = reproduced
    page = write_report(result, folder).read_text()
    assert not re.search(r"""(src|href)\s*=\s*["'](https?:)?//""", page)
    assert not re.search(r"@import|url\(\s*['\"]?http", page)
    assert "<script" not in page
    assert page.count("<svg") == len(result.results)
    for claim in CLAIMS:
        assert f"<b>{claim}</b>" in page
    assert "semistream/experiments/studies/" in page
    assert "semistream/joins/meshjoin.py" in page
    for target in re.findall(r'href="([^"#]+)"', page):
        assert (folder / target).resolve().exists(), target
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r'id="([^"]+)"', page))
    text = (folder / "README.md").read_text()
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert all((folder / target).resolve().exists() for target in targets if not target.startswith("#"))
    assert {target[1:] for target in targets if target.startswith("#")} <= set(
        re.findall(r'id="([^"]+)"', text)
    )


def test_a_row_leads_to_its_study_in_one_click_and_to_the_operators_in_two(reproduced):
    folder, result = reproduced
    page = write_report(result, folder).read_text()
    (row,) = re.findall(r"<tbody><tr><td><b>M3</b>.*?</tbody>", page)
    anchor, study = re.findall(r'href="([^"]+)"', row)
    assert study.endswith("studies/m3_model_over_buffer.py")
    (section,) = re.findall(rf'<section><h2 id="{anchor[1:]}".*?<figure>', page, re.DOTALL)
    assert "joins/meshjoin.py" in section


def test_what_fails_on_this_machine_is_named_and_details_are_below_the_figure(reproduced, tmp_path):
    _, result = reproduced
    verdict = Verdict("in part", "1x", "Does not hold: an order.", "More <of> it.", ("an order",))
    told = replace(result.results[0], verdicts={"M3": verdict}, machine_verdicts={"M3": verdict})
    changed = replace(result, results=(told, *result.results[1:]))
    row = summary(changed)[0]
    assert row.on_machine == "1x (in part; does not hold: an order)"
    page = write_report(changed, tmp_path).read_text()
    assert page.index("</figure><p><b>M3.</b> More &lt;of&gt; it.</p></section>") > page.index("an order)")
    assert "svg)\n\n**M3.** More <of> it.\n" in (tmp_path / "README.md").read_text()


def test_nothing_in_the_report_says_whose_machine_it_was(reproduced):
    import getpass
    import platform

    folder, result = reproduced
    write_report(result, folder)
    for name in ("manifest.json", "summary.json"):
        text = (folder / name).read_text()
        assert platform.node() not in text
        assert str(folder) not in text
        assert not re.search(rf"/(home|Users)/{getpass.getuser()}", text)


def test_the_summary_has_a_row_a_claim_also_for_what_was_not_run(reproduced):
    _, result = reproduced
    rows = summary(replace(result, claims=(*CLAIMS, "C9")))
    assert [row.claim for row in rows] == ["M3", "D4", "C9"]
    assert rows[-1].outcome == "not run"
    assert rows[-1].why
    json.dumps([vars(row) for row in rows])


def test_a_point_that_cannot_be_had_is_said_to_be_so(tmp_path, monkeypatch):
    from semistream.errors import InvalidInputError

    def failing(case, folder, *, seed):
        raise InvalidInputError("a join", found="too little memory", hint="Give more.")

    monkeypatch.setattr(runner, "measure", failing)
    result = Runner(tmp_path, SMALL, on_machine=False).reproduce(("D4",))
    (row,) = summary(result)
    assert row.outcome == "not run"
    assert "too little memory" in row.why
