"""What tests share."""

import os
import signal

import pytest

# A shell that starts the tests in the background may ignore the signal, and Python inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def long():
    """For tests that are long by nature, or need what only the long form installs."""
    if not os.environ.get("FAIRLANE_LONG_TESTS"):
        pytest.skip("FAIRLANE_LONG_TESTS is not set")
