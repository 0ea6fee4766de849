"""A bundle, as tests of what is stored make it."""

from tests.bundle.test_storage import bundle as bundle
