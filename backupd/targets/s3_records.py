"""A machine's owner records in a bucket: the `Records` of `chain`."""

from collections.abc import Collection
from dataclasses import dataclass

from backupd.config import S3Config
from backupd.targets.s3_client import Service
from backupd.targets.s3_errors import FAILURES, code_of, explained
from backupd.targets.s3_listing import BucketListing
from backupd.targets.s3_parts import UploadPlace, checksum
from backupd.targets.s3_reader import small_object


@dataclass(frozen=True, slots=True)
class S3Records:
    """The machine's owner records: small objects that are sent with `If-None-Match: *`.

    No outage is waited for: a live run's are renewed every minute, and nobody else can wait (`backupd cancel`, a lock).
    """

    service: Service
    listing: BucketListing
    config: S3Config
    prefix: str

    @property
    def where(self) -> str:
        return f"s3://{self.config.bucket}/{self.prefix.rstrip('/')}"

    def names(self) -> Collection[str]:
        found = self.listing.objects(self.prefix, tries=self.service.tries)
        return [stored.key.removeprefix(self.prefix) for stored in found]

    def content(self, name: str) -> bytes | None:
        return small_object(self._place(name), tries=self.service.tries)

    def create(self, name: str, content: bytes) -> None:
        service, place = self.service, self._place(name)
        header = checksum(place.checksum, content)
        doing = "write an owner record to"
        with explained(service.where, doing):
            try:
                service.persist(
                    doing,
                    lambda: service.client.put_object(**place.address, Body=content, IfNoneMatch="*", **header),
                    tries=service.tries,
                )
            except FAILURES as error:
                if code_of(error) != "PreconditionFailed":
                    raise

    def remove(self, name: str) -> None:
        """Every version of it."""
        for stored in self.listing.versions(self.prefix + name):
            if stored.key == self.prefix + name:
                self.listing.delete(stored, by_version=True)

    def _place(self, name: str) -> UploadPlace:
        config = self.config
        return UploadPlace(self.service, config.bucket, self.prefix + name, name, config.checksum, dict)
