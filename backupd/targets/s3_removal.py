"""Many objects of a bucket at once: a request for each thousand, and two more where the bucket keeps versions.

Knows: DeleteObjects, that some stores do not have it, and by what an answer shows that a bucket keeps what it deletes.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from backupd.targets.s3_errors import FAILURES, explained, is_denied_or_unknown, passes_by_itself
from backupd.targets.s3_listing import BucketListing
from backupd.vocabulary.errors import TargetError

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import DeleteObjectOutputTypeDef, DeleteObjectsOutputTypeDef, ObjectIdentifierTypeDef

_AT_ONCE = 1000  # of DeleteObjects, at most
_DOING = "remove from"


def remove_keys(listing: BucketListing, keys: Sequence[str]) -> None:
    """They are gone, the first thousand first, with every version of them where the store tells of any.

    Raises:
        TargetError: the store refused one.
    """
    for start in range(0, len(keys), _AT_ONCE):
        batch = keys[start : start + _AT_ONCE]
        if _deleted(listing, [{"Key": key} for key in batch]):
            versions = listing.versions_of(batch)
            if not versions:  # there is a mark of each at least
                listing.tell_of_versions()
            for first in range(0, len(versions), _AT_ONCE):
                some = versions[first : first + _AT_ONCE]
                _deleted(listing, [{"Key": each.key, "VersionId": each.version} for each in some])


def _deleted(listing: BucketListing, named: "Sequence[ObjectIdentifierTypeDef]") -> bool:
    """They are; whether the bucket has only marked one of them as deleted.

    A store that knows no DeleteObjects is asked for one after the other.
    """
    service = listing.service
    with explained(service.where, _DOING):
        try:
            answer = service.persist(_DOING, lambda: _asked(listing, named), tries=service.tries)
        except FAILURES as error:
            if not is_denied_or_unknown(error):
                raise
            each = [
                service.persist(
                    _DOING,
                    partial(_one_deleted, listing, one),
                    tries=service.tries,
                )
                for one in named
            ]
            return any(one.get("DeleteMarker") for one in each)
    if refused := answer.get("Errors"):
        first = refused[0]
        raise TargetError(
            f"could not {_DOING} {service.where}: {first.get('Code', 'it refused')} of {first.get('Key', 'an object')}",
            hint="see the bucket's policy, versions and locks",
        )
    return any(one.get("DeleteMarker") for one in answer.get("Deleted", ()))


def _asked(listing: BucketListing, named: "Sequence[ObjectIdentifierTypeDef]") -> "DeleteObjectsOutputTypeDef":
    """The answer; what a busy store did not get to fails as a whole: who asks again finds the others gone already."""
    answer = listing.service.client.delete_objects(Bucket=listing.bucket, Delete={"Objects": named, "Quiet": False})
    for refused in answer.get("Errors", ()):
        told: Any = {"Error": refused}
        if passes_by_itself(error := ClientError(told, "DeleteObjects")):
            raise error
    return answer


def _one_deleted(listing: BucketListing, one: "ObjectIdentifierTypeDef") -> "DeleteObjectOutputTypeDef":
    version: dict[str, Any] = {"VersionId": one["VersionId"]} if "VersionId" in one else {}
    return listing.service.client.delete_object(Bucket=listing.bucket, Key=one["Key"], **version)
