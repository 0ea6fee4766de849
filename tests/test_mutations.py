"""The list of mutations fits the sources: ``python -m tests.mutations`` runs them."""

import pytest

from tests.mutations import MUTATIONS, REPO


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.after)
def test_what_a_mutation_replaces_occurs_once(mutation):
    assert (REPO / mutation.file).read_text().count(mutation.before) == 1
    files = [test.split("::")[0] for test in mutation.tests if test.startswith("tests/")]
    assert files and all((REPO / file).is_file() for file in files)
