"""The machine that measures."""

from __future__ import annotations

import itertools
import os
import platform
import time
from pathlib import Path

import fairlane


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def cores() -> int:
    """Cores that this process may run on."""
    return len(_own_cores())


def lacks_cores(least: int) -> str:
    """The reason why an experiment that needs this many cores cannot run; ``None`` if it can."""
    have = cores()
    return "" if have >= least else f"{least} cores are needed, and this program may run on {have}"


#: How far two cores are from each other, as the PSPAT paper's Table 2 has it, from near to far:
#: hyperthreads of one core, cores of one socket, different sockets.
DISTANCES = ("HT-HT", "CPU-CPU", "SKT-SKT")


def pairs() -> dict[str, tuple[int, int]]:
    """For each distance that can be had here, two cores that far from each other."""
    return pairs_of({core: _place(core) for core in _own_cores()})


def pairs_of(places: dict[int, tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """The same of cores by their numbers, with the socket and the core that each stands for."""
    found: dict[str, tuple[int, int]] = {}
    for one, other in itertools.combinations(sorted(places), 2):
        (socket, core), (other_socket, other_core) = places[one], places[other]
        away = 2 if socket != other_socket else 1 if core != other_core else 0
        found.setdefault(DISTANCES[away], (one, other))
    return {distance: found[distance] for distance in DISTANCES if distance in found}


def _own_cores() -> list[int]:
    try:
        return sorted(os.sched_getaffinity(0))
    except AttributeError:
        return list(range(os.cpu_count() or 1))


def _place(core: int) -> tuple[str, str]:
    """Socket and core that a number stands for; by itself where the system does not say."""
    folder = f"/sys/devices/system/cpu/cpu{core}/topology"
    known = _read(f"{folder}/core_id").strip()
    return (_read(f"{folder}/physical_package_id").strip(), known) if known else ("", str(core))


def line() -> str:
    """Properties of the machine by which a reader judges a figure."""
    of_cpu = dict(
        (part.strip() for part in entry.split(":", 1))
        for entry in _read("/proc/cpuinfo").splitlines()
        if ":" in entry
    )
    virtual = ", virtual" if "hypervisor" in of_cpu.get("flags", "").split() else ""
    count = cores()
    return (
        f"{of_cpu.get('model name', platform.machine())}, {count} {'core' if count == 1 else 'cores'}"
        f"{virtual}, {platform.system()} {platform.release()}, Python {platform.python_version()}, "
        f"fairlane {fairlane.__version__}"
    )


def _busy() -> tuple[float, float] | None:
    """CPU time of all cores since the start, and the part of it for programs or other machines, in seconds: kernel
    work for devices, networks included, is not attributed."""
    fields = _read("/proc/stat").split("\n", 1)[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        return None
    ticks = [float(field) / 100 for field in fields[1:9]]
    user, nice, system, _idle, _waiting, _interrupts, _softirqs, stolen = ticks
    return sum(ticks), user + nice + system + stolen


class Watch:
    """Watches how much of the machine other programs take."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._busy = _busy()
        self._own = self._own_time()

    @staticmethod
    def _own_time() -> float:
        """Processor time of this process, and of the programs that it waited for."""
        return sum(os.times()[:4])

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begin

    def others(self) -> float | None:
        """The fraction of all cores' time that others used since then, 0 to 1; ``None`` if the system does not
        report it, or too little time has passed."""
        now = _busy()
        if self._busy is None or now is None or now[0] - self._busy[0] < 0.2:
            return None
        own = self._own_time() - self._own
        part = (now[1] - self._busy[1] - own) / (now[0] - self._busy[0])
        return min(max(part, 0.0), 1.0)
