"""What can go wrong between here and a real OpenSSH server: never a false success, never a hang, always a sentence."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import asyncssh
import pytest

from backupd import wiring
from backupd.config import SftpConfig
from backupd.host.signals import cancellable
from backupd.operations import context
from backupd.targets.names import BINLOG
from backupd.targets.sftp import SftpTarget
from backupd.targets.sftp_files import read_exactly
from backupd.vocabulary.binlogs import segment_name
from backupd.vocabulary.errors import AlreadyThere, Cancelled, TargetAway, TargetError
from tests.contract.sftp_server import sftp_config, sftp_server, sftp_target
from tests.contract.tcp_proxy import Proxy, proxy
from tests.contract.test_target_segments import CHAIN, FIRST, NAMES, put_segment
from tests.contract.test_targets import JOB, MANIFEST, NAME, RUN, get, plant, put, record
from tests.fakes.target import MACHINE
from tests.processes import children
from tests.servers.sshd import SshServer, main, serving

pytestmark = pytest.mark.exhaustive

__all__ = ["sftp_server"]

SFTP_SERVER = "/usr/lib/openssh/sftp-server"
CONTENT = bytes(range(256)) * (12 << 10)  # 3 MiB


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


@pytest.fixture
def between(sftp_server: SshServer) -> Iterator[Proxy]:
    with proxy(sftp_server.port) as found:
        yield found


def through(
    between: Proxy, server: SshServer, store: Path, *, timeout_seconds: float = 20.0, outage_seconds: float = 0.001
) -> SftpTarget:
    """A target behind the proxy, whose port the known hosts have as well."""
    known = store.parent / "known_hosts"
    known.write_text(f"[127.0.0.1]:{between.port} {host_key(server)}\n")
    config = sftp_config(server, store, timeout_seconds=timeout_seconds)
    return sftp_target(replace(config, port=between.port, known_hosts=known, outage_seconds=outage_seconds))


def host_key(server: SshServer) -> str:
    return server.known_hosts.read_text().partition(" ")[2].strip()


def files(store: Path) -> list[str]:
    return sorted(path.name for path in store.rglob("*") if path.is_file())


def refusal(config: SftpConfig) -> TargetError:
    with pytest.raises(TargetError) as caught:
        sftp_target(config).require_usable()
    assert caught.value.hint
    return caught.value


@contextmanager
def frozen(server: SshServer) -> Iterator[None]:
    """The server accepts connections and then says nothing: the processes of its sessions are stopped."""
    stopped = sessions(server.pid)
    assert stopped
    for pid in stopped:
        with suppress(ProcessLookupError):  # of a connection that has just ended
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):  # a session's process follows the one that it served
                os.kill(pid, signal.SIGKILL)


def sessions(pid: int) -> list[int]:
    return [found for child in map(int, children(pid)) for found in (child, *sessions(child))]


# --- the line ------------------------------------------------------------------------------------------------------


LARGE = CONTENT * 8  # more than is under way at once


def test_writing_goes_on_at_the_byte_after_the_line_was_cut_and_that_is_told_once(
    between: Proxy, sftp_server: SshServer, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = through(between, sftp_server, store)
    target.require_usable()
    between.cut_after(10 << 20)
    with caplog.at_level("INFO", "backupd.targets"):
        put(target, LARGE)
    assert get(target) == LARGE
    assert files(store) == [NAME]
    begun, over = [record.getMessage() for record in caplog.records if record.name.startswith("backupd")]
    assert f"could not write {NAME} to it" in begun
    assert "retrying for up to 1ms" in begun
    assert "answers again after" in over


def test_reading_goes_on_at_the_byte_after_the_line_was_cut(
    between: Proxy, sftp_server: SshServer, store: Path
) -> None:
    target = through(between, sftp_server, store)
    put(target, LARGE)
    between.cut_after(10 << 20)
    with target.reading(JOB, RUN, NAME, offset=5, size=len(LARGE) - 10) as chunks:
        assert b"".join(chunks) == LARGE[5:-5]


@pytest.mark.parametrize("published", [False, True])
def test_a_line_that_is_cut_at_any_answer_makes_no_difference(
    between: Proxy, sftp_server: SshServer, store: Path, published: bool
) -> None:
    target = through(between, sftp_server, store)
    for size in range(200, 4200, 400):
        target.require_usable()
        between.cut_after(size)
        if published:
            target.publish(replace(MANIFEST, run_id=f"{size}"))
            assert target.manifest(JOB, f"{size}").run_id == f"{size}"
        else:
            put(target, b"x", run=f"{size}")
            assert get(target, run=f"{size}") == b"x"
    assert set(files(store)) == {"manifest.json" if published else NAME}


def test_an_owner_record_succeeds_or_says_that_nobody_knows_where_the_line_is_cut(
    between: Proxy, sftp_server: SshServer, store: Path
) -> None:
    target, number = through(between, sftp_server, store), 1
    for size in range(200, 4000, 300):
        target.require_usable()
        between.cut_after(size)
        try:
            assert target.succeed(record(number))
        except TargetError:
            assert target.owner() in (None, record(number - 1), record(number))
            assert target.succeed(record(number))  # with the same incarnation
        assert target.owner() == record(number)
        number += 1


def test_writing_goes_on_when_the_servers_processes_were_killed(sftp_server: SshServer, store: Path) -> None:
    target = sftp_target(sftp_config(sftp_server, store))
    with target.writing(JOB, RUN, NAME) as writer:
        for _ in range(3):
            writer.write(LARGE)
            for pid in sessions(sftp_server.pid):
                with suppress(ProcessLookupError):  # a parent's end is its child's
                    os.kill(pid, signal.SIGKILL)
    assert get(target) == LARGE * 3


def test_a_server_that_lost_what_it_acknowledged_is_not_written_to_any_further(
    between: Proxy, sftp_server: SshServer, store: Path
) -> None:
    target = through(between, sftp_server, store)
    with (
        pytest.raises(TargetError, match=r"has 5 bytes of .* where it acknowledged 3145728"),
        target.writing(JOB, RUN, NAME) as writer,
    ):
        writer.write(CONTENT)
        writer.flushed()
        os.truncate(store / MACHINE / JOB / RUN / f".{NAME}.partial", 5)
        between.cut_after(1)
        writer.write(CONTENT)
    assert files(store) == []


def test_an_outage_that_lasts_too_long_is_a_sentence(between: Proxy, sftp_server: SshServer, store: Path) -> None:
    target = through(between, sftp_server, store)
    with (
        pytest.raises(TargetError, match="could not connect to target store") as caught,
        target.writing(JOB, RUN, NAME) as writer,
    ):
        between.stop()
        writer.write(CONTENT)
    assert "is sshd running there" in caught.value.hint
    sftp_target(sftp_config(sftp_server, store)).remove(JOB, RUN)
    assert files(store) == []


def test_the_wait_for_an_outage_ends_at_once_when_nobody_wants_the_object(
    between: Proxy, sftp_server: SshServer, store: Path
) -> None:
    target = through(between, sftp_server, store, outage_seconds=600)
    unwanted = threading.Event()
    began = time.monotonic()
    with pytest.raises(TargetError), target.writing(JOB, RUN, NAME, unwanted=unwanted) as writer:
        between.stop()
        threading.Timer(0.2, unwanted.set).start()
        writer.write(CONTENT)
    assert time.monotonic() - began < 60


def test_an_object_that_has_the_name_already_stays_where_a_new_one_s_rename_was_lost(
    between: Proxy, sftp_server: SshServer, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut(*_: object) -> None:
        raise asyncssh.ConnectionLost("cut")

    target = through(between, sftp_server, store)
    plant(target, NAME)
    monkeypatch.setattr(asyncssh.SFTPClient, "posix_rename", cut)
    with pytest.raises(TargetError):
        put(target, CONTENT)
    assert (get(target), files(store)) == (b"mine", [NAME])


def test_a_rename_whose_answer_was_lost_is_known_by_the_name(
    sftp_server: SshServer, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, lost = asyncssh.SFTPClient.posix_rename, [True]

    async def lose_the_answer(sftp: asyncssh.SFTPClient, *names: str) -> None:
        await really(sftp, *names)
        if lost.pop() if lost else False:
            raise asyncssh.ConnectionLost("cut")

    monkeypatch.setattr(asyncssh.SFTPClient, "posix_rename", lose_the_answer)
    target = sftp_target(sftp_config(sftp_server, store))
    put(target, CONTENT)
    assert (get(target), files(store), lost) == (CONTENT, [NAME], [])


@pytest.mark.parametrize("another", [False, True])
def test_a_manifest_that_was_linked_by_half_is_finished_unless_another_has_the_name(
    sftp_server: SshServer, store: Path, monkeypatch: pytest.MonkeyPatch, another: bool
) -> None:
    """SFTP's own rename makes a link and removes the old name then: the server may die in between."""
    really, broken = asyncssh.SFTPClient.rename, [True]

    async def break_off(sftp: asyncssh.SFTPClient, path: str, final: str) -> None:
        if not broken:
            return await really(sftp, path, final)
        broken.pop()
        if another:
            Path(final).write_text("another one's")
        else:
            os.link(path, final)
        raise asyncssh.ConnectionLost("cut")

    monkeypatch.setattr(asyncssh.SFTPClient, "rename", break_off)
    target = sftp_target(sftp_config(sftp_server, store))
    put(target, b"x")
    if another:
        with pytest.raises(TargetError):
            target.publish(MANIFEST)
        assert (store / MACHINE / JOB / RUN / "manifest.json").read_text() == "another one's"
    else:
        target.publish(MANIFEST)
        assert target.manifest(JOB, RUN) == MANIFEST
    assert files(store) == sorted([NAME, "manifest.json"])


