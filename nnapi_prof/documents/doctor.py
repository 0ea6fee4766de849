"""What ``nnapi-prof doctor --json`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnapi_prof.documents.registry import (
    COUNT,
    TEXT,
    TEXT_OR_NULL,
    Document,
    array,
    choice,
    described,
    document,
    obj,
)

if TYPE_CHECKING:
    from nnapi_prof.doctor.checks import Finding


@document(
    "doctor",
    1,
    "What stands in the way of measuring",
    problems=described(COUNT, "findings of level problem; the exit code is 1 where there are any"),
    warnings=described(COUNT, "findings of level warning"),
    findings=array(
        obj(
            family=described(TEXT, "what the check belongs to: Python, ADB, Phone, ..."),
            check=described(TEXT, "what was looked at"),
            level=choice("ok", "warning", "problem"),
            found=TEXT,
            fix=described(TEXT_OR_NULL, "how to mend it, where there is something to mend"),
        )
    ),
)
def of_findings(findings: Sequence[Finding]) -> Document:
    levels = [each.level.value for each in findings]
    return {
        "problems": levels.count("problem"),
        "warnings": levels.count("warning"),
        "findings": [
            {
                "family": each.family,
                "check": each.check,
                "level": each.level.value,
                "found": each.found,
                "fix": each.fix,
            }
            for each in findings
        ],
    }
