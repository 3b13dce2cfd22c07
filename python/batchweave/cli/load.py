"""`python -m batchweave load FILE:SOURCE`: lanes of a source whose loader is Python."""
from __future__ import annotations

import argparse
import logging
import sys
import threading
from typing import Any, Callable

from ..format.stored_json import dump_json
from .printable import printable
from .stopping import Stopped
from .telemetry import add_telemetry


def add_load(commands: Any, whole: Callable[[str], int], count: Callable[[str], int]) -> None:
    """The subcommand and its options."""
    load = commands.add_parser("load", help="Fills the log of a Python source; start it as often as you like.")
    load.add_argument("source", help="A Python file and the name of a batchweave.load.Source in it: pipeline.py:books.")
    load.add_argument("--uri", help="The folder of source logs (default: what the source says, or BATCHWEAVE_SOURCES).")
    load.add_argument("--workers", type=whole, help="Processes for transforms (default: one a core; 0: none, transforms run in this process).")
    load.add_argument("--lanes", type=count, help="Lanes that this process holds at most (default: all).")
    load.add_argument("--measure", type=count, metavar="N", help="Write nothing; say what N samples cost, as fleet size asks.")
    load.add_argument("--seconds", type=float, default=10.0, help="With --measure: time for it, about (default 10).")
    load.add_argument("--no-pulse", action="store_true", help="Leave no hints of life beside the training log.")
    add_telemetry(load)
    load.add_argument("--json", action="store_true")
    load.set_defaults(run=run_load)


def run_load(args: argparse.Namespace) -> None:
    from ..load.loader import Loader
    from ..load.pipeline_file import load_pipeline

    if not args.json:
        logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
    source = load_pipeline(args.source)
    if args.measure is not None:
        _measure(source, args)
        return
    loader = Loader(source, args.uri, workers=args.workers, lanes_max=args.lanes, place=args.source, pulse=not args.no_pulse)
    # The lanes write in threads of their own, and a signal interrupts this one.
    ended: list[Any] = []
    done = threading.Event()

    def work() -> None:
        try:
            ended.append(loader.run())
        except BaseException as error:  # noqa: BLE001: raised below
            ended.append(error)
        done.set()

    threading.Thread(target=work, name="load", daemon=True).start()
    try:
        done.wait()
    except Stopped:
        # What is in blocks goes into the log, and the lanes are free for others at once.
        loader.stop()
        done.wait()
    if isinstance(ended[0], BaseException):
        raise ended[0]
    report = ended[0]
    if args.json:
        sys.stdout.write(printable(dump_json(report._asdict()).decode()) + "\n")
        return
    end = "complete" if report.is_complete else "not complete"
    print(printable(f"source {report.source}: {report.samples} samples loaded here, {report.faults} left out; the log is {end}"), file=sys.stderr)


def _measure(source: Any, args: argparse.Namespace) -> None:
    from ..load.measure import measure

    found = measure(source, args.measure, args.seconds, args.source)
    if args.json:
        sys.stdout.write(dump_json(found).decode() + "\n")
        return
    print(printable(f"source {source.name}: {found['loaderMs']:.2f} ms to transform and {found['readMs']:.2f} ms to read a sample, {found['tokens']:.0f} tokens, {found['faults']} of {found['samples']} left out"))
