"""All checks, in the order in which they are shown."""

from __future__ import annotations

import importlib

from nnapi_prof.doctor.checks import HOST, Finding, Host, error_finding, failed, run
from nnapi_prof.doctor.checks import PHONE as PHONE_CHECKS
from nnapi_prof.doctor.phone import PHONE, reach, with_agent
from nnapi_prof.errors import NnapiProfError
from nnapi_prof.toolchain import Progress

FAMILIES = ("software", "storage", "adb", "phone")
"""Modules whose import registers their checks, in the order in which findings are shown."""

for _module in FAMILIES:
    importlib.import_module(f"nnapi_prof.doctor.{_module}")
# A module that was imported before, for whatever reason, registered before.
HOST.sort(key=lambda each: FAMILIES.index(each[1].__module__.rpartition(".")[2]))
PHONE_CHECKS.sort(key=lambda each: FAMILIES.index(each[1].__module__.rpartition(".")[2]))


def examine(
    spec: str | None = None, host: Host | None = None, progress: Progress | None = None
) -> list[Finding]:
    """What every check finds on this host and on the device that ``spec`` names.

    Without ``spec`` the only phone within reach is looked at. Raises nothing of a check's.
    """
    return run(HOST, host or Host()) + _phone(spec, progress)


def _phone(spec: str | None, progress: Progress | None) -> list[Finding]:
    try:
        phone, findings = reach(spec, progress)
    # As in `run`: whatever it is, the other findings are shown.
    except Exception as error:
        return [failed(PHONE.name, reach, error)]
    if phone is None:
        return findings
    try:
        # The system first: it tells why an agent cannot be put there.
        findings += run([each for each in PHONE_CHECKS if each[0] == PHONE.name], phone)
        try:
            phone, agent = with_agent(phone, progress)
        except NnapiProfError as error:
            agent = error_finding(PHONE("agent"), error)
        findings += [] if agent is None else [agent]
        return findings + run([each for each in PHONE_CHECKS if each[0] != PHONE.name], phone)
    finally:
        phone.transport.close()
