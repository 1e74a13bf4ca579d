"""Errors say what was asked, found and to be done, are builtins too, and travel between processes."""

from __future__ import annotations

import copy
import pickle

import pytest

import semistream
from semistream import errors

BUILTINS = {
    "SemistreamError": Exception,
    "InvalidInputError": ValueError,
    "TooLittleMemoryError": ValueError,
    "UnreachableRateError": ValueError,
    "UnsupportedTypeError": TypeError,
    "StoreError": OSError,
    "NotAStoreError": FileNotFoundError,
    "StoreExistsError": FileExistsError,
    "NewerFormatError": OSError,
    "CorruptPageError": OSError,
    "ConcurrentChangeError": OSError,
    "NoSpaceError": OSError,
    "MissingDependencyError": ImportError,
}
KINDS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__
]


def test_every_error_is_here():
    assert {kind.__name__ for kind in KINDS} == set(BUILTINS)
    assert semistream.SemistreamError is errors.SemistreamError


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_is_one_of_ours_and_a_builtin(kind):
    error = kind("key='product'", found="columns id, name", hint="Pass key='id'.")
    assert isinstance(error, errors.SemistreamError)
    assert isinstance(error, BUILTINS[kind.__name__])
    assert str(error) == "key='product': found columns id, name. Pass key='id'."
    assert (error.asked, error.found, error.hint) == ("key='product'", "columns id, name", "Pass key='id'.")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("travel", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])  # noqa: S301
def test_an_error_survives_the_trip_between_processes(kind, travel):
    error = kind("asked", found="found %s {}", hint="hint")
    arrived = travel(error)
    assert type(arrived) is kind
    assert (str(arrived), arrived.args) == (str(error), error.args)
    assert (arrived.asked, arrived.found, arrived.hint) == ("asked", "found %s {}", "hint")


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if issubclass(k, errors.StoreError)], ids=lambda k: k.__name__
)
def test_whoever_catches_store_errors_catches_all_of_them(kind):
    with pytest.raises(errors.StoreError):
        raise kind("a", found="b", hint="c")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_error_without_its_three_parts(kind):
    with pytest.raises(TypeError):
        kind("only what was asked")
