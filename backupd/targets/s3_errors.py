"""What an S3 service's refusals and a network's failures mean, in sentences with hints.

Knows: S3's error codes as Amazon lists them ("Error responses" of the API reference) and as versitygw 1.8 and MinIO
send them, botocore's exceptions, which of them pass by themselves. No sentence holds a credential: of an answer only
its code and its message are shown, never the request that it quotes.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from botocore import exceptions as aws
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from backupd.targets.blob_store import NONSENSE, SAME_PAGE
from backupd.vocabulary.errors import BackupdError, NoRoom, TargetAway, TargetError


class Nonsense(aws.BotoCoreError):
    """The answer is none of S3's. It is not asked for again."""

    fmt = "its answer could not be parsed ({kind})"


class SamePage(Nonsense):
    """Whoever went on asking would do so for ever."""

    fmt = SAME_PAGE


# botocore 1.44: ConnectionError is the base of what fails before an answer; HTTPClientError of the rest on the wire.
_ON_THE_WIRE = (aws.ConnectionError, aws.HTTPClientError, aws.IncompleteReadError, HTTPError)

FAILURES = (aws.ClientError, aws.BotoCoreError, HTTPError)  # all that a request may raise

_PASSING = {
    *("InternalError", "ServiceUnavailable", "SlowDown", "RequestTimeout", "Throttling", "ThrottlingException"),
    *("RequestThrottled", "RequestLimitExceeded", "TooManyRequests", "500", "502", "503", "504"),
    *("OperationAborted", "ConditionalRequestConflict"),
    "ExistingObjectIsDirectory",  # versitygw, while the request before, whose answer was lost, writes the same object
    *("BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "InvalidDigest", "IncompleteBody"),
}

_NO_KEY = {"NoSuchKey", "NoSuchVersion", "404", "NotFound"}
_WRONG_REGION = {
    "PermanentRedirect",
    "301",
    "307",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}
_WRONG = {
    "InvalidAccessKeyId",
    "XAdminUserNotFound",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "InvalidSecurity",
    "NotSignedUp",
}
_DENIED = {"AccessDenied", "AllAccessDisabled", "AccountProblem", "403", "Forbidden"}
_FULL = {"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "507"}
_SKEWED = {"RequestTimeTooSkewed", "RequestInTheFuture"}
_ARCHIVED = "InvalidObjectState"  # of a class that cannot be read at once: GLACIER, DEEP_ARCHIVE, an archive tier
_UNLOCKABLE = {"InvalidBucketState", "ObjectLockConfigurationNotFoundError", "ObjectLockInvalidConfiguration"}

_PERMISSIONS = (
    "backupd needs s3:PutObject, s3:GetObject, s3:DeleteObject, s3:ListBucket, s3:AbortMultipartUpload, "
    "s3:ListMultipartUploadParts and s3:ListBucketMultipartUploads there"
)


def code_of(error: BaseException) -> str:
    """S3's name for it; the HTTP status where an answer has no body (HEAD); empty for what is no answer of S3's."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, aws.ClientError) else ""


def is_missing(error: BaseException) -> bool:
    """There is no such object."""
    return code_of(error) in _NO_KEY


def is_untold(error: BaseException) -> bool:
    """Whether what was asked for has been done is not known."""
    return passes_by_itself(error) or isinstance(error, (*_ON_THE_WIRE, Nonsense))


def is_denied_or_unknown(error: BaseException) -> bool:
    """We may not do this, or this store cannot."""
    return code_of(error) in _DENIED | {"NotImplemented", "MethodNotAllowed", "501", "405"}


def passes_by_itself(error: BaseException) -> bool:
    """Whether the same request may well succeed later: the network, a busy store, bytes damaged on their way."""
    if isinstance(error, aws.ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return code_of(error) in _PASSING or (status in {500, 502, 503, 504} and code_of(error) not in _FULL)
    return isinstance(error, _ON_THE_WIRE) and not isinstance(error, aws.SSLError | aws.ProxyConnectionError)


def may_be_expired(error: BaseException) -> bool:
    """Whether other credentials may help: an answer to HEAD has no body, and says so by its status alone."""
    return code_of(error) in _EXPIRED | _WRONG | {"400", "403"}


@contextmanager
def understood() -> Iterator[None]:
    """What botocore raises in the block, and who looks into an answer, where that is not what S3 says is a failure."""
    try:
        yield
    except aws.PaginationError as error:  # where it pages for us
        raise SamePage from error
    except (ResponseParserError, *NONSENSE) as error:
        raise Nonsense(kind=type(error).__name__) from error


@contextmanager
def explained(where: str, doing: str) -> Iterator[None]:
    """A failure of the service or of the way to it becomes a TargetError: a fact and a hint. Our own errors stay."""
    try:
        yield
    except BackupdError:
        raise
    except aws.ClientError as error:
        message, hint = _answer(error, where, doing)
        raise _kind(error)(message, hint=hint) from error
    except FAILURES as error:
        message, hint = _failure(error, where, doing)
        raise _kind(error)(message, hint=hint) from error


def _kind(error: BaseException) -> type[TargetError]:
    if code_of(error) in _FULL:
        return NoRoom
    return TargetAway if passes_by_itself(error) else TargetError


def _answer(error: aws.ClientError, where: str, doing: str) -> tuple[str, str]:
    """S3 said no."""
    code = code_of(error)
    said = f"{code}: {error.response.get('Error', {}).get('Message', '')}".rstrip(": ")
    if code == "NoSuchBucket":
        return f"{where} does not exist: no such bucket", "create it, or correct bucket, endpoint or region"
    if code in _WRONG_REGION:
        right = error.response.get("Error", {}).get("Region") or error.response.get("ResponseMetadata", {}).get(
            "HTTPHeaders", {}
        ).get("x-amz-bucket-region")
        return f"{where} is in another region", f'set region = "{right}"' if right else "set the bucket's own region"
    if code in _EXPIRED:
        return f"could not {doing} {where}: the credentials have expired", "renew them, then run again"
    if code in _WRONG:
        return f"{where} does not accept the credentials ({code})", "compare the access key and the secret key"
    if code == "InvalidStorageClass":
        return f"{where} does not know the storage class", "correct storage_class, or omit it"
    if code in _SKEWED:
        return f"{where} rejects this host's clock as wrong", "set the clock: `timedatectl` shows whether NTP works"
    if code == _ARCHIVED:
        return (
            f"could not {doing} {where}: it is in an archive class ({said})",
            "have the store restore it first (`aws s3api restore-object`, for each object of the backup), or use a copy"
            " on another target; a rule of the bucket has moved it there",
        )
    if code in _FULL:
        return f"no space left on {where} ({code})", "free space there, or let retention keep fewer backups"
    if code in _UNLOCKABLE or re.search(r"object.?lock|WORM", said, re.IGNORECASE):
        return (
            f"could not {doing} {where}: {said}",
            "it is locked by Object Lock: see the bucket's settings and retention date",
        )
    if code in _DENIED:
        return f"{where} does not let backupd {doing} it ({said})", _PERMISSIONS
    return f"could not {doing} {where}: {said}", "check the store's own log"


def _failure(error: BaseException, where: str, doing: str) -> tuple[str, str]:
    """There was no answer, or none that can be read."""
    if isinstance(error, aws.NoCredentialsError | aws.PartialCredentialsError | aws.CredentialRetrievalError):
        return f"no credentials for {where}", "set credentials_file, or check where the AWS tools look for them"
    if isinstance(error, aws.ProfileNotFound):
        return f"no credentials for {where}: {error}", "check ~/.aws/config, or set credentials_file"
    if isinstance(error, aws.SSLError):
        return f"the certificate of {where} is not trusted", 'set ca to the authority\'s certificate: ca = "/PATH"'
    if isinstance(error, aws.EndpointConnectionError | aws.ConnectTimeoutError | aws.ProxyConnectionError):
        return f"{where} cannot be reached: {error}", "is the endpoint right, and is the store running?"
    if isinstance(error, aws.ReadTimeoutError):
        return f"could not {doing} {where}: it timed out", "check the store's own log, and the network"
    if isinstance(error, Nonsense):
        return f"could not {doing} {where}: {error}", "is the endpoint that of an S3 service, and nothing in between?"
    return f"could not {doing} {where}: {error}", "the connection failed: check the network and the store's own log"
