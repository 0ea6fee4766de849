"""The command line, as tests/cli calls it."""

from tests.cli.conftest import cli as cli
