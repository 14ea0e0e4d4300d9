"""Runs experiments."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from . import experiments, machine
from .model import Experiment, Result
from .program import Program
from .progress import Progress

Item = TypeVar("Item")
Found = TypeVar("Found")


class Run:
    """An experiment while it is measured."""

    def __init__(
        self, parameters: Any, program: Program | None = None, progress: Progress | None = None
    ) -> None:
        self.parameters = parameters
        self._program = program
        self._progress = progress or Progress({})

    @property
    def program(self) -> Program:
        """The program ``fairlane``, for what must be a process of its own."""
        if self._program is None:
            self._program = Program.find()
        return self._program

    def each(
        self, items: Iterable[Item], work: Callable[[Item], Found], *, jobs: int = 1
    ) -> list[Found]:
        """What ``work`` makes of each item, in their order; ``jobs`` at a time, in threads: what it waits
        for must run without the interpreter's lock, as simulations and programs do."""
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
                raise
            return [future.result() for future in futures]


def measured(
    experiment: Experiment,
    parameters: Any,
    quick: bool,
    program: Program | None = None,
    progress: Progress | None = None,
) -> Result:
    """What an experiment finds."""
    if experiment.needs_program and program is None:
        program = Program.find()
    watch = machine.Watch()
    tables = experiment.measure(Run(parameters, program, progress))
    return Result(
        experiment,
        parameters,
        quick,
        tables,
        machine.line() + (f", {program.version}" if program else ""),
        watch.others(),
        watch.seconds,
    )


def run(name: str, *, quick: bool = False, program: str | None = None, **changes: Any) -> Result:
    """Measures the experiment of this name; ``changes`` are of its parameters, by name.

    ``program`` is the program ``fairlane`` where an experiment needs it and it is not found by itself.
    """
    experiment = experiments.named(name)
    found = Program.find(program) if experiment.needs_program else None
    return measured(experiment, experiment.parameters(quick, changes), quick, found)
