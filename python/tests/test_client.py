"""A client of a daemon, which tests/python.rs runs."""

import os

import fairlane
import pytest

SOCKET = os.environ.get("FAIRLANE_TEST_SOCKET")


@pytest.mark.skipif(SOCKET is None, reason="the daemon is run by tests/python.rs")
def test_a_client_attaches_pushes_and_leaves(monkeypatch):
    with fairlane.attach(SOCKET) as client:
        assert (client.class_name, client.weight, client.max_len) == ("guests", 3, 1500)
        assert client.capacity >= 1 and not client.is_abandoned
        for number in range(3):
            client.push(f"python {number}".encode())
        with pytest.raises(fairlane.LengthError) as error:
            client.push(bytes(1501))
        assert error.value.argument == "packet"

        class Looks(fairlane.LengthError):
            def __init__(self, *arguments):
                assert client.weight == 3
                super().__init__(*arguments)

        # Nothing is locked where an exception is made.
        monkeypatch.setattr(fairlane.errors, "LengthError", Looks)
        with pytest.raises(Looks):
            client.push(bytes(1501))
        assert client.told["malformed"] == 0
    assert client.is_abandoned
    with pytest.raises(fairlane.DaemonGone):
        client.push(b"too late")


def test_who_listens_nowhere_cannot_be_reached(tmp_path):
    with pytest.raises(fairlane.AttachError, match="nobody.sock") as error:
        fairlane.attach(tmp_path / "nobody.sock")
    assert isinstance(error.value, ConnectionError)
