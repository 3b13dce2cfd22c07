"""`python -m batchweave info|consume`: what a trainer's node can look at without Node.js.

The lines that --json prints are those of the `batchweave` command.
"""
from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
from typing import Any, Sequence

from .errors import BatchWeaveError, invalid
from .namespace import open_namespace
from .share import Share
from .stored_json import dump_json


def _print_json(value: Any) -> None:
    sys.stdout.write(dump_json(value).decode() + "\n")
    sys.stdout.flush()


def _info(args: argparse.Namespace) -> None:
    namespace = open_namespace(args.uri)
    info = namespace.info()
    if args.json:
        _print_json(info)
        return
    steps, grid = info["steps"], info["grid"]
    print(info["uri"])
    print(f"  uuid      {info['uuid']}")
    print(f"  grid      {grid['rows']} rows x {grid['chunks']} chunks, order {info['order']['kind']}")
    print(f"  steps     {steps['trim']} to {steps['end']} ({'closed' if info['closed'] else 'open'})")
    print(f"  version   {info['version']}, committed by {info['lastCommit']['by']}")
    for producer in info["producers"][:20]:
        print(f"  producer  {producer['id']}, epoch {producer['epoch']}, {producer['seq']} batches")
    for c in info["checkpoints"]:
        print(f"  checkpoint {c['group']}/{c['id']} at iteration {c['iteration']}, step {c['step']}")


def digest_of(share: Share) -> str:
    """sha256 of all bytes of the share, in order."""
    digest = hashlib.sha256()
    for piece in share.slices:
        digest.update(piece.bytes)
    return digest.hexdigest()


def _start(args: argparse.Namespace) -> Any:
    text = args.start
    if text is None:
        if args.cursor_file and os.path.exists(args.cursor_file):
            text = f"@{args.cursor_file}"
        else:
            return "earliest"
    if text.startswith("@"):
        try:
            with open(text[1:], encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            raise invalid(f"The cursor file {text[1:]} cannot be read: {error}.") from None
    place = re.fullmatch(r"(step|row):([0-9]{1,15})", text)
    return {place[1]: int(place[2])} if place else text


def _save_cursor(path: str, cursor: dict[str, Any]) -> None:
    """Written whole or not at all: a crash leaves the cursor before or this one."""
    with open(f"{path}.next", "wb") as file:
        file.write(dump_json(cursor) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.next", path)


def _consume(args: argparse.Namespace) -> None:
    sizes = {a: getattr(args, a) for a in ("dp", "cp", "tp", "pp", "ep", "order") if getattr(args, a) is not None}
    settings: dict[str, Any] = {"policy": args.policy, "layout": args.layout, "rows_per_rank": args.rows_per_rank}
    if args.prefetch_bytes is not None:
        settings["prefetch_bytes_max"] = args.prefetch_bytes
    namespace = open_namespace(args.uri)
    seen = total = 0
    with namespace.consumer(sizes, args.rank, _start(args), wait_timeout=args.wait_timeout, **settings) as consumer:
        place = consumer.place
        row = consumer.cursor["row"]
        print(f"rank {place.rank} of {place.world_size} ({place.text}) from row {row}", file=sys.stderr)
        cursor = consumer.cursor
        for share in consumer:
            line: dict[str, Any] = {"iteration": share.iteration, "digest": digest_of(share)}
            if args.slices:
                line["slices"] = [[s.step, s.row, s.chunk, hashlib.sha256(s.bytes).hexdigest()] for s in share.slices]
            if args.json:
                _print_json(line)
            seen += 1
            total += share.nbytes
            cursor = share.next
            if args.cursor_file and (share.iteration + 1) % (args.checkpoint_every or 1) == 0:
                _save_cursor(args.cursor_file, share.next)
            if args.iterations is not None and seen >= args.iterations:
                break
        if args.cursor_file:
            _save_cursor(args.cursor_file, cursor)
        left = f"; {consumer.leftover_rows} rows were too few for one more iteration" if consumer.leftover_rows else ""
        print(f"{seen} iterations, {total} bytes, waited {consumer.waited:.2f} s for data{left}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage as every other failure: one sentence and a code."""

    def error(self, message: str) -> Any:
        raise invalid(f"{message[:1].upper()}{message[1:]}. Run `python -m batchweave --help`.")


def _whole(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")


def _parser() -> _Parser:
    parser = _Parser(prog="python -m batchweave", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    info = commands.add_parser("info", help="Shows grid, steps, producers and checkpoints at the head.")
    info.add_argument("uri")
    info.add_argument("--json", action="store_true")
    info.set_defaults(run=_info)
    consume = commands.add_parser("consume", help="Reads the shares of one rank until the log is closed.")
    consume.add_argument("uri")
    for axis in ("dp", "cp", "tp", "pp", "ep"):
        consume.add_argument(f"--{axis}", type=_whole)
    consume.add_argument("--order")
    consume.add_argument("--rank", type=_whole)
    consume.add_argument("--from", dest="start", help="earliest, latest, step:N, row:N, a cursor's JSON, or @FILE.")
    consume.add_argument("--policy", default="per-rank")
    consume.add_argument("--layout", default="contiguous")
    consume.add_argument("--rows-per-rank", type=_whole, default=1)
    consume.add_argument("--prefetch-bytes", type=_whole)
    consume.add_argument("--wait-timeout", type=float, default=600.0)
    consume.add_argument("--iterations", type=_whole)
    consume.add_argument("--slices", action="store_true", help="With --json: add [step, row, chunk, sha256] of every slice.")
    consume.add_argument("--cursor-file")
    consume.add_argument("--checkpoint-every", type=_whole)
    consume.add_argument("--json", action="store_true")
    consume.set_defaults(run=_consume)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; gives the exit status: 0, 2 when input or the store's content is at fault, 1 for anything else."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        args = _parser().parse_args(arguments)
        args.run(args)
        return 0
    except BatchWeaveError as error:
        message = " ".join(error.message.split())
        if "--json" in arguments:
            failure = {"code": error.code, "message": message, "remedy": error.remedy, "details": error.details}
            sys.stderr.write(dump_json({"error": failure}).decode() + "\n")
        else:
            sys.stderr.write(f"error[{error.code}]: {message}\n")
        return error.exit
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
