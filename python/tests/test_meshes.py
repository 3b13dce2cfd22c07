"""Property: every rank of a mesh has its own place, in the order of axes that its framework has; who a process is follows from what is given, then from its own
variables, then from torch, then from its launcher; and two that contradict each other are refused, with the numbers in it.

Method: all ranks of small meshes against a model that counts; tables of environments; torch and multiprocessing stand-ins for what they would say.
"""
from __future__ import annotations

import itertools
import sys
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

from batchweave import BatchWeaveError
from batchweave.consumer import mesh as module
from batchweave.consumer.mesh import (
    Group, assert_mesh, axes_of, describe_mesh, divisors, is_spawned, or_list, place_from_device_mesh, place_rank, process_group, resolve_mesh, world_size,
)

ORDERS = {
    None: "tp-cp-dp-pp", "megatron": "tp-cp-dp-pp", "megatron-pp-dp": "tp-cp-pp-dp", "torchtitan": "tp-cp-dp-pp", "tp-cp-ep-dp-pp": "tp-cp-dp-pp",
    "tp-cp-ep-pp-dp": "tp-cp-pp-dp", "pp-dp-cp-tp": "pp-dp-cp-tp", "dp-ep-tp-cp-pp": "dp-ep-tp-cp-pp",
}


def refusal(test: unittest.TestCase, call: Any) -> BatchWeaveError:
    with test.assertRaises(BatchWeaveError) as caught:
        call()
    return caught.exception


class Places(unittest.TestCase):
    def test_every_rank_has_its_own_place_in_the_order_of_the_axes(self) -> None:
        for order, axes in ORDERS.items():
            sizes = {"dp": 3, "cp": 2, "tp": 2, "pp": 2, **({"ep": 2} if "ep" in axes else {})}
            mesh = {**sizes, **({"order": order} if order else {})}
            names = axes.split("-")
            self.assertEqual((axes_of(mesh), world_size(mesh)), (names, 24 * sizes.get("ep", 1)))
            # The slowest axis is the outermost loop.
            model = itertools.product(*(range(sizes[axis]) for axis in reversed(names)))
            for rank, coordinates in enumerate(model):
                at = dict(zip(reversed(names), coordinates))
                d, ranks = 0, 1
                for axis in names:
                    if axis in ("dp", "ep"):
                        d, ranks = d + at[axis] * ranks, ranks * sizes[axis]
                place = place_rank(mesh, rank)
                self.assertEqual(place[:6], (rank, world_size(mesh), ranks, d, 2, at["cp"]), (order, rank))
                self.assertEqual(place.coordinates, at)
            for bad in (-1, world_size(mesh), True, 1.0, None):
                said = refusal(self, lambda: place_rank(mesh, bad))  # type: ignore[arg-type]
                self.assertIn(f"Rank {bad!r} is not in a mesh of {world_size(mesh)} ranks (dp 3, cp 2, tp 2, pp 2", said.message)
                self.assertIn(f"ranks go from 0 to {world_size(mesh) - 1}.", said.message)
        self.assertEqual(place_rank({"dp": 2, "order": "dp"}, 1)[:6], (1, 2, 2, 1, 1, 0))

    def test_sizes_are_whole_numbers_and_the_axes_larger_than_one_are_named(self) -> None:
        for mesh, text in ({"dp": 1}, "dp 1"), ({"dp": 4, "cp": 1, "tp": 2}, "dp 4, tp 2"), ({"dp": 1, "ep": 2, "pp": 3, "cp": 2}, "dp 1, cp 2, pp 3, ep 2"):
            self.assertEqual(describe_mesh(mesh), text)
        for axis in ("dp", "cp", "tp", "pp", "ep"):
            for bad in (0, -1, 1.5, True, "2", None):
                said = refusal(self, lambda: assert_mesh({"dp": 1, axis: bad}))
                self.assertEqual((said.message, said.details), (f"mesh.{axis} must be a whole number of at least 1, not {bad}.", {axis: bad}))
        refusal(self, lambda: assert_mesh({"tp": 2}))
        self.assertIn("ep 3 does not divide", refusal(self, lambda: place_rank({"dp": 2, "ep": 3}, 0)).message)
        assert_mesh({"dp": 1})

    def test_experts_regroup_ranks_that_are_there(self) -> None:
        for ep in (1, 2, 3, 4, 6, 12):
            assert_mesh({"dp": 3, "cp": 2, "tp": 2, "pp": 5, "ep": ep})
        said = refusal(self, lambda: assert_mesh({"dp": 3, "cp": 2, "tp": 2, "pp": 5, "ep": 5}))
        self.assertEqual(
            said.message, "ep 5 does not divide the 12 ranks of dp 3, cp 2, tp 2 that experts are spread over; ep can be 1, 2, 3, 4, 6 or 12."
        )
        assert_mesh({"dp": 3, "ep": 5, "order": "dp-ep"})
        self.assertEqual(world_size({"dp": 3, "ep": 3}), 3)

    def test_an_order_names_every_axis_larger_than_one_once(self) -> None:
        for order in ("tp-tp-dp", "dp-xx", "", "dp_tp", "tp-cp-dp-pp-"):
            if order:
                self.assertIn("is not known", refusal(self, lambda: axes_of({"dp": 1, "order": order})).message)
        said = refusal(self, lambda: axes_of({"dp": 2, "cp": 2, "tp": 3, "pp": 1, "ep": 2, "order": "dp"}))
        self.assertIn("leaves out cp 2, tp 3. Name every axis", said.message)
        self.assertEqual(said.details, {"order": "dp", "left": ["cp", "tp"]})
        self.assertEqual(axes_of({"dp": 2, "order": None}), ["tp", "cp", "dp", "pp"])

    def test_divisors_and_lists_of_them(self) -> None:
        self.assertEqual([divisors(n) for n in (1, 2, 7, 12)], [[1], [1, 2], [1, 7], [1, 2, 3, 4, 6, 12]])
        self.assertEqual([or_list(values) for values in ([5], [1, 2], [1, 2, 4])], ["5", "1 or 2", "1, 2 or 4"])


