"""What botocore makes of a storage that answers nonsense: an error, in words.

Whoever answers has the bucket, or has come between, or is no S3 server at all.
"""

from collections.abc import Callable, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from backupd.config import S3Config, TargetKind
from backupd.targets.s3 import S3Target
from backupd.vocabulary.errors import TargetError
from tests.contract.s3_server import IMPATIENT
from tests.contract.test_blob_answers import Storage, answer, storage
from tests.contract.test_targets import JOB, NAME, RUN
from tests.fakes.target import MACHINE

__all__ = ["storage"]

AT = "<LastModified>2026-01-01T00:00:00Z</LastModified>"
WHOLE = {"ETag": '"e"', "Content-Range": "bytes 2-4/10"}


@pytest.fixture
def target(storage: Storage, tmp_path: Path) -> S3Target:
    (tmp_path / "keys").touch(0o600)
    (tmp_path / "keys").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    config = S3Config(
        name="store",
        type=TargetKind.S3,
        bucket="bucket",
        prefix="tests",
        endpoint=storage.url,
        credentials_file=tmp_path / "keys",
        timeout_seconds=5.0,
        outage_seconds=0.001,
    )
    return S3Target(config, machine=MACHINE, patience=IMPATIENT)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "<html><body>Please log in</body></html>",  # an empty target would be made of it
        *(
            f"<ListBucketResult><Name>bucket</Name>{found}</ListBucketResult>"
            for found in (
                f"<Contents>{AT}<Size>1</Size></Contents>",
                f"<Contents><Key>k</Key>{AT}</Contents>",
                f"<Contents><Key>k</Key>{AT}<Size>many</Size></Contents>",
                "<Contents><Key>k</Key><Size>1</Size><LastModified>once</LastModified></Contents>",
                "<IsTruncated>true</IsTruncated>",
            )
        ),
    ],
)
def test_a_listing_that_is_none(storage: Storage, target: S3Target, said: str) -> None:
    storage.say = partial(answer, body=said.encode(), headers={"Content-Type": "application/xml"})
    with pytest.raises(TargetError, match=r"could not list target store .*: its answer could not be parsed") as told:
        target.segments(JOB)
    assert "is the endpoint that of an S3 service, and nothing in between" in (told.value.hint or "")


def pages(storage: Storage, of: Sequence[str]) -> list[str]:
    """The store answers so, one after the other; and the addresses that were asked for."""
    asked: list[str] = []

    def say(handler: BaseHTTPRequestHandler) -> None:
        more = "true" if len(asked) < len(of) - 1 else "false"
        said = f"<Listing><Name>bucket</Name><IsTruncated>{more}</IsTruncated>{of[len(asked)]}</Listing>"
        asked.append(handler.path)
        answer(handler, body=said.encode(), headers={"Content-Type": "application/xml"})

    storage.say = say
    return asked


SAME_PAGE = r"could not list (the uploads of )?target store .*: it gives the same page of its listing again"
FIRST, SECOND = (f"tests/{MACHINE}/{JOB}/{RUN}/{name}" for name in ("data-1.tar.zst", "manifest.json"))


@pytest.mark.parametrize(
    ("look", "found"),
    [
        ("segments", f"<Contents><Key>{FIRST}</Key><Size>1</Size>{AT}</Contents>"),
        ("segments", "<NextContinuationToken>t</NextContinuationToken>"),
        (
            "backups",
            f"<Contents><Key>{FIRST}</Key><Size>1</Size>{AT}</Contents><NextContinuationToken>t"
            "</NextContinuationToken>",
        ),
        (
            "versions",
            f"<Version><Key>{FIRST}</Key><VersionId>v</VersionId>{AT}</Version><NextKeyMarker>{FIRST}"
            "</NextKeyMarker><NextVersionIdMarker>v</NextVersionIdMarker>",
        ),
        ("versions", f"<NextKeyMarker>{FIRST[:-1]}</NextKeyMarker>"),
    ],
)
def test_a_page_of_a_listing_that_comes_again_is_not_asked_for_for_ever(
    storage: Storage, target: S3Target, look: str, found: str
) -> None:
    """A store that knows no StartAfter, or no marker, begins at its first name again."""
    asked = pages(storage, [found] * 50)
    ask: dict[str, Callable[[], object]] = {
        "segments": lambda: target.segments(JOB),
        "backups": lambda: target.backups(JOB),
        "versions": lambda: target._listing.versions_of([FIRST, SECOND]),
    }
    with pytest.raises(TargetError, match=SAME_PAGE) as told:
        ask[look]()
    assert len(asked) <= 3
    assert "is the endpoint that of an S3 service" in (told.value.hint or "")


def empty(token: str) -> str:
    """A page that has nothing, and where the next one begins."""
    return f"<NextContinuationToken>{token}</NextContinuationToken>"


