"""The callbacks by which a step tells how far it is.

What a user's program is given is a :class:`nnapi_prof.execution.profile.Progress`; the
steps below it know less, and tell one of these.
"""

from __future__ import annotations

from collections.abc import Callable

Notify = Callable[[str], None]
"""Told in a line what comes next."""
CountCallback = Callable[[int, int], None]
"""Told how many parts are done, and of how many."""
StepCallback = Callable[[str, int, int], None]
"""Told what is at work, how many parts are done, and of how many."""
