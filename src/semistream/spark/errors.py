"""Errors that were raised in a worker, told on the driver as what they are."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from semistream import errors
from semistream.errors import SemistreamError

_ENDS = r"\n\s*\n|\n\s*at |\nDriver stacktrace|\s*SQLSTATE:|\n===|\Z"  # of what a worker said, in what Spark makes of it
_RAISED = re.compile(rf"^semistream\.errors\.(\w+): (.*?)(?={_ENDS})", re.DOTALL | re.MULTILINE)
_PARTS = re.compile(r"(?P<asked>.*): found (?P<found>.*?)\. (?P<hint>.*)", re.DOTALL)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Run queries inside: an error that semistream raised on an executor comes out as itself, with its hint.

    Spark wraps what a worker raises into an error of its own, with the stack of both languages; that one is the cause of
    the error raised here.
    """
    try:
        yield
    except SemistreamError:
        raise
    except Exception as error:
        ours = from_spark(error)
        if ours is None:
            raise
        raise ours from error


def from_spark(error: BaseException) -> SemistreamError | None:
    """The error of ours that an error of Spark's is about, if it is about one."""
    raised = list(_RAISED.finditer(str(error)))
    if not raised:
        return None
    kind = getattr(errors, raised[-1][1], SemistreamError)
    parts = _PARTS.fullmatch(raised[-1][2].strip())
    if parts is None or not (isinstance(kind, type) and issubclass(kind, SemistreamError)):
        return None
    return kind(parts["asked"], found=parts["found"], hint=parts["hint"])
