"""A process that compiles graphs with Qualcomm's compiler: requests in, one JSON line each out.

Third-party native code runs here, so that a crash, a hang or exhausted memory ends only this
process. Its stdout and stderr belong to the libraries; answers go to a separate pipe.

    python -m nnapi_prof.qnn.worker FD
    {"onnx": PATH, "soc_model": 77, "mode": 3, "reasons": false, "context": null, "log": PATH}
    -> {"estimates": [...], "assigned": [...], "error": null, "reasons": {...}, "seconds": 1.2}
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

SIMULATED = "Simulated (Accelerator exec time us"
"""Prefix of the estimate's rows. "(cycles)" and "Accelerator (execute) time" are the x86 emulator's
own time after an inference, and say nothing about an NPU."""
ROOT_ROW = "Performance Estimates"
FILLS = ("Intermediate Fill", "Intermediate Spill")
MISSING = "Missing Ops (Number of Ops with no Costs associated)"
_REASONS = (
    re.compile(
        r"(?P<reason>Operators of type `\w+` are not supported by QNN EP)\.\s*\w+ node"
        r" `(?P<node>[^`]*)`"
    ),
    re.compile(
        r"(?P<reason>QNN\.backendValidateOpConfig\(\) failed) for node `(?P<node>[^`]*)` of type"
        r" `(?P<type>[^`]*)` with error code (?P<code>\d+)"
    ),
    re.compile(
        r"(?P<reason>Validation FAILED) for \d+ nodes in OrtNodeUnit \((?P<type>\w+)\)"
        r"(?: ?: ?(?P<node>\S+))?"
    ),
    re.compile(r"REASON : (?P<reason>QNN EP: .*? not supported by HTP backend)"),
)


def read_estimates(rows: Iterable[list[str]]) -> list[dict[str, int]]:
    """Reads estimates of the profiling file, one for each graph on the NPU: ``us``, ``low_us``,
    ``high_us``, ``spilled_bytes``, ``missing``.

    Only rows called "Simulated" are times.
    """
    graphs: list[dict[str, int]] = []
    for row in rows:
        if len(row) < 7:
            continue
        value, unit, name = row[2], row[3], row[6]
        if name == ROOT_ROW:
            graphs.append({"spilled_bytes": 0, "missing": 0})
        elif graphs and name.startswith(SIMULATED) and unit == "US":
            kind = "low_us" if "lower" in name else "high_us" if "upper" in name else "us"
            graphs[-1][kind] = int(value)
        elif graphs and name in FILLS:
            graphs[-1]["spilled_bytes"] += int(value)
        elif graphs and name == MISSING:
            graphs[-1]["missing"] += int(value)
    return [graph for graph in graphs if "us" in graph]


def read_reasons(text: str) -> dict[str, str]:
    """Returns node, or type of node in ``<>``, -> why it stays on the CPU, from a verbose log."""
    reasons: dict[str, str] = {}
    for pattern in _REASONS:
        for match in pattern.finditer(text):
            parts = match.groupdict()
            code = f", code {parts['code']}" if parts.get("code") else ""
            kind = f" of {parts['type']}" if parts.get("type") else ""
            place = parts.get("node") or f"<{parts.get('type') or ''}>"
            reasons.setdefault(place, f"{parts['reason']}{kind}{code}")
    return reasons


class QnnCompiler:
    """ONNX Runtime with the QNN execution provider."""

    def __init__(self) -> None:
        import onnxruntime
        import onnxruntime_qnn

        self.runtime: Any = onnxruntime
        self.backend = onnxruntime_qnn.get_qnn_htp_path()
        onnxruntime.register_execution_provider_library("QNN", onnxruntime_qnn.get_library_path())
        self.devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == "QNN"][:1]

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compiles one graph; a failure becomes ``error``."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="nnapi-prof-qnn-") as folder:
            profile = Path(folder) / "profile.csv"
            options = {
                "backend_path": self.backend,
                "soc_model": str(request["soc_model"]),
                "profiling_level": "basic",
                "profiling_file_path": str(profile),
                "htp_graph_finalization_optimization_mode": str(request["mode"]),
                "enable_htp_fp16_precision": "1",
                "offload_graph_io_quantization": "1",
            }
            session = self.runtime.SessionOptions()
            session.log_severity_level = 0 if request.get("reasons") else 3
            session.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
            if request.get("context"):
                session.add_session_config_entry("ep.context_enable", "1")
                session.add_session_config_entry("ep.context_file_path", request["context"])
                session.add_session_config_entry("ep.context_embed_mode", "0")
            session.add_provider_for_devices(self.devices, options)
            error, assigned = None, []
            try:
                inference = self.runtime.InferenceSession(request["onnx"], session)
                assigned = list(_assigned(inference.get_provider_graph_assignment_info()))
                del inference
            except Exception as failure:  # of any kind: the library throws its own
                error = str(failure)
            estimates = []
            if profile.exists():
                with profile.open(newline="", encoding="utf-8", errors="replace") as file:
                    estimates = read_estimates(csv.reader(file))
        return {
            "estimates": estimates,
            "assigned": assigned,
            "error": error,
            "seconds": round(time.monotonic() - began, 3),
        }


def _assigned(subgraphs: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yields each part of the graph: whether the NPU has it, and its nodes as [name, operation]."""
    for part in subgraphs:
        nodes = [[node.name, node.op_type] for node in part.get_nodes()]
        yield {"npu": part.ep_name == "QNN", "nodes": nodes}


def main(answers: int) -> None:
    """Answers requests on stdin until it ends."""
    with os.fdopen(answers, "w", encoding="utf-8") as out:
        compiler = QnnCompiler()
        for line in sys.stdin:
            request = json.loads(line)
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            answer = compiler.compile(request)
            if request.get("reasons"):
                text = Path(request["log"]).read_text(encoding="utf-8", errors="replace")
                answer["reasons"] = read_reasons(text)
            out.write(json.dumps(answer) + "\n")
            out.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
