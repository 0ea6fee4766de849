"""What the shell's TAB offers for values: devices, phones, models, bundles, documents.

Asked anew at every TAB, so that nothing here may take long: no torch, and an adb server that does
not answer at once has no phones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]

ADB_SERVER_S = 0.3
MODELS = (".pt", ".pt2")
BUNDLES = (".nnprof",)
IN_BASH = "NNAPI_PROF_COMPLETING_IN_BASH"
"""Set by the script for bash, which marks what are paths."""


def devices(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """What ``--device`` takes: simulated phones, this host, phones of a running adb server."""
    from nnapi_prof.device.find import LOCAL, SIMULATED, list_phones
    from nnapi_prof.device.transport.adb_server import AdbServer
    from nnapi_prof.errors import NnapiProfError

    try:
        phones = [phone.serial for phone in AdbServer().devices(ADB_SERVER_S)]
    except (NnapiProfError, OSError):
        phones = []
    here = [LOCAL, *(f"{SIMULATED}{name}" for name in list_phones())]
    return _beginning_with(incomplete, [*phones, *here])


def phones(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """What ``--phone`` takes: names that come along, and descriptions in files."""
    from nnapi_prof.costs.estimate.phones import shipped
    from nnapi_prof.device.find import list_phones

    named = _beginning_with(incomplete, [*list_phones(), *shipped()])
    return named + files((".json",))(context, parameter, incomplete)


def documents(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Names of documents."""
    from nnapi_prof.documents import schemas

    return _beginning_with(incomplete, schemas())


def files(endings: tuple[str, ...]) -> Complete:
    """Files with these endings, and the folders on the way; in zsh and fish all files."""

    def complete(
        _context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        if IN_BASH not in os.environ:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(path, type="path") for path in _paths(incomplete, endings)]

    return complete


def _paths(incomplete: str, endings: tuple[str, ...]) -> list[str]:
    """Bundles are folders, and named like files here."""
    before, _, begin = incomplete.rpartition("/")
    folder = f"{before}/" if before or incomplete.startswith("/") else ""
    try:
        entries = sorted(os.scandir(Path(folder or ".").expanduser()), key=lambda e: e.name)
    except OSError:
        return []
    return [
        f"{folder}{entry.name}"
        for entry in entries
        if entry.name.startswith(begin)
        and (begin.startswith(".") or not entry.name.startswith("."))
        and (entry.is_dir() or entry.name.endswith(endings))
    ]


def _beginning_with(incomplete: str, words: Iterable[str]) -> list[CompletionItem[str]]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]
