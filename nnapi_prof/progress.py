"""Callbacks that steps report their progress to.

A user's program gets a :class:`nnapi_prof.execution.profile.Progress`; the steps below it know
less, and call one of these.
"""

from __future__ import annotations

from collections.abc import Callable

Notify = Callable[[str], None]
"""Called with a line that says what comes next."""
CountCallback = Callable[[int, int], None]
"""Called with the number of finished parts, and of all."""
StepCallback = Callable[[str, int, int], None]
"""Called with the name of the current part, the number of finished parts, and of all."""
