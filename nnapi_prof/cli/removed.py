"""Map options and commands of earlier versions to the nearest way to do the same today.

An entry stays for one minor version after the removal; then the usual error for an unknown option
is enough.
"""

from __future__ import annotations

from collections.abc import Mapping

_TRANSFORM = (
    "`--calibration MODULE:FUNCTION` names a function that returns an iterable of inputs, such as a"
    " DataLoader over images"
)
_P95 = (
    "plans are made and compared by the median, and `nnapi-prof run` and `report` show the 95th"
    " percentile beside it"
)
REMOVED: Mapping[str, str] = {
    "compare --statistic": _P95,
    "compare --device": "name the device behind the table, as in TABLE#DEVICE",
    "costs diff": "`nnapi-prof compare TABLE#DEVICE TABLE#DEVICE` compares two devices of one"
    " table, TABLE#DATE two dates",
    "costs export": "`nnapi-prof costs show --format csv|parquet -o FILE` writes the rows, and the"
    " SQLite file is the table to pass on",
    "costs import": "pass the SQLite file on, and `nnapi-prof costs merge` adds it to a table",
    "fleet --report": "the command prints its table, and `--json` all of it",
    "go --batch": "run `nnapi-prof go` once for each size, with `--input 4x3x224x224` and an `-o`"
    " of its own",
    "pareto --transform": _TRANSFORM,
    "partition --statistic": _P95,
    "report --statistic": _P95,
    "partition --solver": "the search proves its plan, or says how far it may be off; `--seconds`"
    " gives it more time",
    "partition --transform": _TRANSFORM,
    "profile --transform": _TRANSFORM,
    "report --port": "a report is one file: open it in a browser",
    "report --serve": "a report is one file: open it in a browser; `nnapi-prof go --open` does",
}
"""``COMMAND --option`` or ``COMMAND [SUBCOMMAND]``, without ``nnapi-prof`` -> what to do instead,
as the end of a sentence."""


def removal(command_path: str, word: str) -> str | None:
    """Return the error message for an option or a subcommand that was removed from the command
    with this path (``nnapi-prof costs``); None where there never was such a one."""
    words = [*command_path.split()[1:], word]
    instead = REMOVED.get(" ".join(words))
    return None if instead is None else f"`{' '.join(words)}` was removed: {instead}"
