"""What to type next, on terminals of any width."""

import io

import pytest
from rich.console import Console

from nnapi_prof.bundle.deployment import AppRuntime, DeployStep
from nnapi_prof.cli.ship import show_steps

COMMAND = (
    "nnapi-prof convert --format runtime -o /somewhere/nets/net.nnprt /somewhere/nets/net.nnprof"
)
WAYS = (
    DeployStep(AppRuntime.LIBRARY, COMMAND, None),
    DeployStep(AppRuntime.AAR, "nnapi-prof ship --aar x", "no: " * 40),
)


@pytest.mark.parametrize("columns", [40, 80, 120, 160])
def test_a_command_is_not_broken_over_lines(columns: int) -> None:
    out = io.StringIO()
    show_steps(Console(file=out, width=columns, force_terminal=True, color_system=None), WAYS)
    assert sum(COMMAND in each for each in out.getvalue().splitlines()) == 1
    assert "ship --aar x" not in out.getvalue()
