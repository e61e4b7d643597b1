"""Which kernel the lab boots: the newest, fetched once and made to start from its folder, else the installed one."""

import os
from pathlib import Path

import pytest

from backupd.lab import kernels, roots
from backupd.lab.images import clean
from backupd.lab.options import Kernel

ARCHIVE = "http://m.example/debian"
FETCHED = (
    'for last; do root=$before; before=$last; done; mkdir -p "$root/usr/bin" "$root/usr/lib64"; '
    'mkdir -p "$root/usr/lib/uml/modules/7.2.7/kernel"; touch "$root/usr/bin/linux.uml" '
    '"$root/usr/lib64/ld-linux-x86-64.so.2"'
)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for mmdebstrap and patchelf, which tell what they were called with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    does(folder / "patchelf", f'echo "$*" >> {tmp_path}/patched')
    return folder


def does(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.fixture(autouse=True)
def processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One whose registers every kernel can save."""
    told = tmp_path / "cpuinfo"
    told.write_text("flags\t\t: fpu avx2 avx512f\n")
    monkeypatch.setattr(kernels, "_PROCESSOR", told)
    return told


def unexpected(said: str) -> None:
    pytest.fail(said)


def test_the_newest_is_fetched_once_and_starts_from_where_it_is_kept(tmp_path: Path, programs: Path) -> None:
    does(programs / "mmdebstrap", FETCHED)
    cache = tmp_path / "cache"
    for _ in range(2):
        with kernels.ready(Kernel.UML, cache, say=unexpected, archive=ARCHIVE) as kernel:
            assert Path(kernel.program).is_file()
            assert kernel.modules.name == "7.2.7"
            assert clean(cache) == []
    usr = kernel.modules.parents[3]
    (patched,) = (tmp_path / "patched").read_text().splitlines()
    assert f"--set-interpreter {usr}/lib64/ld-linux-x86-64.so.2 " in patched
    assert f"--set-rpath {usr}/lib/" in patched


def test_where_the_newest_is_out_of_reach_the_installed_one_serves_and_it_is_said(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    does(programs / "mmdebstrap", "echo 'E: no route to host' >&2; exit 25")
    monkeypatch.setattr(kernels, "_INSTALLED", tmp_path)
    (tmp_path / "lib/uml/modules/6.1.176/kernel").mkdir(parents=True)
    said: list[str] = []
    with kernels.ready(Kernel.UML, tmp_path / "cache", say=said.append, archive=ARCHIVE) as kernel:
        assert (kernel.program, kernel.modules.name, kernel.options) == ("linux.uml", "6.1.176", ())
    assert len(said) == 1
    assert said[0].startswith("cannot fetch user-mode-linux of Debian testing")
    assert "no route to host; this machine's own user-mode kernel serves instead" in said[0]


def test_without_any_kernel_the_reason_is_that_the_newest_cannot_be_fetched(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    does(programs / "mmdebstrap", "echo 'E: no route to host' >&2; exit 25")
    monkeypatch.setattr(kernels, "_INSTALLED", tmp_path)
    ready = kernels.ready(Kernel.UML, tmp_path / "cache", say=unexpected, archive=ARCHIVE)
    with pytest.raises(roots.DistributionUnreachable, match="no route to host"), ready:
        pytest.fail("there is no kernel")


def test_the_installed_one_is_taken_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_INSTALLED", tmp_path)
    (tmp_path / "lib/uml/modules/6.1.176/kernel").mkdir(parents=True)
    with kernels.ready(Kernel.UML_INSTALLED, tmp_path / "cache", say=unexpected) as kernel:
        assert kernel.program == "linux.uml"


def test_where_the_installed_one_would_die_the_newest_serves_with_ptrace(
    tmp_path: Path, programs: Path, processor: Path
) -> None:
    does(programs / "mmdebstrap", FETCHED)
    processor.write_text("flags\t\t: fpu avx512f amx_tile\n")
    said: list[str] = []
    with kernels.ready(Kernel.UML_INSTALLED, tmp_path / "cache", say=said.append, archive=ARCHIVE) as kernel:
        assert (kernel.modules.name, kernel.options) == ("7.2.7", ("seccomp=off",))
    (told,) = said
    assert "cannot save this processor's registers; the newest serves, with ptrace" in told
    does(programs / "mmdebstrap", "exit 25")
    gone = kernels.ready(Kernel.UML, tmp_path / "empty", say=unexpected, archive=ARCHIVE)
    with pytest.raises(roots.DistributionUnreachable), gone:
        pytest.fail("the installed one does not run here")
