"""Graphs of a published device-placement paper as problems of ours.

Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators", NeurIPS 2020;
data of github.com/msr-fiddle/dnn-partitioning, MIT licence (in tests/data/dnn_partitioning.zip).
Their CPU latencies are not measured (10 or 23 times the accelerator's), so they test scale,
structure and ties. Our objective: sequential latency on a CPU, whose memory holds all values, and
one accelerator, with each value paid where it enters or leaves a region, at the cost of its edge,
and a region's overhead of half the median latency of a CPU node that takes any time.
"""

import json
import random
import zipfile
from pathlib import Path

import networkx
import numpy as np

from nnapi_prof.graph.plan import CPU, Preference, Target
from nnapi_prof.partition.problem import Problem
from tests.partition.networks import problem_on

ARCHIVE = Path(__file__).parents[1] / "data" / "dnn_partitioning.zip"
ACCELERATOR = Target.nnapi("accelerator", Preference.FAST_SINGLE_ANSWER)


def names() -> list[str]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        return sorted(name for name in archive.namelist() if name.endswith(".json"))


def placement_problem(name: str, refused: float = 0.0, seed: int = 0) -> Problem:
    """A graph as a problem. ``refused`` is the share of nodes that the accelerator does not run,
    drawn with ``seed``; of these graphs, none."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        data = json.loads(archive.read(name))
    nodes = {node["id"]: node for node in data["nodes"]}
    graph = networkx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from((edge["sourceId"], edge["destId"]) for edge in data["edges"])
    cost = {edge["sourceId"]: edge["cost"] for edge in data["edges"]}
    order = list(networkx.lexicographical_topological_sort(graph))
    at = {node: u for u, node in enumerate(order)}
    chance = random.Random(seed)
    rows = [[nodes[i]["cpuLatency"], nodes[i]["fpgaLatency"]] for i in order]
    unit_ns = np.array(rows, dtype=np.float64)
    unit_ns[[u for u in range(len(order)) if chance.random() < refused], 1] = np.inf
    busy = unit_ns[unit_ns[:, 0] > 0, 0]
    return problem_on(
        [sorted(at[p] for p in graph.pred[i]) for i in order],
        unit_ns,
        labels=tuple(str(nodes[i].get("name", i)) for i in order),
        # In units of cost, and a byte takes 1 ns: problems do not need whole bytes.
        sizes=[cost.get(i, 0.0) for i in order],
        targets=(CPU, ACCELERATOR),
        overhead_ns=[0.0, float(np.median(busy)) / 2],
        ns_per_byte=[0.0, 1.0],
    )
