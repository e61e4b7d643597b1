"""A machine's identity: its name, what binds it, and that another machine is told from it."""

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backupd.catalogue.store import Catalogue
from backupd.host.machine_ids import this_machine
from backupd.vocabulary.errors import ExitStatus, Refused
from backupd.vocabulary.identity import Identity, Machine, is_name, mark, new_name

NOW = datetime(2026, 11, 22, tzinfo=UTC)
HERE = Machine("db1", {"machine-id": "a1", "product-uuid": "b1"})


@pytest.mark.parametrize(
    ("host", "begins"),
    [
        ("db1", "db1-"),
        ("DB1.example.com", "db1-"),
        ("../a b_c", "host-"),
        ("a b_c", "a-b-c-"),
        ("", "host-"),
        ("x" * 99, "x" * 40 + "-"),
        ("-db1", "db1-"),
        ("x" * 39 + "_a", "x" * 39 + "-"),
    ],
)
def test_a_name_is_the_host_s_and_eight_digits_that_no_other_machine_has(host: str, begins: str) -> None:
    name = new_name(host)
    assert name[:-8] == begins
    assert is_name(name)
    assert name != new_name(host)


@pytest.mark.parametrize(
    ("bound_to", "marks", "same"),
    [
        ({"machine-id": "a", "product-uuid": "b"}, {"machine-id": "a", "product-uuid": "b"}, True),
        ({"machine-id": "a", "product-uuid": "b"}, {"machine-id": "a", "product-uuid": "c"}, False),  # a clone
        ({"machine-id": "a", "product-uuid": "b"}, {"machine-id": "c", "product-uuid": "b"}, False),
        ({"machine-id": "a", "product-uuid": "b"}, {"machine-id": "a"}, True),  # somebody who is not root
        ({"machine-id": "a"}, {"machine-id": "a", "product-uuid": "b"}, True),
        ({"machine-id": "a"}, {"product-uuid": "b"}, False),
        ({"machine-id": "a"}, {}, False),
        ({}, {"machine-id": "a"}, True),  # bound to nothing: nobody can tell
    ],
)
def test_a_machine_is_the_one_it_was_bound_to_where_all_known_ids_agree(
    bound_to: dict[str, str], marks: dict[str, str], same: bool
) -> None:
    assert Identity("db1-00000000", bound_to, NOW).is_of(Machine("db1", marks)) is same


PLACES = {
    "etc": "etc/machine-id",
    "dbus": "var/lib/dbus/machine-id",
    "uuid": "sys/class/dmi/id/product_uuid",
    "boot": "proc/sys/kernel/random/boot_id",
}


def root_with(base: Path, **files: str) -> Path:
    for name, text in files.items():
        path = base / PLACES[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return base


def test_the_ids_of_a_machine_are_shown_as_digests_only(tmp_path: Path) -> None:
    machine = this_machine(root_with(tmp_path, etc="0123456789abcdef\n", uuid="4C4C4544\n", boot="boot one\n"))
    assert set(machine.marks) == {"machine-id", "product-uuid"}
    assert machine.boot_id == "boot one"
    assert "0123" not in str(machine.marks)
    assert machine.marks["machine-id"] != machine.marks["product-uuid"]


def test_containers_of_one_kernel_are_not_in_one_boot(tmp_path: Path) -> None:
    root = root_with(tmp_path, etc="0123456789abcdef\n", boot="boot one\n")
    processes = root / "proc/self/ns/pid"
    processes.parent.mkdir(parents=True)
    boots = []
    for container in ("pid:[4026531836]", "pid:[4026532201]"):
        processes.symlink_to(container)
        boots.append(this_machine(root).boot_id)
        processes.unlink()
    assert len({*boots, "boot one"}) == 3


@pytest.mark.parametrize("etc", ["", "uninitialized\n"])
def test_where_there_is_no_machine_id_d_bus_s_is_taken(tmp_path: Path, etc: str) -> None:
    with_both = this_machine(root_with(tmp_path / "a", etc=etc, dbus="abc\n"))
    assert with_both.marks == this_machine(root_with(tmp_path / "b", etc="abc\n")).marks
    assert this_machine(root_with(tmp_path / "c", etc=etc)).marks == {}


def test_a_catalogue_is_made_with_an_identity_that_is_bound_to_its_machine(tmp_path: Path) -> None:
    for _ in range(2):
        with Catalogue.open(tmp_path / "catalogue.sqlite", machine=lambda: HERE) as catalogue:
            identity = catalogue.identity()
    assert identity.name.startswith("db1-")
    assert identity.bound_to == HERE.marks
    identity.require_of(HERE)
    assert stat.S_IMODE((tmp_path / "catalogue.sqlite").stat().st_mode) == 0o600


def test_another_machine_is_told_what_has_happened_and_what_to_do(tmp_path: Path) -> None:
    with Catalogue.open(tmp_path / "catalogue.sqlite", machine=lambda: HERE) as catalogue:
        identity = catalogue.identity()
    with pytest.raises(Refused, match=f"belongs to another machine, {identity.name}: was .* cloned") as told:
        identity.require_of(Machine("db1", {"machine-id": "a1", "product-uuid": "another"}))
    assert told.value.exit_status is ExitStatus.REFUSED
    for command in ("show", "new", "adopt"):
        assert f"`backupd identity {command}`" in told.value.hint


@pytest.mark.parametrize(
    ("name", "proper"),
    [
        ("db1-0a1b2c3d", True),
        ("d-00000000", True),
        ("x" * 40 + "-0a1b2c3d", True),
        ("x" * 41 + "-0a1b2c3d", False),
        ("-db1-0a1b2c3d", False),
        ("db1-0A1B2C3D", False),
        ("db1-0a1b2c3", False),
        ("db1-0a1b2c3d\n", False),
        ("../db1-0a1b2c3d", False),
        ("", False),
    ],
)
def test_a_machine_s_name_is_safe_in_a_path_and_in_a_tag(name: str, proper: bool) -> None:
    assert is_name(name) is proper


def test_an_id_is_marked_the_same_however_it_is_written_and_by_its_kind() -> None:
    """A mark that came out differently after an upgrade would refuse every catalogue on its own machine."""
    assert mark("machine-id", "0123456789abcdef") == "bca6172e81ea91f0042b13326b5906c9"
    assert mark("machine-id", " 0123456789ABCDEF\n") == mark("machine-id", "0123456789abcdef")
    assert mark("product-uuid", "0123456789abcdef") != mark("machine-id", "0123456789abcdef")


def test_what_another_machine_is_told_is_one_sentence_with_three_ways_out() -> None:
    with pytest.raises(Refused) as told:
        Identity("db1-00000000", {"machine-id": "a"}, NOW).require_of(Machine("db1", {"machine-id": "b"}))
    assert told.value.message == (
        "this catalogue belongs to another machine, db1-00000000: was the catalogue copied, or this machine cloned?"
        " nothing was changed"
    )
    assert told.value.hint == (
        "see `backupd identity show`; on a clone: `backupd identity new`; if this machine replaces that one:"
        " `backupd identity adopt`"
    )
