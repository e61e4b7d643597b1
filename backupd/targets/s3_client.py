"""A client for one S3 service: who we are to it, how long we wait for it, how often it is asked again.

Knows: the configuration's keys, where credentials lie, which failures pass by themselves. The AWS packages are loaded
here, when a target of this kind is made: they take a second to start.

A try that failed is made again by us rather than by botocore, whose own list lacks a part that was damaged on its way.
botocore's default checksums are off: since boto3 1.36 they are sent as trailers, which Object Lock and other makers'
stores refuse (boto/boto3#4392, clickhouse-backup#1363); each upload says its own, as a header. What S3 wants a checksum
of besides has a CRC32 of botocore's, and the MD5 that it had before: MinIO until 2025, OneFS and others know that alone
(MissingContentMD5: aws-sdk-java-v2#5805, barman#1146).
"""

import base64
import configparser
import hashlib
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
import botocore.session
from botocore.config import Config
from botocore.loaders import Loader, create_loader

from backupd.config import PartChecksum, S3Config
from backupd.config.secrets import private_text
from backupd.targets.outages import Outages, Patience, Unwanted, persisted, wanted
from backupd.targets.s3_errors import FAILURES, explained, may_be_expired, passes_by_itself, understood
from backupd.vocabulary.errors import ConfigurationError, TargetError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")

_MOST_CONNECTIONS = 64  # kept for the next request; more may be open
_WITH_MD5 = ("DeleteObjects", "PutObjectRetention")
_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


class Service:
    """Requests to one S3 service, each in words when it fails. Any number of threads may ask at once."""

    def __init__(self, config: S3Config, where: str, patience: Patience) -> None:
        self.where = where
        self.outages = Outages(where, patience, at_most_seconds=config.outage_seconds)
        self.tries = patience.tries  # where no outage is waited for
        self._config = config
        self._client: S3Client | None = None
        self._lock = threading.Lock()

    @property
    def client(self) -> "S3Client":
        """Made when it is first needed: the credentials are read then.

        Raises:
            TargetError: the credentials cannot be had.
        """
        with self._lock:
            if self._client is None:
                with explained(self.where, "use"):
                    self._client = _client(self._config)
            return self._client

    def ask(self, doing: str, request: Callable[[], T], *, unwanted: Unwanted = wanted, tries: int | None = None) -> T:
        """What the request returns; it is made again while its failure is one that passes, and an outage is waited for.

        With `tries` only so often. Credentials that are refused are read again from where they lie, once in a row.

        Raises:
            TargetError: it failed for good, or while it was unwanted.
        """
        with explained(self.where, doing):
            return self.persist(doing, request, unwanted=unwanted, tries=tries)

    def persist(
        self, doing: str, request: Callable[[], T], *, unwanted: Unwanted = wanted, tries: int | None = None
    ) -> T:
        """The same with botocore's own errors (`s3_errors.FAILURES`), for who can answer one of them."""
        client = self.client

        def ask() -> T:
            nonlocal client
            client = self.client
            with understood():
                return request()

        return persisted(
            ask,
            self.outages.attempts(tries=tries, unwanted=unwanted),
            doing=doing,
            failures=FAILURES,
            passes=passes_by_itself,
            renew=lambda error: may_be_expired(error) and self._renew(client),
        )

    def _renew(self, refused: "S3Client") -> bool:
        """The next request reads the credentials again; those of another thread that has done so already stay."""
        with self._lock:
            if self._client is refused:
                self._client = None
        return True


def _client(config: S3Config) -> "S3Client":
    """A client; nothing was sent yet.

    The body is signed only where neither TLS nor a SHA-256 among the signed headers guards it already: hashing it once
    more costs as much as sending it (0.7 ms a MiB, and the same on the other side, with versitygw 1.8.0).

    Raises:
        TargetError: the credentials file cannot be used.
    """
    over_tls = config.endpoint is None or config.endpoint.startswith("https://")
    guarded = over_tls or config.checksum is PartChecksum.SHA256
    path_style = config.endpoint is not None  # bucket.endpoint would want a name server and a certificate for it
    settings = Config(
        connect_timeout=config.timeout_seconds,
        read_timeout=config.timeout_seconds,
        retries={"total_max_attempts": 1},
        max_pool_connections=_MOST_CONNECTIONS,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if path_style else "auto", "payload_signing_enabled": not guarded},
        tcp_keepalive=True,
    )
    given = _credentials(config)
    core = botocore.session.Session()
    core.register_component("data_loader", _descriptions())
    session = boto3.session.Session(
        botocore_session=core,
        aws_access_key_id=given.get(_KEYS[0]),
        aws_secret_access_key=given.get(_KEYS[1]),
        aws_session_token=given.get(_KEYS[2]),
        region_name=config.region,
        profile_name=None if given else config.profile,
    )
    region = session.region_name or "us-east-1"  # a store that wants another one says which, and botocore follows
    verify = str(config.ca) if config.ca is not None else None
    client = session.client("s3", endpoint_url=config.endpoint, region_name=region, config=settings, verify=verify)
    for operation in _WITH_MD5:
        client.meta.events.register(f"before-call.s3.{operation}", _say_md5)
    return client


def _say_md5(params: dict[str, Any], **_: object) -> None:
    """The request says the MD5 of its body."""
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()


@cache
def _descriptions() -> Loader:
    """What botocore knows of S3, read once for all targets: 150 ms of the 170 that a client takes (botocore 1.44)."""
    loader: Loader = create_loader(botocore.session.Session().get_config_variable("data_path"))
    return loader


def _credentials(config: S3Config) -> Mapping[str, str]:
    """The three keys of the credentials file's section; none where the configuration names no file.

    Raises:
        TargetError: it cannot be read, others can read it, or it lacks the section or a key.
    """
    if config.credentials_file is None:
        return {}
    where = f"targets.{config.name}.credentials_file"
    section = config.profile or "default"
    parser = configparser.RawConfigParser()
    hint = f"a section [{section}] with {_KEYS[0]} and {_KEYS[1]}"
    try:
        parser.read_string(private_text(where, config.credentials_file, content="the keys"))
    except ConfigurationError as error:
        raise TargetError(error.message, hint=error.hint) from error
    except configparser.Error:
        # Not chained: the cause quotes the line.
        raise TargetError(f"{where}: {config.credentials_file} cannot be parsed", hint=hint) from None
    if not parser.has_section(section):
        raise TargetError(f"{where}: {config.credentials_file} has no section [{section}]", hint=hint)
    found = {key: parser.get(section, key).strip() for key in _KEYS if parser.has_option(section, key)}
    for key in _KEYS[:2]:
        if not found.get(key):
            raise TargetError(f"{where}: [{section}] of {config.credentials_file} has no {key}", hint=hint)
    return found
