"""What tests share."""

import os

import pytest


@pytest.fixture
def long():
    """For tests that are long by nature, or need what only the long form installs."""
    if not os.environ.get("FAIRLANE_LONG_TESTS"):
        pytest.skip("FAIRLANE_LONG_TESTS is not set")
