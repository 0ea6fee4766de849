"""What commands about the tool, devices, their agents and conversions print with ``--json``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.documents.executorch import COMPARED, of_compared
from nnapi_prof.documents.plans import NOTES, OUTPUT, of_checks
from nnapi_prof.documents.schema import (
    COUNT,
    COUNT_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    Document,
    Schema,
    array,
    choice,
    described,
    document,
    mapping,
    nullable,
    obj,
    properties,
)

if TYPE_CHECKING:
    from nnapi_prof.convert.dynamic_shapes.template import OpenSize
    from nnapi_prof.device.clean import Removed
    from nnapi_prof.device.find import ListedDevice
    from nnapi_prof.device.protocol.results import AgentInfo
    from nnapi_prof.doctor.checks import Finding
    from nnapi_prof.execution.report import OutputCheck
    from nnapi_prof.executorch.choice import Choice


@document(
    "version",
    1,
    "What this nnapi-prof is, and what it runs on",
    version=TEXT,
    python=TEXT,
    platform=TEXT,
    packages=described(mapping(TEXT_OR_NULL), "package -> version; null where it is not installed"),
)
def of_version(
    version: str, python: str, platform: str, packages: Mapping[str, str | None]
) -> Document:
    return {
        "version": version,
        "python": python,
        "platform": platform,
        "packages": dict(packages),
    }


@document(
    "schema",
    1,
    "The documents that commands print with --json",
    documents=array(
        obj(
            name=described(TEXT, "what `nnapi-prof schema` takes"),
            id=described(TEXT, "what the document's own property `schema` says"),
            title=TEXT,
        )
    ),
)
def of_schemas(by_name: Mapping[str, Schema]) -> Document:
    return {
        "documents": [
            {"name": name, "id": schema["$id"], "title": schema["title"]}
            for name, schema in by_name.items()
        ]
    }


@document(
    "completion",
    1,
    "A script that lets a shell complete commands, options and values",
    shell=TEXT,
    script=TEXT,
)
def of_completion(shell: str, script: str) -> Document:
    return {"shell": shell, "script": script}


@document(
    "devices",
    1,
    "The devices within reach",
    devices=array(
        obj(
            serial=described(TEXT, "what --device takes"),
            kind=described(TEXT, "how it is reached"),
            state=TEXT,
            description=TEXT,
            simulated=TRUTH,
        )
    ),
)
def of_devices(rows: Iterable[ListedDevice]) -> Document:
    devices = [
        {**dataclasses.asdict(row), "simulated": row.serial.startswith("sim:")} for row in rows
    ]
    return {"devices": devices}


_FINDING = obj(
    family=described(TEXT, "what the check belongs to: Python, ADB, Phone, ..."),
    check=described(TEXT, "what was looked at"),
    level=choice("ok", "warning", "problem"),
    found=TEXT,
    fix=described(TEXT_OR_NULL, "how to mend it, where there is something to mend"),
)


@document(
    "doctor",
    1,
    "What stands in the way of measuring",
    problems=described(COUNT, "findings of level problem; the exit code is 1 where there are any"),
    warnings=described(COUNT, "findings of level warning"),
    findings=array(_FINDING),
)
def of_findings(findings: Sequence[Finding]) -> Document:
    levels = [each.level.value for each in findings]
    return {
        "problems": levels.count("problem"),
        "warnings": levels.count("warning"),
        "findings": [properties(_FINDING, each) for each in findings],
    }


_AGENT_PATH = described(TEXT, "of the agent on the device")


@document(
    "agent-build",
    1,
    "Agents that were built, or found built",
    agents=array(obj(abi=TEXT, n_bytes=COUNT, file=TEXT)),
)
def of_build(built: Sequence[tuple[str, Path]]) -> Document:
    """``built``: the ABI and file of each."""
    return {
        "agents": [
            {"abi": abi, "n_bytes": path.stat().st_size, "file": str(path)} for abi, path in built
        ]
    }


@document("agent-push", 1, "The agent is on a device and runs", serial=TEXT, path=_AGENT_PATH)
def of_push(serial: str, path: str) -> Document:
    return {"serial": serial, "path": path}


@document(
    "agent-info",
    1,
    "What a device is and offers",
    serial=TEXT,
    device=described(TEXT, "for people"),
    fingerprint=described(TEXT, "the device in the cost table"),
    simulated=TRUTH,
    phone=described(TEXT_OR_NULL, "name of the simulated phone"),
    path=_AGENT_PATH,
    agent=described(TEXT, "its version"),
    protocol=COUNT,
    abi=TEXT,
    os=TEXT,
    api_level=COUNT_OR_NULL,
    properties=described(mapping(TEXT), "of the system"),
    cpus=COUNT,
    cpu_max_khz=array(COUNT_OR_NULL),
    big_cores=described(TEXT_OR_NULL, "mask of the cores with the highest clock rate"),
    threads_max=described(COUNT_OR_NULL, "threads that are of use"),
    memory_kb=COUNT_OR_NULL,
    engines=described(mapping(array(TEXT)), "engine -> whose kernels it has"),
    nnapi=obj(
        library=TEXT_OR_NULL,
        door=described(TEXT, "nnapi, support library or neuron adapter: how it has its functions"),
        error=TEXT_OR_NULL,
        missing=described(array(TEXT), "functions that this version lacks"),
        accelerators=array(
            obj(name=TEXT, type=TEXT, version=TEXT, feature_level=COUNT),
        ),
    ),
)
def of_info(serial: str, path: str, info: AgentInfo) -> Document:
    from nnapi_prof.device.protocol.description import describe, device_fingerprint

    return properties(
        "agent-info",
        info,
        serial=serial,
        device=describe(info),
        fingerprint=device_fingerprint(info),
        path=path,
    )


@document(
    "agent-clean",
    1,
    "What was removed from a device",
    serial=TEXT,
    n_agents=COUNT,
    n_files=COUNT,
    n_bytes=described(COUNT, "removed"),
    kept_bytes=COUNT,
)
def of_clean(serial: str, gone: Removed) -> Document:
    return properties("agent-clean", gone, serial=serial)


_OPEN_SIZE = obj(
    input=COUNT,
    dim=COUNT,
    least=COUNT,
    most=COUNT,
    step=COUNT,
    equal=described(array(obj(input=COUNT, dim=COUNT)), "dimensions of the same size"),
)
_FORMATS = ("stock", "json", "cpp", "runtime", "executorch")


@document(
    "convert",
    1,
    "What was converted, and the files that were written",
    source=described(TEXT, "the model or the bundle"),
    formats=array(choice(*_FORMATS)),
    files=array(
        obj(
            file=TEXT,
            format=choice(*_FORMATS, "weights"),
            n_bytes=COUNT,
        )
    ),
    regions=described(array(obj(n_operations=COUNT)), "NNAPI models that were made, in order"),
    cpu_units=described(COUNT, "units that stay on the CPU"),
    kept=described(
        array(obj(name=TEXT, label=TEXT, reason=TEXT)), "of these, what NNAPI cannot run, and why"
    ),
    in_floats=described(
        array(obj(name=TEXT, label=TEXT, reason=TEXT)),
        "quantised units that NNAPI computes in float32, and the rule that quant8 would break",
    ),
    precision=described(
        array(OUTPUT), "how far --float16 or --relaxed moves the outputs, where that is known"
    ),
    open_sizes=array(_OPEN_SIZE),
    executorch=described(
        nullable(COMPARED), "files that one for ExecuTorch was chosen among, where they were timed"
    ),
    notes=NOTES,
)
def of_conversion(
    source: Path,
    formats: Sequence[str],
    files: Sequence[tuple[Path, str]],
    regions: Sequence[int],
    cpu_units: int,
    cpu_reasons: Sequence[tuple[str, str, str]],
    in_floats: Sequence[tuple[str, str, str]],
    checks: Sequence[OutputCheck],
    opens: Sequence[OpenSize],
    notes: Sequence[str],
    compared: Choice | None,
) -> Document:
    """See :class:`nnapi_prof.cli.convert.OutputFiles`."""
    return {
        "source": str(source),
        "formats": list(dict.fromkeys(formats)),
        "files": [
            {"file": str(path), "format": kind, "n_bytes": path.stat().st_size}
            for path, kind in files
        ],
        "regions": [{"n_operations": n} for n in regions],
        "cpu_units": cpu_units,
        "kept": _reasons(cpu_reasons),
        "in_floats": _reasons(in_floats),
        "precision": of_checks(checks),
        "open_sizes": [
            properties(_OPEN_SIZE, each, equal=[{"input": i, "dim": dim} for i, dim in each.equal])
            for each in opens
        ],
        "executorch": None if compared is None else of_compared(compared),
        "notes": list(notes),
    }


def _reasons(rows: Sequence[tuple[str, str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "label": label, "reason": reason} for name, label, reason in rows]
