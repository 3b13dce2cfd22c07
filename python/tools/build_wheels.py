"""Builds what is released for Python into python/dist: batchweave (sdist and wheel, pure) and batchweave-cli (the compiled command, to be run by Node.js from a wheel).

    python3 python/tools/build_wheels.py [--out FOLDER] [--home URL] [--pure] [--check]        needs the package `build`, and `make build` before it

Everything is built from copies in a temporary folder, and a compiled file whose source is gone is left out, so that nothing of an older build gets in.
--home: where the repository can be read, for the links of the packages' pages; default: the clone's `origin`, if that is a web address; else there are none.
--pure builds the package batchweave alone. --check only compares the versions.
"""
from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Packages for Node.js that come compiled for one machine, or need such a one: without them one wheel serves all machines. What needs them says so.
COMPILED = ("@node-rs/crc32", "sharp", "tsx")
#: Tests that need nothing of the repository around the package.
SDIST_TESTS = ("test_checksum.py", "test_epochs.py", "test_ranks.py", "test_writer.py")
_UNUSED = (".map", ".ts", ".mts", ".cts", ".md", ".markdown", ".flow")


def versions() -> dict[str, str]:
    """The version that each part says it has."""
    found = {"package.json": json.loads((ROOT / "package.json").read_text())["version"]}
    for path in ("python/pyproject.toml", "python/cli/pyproject.toml", "python/batchweave/__init__.py"):
        match = re.search(r'^(?:__version__|version) = "([^"]+)"', (ROOT / path).read_text(), re.MULTILINE)
        found[path] = match[1] if match else "?"
    pinned = re.search(r"batchweave-cli==([0-9][^\"]*)\"", (ROOT / "python/pyproject.toml").read_text())
    found["extra cli of python/pyproject.toml"] = pinned[1] if pinned else "?"
    return found


def closure(names: list[str]) -> dict[str, Path]:
    """Folders of packages and of all that they depend on, below node_modules, as they are installed here."""
    found: dict[str, Path] = {}
    wanted = [(name, ROOT / "node_modules") for name in names]
    while wanted:
        name, home = wanted.pop()
        folder = home / name
        while not folder.exists() and home != ROOT / "node_modules":
            # A package looks in its own node_modules, then in those around it.
            home = home.parent
            while home.name != "node_modules":
                home = home.parent
            folder = home / name
        if not folder.exists():
            continue  # an optional one that is not installed here
        key = str(folder.relative_to(ROOT / "node_modules"))
        package = json.loads((folder / "package.json").read_text())
        if key in found or "cpu" in package or any(folder.glob("*.node")):
            continue
        found[key] = folder
        wanted += [(each, folder / "node_modules") for each in package.get("dependencies", {})]
    return found


def stage_command(target: Path) -> None:
    """The compiled command and its packages, without what only people or compilers read."""
    package = json.loads((ROOT / "package.json").read_text())
    node = target / "batchweave_cli" / "node"
    for folder in ("dist/src", "dist/dashboard"):
        if not (ROOT / folder).exists():
            raise SystemExit(f"{folder} is not there. Run `make build` first.")
    shutil.copytree(ROOT / "dist/src", node / "dist/src", ignore=compiled)
    shutil.copytree(ROOT / "dist/dashboard", node / "dist/dashboard", ignore=shutil.ignore_patterns("*.map"))
    kept = {name: package[name] for name in ("name", "version", "license", "type", "engines", "exports")}
    (node / "package.json").write_text(json.dumps(kept, indent=2))
    named = [name for kind in ("dependencies", "optionalDependencies", "peerDependencies") for name in package[kind] if name not in COMPILED]
    for key, folder in sorted(closure(named).items()):
        shutil.copytree(
            folder, node / "node_modules" / key, dirs_exist_ok=True,
            ignore=lambda _, names: [n for n in names if n == "node_modules" or (n.endswith(_UNUSED) and "license" not in n.lower())],
        )


def compiled(folder: str, names: list[str]) -> list[str]:
    """What to leave out of a folder below dist/src: declarations, maps, and what is left of a source that is gone."""
    sources = ROOT / "src" / Path(folder).relative_to(ROOT / "dist/src")
    stale = [n for n in names if n.endswith(".js") and not (sources / f"{n[:-3]}.ts").exists()]
    empty = [n for n in names if Path(folder, n).is_dir() and not (sources / n).is_dir()]
    return [n for n in names if n.endswith((".map", ".d.ts"))] + stale + empty


