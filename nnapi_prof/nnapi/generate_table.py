"""The table of operations that the device agent's runtime checks models by, from the JSON facts.

What the facts say in words, or per operation, becomes rows of ``device_agent/include/np_ops.h``'s
structs here; the few rules that no field of the facts carries stand in the constants below, each
with its source.
"""

from __future__ import annotations

from typing import Any

from nnapi_prof.nnapi.data_index import data_index

Facts = dict[str, Any]

INPUT_KINDS = {
    "tensor": "TENSOR",
    "int32": "INT32",
    "bool": "BOOL",
    "float32": "FLOAT32",
    "float32|float16": "FLOAT",
    "float32|float16|int32": "VALUE",
    "model": "MODEL",
}
VARIANTS = {
    "default": "DEFAULT",
    "explicit_padding": "EXPLICIT",
    "implicit_padding": "IMPLICIT",
    "resize_by_shape": "BY_SIZE",
    "resize_by_scale": "BY_SCALE",
}
REPEATED = {"CONCATENATION": 0, "PACK": 1, "IF": 3, "WHILE": 2}
"""Operation -> the input that stands for any number of tensors; see their notes in the facts.
WHILE's three kinds of loop variables are told apart by its models, so one entry stands for all."""
REPEATED_OUTPUTS = ("SPLIT", "IF", "WHILE")
EARLY_RANKS = {"SOFTMAX": (2, 4), "L2_NORMALIZATION": (4,), "LOCAL_RESPONSE_NORMALIZATION": (4,)}
"""Ranks below feature level 3; the notes of these operations say so."""
BOXES = {"TENSOR_QUANT8_ASYMM": "TENSOR_QUANT16_ASYMM"} | {
    "TENSOR_QUANT8_ASYMM_SIGNED": "TENSOR_QUANT16_ASYMM"
}
OUTPUTS_OF_OTHER_TYPE = {
    "BOX_WITH_NMS_LIMIT": {1: BOXES},
    "GENERATE_PROPOSALS": {1: BOXES},
    "HEATMAP_MAX_KEYPOINT": {1: BOXES},
}
"""Boxes and key points of quantised data are QUANT16_ASYMM: `output_quant_rule` of each."""
HASH_TYPES = [
    {"type": "TENSOR_FLOAT16", "since_level": 3},
    {"type": "TENSOR_FLOAT32", "since_level": 1},
]
"""LSH_PROJECTION: the hash tensor decides, says its note; what is hashed may be of any type."""


def _data_types(op: Facts) -> list[Facts]:
    types: list[Facts] = HASH_TYPES if op["name"] == "LSH_PROJECTION" else op["tensor_types"]
    return types


def _input_types(op: Facts, entry: Facts, data: str) -> list[str]:
    """Types that a tensor input may have where the data are of type ``data``."""
    if op["name"] == "LSH_PROJECTION" and entry["name"] == "input":
        return [t["type"] for t in op["tensor_types"]]
    by_config = {"weights": "filter"}.get(entry["name"], entry["name"])
    configs = [c for c in op.get("type_configurations", ()) if c["input"] == data]
    if configs and by_config in configs[0]:
        return sorted({c[by_config] for c in configs})
    if listed := entry.get("tensor_types_when_input0_is", {}).get(data):
        return list(listed)
    types: list[str] = entry.get("tensor_types", [])
    if not types or data in types:
        return [data]
    return types


def _output_types(op: Facts, index: int, data: str) -> list[str]:
    output = op["outputs"][index]
    if output["kind"] == "int32":
        return ["INT32"]
    if op["name"] == "CAST":
        return [t["type"] for t in op["tensor_types"]]
    other = OUTPUTS_OF_OTHER_TYPE.get(op["name"], {}).get(index, {})
    if data in other:
        return [other[data]]
    types: list[str] = output.get("tensor_types") or [data]
    return types


def _mask(types: list[str]) -> str:
    return " | ".join(f"NP_BIT(NP_TYPE_{name})" for name in types)


def _counts(op: Facts, form: Facts) -> int:
    """The numbers of inputs that a form allows, as a bit set."""
    inputs = form["inputs"]
    needed = sum(not entry["optional"] for entry in inputs)
    accepted = op.get("accepted_input_counts") or [len(inputs)]
    return sum(1 << n for n in accepted if needed <= n <= len(inputs))


