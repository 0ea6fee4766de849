"""Feature levels as options take them."""

from __future__ import annotations

import click

from nnapi_prof.nnapi.codes import FeatureLevel


class Level(click.ParamType[int]):
    """A feature level as devices report it: an API level up to 31, then 1000006, 1000007, ...

    Android moved NNAPI into an updatable module after API 31, so that later levels are not tied
    to an API level: a device says which it has (``nnapi-prof devices`` shows it).
    """

    name = "level"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            return int(FeatureLevel(int(value)))
        except ValueError:
            self.fail(f"{value} is none of {', '.join(map(str, known_levels()))}", param, ctx)


def known_levels() -> list[int]:
    """Every feature level, the oldest first."""
    return [int(level) for level in FeatureLevel]