def test_a_removal_whose_answer_is_lost_is_told_as_that(
    sftp_server: SshServer, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut(*_: object) -> None:
        raise asyncssh.ConnectionLost("cut")

    target = sftp_target(sftp_config(sftp_server, store))
    put_segment(target, b"x")
    with monkeypatch.context() as cutting:
        cutting.setattr(asyncssh.SFTPClient, "remove", cut)
        with pytest.raises(TargetAway, match="lost the connection to target store"):
            target.remove_segments(JOB, [FIRST])
    target.remove_segments(JOB, [FIRST])
    assert files(store) == []


def test_nobody_waits_for_the_answer_of_a_silent_server_about_an_object_that_is_not_wanted_any_more(
    sftp_server: SshServer, store: Path
) -> None:
    target = sftp_target(sftp_config(sftp_server, store))
    put(target, b"x", name="first")
    unwanted, began = threading.Event(), time.monotonic()
    with frozen(sftp_server):
        threading.Timer(0.2, unwanted.set).start()
        with pytest.raises(TargetError), target.writing(JOB, RUN, NAME, unwanted=unwanted) as writer:
            writer.write(CONTENT)
    assert time.monotonic() - began < 15  # of a timeout of 20 s


def test_owner_records_wait_for_no_outage(between: Proxy, sftp_server: SshServer, store: Path) -> None:
    """A live run's are written every minute; before its lock it waits for the answer."""
    target = through(between, sftp_server, store, outage_seconds=600)
    between.stop()
    for asked in (target.owner, lambda: target.succeed(record(1))):
        with pytest.raises(TargetError, match="could not connect to target store"):
            asked()


@pytest.mark.parametrize("refused", ["authorized_keys", "known_hosts"])
def test_a_refusal_is_no_outage(between: Proxy, sftp_server: SshServer, store: Path, refused: str) -> None:
    target = through(between, sftp_server, store, outage_seconds=600)
    file = store.parent / refused if refused == "known_hosts" else sftp_server.key_file.parent / refused
    content = file.read_text()
    try:
        with (
            pytest.raises(TargetError, match=r"does not accept|does not know"),
            target.writing(JOB, RUN, NAME) as writer,
        ):
            file.write_text("")
            between.cut_after(1)
            writer.write(CONTENT)
    finally:
        file.write_text(content)


def test_an_object_that_was_exchanged_during_an_outage_is_not_read_on(
    between: Proxy, sftp_server: SshServer, store: Path
) -> None:
    target = through(between, sftp_server, store)
    put(target, LARGE)
    with pytest.raises(TargetError, match="has changed"), target.reading(JOB, RUN, NAME) as chunks:
        (store / MACHINE / JOB / RUN / NAME).write_bytes(CONTENT)
        between.cut_after(1)
        b"".join(chunks)


def test_a_server_that_falls_silent_is_left_for_a_new_connection(sftp_server: SshServer, store: Path) -> None:
    target = sftp_target(sftp_config(sftp_server, store, timeout_seconds=3.0))
    put(target, b"x", name="first")
    with frozen(sftp_server):
        put(target, LARGE)
    with target.reading(JOB, RUN, NAME) as chunks, frozen(sftp_server):
        assert b"".join(chunks) == LARGE


def test_a_line_that_stays_silent_is_given_up(between: Proxy, sftp_server: SshServer, store: Path) -> None:
    target = through(between, sftp_server, store, timeout_seconds=3.0)
    put(target, CONTENT)
    with pytest.raises(TargetError, match=r"no answer for 3 s"), target.reading(JOB, RUN, NAME) as chunks:
        between.stall()
        b"".join(chunks)


def test_a_server_that_falls_silent_in_preflight_is_away(sftp_server: SshServer, store: Path) -> None:
    target = sftp_target(sftp_config(sftp_server, store, timeout_seconds=0.5))
    target.backups()
    with frozen(sftp_server), pytest.raises(TargetAway, match=r"did not answer for 0\.5 s"):
        target.require_usable()


def test_a_signal_ends_the_wait_for_a_silent_server(sftp_server: SshServer, store: Path) -> None:
    target = sftp_target(sftp_config(sftp_server, store))
    put(target, b"x")
    with cancellable(), frozen(sftp_server):
        began = time.monotonic()
        with pytest.raises(Cancelled):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
            target.require_usable()
    assert time.monotonic() - began < 15  # of a timeout of 20 s


def test_a_signal_ends_writing_to_a_silent_server(sftp_server: SshServer, store: Path) -> None:
    target = sftp_target(sftp_config(sftp_server, store))
    put(target, b"x", name="first")
    with cancellable(), frozen(sftp_server):
        began = time.monotonic()
        with pytest.raises(Cancelled):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
            put(target, *[CONTENT] * 8)
    assert time.monotonic() - began < 15  # of a timeout of 20 s
    assert files(store) == ["first"]


def test_what_a_silent_server_left_is_removed_later(sftp_server: SshServer, store: Path) -> None:
    target = sftp_target(sftp_config(sftp_server, store))
    put(target, b"x")
    (store / MACHINE / JOB / RUN / f".{NAME}.partial").write_bytes(b"of a host that died")
    target.remove(JOB, RUN)
    assert list((store / MACHINE).iterdir()) == []


def test_a_server_that_is_not_there_is_a_sentence(between: Proxy, sftp_server: SshServer, store: Path) -> None:
    target = through(between, sftp_server, store)
    between.stop()
    with pytest.raises(TargetError, match="could not connect to target store") as caught:
        target.require_usable()
    assert "is sshd running there" in caught.value.hint


# --- who is there, and who we are ------------------------------------------------------------------------------------


def test_an_unknown_server_is_refused(sftp_server: SshServer, store: Path, tmp_path: Path) -> None:
    known = tmp_path / "known"
    config = replace(sftp_config(sftp_server, store), known_hosts=known)
    assert "cannot read" in refusal(config).message
    known.write_text("")
    error = refusal(config)
    assert "does not know 127.0.0.1" in error.message
    assert f"ssh-keyscan -p {sftp_server.port} 127.0.0.1" in error.hint


@pytest.mark.parametrize("text", ["", "\n", "# nobody yet\n"])
def test_servers_that_the_file_does_not_know_are_not_looked_up_in_that_of_the_user_that_we_are(
    sftp_server: SshServer, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "known_hosts").write_text(sftp_server.known_hosts.read_text())
    known = tmp_path / "known"
    known.write_text(text)
    error = refusal(replace(sftp_config(sftp_server, store), known_hosts=known))
    assert f"{known} does not know 127.0.0.1" in error.message


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
def test_a_changed_host_key_is_refused(sftp_server: SshServer, store: Path, tmp_path: Path, kind: str) -> None:
    known = tmp_path / "known"
    known.write_text(f"[127.0.0.1]:{sftp_server.port} {new_key(tmp_path / 'other', kind).read_text()}")
    assert "shows a different host key" in refusal(replace(sftp_config(sftp_server, store), known_hosts=known)).message


def test_a_revoked_host_key_is_refused(sftp_server: SshServer, store: Path, tmp_path: Path) -> None:
    known = tmp_path / "known"
    key = host_key(sftp_server)
    known.write_text(f"[127.0.0.1]:{sftp_server.port} {key}\n@revoked * {key}\n")
    assert "revoked" in refusal(replace(sftp_config(sftp_server, store), known_hosts=known)).message


def test_a_key_that_the_server_does_not_know_is_refused(sftp_server: SshServer, store: Path, tmp_path: Path) -> None:
    new_key(tmp_path / "other", "ed25519")
    error = refusal(replace(sftp_config(sftp_server, store), key_file=tmp_path / "other"))
    assert f"does not accept {sftp_server.user}" in error.message


def test_a_key_file_that_cannot_be_used_is_a_sentence(sftp_server: SshServer, store: Path, tmp_path: Path) -> None:
    config = replace(sftp_config(sftp_server, store), key_file=tmp_path / "key")
    assert "cannot read" in refusal(config).message
    new_key(tmp_path / "key", "ed25519", passphrase="correct horse")
    assert "protected by a passphrase" in refusal(config).message
    (tmp_path / "key").chmod(0o640)
    assert "can be read or written by others" in refusal(config).message
    (tmp_path / "key").write_text("a secret of another kind")
    (tmp_path / "key").chmod(0o600)
    error = refusal(config)
    assert "has no private key" in error.message
    assert "secret of another kind" not in f"{error}{error.hint}{error.__cause__}"


def new_key(path: Path, kind: str, *, passphrase: str = "") -> Path:
    """The file of its public half."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", path], check=True)
    return path.with_name(f"{path.name}.pub")


# --- the server ---------------------------------------------------------------------------------------------------


def test_a_server_that_opens_no_folder_is_trusted_with_its_names(
    sftp_server: SshServer, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those do that are not OpenSSH's: there is no other way to have a folder synced."""
    really = asyncssh.SFTPClient.open

    def refuse_folders(sftp: asyncssh.SFTPClient, path: str, *how: object, **more: object) -> object:
        if Path(path).is_dir():
            raise asyncssh.SFTPFailure("Failure")
        return really(sftp, path, *how, **more)

    monkeypatch.setattr(asyncssh.SFTPClient, "open", refuse_folders)
    target = sftp_target(sftp_config(sftp_server, store))
    put(target, CONTENT)
    put_segment(target, b"x")
    with pytest.raises(ZeroDivisionError), target.writing(JOB, BINLOG, NAMES[1]) as writer:
        writer.write(b"y")
        raise ZeroDivisionError
    target.publish(MANIFEST)
    assert (get(target), dict(target.segments(JOB))) == (CONTENT, {FIRST: 1})
    assert files(store) == sorted([NAME, FIRST, "manifest.json"])


def test_a_folder_that_the_server_removes_again_and_again_is_told_at_last(
    sftp_server: SshServer, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[None] = []

    async def gone(*_: object) -> None:
        tries.append(None)
        raise asyncssh.SFTPNoSuchFile("No such file")

    monkeypatch.setattr(asyncssh.SFTPClient, "mkdir", gone)
    with pytest.raises(TargetError, match=f"could not write {NAME} to target store"):
        put(sftp_target(sftp_config(sftp_server, store)), b"x")
    assert len(tries) > 1


@pytest.mark.parametrize("named", ["record", "segment"])
def test_a_name_that_the_server_refuses_to_give_is_told_and_leaves_nothing(
    sftp_server: SshServer, store: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """It says "Failure", as it does where there is one: of a full disk, too."""

    async def refuse(*_: object) -> None:
        raise asyncssh.SFTPFailure("Failure")

    target = sftp_target(sftp_config(sftp_server, store))
    monkeypatch.setattr(asyncssh.SFTPClient, "rename", refuse)
    with pytest.raises(TargetError, match="Failure") as told:
        target.succeed(record(1)) if named == "record" else put_segment(target, b"x")
    assert not isinstance(told.value, AlreadyThere)
    assert files(store) == []


def test_more_segments_than_are_asked_for_at_once_are_listed_and_removed(
    sftp_server: SshServer, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most in ("_PAGE", "_AT_ONCE"):
        monkeypatch.setattr(f"backupd.targets.sftp_segments.{most}", 2)
    target = sftp_target(sftp_config(sftp_server, store))
    names = [segment_name(CHAIN, number) for number in range(1, 6)]
    for name in names:
        put_segment(target, b"x", name)
    assert sorted(target.segments(JOB)) == names
    target.remove_segments(JOB, names[:-1])
    assert list(target.segments(JOB)) == names[-1:]


def test_a_large_object_is_synced_while_it_is_written(
    sftp_server: SshServer, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one sync at the end would take longer for than anybody waits for an answer."""
    synced: list[None] = []
    really = asyncssh.SFTPClientFile.fsync

    async def told(file: asyncssh.SFTPClientFile) -> None:
        synced.append(None)
        await really(file)

    monkeypatch.setattr(asyncssh.SFTPClientFile, "fsync", told)
    monkeypatch.setattr("backupd.targets.sftp_writer._SYNC_BYTES", 1 << 20)
    target = sftp_target(sftp_config(sftp_server, store))
    put(target, CONTENT)
    assert get(target) == CONTENT
    assert len(synced) >= 4, "three times, at the end, and of its folders"


# --- the folder ------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_may_come_back(sftp_server: SshServer, store: Path) -> None:
    config = sftp_config(sftp_server, store / "missing")
    assert "does not exist" in refusal(config).message
    for touch in touches(sftp_target(config)):
        with pytest.raises(TargetAway, match="does not exist"):
            touch()
    assert list(store.iterdir()) == []


def test_something_else_in_the_folders_place_does_not(sftp_server: SshServer, store: Path) -> None:
    (store / "file").touch()
    refused = refusal(sftp_config(sftp_server, store / "file"))
    assert ("is not a folder" in refused.message, isinstance(refused, TargetAway)) == (True, False)


def test_a_file_system_that_is_not_mounted_is_neither_written_nor_read(sftp_server: SshServer, store: Path) -> None:
    target = sftp_target(sftp_config(sftp_server, store, sentinel=".mounted"))
    for touch in (*touches(target), target.require_usable):
        with pytest.raises(TargetAway, match=r"is not mounted: there is no \.mounted in it"):
            touch()
    assert list(store.iterdir()) == []
    (store / ".mounted").touch()
    target.require_usable()
    put(target, b"x")
    assert get(target) == b"x"
    assert len(target.backups()) == 1


def touches(target: SftpTarget) -> tuple[Callable[[], object], ...]:
    return (
        lambda: put(target, b"x"),
        lambda: get(target),
        lambda: target.manifest(JOB, RUN),
        target.backups,
        lambda: target.remove(JOB, RUN),
        lambda: target.publish(MANIFEST),
    )


def test_what_others_keep_in_the_folder_is_no_backup(sftp_server: SshServer, store: Path) -> None:
    target = sftp_target(sftp_config(sftp_server, store))
    put(target, b"x")
    for other in ("lost+found/#12", ".snapshot/nightly.0", os.fsdecode(b"\xff/\xfe")):
        (store / other).mkdir(parents=True)
        (store / MACHINE / other).mkdir(parents=True)
    (store / "README").touch()
    (store / MACHINE / JOB / "README").touch()
    assert {(found.job, found.backup_id) for found in target.backups(JOB)} == {(JOB, RUN)}
    assert {found.job for found in target.backups()} == {JOB}
    assert target.machines() == [MACHINE]


@pytest.mark.parametrize("larger_by", [0, 1])
def test_an_object_that_is_listed_twice_is_one_unless_its_sizes_differ(
    sftp_server: SshServer, store: Path, monkeypatch: pytest.MonkeyPatch, larger_by: int
) -> None:
    target = sftp_target(sftp_config(sftp_server, store))
    put(target, CONTENT)
    readdir = asyncssh.SFTPClient.readdir

    async def twice(sftp: asyncssh.SFTPClient, path: str) -> Sequence[asyncssh.SFTPName]:
        once, again = await readdir(sftp, path), await readdir(sftp, path)
        for entry in again:
            entry.attrs.size = (entry.attrs.size or 0) + larger_by
        return (*once, *again)

    monkeypatch.setattr(asyncssh.SFTPClient, "readdir", twice)
    if not larger_by:
        assert target.objects(JOB, RUN) == {NAME: len(CONTENT)}
        return
    with pytest.raises(TargetError, match=f"lists '{NAME}' twice: as {len(CONTENT)} bytes and as"):
        target.objects(JOB, RUN)


def test_a_file_that_was_cut_behind_the_servers_back_is_no_success(sftp_server: SshServer, store: Path) -> None:
    target = sftp_target(sftp_config(sftp_server, store))
    with pytest.raises(TargetError, match="the server has"), target.writing(JOB, RUN, NAME) as writer:
        writer.write(CONTENT)
        writer.flushed()
        os.truncate(store / MACHINE / JOB / RUN / f".{NAME}.partial", 5)
    assert files(store) == []


def test_an_object_that_was_cut_is_not_read_as_a_whole_one(sftp_server: SshServer, store: Path) -> None:
    target = sftp_target(sftp_config(sftp_server, store))
    put(target, CONTENT)
    with target.reading(JOB, RUN, NAME) as chunks:
        os.truncate(store / MACHINE / JOB / RUN / NAME, 5)
        with pytest.raises(TargetError, match="ended at byte"):
            b"".join(chunks)


def test_a_server_that_returns_more_than_it_was_asked_for_is_not_asked_for_all_that_it_has() -> None:
    """asyncssh takes a negative size for all up to the end of the file, and keeps that in memory."""
    asked: list[int] = []

    class File:
        async def read(self, size: int, _offset: int) -> bytes:
            asked.append(size)
            return bytes(size + 5)

    with pytest.raises(TargetError, match="15 bytes were returned where 10 were asked for") as told:
        read_exactly(cast(asyncssh.SFTPClientFile, File()), 0, 10).send(None)  # by hand: a browser's loop may run here
    assert asked == [10]
    assert told.value.hint


def test_a_manifest_that_another_has_published_meanwhile_is_kept(sftp_server: SshServer, store: Path) -> None:
    target = sftp_target(sftp_config(sftp_server, store))
    theirs = store / MACHINE / JOB / RUN / "manifest.json"
    with pytest.raises(TargetError), target.writing(JOB, RUN, "manifest.json") as writer:
        writer.write(b"ours")
        theirs.write_bytes(b"theirs")
    assert theirs.read_bytes() == b"theirs"
    assert files(store) == ["manifest.json"]


# --- servers that cannot do all --------------------------------------------------------------------------------------


def test_what_a_server_cannot_do_is_a_sentence_and_nothing_is_left(tmp_path: Path, store: Path) -> None:
    """One server for all: what it runs is a script that each case writes anew."""
    script = tmp_path / "command"
    tmpfs = (
        f"unshare {'' if os.geteuid() == 0 else '--map-root-user'} --mount sh -c 'mount -t tmpfs -o {{}} none {store}"
    )
    with serving(tmp_path / "keys", command=str(script)) as server:

        def failure(command: str) -> TargetError:
            script.write_text(f"#!/bin/sh\n{command}\n")
            script.chmod(0o700)
            with pytest.raises(TargetError) as caught:
                put(sftp_target(sftp_config(server, store)), CONTENT)
            assert files(store) == []
            assert caught.value.hint
            return caught.value

        full = failure(f"{tmpfs.format('size=1m')} && exec {SFTP_SERVER}'")
        assert "no space left on target store" in full.message
        read_only = failure(f"{tmpfs.format('ro')} && exec {SFTP_SERVER}'")
        assert "is mounted read-only" in read_only.message
        limited = failure(f"trap '' XFSZ; ulimit -f 1024; exec {SFTP_SERVER}")
        assert "a quota, a file size limit" in limited.hint
        forbidden = failure(f"exec {SFTP_SERVER} -R")
        assert "permission denied" in forbidden.message
        careless = failure(f"exec {SFTP_SERVER} -P fsync")
        assert "lacks what a durable backup needs" in careless.message
        none = failure("exec false")
        assert "does not serve SFTP" in none.message
        shutil.rmtree(store)
        store.mkdir()
        script.write_text(f"#!/bin/sh\nexec {SFTP_SERVER} -P opendir\n")  # a folder to drop things into
        sftp_target(sftp_config(server, store)).require_usable()
        script.write_text(f"#!/bin/sh\nexec {SFTP_SERVER} -P limits\n")  # as OpenSSH before 8.5
        put(sftp_target(sftp_config(server, store)), CONTENT)
        assert get(sftp_target(sftp_config(server, store))) == CONTENT


# --- from the configuration ------------------------------------------------------------------------------------------


def test_the_configuration_that_the_lab_prints_is_a_target_that_works(
    sftp_server: SshServer, store: Path, tmp_path: Path
) -> None:
    written = tmp_path / "backupd.toml"
    rest = '[hosts.db]\nsocket = "/s"\nuser = "u"\n[jobs.j]\nhost = "db"\ntargets = ["vault"]\n'
    written.write_text(f"{sftp_server.configuration('vault', store)}accept_unencrypted = true\n{rest}")
    target = wiring.target(context.configuration(written), "vault", MACHINE)
    assert (target.name, target.folder) == ("vault", None)
    assert target.require_usable()
    put(target, b"x")
    assert {path.stat().st_mode & 0o777 for path in store.rglob("*")} == {0o700, 0o600}


def test_the_labs_server_runs_while_a_command_does(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    places = ["--folder", str(tmp_path / "new"), "--keys", str(tmp_path / "keys")]
    assert main([*places, "--", "sh", "-c", f"ls -d {tmp_path}/new; exit 3"]) == 3
    said = capfd.readouterr().out
    assert said.startswith('[targets.offsite]\ntype = "sftp"\n')
    assert said.endswith(f"{tmp_path}/new\n")


# --- the end ---------------------------------------------------------------------------------------------------------


def test_no_thread_is_left_when_a_target_is_closed_or_forgotten(sftp_server: SshServer, store: Path) -> None:
    before = set(threading.enumerate())
    target = sftp_target(sftp_config(sftp_server, store))
    target.require_usable()
    assert set(threading.enumerate()) - before
    target.close()
    assert set(threading.enumerate()) <= before
    target = sftp_target(sftp_config(sftp_server, store))
    target.require_usable()
    del target
    gc.collect()
    assert set(threading.enumerate()) <= before


def test_a_process_ends_at_once_and_says_nothing(sftp_server: SshServer, store: Path) -> None:
    program = (
        "import pathlib; from backupd.targets.sftp import SftpTarget; from backupd.config import SftpConfig;"
        f"target = SftpTarget(SftpConfig(name='store', type='sftp', address='127.0.0.1', port={sftp_server.port},"
        f" user={sftp_server.user!r}, path=pathlib.Path({str(store)!r}),"
        f" key_file=pathlib.Path({str(sftp_server.key_file)!r}),"
        f" known_hosts=pathlib.Path({str(sftp_server.known_hosts)!r})), machine='db1-0a1b2c3d');"
        "target.require_usable()"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