def _output_counts(op: Facts) -> tuple[int, int]:
    if op["name"] in REPEATED_OUTPUTS:
        return 1, 255
    counts = op.get("accepted_output_counts") or [len(op["outputs"])]
    return min(counts), max(counts)


def _form_text(op: Facts, form: Facts, number: int, data: list[Facts]) -> tuple[list[str], str]:
    """Definitions that one form needs, and its row."""
    name = f"{op['name']}_{number}"
    inputs = form["inputs"][:3] if op["name"] == "WHILE" else form["inputs"]
    lines = [f"static const struct np_op_input INPUTS_{name}[] = {{"]
    for entry in inputs:
        kind = INPUT_KINDS[entry["kind"]]
        level = entry["since_level"]
        lines.append(
            f'  {{"{entry["name"]}", NP_INPUT_{kind}, {int(entry["optional"])}, {level}}},'
        )
    lines.append("};")
    types = "NULL"
    if data:
        types = f"TYPES_{name}"
        lines.append(f"static const uint16_t {types}[] = {{")
        for row in data:
            masks = [
                _mask(_input_types(op, entry, row["type"])) if entry["kind"] == "tensor" else "0"
                for entry in inputs
            ]
            lines.append("  " + ", ".join(masks) + ",")
        lines.append("};")
    layout = next((i for i, entry in enumerate(inputs) if entry["name"] == "layout_nchw"), 255)
    text = (
        f"{{NP_{VARIANTS[form['variant']]}, {form['since_level']}, {len(inputs)}, "
        f"{REPEATED.get(op['name'], 255)}, {layout}, {_counts(op, form)}u, INPUTS_{name}, {types}}}"
    )
    return lines, text


def _operation_text(op: Facts) -> tuple[list[str], str]:
    """Definitions that one operation needs, and its row of the table."""
    name = op["name"]
    data = _data_types(op)
    lines: list[str] = []
    forms: list[str] = []
    for number, form in enumerate(op["signatures"]):
        definitions, text = _form_text(op, form, number, data)
        lines += definitions
        forms.append(f"  {text},")
    lines += [f"static const struct np_op_form FORMS_{name}[] = {{", *forms, "};"]
    types, outputs = "NULL", "NULL"
    low, high = _output_counts(op)
    if data:
        types, outputs = f"DATA_{name}", f"OUTPUTS_{name}"
        lines.append(f"static const struct np_op_data {types}[] = {{")
        lines += [f"  {{NP_TYPE_{row['type']}, {row['since_level']}}}," for row in data]
        lines += ["};", f"static const uint16_t {outputs}[] = {{"]
        for row in data:
            masks = [
                _mask(_output_types(op, index, row["type"])) for index in range(len(op["outputs"]))
            ]
            lines.append("  " + ", ".join(masks) + ",")
        lines.append("};")
    early = sum(1 << rank for rank in EARLY_RANKS.get(name, ()))
    text = (
        f'"{name}", {op["min_feature_level"]}, {data_index(op)}, '
        f"{op['rank']['min'] or 0}, {op['rank']['max'] or 0}, {early}, {len(data)}, "
        f"{len(forms)}, {low}, {high}, {types}, FORMS_{name}, {outputs}"
    )
    return lines, f"  [ANEURALNETWORKS_{name}] = {{{text}}},"


def table_text(operations: list[Facts], notice: str) -> str:
    """The text of ``ops_table.c``."""
    lines = [
        "/* What NNAPI's documentation says of each operation; see np_ops.h.",
        f" * {notice} */",
        '#include "np_ops.h"',
        "",
        "#include <stddef.h>",
        "",
        "// clang-format off",
    ]
    rows = []
    for op in operations:
        definitions, row = _operation_text(op)
        lines += definitions
        rows.append(row)
    lines += ["", "static const struct np_op_info OPERATIONS[] = {", *rows, "};"]
    lines += [
        "// clang-format on",
        "",
        "const struct np_op_info *np_op_info(int32_t code) {",
        "  if (code < 0 || (size_t)code >= sizeof OPERATIONS / sizeof OPERATIONS[0]) {",
        "    return NULL;",
        "  }",
        "  return &OPERATIONS[code];",
        "}",
        "",
    ]
    return "\n".join(lines)
