"""What lies on a target is what was stored, or a sentence says which byte is not; without any key."""

import json
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.operations.restore.verify import share_of, verify_backup, verify_object
from backupd.policy import manifest as manifests
from backupd.targets import BackupSource
from backupd.targets.directory import DirectoryTarget
from backupd.targets.listing import require_listed
from backupd.vocabulary.errors import TargetAway, TargetError, Unreadable, UsageError, VerificationError
from backupd.vocabulary.storage import Manifest
from tests.fakes.target import BELIEVED, MACHINE, MemoryTarget
from tests.mutations import sealed
from tests.share import examples
from tests.story.stored import JOB, RUN, content, put

STREAMS = {
    "data-1.tar.zst": [("./", b""), *((f"t{i}.ibd", content(f"t{i}", 1 << 20)) for i in range(20))],
    "data-2.tar.zst": [("./", b""), ("u.ibd", content("u", 5000))],
}


@pytest.fixture(scope="module")
def backed_up() -> MemoryTarget:
    target = MemoryTarget()
    put(target, STREAMS)
    return target


@pytest.fixture
def target(backed_up: MemoryTarget) -> MemoryTarget:
    return replace(backed_up, stored=dict(backed_up.stored), at=dict(backed_up.at), calls=0)


def copy(target: MemoryTarget) -> BackupSource:
    return BackupSource(target, JOB, RUN, BELIEVED)


def key(name: str) -> tuple[str, str, str]:
    return JOB, RUN, name


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def test_a_sound_backup_is_read_whole(target: MemoryTarget) -> None:
    told: list[tuple[int, int]] = []
    found = verify_backup(copy(target), read=lambda *now: told.append(now))
    total = sum(len(content) for (_, _, name), content in target.stored.items() if name != "manifest.json")
    assert found.whole
    assert found.bytes_read == found.bytes_stored == total
    assert (found.objects, found.share) == (3, 1.0)
    assert told[-1] == (total, total)


def test_the_frame_and_its_bytes_are_named(target: MemoryTarget) -> None:
    target.stored[key("data-1.tar.zst")] = flipped(target.stored[key("data-1.tar.zst")], 3 << 20)
    with pytest.raises(VerificationError, match=r"data-1\.tar\.zst, frame 7 of 21 \(bytes \d+ to \d+\): expected"):
        verify_backup(copy(target))


@settings(max_examples=examples(60), deadline=None)
@given(at=st.floats(0, 1, exclude_max=True), name=st.sampled_from([*STREAMS, "index.jsonl.zst", "manifest.json"]))
def test_no_byte_is_left_out(backed_up: MemoryTarget, at: float, name: str) -> None:
    target = replace(backed_up, stored=dict(backed_up.stored))
    content = target.stored[key(name)]
    target.stored[key(name)] = flipped(content, int(at * (len(content) - 1)))  # the last is a line feed: no content
    with pytest.raises(VerificationError):
        verify_backup(copy(target))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda stored: stored.pop(key("data-2.tar.zst")),
            "target memory does not list what was stored: data-2.tar.zst is missing",
        ),
        (
            lambda stored: stored.update({key("data-2.tar.zst"): b""}),
            "data-2.tar.zst has 0 bytes, expected 2741",
        ),
        (
            lambda stored: stored.update({key("data-2.tar.zst"): stored[key("data-2.tar.zst")] + b"\0"}),
            "data-2.tar.zst has 2742 bytes, expected 2741",
        ),
    ],
    ids=["missing", "empty", "appended"],
)
def test_objects_that_are_missing_too_long_or_too_short_are_faults(
    target: MemoryTarget, change: Any, says: str
) -> None:
    change(target.stored)
    with pytest.raises(VerificationError, match=says):
        verify_backup(copy(target))


class Lying(MemoryTarget):
    """Tells of its objects first what it is given to tell, listing by listing; then the truth."""

    lies: tuple[dict[str, int], ...] = ()

    def objects(self, job: str, backup_id: str) -> Mapping[str, int]:
        true = dict(super().objects(job, backup_id))
        if not self.lies:
            return true
        (lie, *lies) = self.lies
        self.lies = tuple(lies)
        return {name: size for name, size in (true | lie).items() if size}


