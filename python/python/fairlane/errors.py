"""What goes wrong, by kind. All are :class:`FairlaneError`."""

from __future__ import annotations


class FairlaneError(Exception):
    """Anything that this package raises of its own.

    ``args`` has all arguments of the constructor, the sentence first, so that a copy can be made with
    ``type(error)(*error.args)``, as SimPy does and as ``pickle`` does.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ArgumentError(FairlaneError, ValueError):
    """An argument cannot be.

    ``argument`` is its name; ``index`` is that of the first such element where it is an array or a
    list, else ``None``.
    """

    def __init__(self, sentence: str, argument: str, index: int | None = None) -> None:
        super().__init__(sentence, argument, index)
        self.argument = argument
        self.index = index


class DtypeError(ArgumentError, TypeError):
    """What should be whole numbers, or a column of them, is something else."""


class UnsortedError(ArgumentError):
    """Times are not in order."""


class UnknownAlgorithm(ArgumentError):
    """No algorithm has this name."""


class WeightError(ArgumentError):
    """A weight is not from 1 to 1,000,000."""


class LengthError(ArgumentError):
    """A length is not from 1 to the longest that is allowed there."""


class RateError(ArgumentError):
    """What should be a rate is none."""


class UnknownFlow(ArgumentError, LookupError):
    """There is no such flow or class."""


class Rejected(FairlaneError):
    """A packet was not accepted, and is still the caller's.

    ``reason`` is one of ``unknown``, ``no-queue``, ``too-long``, ``queue-full``, ``link-full`` and
    ``congestion``.
    """

    def __init__(self, sentence: str, reason: str) -> None:
        super().__init__(sentence, reason)
        self.reason = reason


class SiteError(FairlaneError):
    """A file is no site, or no scenario.

    ``places`` has ``(file, line, column, sentence)`` of each error, from 1; it is empty where the file
    cannot be read.
    """

    def __init__(self, text: str, places: list[tuple[str, int, int, str]]) -> None:
        super().__init__(text, places)
        self.places = places


class AttachError(FairlaneError, ConnectionError):
    """A daemon cannot be reached, or its answer cannot be used."""


class AttachRefused(AttachError):
    """A daemon refused this process, and says why."""


class MailboxFull(FairlaneError):
    """The daemon has not come round yet: the packet is still the caller's."""


class DaemonGone(AttachError):
    """The daemon ended, or cut this client off."""
