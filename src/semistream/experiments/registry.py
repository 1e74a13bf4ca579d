"""Every study by the claims it bears on, and the files it leads to."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from semistream.experiments.study import Study

_MODULES = (
    "m1_memory",
    "m3_model_over_buffer",
    "m4_skew",
    "m6_cloud",
    "d1_disk_buffer",
    "x1_memory",
    "x2_master_size",
    "x3_skew",
    "x5_tuning",
    "o1_optimised",
    "c1_memory",
    "c3_index_loop",
    "c5_tpch_and_cloud",
    "c7_temporal_locality",
    "c9_shedding",
    "c11_sensitivity",
    "c15_doubling",
    "c16_models",
)
OPERATORS = {
    "inlj": "inlj",
    "meshjoin": "meshjoin",
    "r-meshjoin": "rmeshjoin",
    "hybridjoin": "hybridjoin",
    "x-hybridjoin": "xhybridjoin",
    "optimised-x-hybridjoin": "optimisedxhybridjoin",
    "cinlj": "frontstage",
    "cmeshjoin": "frontstage",
    "chybridjoin": "frontstage",
}
_BEHIND = {"cinlj": "inlj", "cmeshjoin": "meshjoin", "chybridjoin": "hybridjoin"}
_PACKAGE = Path(__file__).parent.parent


def modules() -> list[ModuleType]:
    """The studies' files, in the order of the claims."""
    return [import_module(f"semistream.experiments.studies.{name}") for name in _MODULES]


def studies_of(claims: Sequence[str]) -> list[Study]:
    """The studies that bear on any of these claims."""
    every: list[Study] = [study for module in modules() for study in module.STUDIES]
    return [study for study in every if set(study.claims) & set(claims)]


def source_of(study: Study) -> Path:
    """The file that a study is written in."""
    for module in modules():
        if any(study.name == other.name for other in module.STUDIES):
            return Path(module.__file__ or "")
    raise AssertionError(study.name)


def operators_of(algorithms: Sequence[str]) -> list[Path]:
    """The files of these algorithms; of a cached form the front stage's and that of the join behind."""
    behind = [_BEHIND[algorithm] for algorithm in algorithms if algorithm in _BEHIND]
    names = dict.fromkeys(
        OPERATORS[algorithm] for algorithm in (*algorithms, *behind) if algorithm in OPERATORS
    )
    return [_PACKAGE / "joins" / f"{name}.py" for name in names]