LIES: dict[str, dict[str, int]] = {
    "missing": {"data-1.tar.zst": 0},
    "shorter": {"data-1.tar.zst": 5},
    "longer": {"data-1.tar.zst": 1 << 30},
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("times", [1, 9])
def test_a_listing_that_an_object_contradicts_tells_nothing_of_the_backup(
    backed_up: MemoryTarget, lie: str, times: int
) -> None:
    target = Lying(stored=dict(backed_up.stored), at=dict(backed_up.at))
    target.lies = (LIES[lie],) * times
    with pytest.raises(TargetError, match=r"lists data-1\.tar\.zst differently"):
        verify_backup(copy(target))


def test_a_file_system_that_goes_away_once_the_manifest_was_read_breaks_no_backup(
    backed_up: MemoryTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mount := tmp_path / "mount").symlink_to(tmp_path / "disk")
    (tmp_path / "empty").mkdir()
    (tmp_path / "disk").mkdir()
    (mount / ".mounted").touch()
    target = DirectoryTarget("nfs", mount, machine=MACHINE, sentinel=".mounted")
    put(target, STREAMS)
    read = target.manifest

    def then_gone(job: str, run: str) -> Manifest:
        found = read(job, run)
        mount.unlink()
        mount.symlink_to(tmp_path / "empty")
        return found

    monkeypatch.setattr(target, "manifest", then_gone)
    with pytest.raises(TargetAway, match="is not mounted"):
        verify_backup(BackupSource(target, JOB, RUN, BELIEVED))


def test_a_target_that_cannot_be_asked_for_an_object_has_not_lost_it(backed_up: MemoryTarget) -> None:
    class Leaving(Lying):
        """It answers, and answers no more."""

        @contextmanager
        def reading(self, *_which: Any, **_range: Any) -> Iterator[Iterator[bytes]]:
            raise TargetAway("the server does not answer", hint="is it up?")
            yield iter(())

    target = Leaving(stored=dict(backed_up.stored), at=dict(backed_up.at))
    target.lies = (LIES["missing"],) * 9
    with pytest.raises(TargetAway):
        require_listed(target, backed_up.manifest(JOB, RUN))


def test_listings_that_contradict_each_other_tell_nothing_of_the_backup(backed_up: MemoryTarget) -> None:
    target = Lying(stored=dict(backed_up.stored), at=dict(backed_up.at))
    for name in ("data-1.tar.zst", "data-2.tar.zst"):
        del target.stored[key(name)]
    target.lies = ({"data-1.tar.zst": 7},)
    with pytest.raises(TargetError, match=r"changing listings: data-1\.tar\.zst has 7 bytes, .* then data-1"):
        verify_backup(copy(target))


def test_a_manifest_that_came_damaged_once_is_asked_for_again(
    target: MemoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [b"<html>502 Bad Gateway</html>", target.stored[key("manifest.json")]]
    monkeypatch.setattr(target, "manifest", lambda *_: manifests.from_text(answers.pop(0)))
    assert verify_backup(copy(target)).whole


@pytest.mark.parametrize("name", ["@eaDir/data-1.tar.zst/x", "Thumbs.db", ".DS_Store", "note.txt", "data-3.tar.zst"])
def test_what_somebody_put_beside_the_objects_is_told_and_damages_nothing(target: MemoryTarget, name: str) -> None:
    target.stored[key(name)] = b"mine"
    found = verify_backup(copy(target))
    assert found.whole
    assert found.unknown == ("@eaDir/" if "/" in name else name,)


def test_a_manifest_that_is_whole_and_cannot_be_understood_says_nothing_of_the_bytes(target: MemoryTarget) -> None:
    body = json.loads(target.stored[key("manifest.json")])
    for change in ({"schema": {"major": 2, "minor": 0}}, {"datadir": 7}):
        target.stored[key("manifest.json")] = sealed({**body, **change})
        with pytest.raises(Unreadable):
            verify_backup(copy(target))
    target.stored[key("manifest.json")] = json.dumps({**body, "schema": 2}).encode()  # under the digest of before
    with pytest.raises(VerificationError, match="was changed after it was written") as damaged:
        verify_backup(copy(target))
    assert not isinstance(damaged.value, Unreadable)


@pytest.mark.parametrize(
    ("whose", "says"),
    [
        ({"run_id": "r2"}, "is that of run r2"),
        ({"job": "hourly"}, "of job hourly"),
        ({"machine": "db2-0badcafe"}, "of machine db2-0badcafe"),
    ],
)
def test_another_run_s_manifest_is_none(target: MemoryTarget, whose: dict[str, str], says: str) -> None:
    other = replace(manifests.from_text(target.stored[key("manifest.json")]), **whose)  # type: ignore[arg-type]
    target.stored[key("manifest.json")] = manifests.to_text(other).encode()
    with pytest.raises(VerificationError, match=says):
        verify_backup(copy(target))


def test_frames_that_do_not_add_up_are_none(target: MemoryTarget) -> None:
    manifest = manifests.from_text(target.stored[key("manifest.json")])
    first = manifest.objects[0]
    for frames in (first.frames[1:], ()):
        short = replace(manifest, objects=(replace(first, frames=frames), *manifest.objects[1:]))
        target.stored[key("manifest.json")] = manifests.to_text(short).encode()
        with pytest.raises(VerificationError, match="do not add up"):
            verify_backup(copy(target))


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        (lambda _: (), VerificationError, "lists no object"),
        (lambda objects: (*objects, objects[0]), Unreadable, "does not list each object exactly once"),
    ],
    ids=["none", "one twice"],
)
def test_a_manifest_of_no_objects_or_of_one_twice_is_none(
    target: MemoryTarget, change: Any, kind: type[VerificationError], says: str
) -> None:
    manifest = manifests.from_text(target.stored[key("manifest.json")])
    other = replace(manifest, objects=change(manifest.objects))
    target.stored[key("manifest.json")] = manifests.to_text(other).encode()
    with pytest.raises(kind, match=says):
        verify_backup(copy(target))


