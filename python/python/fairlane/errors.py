"""Exceptions by kind. All are :class:`FairlaneError`."""

from __future__ import annotations


class FairlaneError(Exception):
    """The base class of this package's exceptions.

    ``args`` has all arguments of the constructor, the sentence first, so that a copy can be made with
    ``type(error)(*error.args)``, as SimPy does and as ``pickle`` does.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ArgumentError(FairlaneError, ValueError):
    """An argument is invalid.

    ``argument`` is its name; ``index`` is that of the first invalid element if it is an array or a
    list, else ``None``.
    """

    def __init__(self, sentence: str, argument: str, index: int | None = None) -> None:
        super().__init__(sentence, argument, index)
        self.argument = argument
        self.index = index


class DtypeError(ArgumentError, TypeError):
    """An argument is not an integer, or not a column of integers."""


class UnsortedError(ArgumentError):
    """Times are not in order."""


class UnknownAlgorithm(ArgumentError):
    """No algorithm has this name."""


class WeightError(ArgumentError):
    """A weight is not from 1 to 1,000,000."""


class LengthError(ArgumentError):
    """A length is not from 1 to the longest allowed."""


class RateError(ArgumentError):
    """An argument is not a rate."""


class UnknownFlow(ArgumentError, LookupError):
    """There is no such flow or class."""


class Rejected(FairlaneError):
    """A packet was not accepted, and still belongs to the caller.

    ``reason`` is one of ``unknown``, ``no-queue``, ``too-long``, ``queue-full``, ``link-full`` and
    ``congestion``.
    """

    def __init__(self, sentence: str, reason: str) -> None:
        super().__init__(sentence, reason)
        self.reason = reason


class SiteError(FairlaneError):
    """A file is not a valid site or scenario.

    ``places`` has ``(file, line, column, sentence)`` of each error, from 1; it is empty if the file
    cannot be read.
    """

    def __init__(self, text: str, places: list[tuple[str, int, int, str]]) -> None:
        super().__init__(text, places)
        self.places = places


class AttachError(FairlaneError, ConnectionError):
    """A daemon cannot be reached, or its answer is invalid."""


class AttachRefused(AttachError):
    """A daemon rejected this process, with a reason."""


class MailboxFull(FairlaneError):
    """The mailbox is full: the packet still belongs to the caller."""


class DaemonGone(AttachError):
    """The daemon ended, or disconnected this client."""
