"""A copy to a target that cannot be written: status 8 with a hint, nothing left there, and what lay there as it was."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backupd.catalogue import schema
from backupd.operations.ownership import ownership_of
from backupd.operations.restore.verify import verify_backup
from backupd.operations.upkeep.additional_copy import CopyRoute, clean_up, copy_run
from backupd.targets import BackupSource, Target
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import ExitStatus, TargetError
from backupd.vocabulary.records import HoldingKind
from tests.contract.s3_faults import in_between, refuse
from tests.contract.s3_server import s3_config, s3_service, s3_target
from tests.fakes.target import BELIEVED, MACHINE
from tests.servers.s3server import S3Service
from tests.story.world import World

__all__ = ["s3_service"]

OBJECT_BYTES = 7 << 20  # that do not compress: two parts of an upload


def world_in(folder: Path, target: Target) -> World:
    """A host with one backup, `r1`, in its vault, and this target."""
    world = World(folder)
    (world.datadir / "shop" / "orders.ibd").write_bytes(os.urandom(OBJECT_BYTES))
    world.back_up("r1")
    world.others = [target]  # type: ignore[list-item]
    world.also_released = {HoldingKind.UPLOAD: lambda upload: world.target_of(upload).abandon(upload)}
    return world


def copy(world: World, target: Target, run_id: str) -> None:
    with world.catalogue() as catalogue:
        route = CopyRoute(
            world.target, target, ownership_of(catalogue, world.tools), world.tools, lambda _job: None, takes_plain=True
        )
        clean_up(route)
        assert copy_run(route, run_id) is not None


def refused(world: World, target: Target, run_id: str) -> dict[str, Any]:
    """What is told, and what this host still holds of it."""
    with pytest.raises(TargetError) as caught:
        copy(world, target, run_id)
    error = caught.value
    assert world.left() == []
    return {
        "message": error.message,
        "hint": error.hint,
        "status": error.exit_status,
        "notes": getattr(error, "__notes__", []),
    }


def is_whole(target: Target, run_id: str) -> bool:
    return verify_backup(BackupSource(target, "nightly", run_id, BELIEVED)).whole


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    target = DirectoryTarget("offsite", tmp_path / "no folder", machine=MACHINE)
    told = refused(world_in(tmp_path / "host", target), target, "r1")
    assert "target offsite" in told["message"]
    assert (bool(told["hint"]), told["status"]) == (True, ExitStatus.TARGET)
    assert not (tmp_path / "no folder").exists()


def test_a_file_system_that_is_read_only_from_the_beginning_and_later(tmp_path: Path) -> None:
    code = "from pathlib import Path; from tests.contract.test_additional_copy_refused import copy_there;"
    code += f" copy_there(Path({str(tmp_path)!r}))"
    (tmp_path / "store").mkdir()
    mount = f"mount -t tmpfs -o ro none {shlex.quote(str(tmp_path / 'store'))}"
    child = f"{mount} && exec {shlex.join([sys.executable, '-c', code])}"
    alone = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "sh", "-c", child]
    said = subprocess.run(alone, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    told = json.loads(said.stdout)
    for refusal in (told["fresh"], told["later"]):
        assert refusal["message"] == f"target offsite ({tmp_path / 'store'}) is mounted read-only"
        assert "then mount it writable" in refusal["hint"]
        assert refusal["status"] == ExitStatus.TARGET
        assert refusal["notes"] == []
    assert told["left"] == []
    assert told["after"] == told["before"]
    assert told["whole"]


def copy_there(base: Path) -> None:
    """In the child: the store is read-only, then writable, then read-only again."""
    pytest.MonkeyPatch().setattr(schema, "new_name", lambda _host: MACHINE)  # as tests/conftest.py has it
    store = base / "store"
    target = DirectoryTarget("offsite", store, machine=MACHINE)

    def lying() -> list[str]:
        return sorted(str(path.relative_to(store)) for path in store.rglob("*"))

    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(store)], check=True)

    world = world_in(base / "host", target)
    world.back_up("r2")
    told: dict[str, Any] = {"fresh": refused(world, target, "r1"), "left": lying()}
    remount("rw")
    copy(world, target, "r1")
    remount("ro")
    told |= {"before": lying(), "later": refused(world, target, "r2"), "after": lying()}
    sys.stdout.write(json.dumps({**told, "whole": is_whole(target, "r1")}))


@pytest.mark.parametrize("operations", [["PutObject", "CreateMultipartUpload"], ["UploadPart"]], ids=["all", "parts"])
def test_a_store_that_forbids_writing(s3_service: S3Service, tmp_path: Path, operations: list[str]) -> None:
    with in_between(s3_service.endpoint) as proxy:
        config = s3_config(s3_service, endpoint=proxy.endpoint)
        target = s3_target(config)
        world = world_in(tmp_path / "host", target)
        for operation in operations:
            proxy.always(operation, refuse(403, "AccessDenied"))
        told = refused(world, target, "r1")
        assert "does not let backupd" in told["message"]
        assert (bool(told["hint"]), told["status"], told["notes"]) == (True, ExitStatus.TARGET, [])
        assert list(target.backups("nightly")) == []
        assert target.objects("nightly", "r1") == {}
        assert target._listing.uploads(config.prefix) == []
        proxy.heal()
        copy(world, target, "r1")
        assert is_whole(target, "r1")
