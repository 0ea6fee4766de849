"""An independent reading of the facts: does a serialized model hold at a level?

Works on nnapi_ops.json directly, not through nnapi_prof.nnapi, and on parsed bytes.
"""

import json
from pathlib import Path

from nnapi_prof.convert import NnapiModel

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = {
    op["code"]: op for op in json.loads((ROOT / "nnapi_prof/nnapi/data/nnapi_ops.json").read_text())
}
KINDS = {"INT32": "int32", "FLOAT32": "float32", "FLOAT16": "float16", "BOOL": "bool"}


def broken_rules(model: NnapiModel, api_level: int) -> list[str]:
    """What in a model is newer than a level, or against an operation's form."""
    level = api_level - 1_000_000 if api_level > 1_000_000 else api_level - 26
    items = []
    for operation in model.operations:
        facts = OPERATIONS[operation.code]
        name = facts["name"]
        if facts["min_feature_level"] > level:
            items.append(f"{name} is of level {facts['min_feature_level']}")
        operands = [model.operands[i] for i in operation.inputs]
        kinds = [KINDS.get(operand.type.name, "tensor") for operand in operands]
        if not any(_fits(form, kinds, level) for form in facts["signatures"]):
            items.append(f"{name} has no form {kinds} at level {level}")
        limit = facts["rank"]["max"]
        ranks = [len(model.operands[i].dims) for i in (operation.inputs[0], *operation.outputs)]
        if limit is not None and max(ranks) > limit:
            items.append(f"{name} has ranks {ranks}, at most {limit}")
    return items


def _fits(form, kinds, level):
    arguments = list(form["inputs"])
    if ".." in str(arguments[0]["index"]):
        arguments[:1] = arguments[:1] * (len(kinds) - len(arguments) + 1)
    if form["since_level"] > level or len(kinds) > len(arguments):
        return False
    if any(not a["optional"] for a in arguments[len(kinds) :]):
        return False
    pairs = zip(arguments, kinds, strict=False)
    return all(kind in a["kind"].split("|") and a["since_level"] <= level for a, kind in pairs)
