"""`python -m batchweave info|consume|load`: what a trainer's node can look at without Node.js.

The lines that --json prints are those of the `batchweave` command.
"""
from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
from typing import Any, Sequence

from .. import __version__
from ..consumer.share import Share
from ..consumer.waiting import WAITS
from ..errors import BatchWeaveError, invalid
from ..format.stored_json import dump_json
from ..lifecycle.checkpoints import DEFAULT_GROUP
from ..namespace import Namespace, open_namespace
from .description import counted, describe, format_bytes, format_seconds
from .load import add_load
from .printable import printable
from .stopping import Stop, Stopped
from .telemetry import add_telemetry, start_telemetry


def _print_json(value: Any) -> None:
    sys.stdout.write(printable(dump_json(value).decode()) + "\n")
    sys.stdout.flush()


def _note(args: argparse.Namespace, text: str) -> None:
    """A remark for people: with --json, stderr holds nothing but a failure."""
    if not args.json:
        print(printable(text), file=sys.stderr)


def _info(args: argparse.Namespace) -> None:
    namespace = open_namespace(args.uri)
    info = namespace.info()
    if args.json:
        _print_json(info)
        return
    print(printable(describe(info, namespace.about_bytes())))


def digest_of(share: Share[Any]) -> str:
    """sha256 of all bytes of the share, in order."""
    digest = hashlib.sha256()
    for piece in share.slices:
        digest.update(piece.bytes)
    return digest.hexdigest()


def _start(args: argparse.Namespace, namespace: Namespace) -> Any:
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
    if place:
        return {place[1]: int(place[2])}
    if re.match(r"(step|row):", text):
        raise invalid(f'--from must be step:N or row:N with a whole number, not "{text}".', **{"from": text})
    checkpoint = re.fullmatch(r"checkpoint(?::(.+))?", text)
    if checkpoint:
        return {"checkpoint": checkpoint[1] or _newest(namespace, args.checkpoint_group), "group": args.checkpoint_group}
    if not re.match(r"(earliest$|latest$|\s*[{[])", text):
        raise invalid(
            f'--from "{text}" is no place to start. Use earliest, latest, step:N, row:N, checkpoint, checkpoint:ID, a cursor\'s JSON, '
            "or @FILE with one.",
            **{"from": text},
        )
    return text


def _newest(namespace: Namespace, group: str) -> str:
    for c in namespace.list_checkpoints():
        if c.group == group:
            return c.id
    message = f"There is no live checkpoint in group {group} of {namespace.uri}: the group has none."
    raise BatchWeaveError("NO_CHECKPOINT", message, {"group": group})


