"""Runs experiments."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from . import build, experiments, machine
from .draws import SplitMix64
from .model import Experiment, LabError, Result
from .program import Executable, Instruments, Program, Tools, end_all
from .progress import Progress

Item = TypeVar("Item")
Found = TypeVar("Found")


class Run:
    """An experiment while it is measured."""

    def __init__(
        self, parameters: Any, tools: Tools | None = None, progress: Progress | None = None
    ) -> None:
        self.parameters = parameters
        self._tools = tools or Tools()
        self._progress = progress or Progress({})
        #: Whether it was given up: nothing more is to be started.
        self.ended = False

    @property
    def program(self) -> Program:
        """The program ``fairlane``, for what must be a process of its own."""
        return self._tools.program

    @property
    def instruments(self) -> Instruments:
        """The program ``fairlane-instruments``, for what only measures."""
        return self._tools.instruments

    def each(
        self, items: Iterable[Item], work: Callable[[Item], Found], *, jobs: int = 1
    ) -> list[Found]:
        """The results of ``work`` for each item, in their order; ``jobs`` at a time, in threads: ``work`` must
        release the interpreter's lock, as simulations and programs do."""
        items = list(items)
        self._progress.expect(len(items))
        if jobs == 1:
            found = []
            for item in items:
                found.append(work(item))
                self._progress.tick(str(item))
            return found
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                for done in concurrent.futures.as_completed(futures):
                    done.result()
                    self._progress.tick()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.ended = True
                end_all()
                raise
            return [future.result() for future in futures]

    def rounds(
        self,
        items: Sequence[Item],
        work: Callable[[Item], Found],
        rounds: int,
        seed: int,
        *,
        jobs: int = 1,
    ) -> list[list[Found]]:
        """The results of ``work`` for each item, once in each round, ``jobs`` at a time. Each round has an order
        of its own, by ``seed``, so that disturbances of the machine affect no item in particular."""
        random = SplitMix64(seed)
        order = [number for _ in range(rounds) for number in random.shuffled(list(range(len(items))))]
        found: list[list[Found]] = [[] for _ in items]
        for number, one in zip(order, self.each([items[number] for number in order], work, jobs=jobs)):
            found[number].append(one)
        return found


def measured(
    experiment: Experiment,
    parameters: Any,
    quick: bool,
    tools: Tools | None = None,
    progress: Progress | None = None,
) -> Result:
    """The results of an experiment."""
    tools = tools or Tools()
    programs = equip(experiment, tools)
    before = build.of(programs)
    watch = machine.Watch()
    tables = experiment.measure(Run(parameters, tools, progress))
    others, seconds = watch.others(), watch.seconds
    if build.of(programs) != before:
        doubt = "The programs or the checkout changed while it was measured."
        before = dataclasses.replace(before, doubts=(*before.doubts, doubt))
    versions = [program.version for program in programs]
    return Result(
        experiment,
        parameters,
        quick,
        tables,
        ", ".join([machine.line(), *versions]),
        others,
        seconds,
        before,
    )


def equip(experiment: Experiment, tools: Tools) -> list[Executable]:
    """Finds the programs that an experiment needs; refused where there is none, or where this machine cannot do
    it."""
    lacking = machine.lacks_cores(experiment.cores)
    if experiment.network and not lacking:
        lacking = tools.instruments.lacks(experiment.network)
    if lacking:
        raise LabError(lacking)
    programs: list[Executable] = [tools.program] if experiment.needs_program else []
    programs += [tools.instruments] if experiment.needs_instruments else []
    return programs


def run(
    name: str,
    *,
    quick: bool = False,
    program: str | None = None,
    instruments: str | None = None,
    **changes: Any,
) -> Result:
    """Measures the experiment of this name; ``changes`` are of its parameters, by name.

    ``program`` is the program ``fairlane``, and ``instruments`` ``fairlane-instruments``, where an
    experiment needs it and it is not found by itself.
    """
    experiment = experiments.named(name)
    parameters = experiment.parameters(quick, changes)
    return measured(experiment, parameters, quick, Tools(program, instruments))
