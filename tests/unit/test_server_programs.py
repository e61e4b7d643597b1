"""Which program a scratch server is: one of the recorded series, in a folder that was named or this host's own."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from backupd.mysql.relocation import Relocation
from backupd.mysql.scratch_places import ScratchPlaces
from backupd.mysql.server_programs import ServerProgram, matching_program
from backupd.mysql.startup import server_argv
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Flavour
from tests.fakes.server import FACTS

LOADER = f"ld-linux-{os.uname().machine.replace('_', '-')}.so.2"
RIGHT = "10.11.99-MariaDB"


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """One that anybody can enter, as a drill's user must."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def put_program(path: Path, version: str = RIGHT) -> Path:
    """A program that says it is this server, and with which arguments it was started."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'mariadbd  Ver {version} for Linux on x86_64'\n")
    path.chmod(0o755)
    return path


def put_loader(folder: Path, version: str = RIGHT) -> Path:
    """It answers for what it is told to start, but only if that is told as the loader wants it."""
    folder.mkdir(parents=True)
    path = folder / LOADER
    path.write_text(
        f"""#!/bin/sh
[ "$1 $2" = "--inhibit-cache --library-path" ] && [ -d "${{3%%:*}}" ] && [ -f "$4" ] || exit 9
echo "$4  Ver {version} for Linux on x86_64"
"""
    )
    path.chmod(0o755)
    return path


def found(*folders: Path) -> ServerProgram:
    return matching_program(FACTS, folders)


def argv(program: ServerProgram, folder: Path) -> Sequence[str]:
    return server_argv(program, Relocation(folder, "", Path("/var/lib/mysql")), FACTS, ScratchPlaces(folder), None)


def test_a_flavour_that_no_program_here_serves_is_refused() -> None:
    with pytest.raises(ServerError, match=r"no mysql 10\.11 server is installed here; found: ") as refused:
        matching_program(replace(FACTS, flavour=Flavour.MYSQL))
    assert "install" in refused.value.hint


def test_a_server_in_a_folder_that_was_named_goes_first_and_finds_its_own_files(tmp_path: Path) -> None:
    put_program(tmp_path / "old/bin/mariadbd", "10.6.1-MariaDB")
    right = put_program(tmp_path / "right/usr/sbin/mariadbd")
    program = found(tmp_path / "none", tmp_path / "old", tmp_path / "right")
    assert (program.path, program.version) == (str(right), RIGHT)
    assert argv(program, tmp_path)[:3] == [str(right), "--no-defaults", f"--basedir={tmp_path}/right/usr"]


def test_one_that_does_not_start_keeps_no_other_from_being_found(tmp_path: Path) -> None:
    broken = put_program(tmp_path / "broken/bin/mariadbd")
    broken.write_text("#!/bin/sh\necho 'version GLIBC_2.38 not found' >&2; exit 1\n")
    right = put_program(tmp_path / "right/bin/mariadbd")
    assert found(tmp_path / "broken", tmp_path / "right").path == str(right)
    with pytest.raises(ServerError, match=r"broken/bin/mariadbd, which did not report its version .*GLIBC_2.38"):
        matching_program(replace(FACTS, version_number=(11, 8, 3)), [tmp_path / "broken"])


def test_one_that_says_nothing_of_a_version_is_none(tmp_path: Path) -> None:
    put_program(tmp_path / "broken/bin/mariadbd").write_text("#!/bin/sh\n")
    right = put_program(tmp_path / "right/bin/mariadbd")
    assert found(tmp_path / "broken", tmp_path / "right").path == str(right)


def test_a_program_in_a_folder_is_asked_as_a_drill_would_start_it(tmp_path: Path) -> None:
    """What an image brings is a stranger's program: it gets nothing of root's for saying its version."""
    path, open_to_all = put_program(tmp_path / "bin/mariadbd"), tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    path.write_text(
        f"""#!/bin/sh
(: > {open_to_all}/written) 2>/dev/null
[ "$(id -u)" = 0 ] && who=root
echo "mariadbd  Ver {RIGHT}$who for Linux on x86_64"
"""
    )
    assert found(tmp_path).version == RIGHT
    assert list(open_to_all.iterdir()) == []


def test_a_program_is_asked_once_until_it_is_replaced(tmp_path: Path) -> None:
    path = put_program(tmp_path / "bin/mariadbd")
    os.utime(path, (0, 0))
    assert found(tmp_path).version == RIGHT
    put_program(path, "10.11.100-MariaDB")
    os.utime(path, (0, 0))
    assert found(tmp_path).version == RIGHT
    os.utime(path, (1, 1))
    assert found(tmp_path).version == "10.11.100-MariaDB"


@pytest.mark.parametrize("place", ["usr/lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "usr/lib64", "lib64"])
def test_the_root_of_an_image_starts_with_its_own_libraries(tmp_path: Path, place: str) -> None:
    loader = put_loader(tmp_path / place)
    path = tmp_path / "usr/sbin/mariadbd"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("not for this host's own loader")
    program = found(tmp_path)
    assert (program.path, program.version) == (str(path), RIGHT)
    assert argv(program, tmp_path)[:6] == [
        *(str(loader), "--inhibit-cache", "--library-path", program.loader[3], str(path), "--no-defaults"),
    ]
    assert str(tmp_path / place) in program.loader[3].split(":")


def test_a_root_whose_folders_are_merged_finds_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "sbin").symlink_to("usr/sbin")
    put_program(tmp_path / "usr/sbin/mariadbd")
    assert f"--basedir={tmp_path}/usr" in found(tmp_path).argv


def test_an_absolute_link_of_a_root_leads_to_the_host_and_is_not_followed(tmp_path: Path) -> None:
    elsewhere = put_loader(tmp_path / "host", "11.4.1-MariaDB")
    root = tmp_path / "root"
    (root / "usr/lib64").mkdir(parents=True)
    (root / "usr/lib64" / LOADER).symlink_to(elsewhere)
    (root / "lib64").symlink_to(elsewhere.parent)
    path = put_program(root / "usr/sbin/mariadbd")
    assert (found(root).path, found(root).loader) == (str(path), ())