def _save_cursor(path: str, cursor: dict[str, Any]) -> None:
    """Written whole or not at all: a crash leaves the cursor before or this one."""
    try:
        with open(f"{path}.next", "wb") as file:
            file.write(dump_json(cursor) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.next", path)
    except OSError as error:
        raise invalid(f"The cursor file {path} cannot be written: {error}.", path=path) from None


def _consume(args: argparse.Namespace) -> None:
    sizes = {a: getattr(args, a) for a in ("dp", "cp", "tp", "pp", "ep", "order") if getattr(args, a) is not None}
    settings: dict[str, Any] = {"policy": args.policy, "layout": args.layout, "rows_per_rank": args.rows_per_rank}
    if args.prefetch_bytes is not None:
        settings["prefetch_bytes_max"] = args.prefetch_bytes
    if args.keep_last is not None and args.checkpoint_every is None:
        raise invalid("--keep-last goes with --checkpoint-every N.")
    every = args.checkpoint_every or 1
    # Ranks may be started before the process that creates the namespace.
    namespace = open_namespace(args.uri, wait=args.wait_timeout)
    seen = total = 0
    with namespace.consumer(sizes, args.rank, _start(args, namespace), wait_timeout=args.wait_timeout, group=args.checkpoint_group, pulse=not args.no_pulse, **settings) as consumer:
        place = consumer.place
        row = consumer.cursor["row"]
        _note(args, f"rank {place.rank} of {place.world_size} ({place.text}) from row {row}")
        cursor = consumer.cursor
        try:
            for share in consumer:
                args.stop.busy = True
                line: dict[str, Any] = {"iteration": share.iteration, "digest": digest_of(share)}
                if args.slices:
                    line["slices"] = [[s.step, s.row, s.chunk, hashlib.sha256(s.bytes).hexdigest()] for s in share.slices]
                if args.json:
                    _print_json(line)
                seen += 1
                total += share.nbytes
                cursor = share.next
                if (share.iteration + 1) % every == 0:
                    # The file first: it stands for the training checkpoint, which must be durable before the log keeps data for it.
                    if args.cursor_file:
                        _save_cursor(args.cursor_file, share.next)
                    if args.checkpoint_every:
                        namespace.checkpoint(f"iter-{share.iteration + 1}", share.next, args.checkpoint_group, args.keep_last)
                if args.stop.number or (args.iterations is not None and seen >= args.iterations):
                    break
                args.stop.busy = False
        except Stopped:
            pass
        args.stop.busy = True
        if args.cursor_file:
            _save_cursor(args.cursor_file, cursor)
        left = f"; {counted(consumer.leftover_rows, 'row')} too few for one more iteration" if consumer.leftover_rows else ""
        waited = format_seconds(consumer.waited)
        _note(args, f"{seen} iterations, {format_bytes(total)}, waited {waited} for data{left}")


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage as every other failure: one sentence and a code."""

    def error(self, message: str) -> Any:
        raise invalid(f"{message[:1].upper()}{message[1:]}. Run `python -m batchweave --help`.")


def _whole(text: str, least: int = 0) -> int:
    if re.fullmatch(r"[0-9]{1,15}", text) and int(text) >= least:
        return int(text)
    raise argparse.ArgumentTypeError(f"it must be a whole number of at least {least}, such as 8, not {text!r}")


def _count(text: str) -> int:
    return _whole(text, 1)


def _size(text: str) -> int:
    """Bytes, with k, m or g as in 64m."""
    match = re.fullmatch(r"([0-9]{1,12})([kmg]?)", text.lower())
    if match and int(match[1]) > 0:
        found: int = int(match[1]) * 1024 ** " kmg".index(match[2] or " ")
        return found
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes, such as 1000, 64k or 8m")


def _parser() -> _Parser:
    parser = _Parser(prog="python -m batchweave", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    info = commands.add_parser("info", help="Shows grid, steps, producers and checkpoints at the head.")
    info.add_argument("uri")
    info.add_argument("--json", action="store_true")
    info.set_defaults(run=_info)
    consume = commands.add_parser("consume", help="Reads the shares of one rank until the log is closed.")
    consume.add_argument("uri")
    for axis in ("dp", "cp", "tp", "pp", "ep"):
        consume.add_argument(f"--{axis}", type=_count)
    consume.add_argument("--order")
    consume.add_argument("--rank", type=_whole)
    consume.add_argument("--from", dest="start", help="earliest, latest, step:N, row:N, checkpoint[:ID], a cursor's JSON, or @FILE.")
    consume.add_argument("--policy", default="per-rank")
    consume.add_argument("--layout", default="contiguous")
    consume.add_argument("--rows-per-rank", type=_count, default=1)
    consume.add_argument("--prefetch-bytes", type=_size)
    consume.add_argument("--wait-timeout", type=float, default=600.0, help="Seconds to wait for a batch, or for the namespace (default 600).")
    consume.add_argument("--iterations", type=_count)
    consume.add_argument("--slices", action="store_true", help="With --json: add [step, row, chunk, sha256] of every slice.")
    consume.add_argument("--cursor-file", help="Go on from this file if it is there; save the cursor in it.")
    consume.add_argument("--checkpoint-every", type=_count, help="Every N iterations: save the cursor, register a checkpoint iter-K in the log.")
    consume.add_argument("--checkpoint-group", default=DEFAULT_GROUP)
    consume.add_argument("--keep-last", type=_count, help="Release all but the newest so many checkpoints of the group.")
    consume.add_argument("--no-pulse", action="store_true", help="Leave no hints of life beside the log.")
    add_telemetry(consume)
    consume.add_argument("--json", action="store_true")
    consume.set_defaults(run=_consume)
    add_load(commands, _whole, _count)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; gives the exit status: 0, 2 when input or the store's content is at fault, 128 and the signal's number when stopped, 1 for anything else."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    stop = Stop()
    try:
        args = _parser().parse_args(arguments)
        args.stop = stop
        stop.is_quiet = WAITS.disabled = args.json
        stop.listen()
        end_telemetry = start_telemetry(args)
        try:
            args.run(args)
        finally:
            end_telemetry()
        return 128 + stop.number if stop.number else 0
    except BatchWeaveError as error:
        message = " ".join(error.message.split())
        if "--json" in arguments:
            failure = {"code": error.code, "message": message, "remedy": error.remedy, "details": error.details}
            sys.stderr.write(printable(dump_json({"error": failure}).decode()) + "\n")
        else:
            sys.stderr.write(f"error[{error.code}]: {printable(message)}\n")
        return error.exit
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Stopped:
        return 128 + stop.number