def test_an_object_is_compared_as_a_whole_and_to_its_end(target: MemoryTarget) -> None:
    """As a run reads its copies back: the frames are the manifest's word, as their sum is."""
    stored = manifests.from_text(target.stored[key("manifest.json")]).objects[0]
    verify_object(target, JOB, RUN, stored)
    with pytest.raises(VerificationError, match=rf"{stored.name}: expected stored sha256 0{{64}}, found"):
        verify_object(target, JOB, RUN, replace(stored, stored_sha256="0" * 64))
    target.stored[key(stored.name)] += b"\0"
    with pytest.raises(VerificationError, match=rf"expected {stored.stored_bytes} stored bytes, found more"):
        verify_object(target, JOB, RUN, stored)


def test_a_target_that_cannot_be_read_says_nothing_of_the_backup(target: MemoryTarget) -> None:
    target.fail_at_call = 6
    with pytest.raises(TargetError):
        verify_backup(copy(target))


class Together(MemoryTarget):
    """Answers nobody before three ask."""

    all_ask = threading.Barrier(3, timeout=30)

    @contextmanager
    def reading(self, job: str, backup_id: str, name: str, **which: Any) -> Iterator[Iterator[bytes]]:
        with super().reading(job, backup_id, name, **which) as chunks:
            self.all_ask.wait()
            yield chunks


def test_objects_are_read_side_by_side(backed_up: MemoryTarget) -> None:
    target = Together(stored=dict(backed_up.stored), at=dict(backed_up.at))
    assert verify_backup(copy(target)).whole


# --- a sample ---------------------------------------------------------------------------------------------------------


def test_a_sample_reads_about_its_share_and_always_both_ends(target: MemoryTarget) -> None:
    found = verify_backup(copy(target), share=0.25, chance=random.Random(1))
    assert not found.whole
    assert found.frames == 6 + 1 + 1  # of 21 frames, of one, of one
    for end in (0, -1):
        damaged = replace(target, stored=dict(target.stored))
        content = target.stored[key("data-1.tar.zst")]
        damaged.stored[key("data-1.tar.zst")] = flipped(content, end % len(content))
        with pytest.raises(VerificationError):
            verify_backup(copy(damaged), share=0.01)


def test_every_frame_is_sampled_sooner_or_later(target: MemoryTarget) -> None:
    content = target.stored[key("data-1.tar.zst")]
    target.stored[key("data-1.tar.zst")] = flipped(content, len(content) // 2)
    found = []
    for seed in range(40):
        try:
            verify_backup(copy(target), share=0.25, chance=random.Random(seed))
        except VerificationError:
            found.append(seed)
    assert 0 < len(found) < 40


def test_a_sample_of_everything_is_everything(target: MemoryTarget) -> None:
    assert verify_backup(copy(target), share=1.0).whole


@pytest.mark.parametrize("text", ["0%", "101%", "five", "", "-1%", "5", "nan%", "1e1%", "0.00001%", "5%%"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a valid sample size") as refused:
        share_of(text)
    assert "--sample 5%" in refused.value.hint


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("100%", 1.0), ("0.5 %", 0.005)])
def test_a_share_is_percent(text: str, share: float) -> None:
    assert share_of(text) == pytest.approx(share)
