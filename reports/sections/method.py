"""How it was measured: what, how often, under which conditions."""

from __future__ import annotations

from nnapi_prof.reports.facts import method_facts
from nnapi_prof.reports.sections import Section

SECTION = Section("method", "Method", "How it was measured", method_facts)
