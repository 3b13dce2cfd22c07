"""The mesh: where a rank of a training job sits, in its framework's own rank order; from arguments, the environment or torch."""
from __future__ import annotations

import json
import multiprocessing
import re
import sys
from typing import Any, Mapping, NamedTuple, Sequence, Union

from ..errors import BatchWeaveError, invalid

AXES = ("dp", "cp", "tp", "pp", "ep")

#: Rank orders by name, fastest axis first. The `ep` of a preset does not multiply the world: expert parallelism regroups
#: ranks that already exist. torchtitan's dp_replicate and dp_shard are neighbours, so together they are dp.
PRESETS = {
    "megatron": "tp-cp-dp-pp",
    "megatron-pp-dp": "tp-cp-pp-dp",
    "torchtitan": "tp-cp-dp-pp",
    "tp-cp-ep-dp-pp": "tp-cp-dp-pp",
    "tp-cp-ep-pp-dp": "tp-cp-pp-dp",
}

#: The surest first. MPI goes before Slurm, of whose variables mpirun's processes have those of the one task that started them.
_RANK_SOURCES = (
    ("BATCHWEAVE_RANK", "BATCHWEAVE_WORLD_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("JOB_COMPLETION_INDEX", None),
)
#: Of a process that another one started with `multiprocessing`: what it can have set itself. The others are those of the process that started it.
_OWN_SOURCES = _RANK_SOURCES[:2]


_Sources = Sequence[tuple[str, Union[str, None]]]


class Place(NamedTuple):
    """A rank's place in terms of data. Ranks with equal d and c (tp and pp peers) read the same bytes."""

    rank: int
    world_size: int
    data_ranks: int
    d: int
    chunk_ranks: int
    c: int
    coordinates: dict[str, int]
    #: For people: "dp 4, cp 2".
    text: str


def mismatch(message: str, **details: Any) -> BatchWeaveError:
    """MESH_MISMATCH."""
    return BatchWeaveError("MESH_MISMATCH", message, details)


def divisors(n: int) -> list[int]:
    """The divisors of n, ascending."""
    return [i for i in range(1, n + 1) if n % i == 0]


def or_list(values: list[int]) -> str:
    """`1, 2, 4 or 8`."""
    return str(*values) if len(values) < 2 else f"{', '.join(map(str, values[:-1]))} or {values[-1]}"


def axes_of(mesh: Mapping[str, Any]) -> list[str]:
    """Axes of the world, fastest first."""
    order = mesh.get("order") or "megatron"
    axes = PRESETS.get(order, str(order)).split("-")
    if any(axis not in AXES or axes.index(axis) != i for i, axis in enumerate(axes)):
        raise mismatch(
            f'The rank order {json.dumps(order)} is not known. Use "megatron", "megatron-pp-dp", "torchtitan", or axes from '
            'the fastest to the slowest such as "tp-cp-dp-pp".',
            order=order,
        )
    left = [a for a in AXES if a != "ep" and a not in axes and mesh.get(a, 1) != 1]
    if left:
        raise mismatch(
            f"The rank order {json.dumps(order)} leaves out {', '.join(f'{a} {mesh[a]}' for a in left)}. "
            "Name every axis larger than 1.",
            order=order,
            left=left,
        )
    return axes


def world_size(mesh: Mapping[str, Any]) -> int:
    """Ranks of the whole job."""
    size = 1
    for axis in axes_of(mesh):
        size *= mesh.get(axis, 1)
    return size


def describe_mesh(mesh: Mapping[str, Any]) -> str:
    """`dp 4, cp 2, tp 2`: the axes larger than 1."""
    return ", ".join(f"{a} {mesh.get(a)}" for a in AXES if a == "dp" or mesh.get(a, 1) != 1)


def _assert_sizes(mesh: Mapping[str, Any]) -> None:
    for axis in AXES:
        size = mesh.get(axis, None if axis == "dp" else 1)
        if type(size) is not int or size < 1:
            raise mismatch(f"mesh.{axis} must be a whole number of at least 1, not {size}.", **{axis: size})


def assert_mesh(mesh: Mapping[str, Any]) -> None:
    """Refuses wrong sizes, and an ep that cannot regroup the ranks."""
    _assert_sizes(mesh)
    dp, cp, tp, ep = (mesh.get(a, 1) for a in ("dp", "cp", "tp", "ep"))
    if "ep" not in axes_of(mesh) and (dp * cp * tp) % ep != 0:
        raise mismatch(
            f"ep {ep} does not divide the {dp * cp * tp} ranks of dp {dp}, cp {cp}, tp {tp} that experts are spread over; "
            f"ep can be {or_list(divisors(dp * cp * tp))}."
        )


def place_rank(mesh: Mapping[str, Any], rank: int) -> Place:
    """Where `rank` sits."""
    assert_mesh(mesh)
    size = world_size(mesh)
    if type(rank) is not int or not 0 <= rank < size:
        raise mismatch(
            f"Rank {rank!r} is not in a mesh of {size} ranks ({describe_mesh(mesh)}); ranks go from 0 to {size - 1}.",
            rank=rank,
            worldSize=size,
        )
    coordinates: dict[str, int] = {}
    rest, d, data_ranks = rank, 0, 1
    for axis in axes_of(mesh):
        length = mesh.get(axis, 1)
        rest, coordinates[axis] = divmod(rest, length)
        if axis in ("dp", "ep"):
            d += coordinates[axis] * data_ranks
            data_ranks *= length
    return Place(rank, size, data_ranks, d, mesh.get("cp", 1), coordinates.get("cp", 0), coordinates, describe_mesh(mesh))


class Group(NamedTuple):
    """What torch.distributed says."""

    rank: int
    size: int


class _LaunchedRank(NamedTuple):
    """A rank that this process was started as."""

    rank: int
    #: The variable of the same launcher that has the world size.
    world_variable: str | None
    said_by: str


class _LaunchedWorld(NamedTuple):
    """How many ranks were started."""

    size: int
    said_by: str


def process_group() -> Group | None:
    """Rank and world size of torch.distributed, if it is initialised; imports nothing."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Group(distributed.get_rank(), distributed.get_world_size())


def is_spawned() -> bool:
    """Whether another Python process started this one with `multiprocessing`, as torch.multiprocessing.spawn does."""
    return multiprocessing.parent_process() is not None


def resolve_mesh(mesh: Any, rank: int | None, environment: Mapping[str, str], group: Group | None = None, spawned: bool = False) -> Place:
    """Completes mesh and rank: what is given counts, then BATCHWEAVE_*, then torch's process group (`group`), then the launcher's variables.

    A rank or a world size that was not given must agree with the mesh: two ranks reading the same rows by mistake would go
    unnoticed. So would the ranks that `multiprocessing` started (`spawned`) without a word about which is which.
    """
    if mesh is not None and hasattr(mesh, "mesh_dim_names"):
        place = place_from_device_mesh(mesh)
        if rank is not None and rank != place.rank:
            raise mismatch(f"rank is {rank}, and the DeviceMesh says that this process is rank {place.rank}. Leave rank out.", rank=rank, launched=place.rank)
        return place
    if mesh is not None and not isinstance(mesh, Mapping):
        raise invalid("mesh must be a dict such as {\"dp\": 8, \"tp\": 2}, or a torch DeviceMesh.")
    unknown = [k for k in mesh or {} if k not in (*AXES, "order")]
    if unknown:
        raise mismatch(f"The mesh has an axis {unknown[0]!r}; it can have {', '.join(AXES)} and order.")
    given = {**_sizes_from(environment), **{k: v for k, v in (mesh or {}).items() if v is not None}}
    # Given both, nothing is taken from the launcher, so nothing has to agree with it.
    explicit = rank is not None and given.get("dp") is not None
    sources = _OWN_SOURCES if spawned else _RANK_SOURCES
    found = None if explicit else _launched_rank(environment, sources)
    launched = _launched_world(environment, found.world_variable if found else None, sources)
    if group is not None and not explicit:
        found, launched = _agreed(group, found, launched)
    if rank is not None and found is not None and not explicit and rank != found.rank:
        raise mismatch(
            f"rank is {rank}, and {found.said_by} says that this process is rank {found.rank}. Leave rank out, or give the mesh with it if this is meant.",
            rank=rank,
            launched=found.rank,
        )
    if found is not None and found.said_by == "SLURM_PROCID" and rank is None:
        _assert_task(environment)
    if spawned and not explicit and rank is None and found is None and launched is None and given.get("dp") is None:
        raise mismatch(
            "This process was started by another one (multiprocessing), and nothing says which rank it is: all of them would read the same rows. Call "
            'init_process_group first, pass mesh={"dp": n} and rank=, or set RANK and WORLD_SIZE; mesh={"dp": 1}, rank=0 if it is to read everything.'
        )
    full = {**given, "dp": given.get("dp") or _dp_from(given, launched)} if given.get("dp") is None else given
    assert_mesh(full)
    size = world_size(full)
    if not explicit and launched and launched.size != size:
        rest = size // full["dp"]
        fits = f"dp {launched.size // rest} works" if launched.size % rest == 0 else "no dp works with these cp, tp and pp"
        raise mismatch(
            f"The mesh has {size} ranks ({describe_mesh(full)}), but {launched.said_by} is {launched.size}; for that {fits}.",
            worldSize=size,
            launched=launched.size,
        )
    own = rank if rank is not None else found.rank if found else 0 if size == 1 else None
    if own is None:
        raise mismatch(
            f"The mesh has {size} ranks ({describe_mesh(full)}) and nothing says which one this is. Pass rank, or set RANK "
            "(BATCHWEAVE_RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID, JOB_COMPLETION_INDEX), or call init_process_group first.",
            worldSize=size,
        )
    return place_rank(full, own)


def _integer(environment: Mapping[str, str], variable: str) -> int | None:
    text = environment.get(variable)
    if not text:
        return None
    if re.fullmatch(r"[0-9]{1,9}", text):
        return int(text)
    raise invalid(f"{variable} is {json.dumps(text)}; it must be a whole number.", variable=variable, value=text)


def _sizes_from(environment: Mapping[str, str]) -> dict[str, Any]:
    sizes: dict[str, Any] = {axis: _integer(environment, f"BATCHWEAVE_{axis.upper()}") for axis in AXES}
    sizes["order"] = environment.get("BATCHWEAVE_ORDER") or None
    return {k: v for k, v in sizes.items() if v is not None}


def _assert_task(environment: Mapping[str, str]) -> None:
    """The script of a Slurm job has the number of its tasks, and is none of them: as rank 0 it would read a part, and no process the rest."""
    tasks = _integer(environment, "SLURM_NTASKS") or 1
    if tasks > 1 and environment.get("SLURM_JOB_ID") and not environment.get("SLURM_STEP_ID"):
        raise mismatch(
            f"This process is in a Slurm job of {tasks} tasks, and srun did not start it (there is no SLURM_STEP_ID): it would read the rows of rank 0 only. Start it "
            "with srun or torchrun, or give mesh and rank (dp 1 and rank 0 read everything).",
            tasks=tasks,
        )


def _launched_rank(environment: Mapping[str, str], sources: _Sources) -> _LaunchedRank | None:
    for variable, world_variable in sources:
        rank = _integer(environment, variable)
        if rank is not None:
            return _LaunchedRank(rank, world_variable, variable)
    return None


def _agreed(
    group: Group, found: _LaunchedRank | None, launched: _LaunchedWorld | None
) -> tuple[_LaunchedRank, _LaunchedWorld]:
    """torch's process group, which BATCHWEAVE_* and RANK must not contradict. Of others it is known that they launch launchers: srun starts torchrun."""
    if found is not None and found.said_by in ("BATCHWEAVE_RANK", "RANK") and found.rank != group.rank:
        raise mismatch(
            f"torch.distributed says that this process is rank {group.rank} of {group.size}, and {found.said_by} is {found.rank}. One of them is wrong: unset the "
            "variable, or pass mesh and rank.",
            rank=group.rank,
            launched=found.rank,
        )
    if launched is not None and launched.said_by in ("BATCHWEAVE_WORLD_SIZE", "WORLD_SIZE") and launched.size != group.size:
        raise mismatch(
            f"torch.distributed has {group.size} ranks, and {launched.said_by} is {launched.size}. One of them is wrong: unset the variable, or pass mesh and rank.",
            worldSize=group.size,
            launched=launched.size,
        )
    return _LaunchedRank(group.rank, None, "torch.distributed"), _LaunchedWorld(group.size, "torch.distributed's world size")


def _launched_world(environment: Mapping[str, str], world_variable: str | None, sources: _Sources) -> _LaunchedWorld | None:
    for variable in ("BATCHWEAVE_WORLD_SIZE", world_variable, *(v for _, v in sources)):
        size = _integer(environment, variable) if variable else None
        if size is not None and variable:
            return _LaunchedWorld(size, variable)
    return None


def _dp_from(given: Mapping[str, Any], launched: _LaunchedWorld | None) -> int:
    if launched is None:
        return 1
    _assert_sizes({**given, "dp": 1})
    rest = world_size({**given, "dp": 1})
    if launched.size >= 1 and launched.size % rest == 0:
        return launched.size // rest
    near = max(1, launched.size // rest) * rest
    raise mismatch(
        f"{launched.said_by} is {launched.size}, which is no multiple of the {rest} ranks that one dp rank takes "
        f"({describe_mesh({**given, 'dp': 1})}). A world of {or_list([near, near + rest])} works, or other sizes of cp, tp and pp.",
        worldSize=launched.size,
        ranksPerDp=rest,
    )


def place_from_device_mesh(mesh: Any) -> Place:
    """From a torch DeviceMesh with named dimensions. Those named dp, data or beginning with dp_ together divide the rows."""
    names = mesh.mesh_dim_names
    if not names:
        raise mismatch("The DeviceMesh has no mesh_dim_names; name its dimensions dp, cp, tp, pp.")
    d, data_ranks, chunk_ranks, c, size = 0, 1, 1, 0, 1
    coordinates: dict[str, int] = {}
    for name in names:  # slowest first
        length, at = mesh.size(names.index(name)), mesh.get_local_rank(name)
        size *= length
        if name in ("dp", "data", "fsdp", "hsdp", "ep") or name.startswith("dp_"):
            d, data_ranks = d * length + at, data_ranks * length
            coordinates["dp"] = d
        elif name in ("cp", "tp", "pp"):
            coordinates[name] = at
            if name == "cp":
                chunk_ranks, c = length, at
        elif length > 1:
            raise mismatch(f"The DeviceMesh has a dimension {name!r}; known are dp, dp_replicate, dp_shard, cp, tp, pp, ep.")
    text = ", ".join(f"{name} {mesh.size(i)}" for i, name in enumerate(names))
    return Place(mesh.get_rank(), size, data_ranks, d, chunk_ranks, c, coordinates, text)
