"""Jobs -> requests to the agent, of a size that a failure and this process's memory can bear."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nnapi_prof.convert.region import ConvertedRegion
from nnapi_prof.costs.locate import Region
from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.device.action import Timing
from nnapi_prof.device.groups import Groups
from nnapi_prof.device.request import RequestBuilder
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.measure.grid import Job
from nnapi_prof.measure.unit_model import Converter, make_action, refused

MAX_ACTIONS = 200
"""In one request; a request that fails as a whole costs no more than these."""
MAX_WEIGHT_BYTES = 128 << 20
"""Weights that one request's models hold in this process's memory."""


@dataclass
class Prepared:
    """A request, its jobs by action, and the jobs that cannot be sent."""

    request: RequestBuilder = field(default_factory=RequestBuilder)
    sent: dict[int, tuple[Job, ConvertedRegion]] = field(default_factory=dict)
    refusals: list[tuple[Job, Measurement]] = field(default_factory=list)


def batches(graph: UnitGraph, jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """Cuts jobs into requests, never between the alternatives of one region."""
    batch: list[Job] = []
    weight = 0
    for region, group in itertools.groupby(jobs, key=lambda job: job.region):
        alternatives = list(group)
        size = sum(graph.units[index].constant_bytes for index in region)
        full = len(batch) + len(alternatives) > MAX_ACTIONS or weight + size > MAX_WEIGHT_BYTES
        if batch and full:
            yield batch
            batch, weight = [], 0
        batch += alternatives
        weight += size
    if batch:
        yield batch


def prepare(
    batch: Sequence[Job],
    graph: UnitGraph,
    converter: Converter,
    timing: Timing,
    memory_kb: int,
    fingerprint: str,
    simulated: bool,
) -> Prepared:
    """Converts the jobs of one request, equal models once."""
    prepared = Prepared()
    request = prepared.request
    # Adding a model hashes its weights: once will do.
    models: dict[tuple[Region, int, bool], int] = {}
    groups = Groups()
    for number, job in enumerate(batch):
        converted = converter.convert(job.region, job.spec.level, job.halved)
        if isinstance(converted, str):
            row = refused(job, graph, fingerprint, simulated, converted)
            prepared.refusals.append((job, row))
            continue
        key = (job.region, job.spec.level, job.halved)
        if key not in models:
            models[key] = request.add_region(converted)
        group = groups.number(job.region, sum(map(len, converted.buffers)))
        request.add_action(
            make_action(number, job, converted, models[key], timing, group, memory_kb)
        )
        prepared.sent[number] = (job, converted)
    return prepared
