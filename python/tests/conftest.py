"""What tests share."""

import os
import signal

import pytest

# Who starts the tests in the background may have had it ignored, and Python leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def long():
    """For tests that are long by nature, or need what only the long form installs."""
    if not os.environ.get("FAIRLANE_LONG_TESTS"):
        pytest.skip("FAIRLANE_LONG_TESTS is not set")
