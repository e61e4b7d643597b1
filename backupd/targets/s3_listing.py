"""What is in a bucket under a prefix: objects, their versions, uploads that were not completed.

Knows: pages, and what a store that does not report is taken for.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from backupd.targets.keyed import BucketItem
from backupd.targets.s3_client import Service
from backupd.targets.s3_errors import FAILURES, SamePage, explained, is_denied_or_unknown
from backupd.vocabulary.errors import TargetError

log = logging.getLogger(__name__)

ListingAnswer = TypeVar("ListingAnswer", bound=Mapping[str, Any])

_OF_A_LISTING = {"IsTruncated", "Name", "Bucket"}
PLAIN_VERSION = "null"  # what a bucket that keeps no versions calls the only one


@dataclass(frozen=True, slots=True)
class BucketListing:
    """Looks into one bucket."""

    service: Service
    bucket: str

    def objects(self, prefix: str, *, tries: int | None = None) -> Sequence[BucketItem]:
        """What can be read; without `tries` an outage is waited for.

        Raises:
            TargetError: it cannot be listed.
        """

        def listed() -> list[BucketItem]:
            pages = self.service.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
            return [
                BucketItem(each["Key"], "", each["LastModified"], each["Size"])
                for page in map(_listing, pages)
                for each in page.get("Contents", ())
            ]

        return self.service.ask("list", listed, tries=tries)

    def sizes(self, prefix: str, *, after: str) -> Iterator[tuple[str, int]]:
        """Key and bytes of what can be read below a prefix, behind that key, page by page: an outage is waited for.

        Raises:
            TargetError: it cannot be listed.
        """
        begin: Mapping[str, Any] | None = {"StartAfter": after}
        begun: list[Mapping[str, Any]] = []  # pages since the last key
        while begin is not None:
            begun.append(begin)
            found, begin = self.service.ask("list", partial(self._page, prefix, begun, after))
            yield from found
            if found:
                after = found[-1][0]
                begun.clear()

    def _page(
        self, prefix: str, begun: Sequence[Mapping[str, Any]], after: str
    ) -> tuple[list[tuple[str, int]], Mapping[str, Any] | None]:
        """Key and bytes of each, and where the next page begins, behind that key; None after the last.

        Raises:
            SamePage: it would begin where this one did, or one before it.
        """
        page = _listing(self.service.client.list_objects_v2(Bucket=self.bucket, Prefix=prefix, **begun[-1]))
        found = [(each["Key"], each["Size"]) for each in page.get("Contents", ())]
        if not page.get("IsTruncated"):
            return found, None
        # A page may have nothing and not be the last: that of a store which has passed over many deleted objects.
        behind = {"StartAfter": found[-1][0]} if found else {"ContinuationToken": page["NextContinuationToken"]}
        if behind in begun or (found and found[-1][0] <= after):
            raise SamePage
        return found, behind

    def folders(self, prefix: str) -> Sequence[str]:
        """What the keys there go on with, up to the next slash. No outage is waited for.

        Raises:
            TargetError: it cannot be listed.
        """

        def listed() -> list[str]:
            pages = self.service.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=prefix, Delimiter="/"
            )
            return [
                each["Prefix"].removeprefix(prefix).rstrip("/")
                for page in map(_listing, pages)
                for each in page.get("CommonPrefixes", ())
            ]

        return self.service.ask("list", listed, tries=self.service.tries)

    def versions(self, prefix: str) -> Sequence[BucketItem]:
        """Every version of every object, marks included; the objects alone where the store does not report.

        Raises:
            TargetError: it cannot be listed.
        """

        def listed() -> list[BucketItem]:
            pages = self.service.client.get_paginator("list_object_versions").paginate(
                Bucket=self.bucket, Prefix=prefix
            )
            return [
                BucketItem(each["Key"], each["VersionId"], each["LastModified"])
                for page in map(_listing, pages)
                for each in (*page.get("DeleteMarkers", ()), *page.get("Versions", ()))
            ]

        found = self._if_told("list", listed)
        return self.objects(prefix, tries=self.service.tries) if found is None else found

    def versions_of(self, keys: Collection[str]) -> Sequence[BucketItem]:
        """Every version of these objects, marks included, found among all from the first to the last of them.

        All marks come first: who deletes these in their order, and is refused a version that is locked, hides none.
        Nothing where the store does not report.

        Raises:
            TargetError: it cannot be listed.
        """
        first, last, wanted = min(keys), max(keys), set(keys)
        folder = first[: first.rfind("/") + 1]

        def listed() -> list[BucketItem]:
            marks: list[BucketItem] = []
            found: list[BucketItem] = []
            marker: dict[str, Any] = {"KeyMarker": first[:-1]}
            asked: list[dict[str, Any]] = []
            while marker not in asked:
                asked.append(marker)
                page = _listing(self.service.client.list_object_versions(Bucket=self.bucket, Prefix=folder, **marker))
                for told, into in ((page.get("DeleteMarkers", ()), marks), (page.get("Versions", ()), found)):
                    into += [
                        BucketItem(each["Key"], each["VersionId"], each["LastModified"])
                        for each in told
                        if each["Key"] in wanted
                    ]
                if not page.get("IsTruncated") or page.get("NextKeyMarker", "") > last:
                    return marks + found
                marker = {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page.get("NextVersionIdMarker", "")}
            raise SamePage

        return self._if_told("list", listed) or ()

    def require_versions_told(self, prefix: str) -> None:
        """Who may not see versions hides what is locked below a mark of its deletion, and is told that it went well.

        Raises:
            TargetError: the store does not report them, or cannot be asked.
        """

        def listed() -> list[BucketItem]:
            self.service.client.list_object_versions(Bucket=self.bucket, Prefix=prefix)
            return []

        if self._if_told("list", listed) is None:
            raise TargetError(
                f"{self.service.where} does not let backupd list versions: what is locked would be hidden, not removed",
                hint="allow s3:ListBucketVersions, and s3:DeleteObjectVersion for what is not locked any more",
            )

    def uploads(self, prefix: str) -> Sequence[BucketItem]:
        """Uploads that were begun and not completed; none where the store does not report.

        Raises:
            TargetError: it cannot be listed.
        """

        def listed() -> list[BucketItem]:
            pages = self.service.client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self.bucket, Prefix=prefix
            )
            return [
                BucketItem(each["Key"], each["UploadId"], each["Initiated"])
                for page in map(_listing, pages)
                for each in page.get("Uploads", ())
            ]

        found = self._if_told("list the uploads of", listed)
        return () if found is None else found

    def _if_told(self, doing: str, listed: Callable[[], list[BucketItem]]) -> Sequence[BucketItem] | None:
        """What is listed; None where the store does not report it, or not to us."""
        with explained(self.service.where, doing):
            try:
                return self.service.persist(doing, listed, tries=self.service.tries)
            except FAILURES as error:
                if not is_denied_or_unknown(error):
                    raise
                log.debug("%s does not let backupd %s it: %s", self.service.where, doing, error)
                return None

    def delete(self, stored: BucketItem, *, by_version: bool) -> bool:
        """The store was told to delete it: this version for good, or what can be read under its key.

        Whether that has only been marked as deleted, and its versions, of which the store does not tell us, stay.

        Raises:
            TargetError: it refused.
        """
        address: dict[str, Any] = {"Bucket": self.bucket, "Key": stored.key}
        if by_version and stored.version:
            address["VersionId"] = stored.version
        request = partial(self.service.client.delete_object, **address)
        answer = self.service.ask("remove from", request, tries=self.service.tries)
        return not stored.version and bool(answer.get("DeleteMarker"))

    def tell_of_versions(self) -> None:
        """What was removed is paid for all the same."""
        log.warning(
            "%s keeps versions and does not let backupd list them: what was removed there still takes room; allow"
            " s3:ListBucketVersions and s3:DeleteObjectVersion",
            self.service.where,
        )


def _listing(page: ListingAnswer) -> ListingAnswer:
    """The same, if it is one: of what anybody else answers, an empty target must not be made.

    Raises:
        ValueError: it has nothing of a listing.
    """
    if not _OF_A_LISTING & page.keys():
        raise ValueError(page.keys())
    return page