class Processes(unittest.TestCase):
    def test_torch_is_asked_only_if_it_is_there_and_ready(self) -> None:
        def says(is_available: bool, is_initialized: bool) -> Any:
            return SimpleNamespace(
                is_available=lambda: is_available, is_initialized=lambda: is_initialized if is_available else self.fail(), get_rank=lambda: 3, get_world_size=lambda: 8
            )

        for distributed, expected in (None, None), (says(False, True), None), (says(True, False), None), (says(True, True), Group(3, 8)):
            with mock.patch.dict(sys.modules, {"torch.distributed": distributed}):
                self.assertEqual(process_group(), expected)
        for parent, expected_spawned in (None, False), (object(), True):
            with mock.patch.object(module.multiprocessing, "parent_process", lambda: parent):
                self.assertEqual(is_spawned(), expected_spawned)

    def test_the_surest_source_says_who_a_process_is(self) -> None:
        sources = (
            ("BATCHWEAVE_RANK", "BATCHWEAVE_WORLD_SIZE"), ("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
            ("SLURM_PROCID", "SLURM_NTASKS"),
        )
        environment: dict[str, str] = {"JOB_COMPLETION_INDEX": "2"}
        self.assertEqual(resolve_mesh({"dp": 4}, None, environment)[:4], (2, 4, 4, 2))
        for number, (rank, world) in enumerate(reversed(sources)):
            environment |= {rank: str(number), world: str(number + 3)}
            self.assertEqual(resolve_mesh(None, None, environment)[:4], (number, number + 3, number + 3, number), rank)
            # Only its own variables are the process's that another one started.
            own = resolve_mesh({"dp": 9}, None, {**environment, "BATCHWEAVE_WORLD_SIZE": "9"}, None, True) if number == 4 else None
            if number < 3:
                self.assertIn("nothing says which rank it is", refusal(self, lambda: resolve_mesh(None, None, environment, None, True)).message)
            elif number == 3:
                self.assertEqual(resolve_mesh(None, None, environment, None, True)[:2], (3, 6))
            else:
                assert own is not None
                self.assertEqual(own[:2], (4, 9))

    def test_what_is_given_counts_and_must_fit_what_was_launched(self) -> None:
        launched = {"RANK": "5", "WORLD_SIZE": "8"}
        self.assertEqual(resolve_mesh(None, None, {})[:4], (0, 1, 1, 0))
        self.assertEqual(resolve_mesh({"tp": 2, "cp": 2}, None, launched)[:6], (5, 8, 2, 1, 2, 0))
        self.assertEqual(resolve_mesh({"dp": 3}, 2, launched)[:4], (2, 3, 3, 2), "both are given")
        self.assertEqual(resolve_mesh({"tp": 2}, 5, launched)[:4], (5, 8, 4, 2))
        self.assertEqual(resolve_mesh({"dp": None, "tp": 8}, None, launched)[:4], (5, 8, 1, 0))
        sized = {**launched, "BATCHWEAVE_TP": "2", "BATCHWEAVE_DP": "4", "BATCHWEAVE_ORDER": "dp-tp"}
        self.assertEqual(resolve_mesh(None, None, sized)[:4], (5, 8, 4, 1))
        self.assertEqual(resolve_mesh({"tp": 4, "dp": 2, "order": "tp-dp"}, None, sized)[:4], (5, 8, 2, 1))
        for mesh, rank, environment, part in (
            ({"dp": 4}, None, launched, "The mesh has 4 ranks (dp 4), but WORLD_SIZE is 8; for that dp 8 works."),
            ({"dp": 4, "tp": 4}, None, launched, "The mesh has 16 ranks (dp 4, tp 4), but WORLD_SIZE is 8; for that dp 2 works."),
            ({"dp": 4, "tp": 3}, None, launched, "but WORLD_SIZE is 8; for that no dp works with these cp, tp and pp."),
            ({"tp": 3}, None, launched, "WORLD_SIZE is 8, which is no multiple of the 3 ranks that one dp rank takes (dp 1, tp 3). A world of 6 or 9 works"),
            ({"tp": 16}, None, launched, "A world of 16 or 32 works"),
            ({"tp": 2}, 4, launched, "rank is 4, and RANK says that this process is rank 5."),
            ({"dp": 2}, None, {}, "The mesh has 2 ranks (dp 2) and nothing says which one this is."),
            ({"tp": 0}, None, launched, "mesh.tp must be"),
            ({"dp": 0}, None, launched, "mesh.dp must be"),
            ({"xp": 2}, None, {}, "The mesh has an axis 'xp'; it can have dp, cp, tp, pp, ep and order."),
            (4, None, {}, "mesh must be a dict"),
            (None, None, {"RANK": "x"}, 'RANK is "x"; it must be a whole number.'),
            (None, None, {"RANK": "1234567890", "WORLD_SIZE": "2"}, "it must be a whole number."),
            (None, None, {"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE is 0, which is no multiple"),
        ):
            self.assertIn(part, refusal(self, lambda: resolve_mesh(mesh, rank, environment)).message)
        self.assertEqual(resolve_mesh(None, None, {"RANK": "", "WORLD_SIZE": ""})[:2], (0, 1))
        self.assertEqual(resolve_mesh({"dp": 2}, 1, {"RANK": "x"})[:2], (1, 2), "nothing is asked of the launcher")
        self.assertEqual(resolve_mesh(None, None, {"PMI_RANK": "1", "PMI_SIZE": "2", "OMPI_COMM_WORLD_SIZE": "8"})[:2], (1, 2), "rank and world of one launcher")
        self.assertEqual(resolve_mesh({"dp": 1_000_000_000}, None, {"RANK": "123456789"}).rank, 123_456_789)

    def test_a_process_that_multiprocessing_started_must_be_told_who_it_is(self) -> None:
        def resolve(mesh: Any, rank: int | None, environment: dict[str, str], group: Group | None = None) -> Any:
            return resolve_mesh(mesh, rank, environment, group, True)[:2]

        self.assertIn("multiprocessing", refusal(self, lambda: resolve(None, None, {})).message)
        self.assertIn("multiprocessing", refusal(self, lambda: resolve({"tp": 1}, None, {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"})).message)
        self.assertEqual(resolve(None, 0, {}), (0, 1))
        self.assertEqual(resolve({"dp": 1}, None, {}), (0, 1))
        self.assertEqual(resolve(None, None, {"WORLD_SIZE": "1"}), (0, 1))
        self.assertEqual(resolve(None, None, {"RANK": "0"}), (0, 1))
        self.assertEqual(resolve(None, None, {}, Group(1, 2)), (1, 2))
        self.assertEqual(resolve({"dp": 2}, 1, {}), (1, 2))

    def test_the_script_of_a_slurm_job_is_none_of_its_tasks(self) -> None:
        script = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}
        said = refusal(self, lambda: resolve_mesh(None, None, script))
        self.assertIn("in a Slurm job of 2 tasks", said.message)
        self.assertEqual(said.details, {"tasks": 2})
        for changed in ({"SLURM_STEP_ID": "0"}, {"SLURM_JOB_ID": ""}, {"RANK": "0", "WORLD_SIZE": "2"}):
            self.assertEqual(resolve_mesh(None, None, {**script, **changed})[:2], (0, 2))
        for tasks in ({"SLURM_NTASKS": "1"}, {"SLURM_NTASKS": ""}):
            self.assertEqual(resolve_mesh(None, None, {**script, **tasks})[:2], (0, 1))
        self.assertEqual(resolve_mesh({"tp": 1}, 0, script)[:2], (0, 2), "a rank that is given is believed")

    def test_torch_may_differ_from_launchers_of_launchers_only(self) -> None:
        group = Group(2, 4)
        for environment in ({"RANK": "2", "WORLD_SIZE": "4"}, {"PMI_RANK": "0", "PMI_SIZE": "9"}, {"BATCHWEAVE_RANK": "2"}, {}):
            place = resolve_mesh({"tp": 2}, None, environment, group)
            self.assertEqual(place[:4], (2, 4, 2, 1))
        for environment, part in (
            ({"RANK": "1"}, "torch.distributed says that this process is rank 2 of 4, and RANK is 1."),
            ({"BATCHWEAVE_WORLD_SIZE": "5"}, "torch.distributed has 4 ranks, and BATCHWEAVE_WORLD_SIZE is 5."),
            ({"RANK": "2", "WORLD_SIZE": "5"}, "torch.distributed has 4 ranks, and WORLD_SIZE is 5."),
        ):
            self.assertIn(part, refusal(self, lambda: resolve_mesh(None, None, environment, group)).message)
        self.assertIn("rank is 1, and torch.distributed says", refusal(self, lambda: resolve_mesh({"tp": 2}, 1, {}, group)).message)
        self.assertIn("torch.distributed's world size is 4", refusal(self, lambda: resolve_mesh({"dp": 2}, None, {}, group)).message)


class DeviceMeshes(unittest.TestCase):
    def mesh(self, rank: int, **sizes: int) -> Any:
        lengths, names = list(sizes.values()), list(sizes)
        at, rest = {}, rank
        for name, length in reversed(list(zip(names, lengths))):
            rest, at[name] = divmod(rest, length)
        return SimpleNamespace(mesh_dim_names=tuple(names), size=lambda i: lengths[i], get_local_rank=lambda name: at[name], get_rank=lambda: rank)

    def test_all_that_divides_rows_is_one_axis_the_slowest_first(self) -> None:
        for names in (("dp", "tp"), ("data", "tp"), ("fsdp", "tp"), ("hsdp", "tp"), ("ep", "tp"), ("dp_mine", "tp")):
            place = place_from_device_mesh(self.mesh(5, **dict(zip(names, (4, 2)))))
            self.assertEqual(place[:7], (5, 8, 4, 2, 1, 0, {"dp": 2, "tp": 1}))
        place = resolve_mesh(self.mesh(1 * 12 + 1 * 6 + 2 * 2 + 1, dp_replicate=2, dp_shard=2, cp=3, pp=2), None, {})
        self.assertEqual(place, (23, 24, 4, 3, 3, 2, {"dp": 3, "cp": 2, "pp": 1}, "dp_replicate 2, dp_shard 2, cp 3, pp 2"))
        self.assertEqual(place_from_device_mesh(self.mesh(1, dp=2, other=1))[:4], (1, 2, 2, 1))
        self.assertIn("has a dimension 'other'", refusal(self, lambda: place_from_device_mesh(self.mesh(1, dp=2, other=2))).message)
        self.assertIn("no mesh_dim_names", refusal(self, lambda: resolve_mesh(SimpleNamespace(mesh_dim_names=None), None, {})).message)
        self.assertEqual(resolve_mesh(self.mesh(1, dp=2), 1, {}).rank, 1)
        self.assertIn("rank is 0, and the DeviceMesh says", refusal(self, lambda: resolve_mesh(self.mesh(1, dp=2), 0, {})).message)


if __name__ == "__main__":
    unittest.main()
