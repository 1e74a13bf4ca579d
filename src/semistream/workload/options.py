"""A workload from text options, as Spark sources and TOML files give them.

The options of a distribution or of an arrival process are the fields of its class, so there is no second list to keep:
``keys=zipf`` takes ``n_keys``, ``exponent`` and ``popularity`` because `Zipf` has them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from typing import Any

from semistream.errors import InvalidInputError
from semistream.workload.arrivals import Bursty, Constant, Poisson, SelfSimilar
from semistream.workload.cloud import REPORT, Longitudes
from semistream.workload.columns import parse_column
from semistream.workload.keys import EveryKey, Uniform, Zipf
from semistream.workload.limits import require_one_of
from semistream.workload.moving import HotSpot, TemporalLocality
from semistream.workload.retail import Products
from semistream.workload.sliced import Sliced
from semistream.workload.stream import Workload
from semistream.workload.trace import open_trace

KEYS: dict[str, type] = {
    "uniform": Uniform,
    "zipf": Zipf,
    "hot-spot": HotSpot,
    "temporal-locality": TemporalLocality,
    "every-key": EveryKey,
    "longitudes": Longitudes,
}
ARRIVALS: dict[str, type] = {
    "constant": Constant,
    "poisson": Poisson,
    "bursty": Bursty,
    "self-similar": SelfSimilar,
}
DEFAULT_COLUMNS = {"longitudes": REPORT}


def parse_whole(name: str, text: str) -> int:
    """Read a whole number; underscores may group its digits."""
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError(
            f"{name}={text!r}", found="not a whole number", hint="Write one such as 1_000_000."
        ) from None


def parse_number(name: str, text: str) -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(
            f"{name}={text!r}", found="not a number", hint="Write one such as 0.5."
        ) from None


def parse_moment(name: str, text: str) -> datetime:
    """Read a moment in ISO form; without a time zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = "Write one such as 2024-01-01T00:00:00Z."
        raise InvalidInputError(f"{name}={text!r}", found="no moment in it", hint=hint) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


OWN: dict[str, Callable[[str, str], Any]] = {
    "rows": parse_whole,
    "missing_share": parse_number,
    "seed": parse_whole,
    "starts_at": parse_moment,
    "columns": lambda _, text: tuple(parse_column(c) for c in text.split(",")),
}
_BY_ANNOTATION: dict[str, Callable[[str, str], Any]] = {
    "int": parse_whole,
    "float": parse_number,
    "Popularity": lambda _, text: text,
}


def parse_workload(options: Mapping[str, str], *, also: Iterable[str] = ()) -> Workload:
    """Make the workload that the options describe; an option that means nothing here is an error.

    Args:
        options: The options.
        also: Names that the caller has taken out already, so that a slip in one of them can be recognised.
    """
    left = _lower(options)
    kind = left.pop("keys", "zipf")
    require_one_of("keys", kind, KEYS)
    process = left.pop("arrivals", "constant")
    require_one_of("arrivals", process, ARRIVALS)
    known = {"keys", "arrivals", *OWN, *_names(KEYS[kind]), *_names(ARRIVALS[process]), *also}
    refuse_unknown(left, known, what=f"keys={kind}, arrivals={process}")
    keys = _make(KEYS[kind], left, called=f"keys={kind}")
    arrivals = _make(ARRIVALS[process], left, called=f"arrivals={process}")
    own = {name: parse(name, left[name]) for name, parse in OWN.items() if name in left}
    own.setdefault("columns", DEFAULT_COLUMNS.get(kind, Workload.columns))
    return Workload(keys, arrivals=arrivals, **own)


def parse_source(options: Mapping[str, str], *, also: Iterable[str] = ()) -> Sliced:
    """Make whatever the options describe: a trace where they have a ``path``, the products master, or a workload."""
    left = _lower(options)
    dataset = left.pop("dataset", "trace" if "path" in left else "stream")
    require_one_of("dataset", dataset, ("stream", "trace", "products"))
    if dataset == "stream":
        return parse_workload(left, also=(*also, "dataset", "path"))
    seed = parse_whole("seed", left.get("seed", "0"))
    if dataset == "products":
        refuse_unknown(left, {"rows", "seed", "dataset", *also}, what="dataset=products")
        _require(left, "rows", called="dataset=products")
        return Products(parse_whole("rows", left["rows"]), seed)
    process = left.pop("arrivals", None)
    known = {"path", "arrival", "arrivals", "seed", "dataset", *also}
    arrivals = None
    if process is not None:
        require_one_of("arrivals", process, ARRIVALS)
        known |= {*_names(ARRIVALS[process])}
        arrivals = _make(ARRIVALS[process], left, called=f"arrivals={process}")
    refuse_unknown(left, known, what="a trace")
    _require(left, "path", called="dataset=trace")
    return open_trace(left["path"], arrival=left.get("arrival"), arrivals=arrivals, seed=seed)


def refuse_unknown(options: Mapping[str, str], known: set[str], *, what: str) -> None:
    """Refuse the first option that is not known, and name the nearest one that is.

    >>> refuse_unknown({"exponnent": "1"}, {"exponent", "rate"}, what="keys=zipf")
    Traceback (most recent call last):
    semistream.errors.InvalidInputError: option 'exponnent': found no such option for keys=zipf. Did you mean 'exponent'?
    """
    for name in options:
        if name in known:
            continue
        elsewhere = [kind for kind, cls in (KEYS | ARRIVALS).items() if name in _names(cls)]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        if elsewhere:
            hint = f"It belongs to {', '.join(elsewhere)}."
        elif near:
            hint = f"Did you mean {near[0]!r}?"
        else:
            hint = f"The options are {', '.join(sorted(known))}."
        raise InvalidInputError(f"option {name!r}", found=f"no such option for {what}", hint=hint)


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): str(text) for name, text in options.items()}


def _names(cls: type) -> list[str]:
    return [f.name for f in fields(cls)]


def _make(cls: type, options: Mapping[str, str], *, called: str) -> Any:
    values = {}
    for f in fields(cls):
        if f.name in options:
            values[f.name] = _BY_ANNOTATION[str(f.type)](f.name, options[f.name])
        elif f.default is MISSING:
            _require(options, f.name, called=called)
    return cls(**values)


def _require(options: Mapping[str, str], name: str, *, called: str) -> None:
    if name not in options:
        raise InvalidInputError(called, found=f"no option {name!r}", hint=f"Set the option {name}.")
