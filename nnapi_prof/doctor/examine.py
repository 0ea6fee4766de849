"""All checks, in the order in which they are shown."""

from __future__ import annotations

from dataclasses import replace

from nnapi_prof.doctor.adb import ADB, USB
from nnapi_prof.doctor.checks import CheckResult, Host, failed, run
from nnapi_prof.doctor.host import AGENTS, CACHE, COMPILERS, COSTS, PYTHON
from nnapi_prof.doctor.phone import NNAPI, PHONE, STATE, agent_of, reach
from nnapi_prof.progress import Notify

HOST = (PYTHON, COMPILERS, CACHE, AGENTS, COSTS, ADB, USB)


def examine(
    spec: str | None = None, host: Host | None = None, progress: Notify | None = None
) -> list[CheckResult]:
    """Runs every check on this host and on the device that ``spec`` names.

    Without ``spec`` the only phone within reach is looked at. Raises nothing of a check's.
    """
    return run(HOST, host or Host()) + _phone(spec, progress)


def _phone(spec: str | None, progress: Notify | None) -> list[CheckResult]:
    try:
        phone, finding = reach(spec, progress)
    # As in `run`: whatever it is, the other findings are shown.
    except Exception as error:
        phone, finding = None, failed(error)
    findings = [replace(finding, family=PHONE.name, check="device")]
    if phone is None:
        return findings
    try:
        # The system first: it tells why an agent cannot be put there.
        findings += run([PHONE], phone)
        try:
            phone, agent = agent_of(phone, progress)
        except Exception as error:
            agent = failed(error)
        if agent is not None:
            findings.append(replace(agent, family=PHONE.name, check="agent"))
        return findings + run([NNAPI, STATE], phone)
    finally:
        phone.transport.close()
