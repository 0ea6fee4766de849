"""What Python's users hear of a step: their progress callback, and the logger ``nnapi_prof``."""

from __future__ import annotations

import logging

from nnapi_prof.api.listener import Listener, ProgressCallback

LOGGER = logging.getLogger("nnapi_prof")


def to_log(progress: ProgressCallback | None) -> Listener:
    """Notes go to the log as INFO, progress to ``progress`` where there is one."""

    def tell(text: str) -> None:
        LOGGER.info("%s", text)

    if progress is None:
        return Listener(note=tell, busy=tell)
    return Listener(note=tell, busy=tell, progress=progress)
