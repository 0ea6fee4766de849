"""``nnapi-prof doctor``: Look for what stands in the way of measuring, and say how to mend it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import click

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import define
from nnapi_prof.cli.output import as_json, print_document, say
from nnapi_prof.reports.words import count

if TYPE_CHECKING:
    from nnapi_prof.doctor.checks import CheckResult


@define(
    "doctor",
    examples=["nnapi-prof doctor", "nnapi-prof doctor --device 192.168.1.7:5555 --json"],
)
@opt.device
def command(device_spec: str | None) -> int:
    """Find problems that prevent measuring, and say how to fix them.

    Checks Python and its packages, compilers, the cache, the cost table, adb's key and server,
    USB, and the phone: the named one, else the only one available. It changes nothing on this
    host. On the phone it pushes the agent, if it is built already.

    The exit code is 1 if there is a problem, and 0 if there are only warnings.
    """
    from nnapi_prof.doctor.checks import Severity
    from nnapi_prof.doctor.examine import examine

    findings = examine(device_spec, progress=say)
    levels = [finding.level for finding in findings]
    n_problems, n_warnings = levels.count(Severity.PROBLEM), levels.count(Severity.WARNING)
    if as_json():
        from nnapi_prof.documents.tool import of_findings

        print_document(of_findings(findings))
        return 1 if n_problems else 0
    for family, members in itertools.groupby(findings, lambda finding: finding.family):
        click.echo(click.style(family, bold=True))
        for finding in members:
            _show_finding(finding)
    well = len(findings) - n_problems - n_warnings
    click.echo(f"{count(n_problems, 'problem')}, {count(n_warnings, 'warning')}, {well} ok")
    return 1 if n_problems else 0


def _show_finding(finding: CheckResult) -> None:
    from nnapi_prof.doctor.checks import Severity

    colours = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "red"}
    level = click.style(f"{finding.level.value:<8}", fg=colours[finding.level])
    click.echo(f"  {level} {finding.check}: {finding.found}")
    if finding.fix is not None:
        click.echo(f"           fix: {finding.fix}")
