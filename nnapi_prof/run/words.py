"""What a comparison with eager PyTorch tells, in words."""

from __future__ import annotations

from collections.abc import Iterable

from nnapi_prof.run.result import Evidence, OutputCheck

_WHAT = {
    Evidence.ZEROS: "is 0 everywhere",
    Evidence.CONSTANT: "is the same number everywhere",
    Evidence.DENORMAL: "is too small for float32 (denormal) everywhere",
    Evidence.NOT_FINITE: "is nowhere a finite number",
    Evidence.EMPTY: "has no elements",
}


def little_to_compare(check: OutputCheck) -> str | None:
    """``is 0 everywhere``: why that an output agrees tells little; None where it tells."""
    return _WHAT.get(check.evidence)


def notes_on(checks: Iterable[OutputCheck]) -> list[str]:
    """A note for each output that agrees and leaves little to compare."""
    return [
        f"output {check.name} {what} for these inputs, in eager PyTorch, too: that it agrees tells"
        " little; run it with other inputs (another seed)"
        for check in checks
        if check.ok and (what := little_to_compare(check)) is not None
    ]


def verdict(check: OutputCheck) -> str:
    """``agrees``, ``agrees, but it is 0 everywhere``, ``differs``."""
    if not check.ok:
        return "differs"
    little = little_to_compare(check)
    return f"agrees, but it {little}" if little else "agrees"
