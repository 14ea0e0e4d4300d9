"""The command `fairlane-lab`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from . import experiments, running
from .model import Experiment, LabError, Result
from .output import PAGE, Destination
from .program import Instruments, Program, Tools
from .progress import Progress, duration

#: Exit statuses: bad input, and what a shell has for an interrupt.
REFUSED = 2
INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> None:
        self.exit(REFUSED, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fairlane-lab", description="What the papers behind Fairlane measured, measured again."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="list|reproduce|sim")
    listing = commands.add_parser("list", help="the experiments, their claims, how long they take")
    listing.add_argument("--json", action="store_true", help="one JSON object, and nothing else")
    doing = commands.add_parser("reproduce", help="do one experiment, or all of them, and write a report")
    doing.add_argument(
        "name", metavar="NAME|all", nargs="?",
        help="an experiment, or all; without it, what there is, as `fairlane-lab list`",
    )  # fmt: skip
    doing.add_argument("--quick", action="store_true", help="the form of seconds of each")
    doing.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("fairlane-lab-report"),
        help="folder for the report: new, empty or an earlier report [default: %(default)s]",
    )  # fmt: skip
    for kind in (Program, Instruments):
        doing.add_argument(
            kind.option, metavar="PROGRAM",
            help=f"the program {kind.name} [default: {kind.variable}, target/release of a checkout, PATH]",
        )  # fmt: skip
    drawing = commands.add_parser("sim", help="simulate as `fairlane sim` does, and draw what each class sent")
    drawing.add_argument("scenario", metavar="SCENARIO.toml", type=Path, help="the scenario")
    drawing.add_argument(
        "--plot", metavar="FILE", type=Path, required=True,
        help="where the classes' rates over time are drawn: an SVG, or a PNG if FILE ends in .png",
    )  # fmt: skip
    for name, metavar, kind, what in (
        ("--seconds", "S", float, "time to simulate, in seconds"),
        ("--seed", "N", int, "seed of all that is random"),
        ("--link", "NAME", str, "the site's link"),
    ):
        drawing.add_argument(name, metavar=metavar, type=kind, help=f"{what}, in place of the scenario's")
    return parser


def _list(as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "name": one.name,
                "title": one.title,
                "source": one.source,
                "claim": one.claim,
                "takes_seconds": one.expected(False),
                "takes_seconds_quick": one.expected(True),
            }
            for one in experiments.EXPERIMENTS
        ]
        print(json.dumps({"experiments": rows}))
        return
    width = max(len(one.name) for one in experiments.EXPERIMENTS)
    for one in experiments.EXPERIMENTS:
        takes = f"{duration(one.expected(False))}, quick {duration(one.expected(True))}"
        print(f"{one.name:{width}}  {one.claim}\n{'':{width}}  {one.source}; {takes}")


def _reproduce(options: argparse.Namespace) -> None:
    if options.name is None:
        _list(False)
        return
    whole = options.name == "all"
    chosen = list(experiments.EXPERIMENTS) if whole else [experiments.named(options.name)]
    tools = Tools(options.fairlane, options.instruments)
    tools.find_named()
    skipped = {one.name: reason for one in chosen if (reason := _missing(one, tools, whole))}
    chosen = [one for one in chosen if one.name not in skipped]
    with Destination(options.out) as destination:
        # What takes a second to load comes after what can be refused.
        from . import report

        results = _measured(chosen, skipped, options.quick, tools)
        report.write(results, skipped, destination.folder)
        destination.place()
    for result in results:
        for verdict in result.verdicts:
            print(f"{result.experiment.name}: {verdict.line}")
    print(f"Written to {destination.path / PAGE}")


def _missing(one: Experiment, tools: Tools, whole: bool) -> str:
    """Why an experiment cannot be done here; nothing where it can. One that was asked for by its name is
    refused instead."""
    try:
        running.equip(one, tools)
    except LabError as error:
        if not whole:
            raise
        return str(error)
    return ""


def _measured(
    chosen: list[Experiment], skipped: dict[str, str], quick: bool, tools: Tools
) -> list[Result]:
    for name, reason in skipped.items():
        print(f"skipped {name}: {reason}", file=sys.stderr)
    progress = Progress({one.name: one.expected(quick) for one in chosen}, sys.stderr)
    results = []
    for one in chosen:
        progress.start(one.name)
        result = running.measured(one, one.parameters(quick, {}), quick, tools, progress)
        progress.finish("; ".join(verdict.word for verdict in result.verdicts))
        results.append(result)
    return results


def _sim(options: argparse.Namespace) -> None:
    from . import scenario

    asked = {"link": options.link, "seconds": options.seconds, "seed": options.seed}
    scenario.draw(options.scenario, options.plot, **asked)
    print(f"Written to {options.plot}")


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    options = _parser().parse_args(arguments)
    before = signal.signal(signal.SIGTERM, _interrupted)
    try:
        if options.command == "list":
            _list(options.json)
        elif options.command == "sim":
            _sim(options)
        else:
            _reproduce(options)
        return 0
    except LabError as error:
        print(f"fairlane-lab: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("fairlane-lab: interrupted, nothing was written", file=sys.stderr)
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
