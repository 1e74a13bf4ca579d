"""Who is shed when the stream is faster than the join, and what becomes of them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

from semistream.errors import InvalidInputError, check_choice

Strategy = Literal["considering", "upfront", "random", "none"]
Fate = Literal["later", "dropped"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
FATES: tuple[str, ...] = get_args(Fate)


@dataclass(frozen=True)
class Shedding:
    """How a join sheds load.

    Args:
        strategy: "considering" lets tuples in and sheds those that have waited longest (CACHING): they are the ones that
            share their page with the fewest others. "upfront" sheds arrived tuples before the join has seen them (MESHJOIN's
            "keep"). "random" lets each arriving tuple in with the same probability, so that what is answered is a
            uniform sample. "none" lets arrived tuples wait at their source.
        fate: "later" puts shed tuples away, durably, and joins them when the load falls; "dropped" never joins them.
        position: Where in the queue the tuple is that chooses the next page while the join is overloaded: 0 is the
            newest, 1 the oldest. For "considering" with joins of the hybrid family.
        over: The join is overloaded when more than so many times what its last iteration finished has arrived and
            has no place yet.
        under: It is calm again when there is no more than so many times that,
        calm_after: in so many iterations one after the other.
        sum_of: Output columns whose sums are estimated, for "random" with "dropped".
        confidence: Of the error bounds of the estimates.
        seed: Of the random choice.

    >>> Shedding("considering").position
    0.7
    """

    strategy: Strategy = "considering"
    _: KW_ONLY
    fate: Fate = "later"
    position: float = 0.7  # docs/decisions/012-shedding.md; the paper's is 0.15
    over: float = 2.0
    under: float = 1.0
    calm_after: int = 8
    sum_of: str | tuple[str, ...] = ()
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice(f"strategy={self.strategy!r}", self.strategy, STRATEGIES, hint="quoted")
        check_choice(f"fate={self.fate!r}", self.fate, FATES, hint="quoted")
        _check("position", self.position, "0 to 1", good=0 <= self.position <= 1)
        _check("over", self.over, "more than 0", good=self.over > 0)
        _check("under", self.under, f"0 to over, {self.over}", good=0 <= self.under <= self.over)
        _check("calm_after", self.calm_after, "1 or more", good=self.calm_after >= 1)
        _check("confidence", self.confidence, "a share below 1", good=0 < self.confidence < 1)
        if self.sum_of and not self.is_sampled:
            raise InvalidInputError(
                f"sum_of={self.sum_of!r} with strategy={self.strategy!r}, fate={self.fate!r}",
                found="no uniform sample to estimate from",
                hint='Use strategy="random" with fate="dropped".',
            )

    @property
    def summed(self) -> tuple[str, ...]:
        """The columns of `sum_of`."""
        return (self.sum_of,) if isinstance(self.sum_of, str) else self.sum_of

    @property
    def is_sampled(self) -> bool:
        """Whether the answers are a sample, whose rows have weights."""
        return self.strategy == "random" and self.fate == "dropped"

    @staticmethod
    def of(asked: str | Shedding) -> Shedding:
        """What was asked for, where the name of a strategy means its defaults."""
        if isinstance(asked, Shedding):
            return asked
        check_choice(f"shedding={asked!r}", asked, STRATEGIES, hint="quoted")
        return Shedding(asked)  # type: ignore[arg-type]


def _check(name: str, value: float, range_: str, *, good: bool) -> None:
    if not good:
        raise InvalidInputError(
            f"{name}={value!r}", found="a value out of range", hint=f"It must be {range_}."
        )
