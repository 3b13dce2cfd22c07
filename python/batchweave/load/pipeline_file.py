"""`pipeline.py:source`: a file, and the name of a source in it. Loaded alike by the loader and by its workers."""
from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from ..errors import BatchWeaveError, invalid

if TYPE_CHECKING:
    from .source import Source


def load_pipeline(place: str) -> "Source":
    """The source that `place` names."""
    from .source import Source

    path, colon, name = place.rpartition(":")
    if not colon or not path:
        path, name = place, ""
    module = _load(os.path.abspath(path))
    found: dict[str, Source] = {key: value for key, value in vars(module).items() if isinstance(value, Source)}
    by_name = {source.name: source for source in found.values()}
    if not name and len(found) == 1:
        return next(iter(found.values()))
    chosen = found.get(name) or by_name.get(name)
    if chosen is not None:
        return chosen
    there = ", ".join(found) or "none"
    raise invalid(f"{path} has no source {name!r}: say {path}:NAME with the name of a batchweave.load.Source in it (there is {there}).", path=path)


def _load(path: str) -> ModuleType:
    # One name for one file, in the loader and in its workers: what is pickled in one is found in the other.
    name = f"batchweave_pipeline_{hashlib.sha256(path.encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if not os.path.isfile(path) or spec is None or spec.loader is None:
        raise BatchWeaveError("INVALID_ARGUMENT", f"There is no pipeline file at {path}. Name a Python file, as in load pipeline.py:books.", {"path": path})
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except BatchWeaveError:
        raise
    except ImportError as error:
        sys.modules.pop(name, None)
        raise BatchWeaveError("MISSING_PACKAGE", f"{path} cannot be loaded: {error}. Install what it imports.", {"path": path}) from error
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise invalid(f"{path} cannot be loaded: {type(error).__name__}: {error}. Mend the file.", path=path) from error
    return module