def home_of_clone() -> str | None:
    """The clone's origin as a web address."""
    found = subprocess.run(["git", "remote", "get-url", "origin"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    match = re.fullmatch(r"(?:https://(?:[^@/]+@)?|ssh://git@|git@)([a-z0-9.-]+\.[a-z]+)[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?", found)
    return f"https://{match[1]}/{match[2]}" if match else None


def add_links(folder: Path, home: str) -> None:
    """URLs in a package's metadata, and links in its page where it names files of the repository."""
    tree = f"{home}/blob/v{versions()['package.json']}"
    urls = {"Homepage": home, "Documentation": f"{tree}/docs/guide/python.md", "Changelog": f"{tree}/CHANGELOG.md", "Issues": f"{home}/issues"}
    config = folder / "pyproject.toml"
    lines = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    config.write_text(config.read_text().replace("[project.scripts]", f"[project.urls]\n{lines}\n[project.scripts]"))
    page = folder / "README.md"
    page.write_text(re.sub(r"(?<![\w/.(])(?:docs/[\w/-]+|FORMAT)\.md", lambda m: f"[{m[0]}]({tree}/{m[0]})", page.read_text()))


def build(source: Path, out: Path) -> None:
    # An environment of its own, from the network, unless this one has what pyproject.toml asks for.
    own = [d.version for d in importlib.metadata.distributions(name="setuptools")][:1]
    alone = ["--no-isolation"] if own and int(own[0].split(".")[0]) >= 77 else []
    done = subprocess.run([sys.executable, "-m", "build", *alone, "--outdir", str(out), str(source)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{(done.stdout + done.stderr)[-3_000:]}\nThe package of {source.name} could not be built: see above.")


def check_pure(out: Path) -> None:
    """Refuses a package that has other modules than the repository, or lacks its license or its tests."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "batchweave"]
    listed = subprocess.run(command, cwd=ROOT / "python", capture_output=True, text=True).stdout.split()
    # Outside a clone there is nothing to compare with but what is there.
    files = listed or [str(path.relative_to(ROOT / "python")) for path in (ROOT / "python/batchweave").rglob("*") if "__pycache__" not in path.parts and path.is_file()]
    wanted = {name for name in files if (ROOT / "python" / name).exists()}
    [wheel], [sdist] = out.glob("batchweave-*.whl"), out.glob("batchweave-*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    found = {name for name in held if name.startswith("batchweave/")}
    if found != wanted:
        raise SystemExit(f"{wheel.name} and the repository differ in: {', '.join(sorted(found ^ wanted))}.")
    with tarfile.open(sdist) as archive:
        source = {name.partition("/")[2] for name in archive.getnames()}
    missing = [name for name in ("LICENSE", "README.md", *(f"tests/{name}" for name in SDIST_TESTS)) if name not in source]
    if missing or not any(name.endswith("licenses/LICENSE") for name in held):
        raise SystemExit(f"{sdist.name} lacks {', '.join(missing)}." if missing else f"{wheel.name} has no license.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "python/dist")
    parser.add_argument("--home", default=home_of_clone())
    parser.add_argument("--pure", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    found = versions()
    if len(set(found.values())) != 1:
        raise SystemExit("The versions differ: " + ", ".join(f"{name} {version}" for name, version in found.items()))
    if args.check:
        print(f"All parts have version {found['package.json']}")
        return
    if importlib.util.find_spec("build") is None:
        raise SystemExit(f"{sys.executable} has no package `build`: pip install build, or name another interpreter in BATCHWEAVE_PYTHON.")
    args.out.mkdir(parents=True, exist_ok=True)
    for path in args.out.glob("batchweave*-*"):
        path.unlink()  # of an older version
    with tempfile.TemporaryDirectory() as folder:
        pure, command = Path(folder, "pure"), Path(folder, "command")
        pure.mkdir()
        shutil.copytree(ROOT / "python/batchweave", pure / "batchweave", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("README.md", "pyproject.toml"):
            shutil.copy(ROOT / "python" / name, pure)
        (pure / "tests").mkdir()
        for name in SDIST_TESTS:
            shutil.copy(ROOT / "python/tests" / name, pure / "tests")
        (pure / "MANIFEST.in").write_text("graft tests\n")
        shutil.copytree(ROOT / "python/cli", command, ignore=shutil.ignore_patterns("__pycache__"))
        for target in (pure, command):
            shutil.copy(ROOT / "LICENSE", target)
            if args.home:
                add_links(target, args.home)
        build(pure, args.out)
        check_pure(args.out)
        if not args.pure:
            stage_command(command)
            (command / "MANIFEST.in").write_text("graft batchweave_cli/node\n")
            build(command, args.out)
    for path in sorted(args.out.iterdir()):
        print(f"{path.relative_to(args.out.parent)}: {path.stat().st_size:,} bytes")
    if not args.home:
        print("Without links to the repository: this clone has no origin on the web. --home URL names one.", file=sys.stderr)


if __name__ == "__main__":
    main()