def test_empty_pages_that_take_turns_are_not_asked_for_for_ever(storage: Storage, target: S3Target) -> None:
    asked = pages(storage, [empty("ab"[number % 2]) for number in range(50)])
    with pytest.raises(TargetError, match=SAME_PAGE):
        target.segments(JOB)
    assert len(asked) == 3


def test_a_store_may_call_a_page_as_it_called_one_before_the_last_key(storage: Storage, target: S3Target) -> None:
    """What is empty counts from there only: whoever comes to further keys comes to an end."""
    keys = [f"tests/{MACHINE}/{JOB}/binlog/{name}" for name in ("x", "y")]
    found = [f"<Contents><Key>{key}</Key><Size>1</Size>{AT}</Contents>" for key in keys]
    asked = pages(storage, [empty("a"), empty("b"), found[0], empty("a"), empty("b"), found[1]])
    assert [key for key, _ in target._listing.sizes(f"tests/{MACHINE}/{JOB}/", after="")] == keys
    assert len(asked) == 6


def test_a_key_of_more_versions_than_a_page_has_is_listed_to_its_end(storage: Storage, target: S3Target) -> None:
    """Its pages begin at one key, each at another version."""
    found = (
        f"<Version><Key>{FIRST}</Key><VersionId>{version}</VersionId>{AT}</Version><NextKeyMarker>{FIRST}"
        f"</NextKeyMarker><NextVersionIdMarker>{version}</NextVersionIdMarker>"
        for version in ("c", "b", "a")
    )
    pages(storage, list(found))
    assert [each.version for each in target._listing.versions_of([FIRST])] == ["c", "b", "a"]


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_backup_of_an_impossible_time_is_named(storage: Storage, target: S3Target, at: str) -> None:
    at_key = f"tests/{MACHINE}/{JOB}/{RUN}/"
    found = f"<Contents><Key>{at_key}manifest.json</Key><Size>1</Size><LastModified>{at}</LastModified></Contents>"
    folders = f"<CommonPrefixes><Prefix>{at_key}</Prefix></CommonPrefixes>"

    def say(handler: BaseHTTPRequestHandler) -> None:
        listed = "" if "uploads" in handler.path else found + folders
        said = f"<Listing><Name>bucket</Name><Bucket>bucket</Bucket>{listed}</Listing>"
        answer(handler, body=said.encode(), headers={"Content-Type": "application/xml"})

    storage.say = say
    with pytest.raises(TargetError, match=rf"{at_key}manifest\.json was written at an impossible time: {at[:19]}"):
        target.backups(JOB)


def test_what_is_no_listing_is_no_empty_target(storage: Storage, target: S3Target) -> None:
    """Else its backups would be gone, as far as the catalogue knows."""
    storage.say = partial(answer, body=b"<html/>", headers={"Content-Type": "application/xml"})
    for look in (target.machines, target.backups, target.archived_jobs, lambda: target.objects(JOB, RUN)):
        with pytest.raises(TargetError, match="its answer could not be parsed"):
            look()
    with pytest.raises(TargetError, match="its answer could not be parsed"):
        target.remove(JOB, RUN)


@pytest.mark.parametrize(
    "said",
    [
        {"Content-Range": "bytes 2-4/10"},  # of no object that could be known again
        {**WHOLE, "Content-Range": "bytes */10"},
        {**WHOLE, "Content-Range": "text"},
        {**WHOLE, "Content-Length": "three"},
    ],
)
def test_an_object_s_beginning_that_is_none(storage: Storage, target: S3Target, said: dict[str, str]) -> None:
    storage.say = partial(answer, status=206, body=b"abc", headers=said)
    with pytest.raises(TargetError, match=f"could not read {NAME} from target store .*could not be parsed"):
        read(target)


@pytest.mark.parametrize("said", [{}, {"Content-Range": "bytes 0-2/10"}])
def test_a_server_that_begins_elsewhere_than_it_was_asked_is_of_no_use(
    storage: Storage, target: S3Target, said: dict[str, str]
) -> None:
    """What it sends would be taken for other bytes of the object."""
    storage.say = partial(answer, body=b"abc", headers={"ETag": '"e"', **said})
    with pytest.raises(TargetError, match="answered from byte 0 instead of 2") as told:
        read(target)
    assert "Range" in (told.value.hint or "")


def test_the_beginning_of_an_upload_that_is_none(storage: Storage, target: S3Target) -> None:
    def say(handler: BaseHTTPRequestHandler) -> None:
        answer(handler, status=404 if handler.command == "GET" else 200)

    storage.say = say
    with (
        pytest.raises(TargetError, match="its answer could not be parsed"),
        target.writing(JOB, RUN, NAME) as writer,
    ):
        writer.write(bytes(40 << 20))


def read(target: S3Target) -> bytes:
    with target.reading(JOB, RUN, NAME, offset=2, size=3) as pieces:
        return b"".join(pieces)
