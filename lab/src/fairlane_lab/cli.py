"""The command `fairlane-lab`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from . import experiments, running
from .model import Experiment, LabError
from .output import PAGE, Destination
from .program import Instruments, Program, Tools
from .progress import duration

#: Exit statuses: a failed experiment, bad input, and the shells' status for an interrupt.
FAILED = 1
REFUSED = 2
INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Prints an error in one line."""

    def error(self, message: str) -> None:
        self.exit(REFUSED, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fairlane-lab", description="What the papers behind Fairlane measured, measured again."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="list|reproduce|sim")
    listing = commands.add_parser("list", help="the experiments, their claims, how long they take")
    listing.add_argument("--json", action="store_true", help="one JSON object, and nothing else")
    doing = commands.add_parser("reproduce", help="do one experiment, or all of them, and write what they find")
    doing.add_argument(
        "name", metavar="NAME|all", nargs="?",
        help="an experiment, or all; without it, what there is, as `fairlane-lab list`",
    )  # fmt: skip
    doing.add_argument("--quick", action="store_true", help="the form of seconds of each")
    doing.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("fairlane-lab-report"),
        help="folder for the results: new, empty or with earlier ones [default: %(default)s]",
    )  # fmt: skip
    doing.add_argument(
        "--again", action="store_true",
        help="measure anew what this build measured already; without it, that is left as it stands",
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


def _reproduce(options: argparse.Namespace) -> int:
    if options.name is None:
        _list(False)
        return 0
    whole = options.name == "all"
    chosen = list(experiments.EXPERIMENTS) if whole else [experiments.named(options.name)]
    tools = Tools(options.fairlane, options.instruments)
    tools.find_named()
    skipped = {one.name: reason for one in chosen if (reason := _missing(one, tools, whole))}
    for name, reason in skipped.items():
        print(f"skipped {name}: {reason}", file=sys.stderr)
    with Destination(options.out) as destination:
        # Imports that take a second come after checks of the input.
        from .reproduction import Reproduction

        able = [one for one in chosen if one.name not in skipped]
        work = Reproduction(able, options.quick, tools, destination, skipped)
        work.refuse(options.again)
        if not options.again:
            work.keep()
        try:
            work.measure(whole)
        except KeyboardInterrupt:
            return _go_on(work, destination)
        work.write_page()
        for one in able:
            if one.name not in work.failed:
                _say(destination, one.name)
    print(f"Written to {destination.path / PAGE}")
    return FAILED if work.failed else 0


def _say(destination: Destination, name: str) -> None:
    for verdict in (destination.record(name) or {"verdicts": []})["verdicts"]:
        print(f"{name}: {verdict['line']}")


def _go_on(work: Reproduction, destination: Destination) -> int:
    """The results of an interrupted run."""
    if not work.done:
        raise KeyboardInterrupt
    work.write_page()
    print(
        f"fairlane-lab: interrupted; {', '.join(work.done)} stand in {destination.path}, and the same command goes on from "
        "there",
        file=sys.stderr,
    )
    return INTERRUPTED


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
            return _reproduce(options)
        return 0
    except LabError as error:
        print(f"fairlane-lab: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("fairlane-lab: interrupted, nothing was written", file=sys.stderr)
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
