"""Which texts name somebody who alone can read a backup: age's X25519 recipients.

Knows: `age1…` is Bech32 of a public key (age-encryption.org/v1). Imported where a recipient is named: most
configurations name none, and pyrage takes long to load.
"""

import re
from collections.abc import Iterable

from pyrage import RecipientError, x25519

from backupd.vocabulary.faults import BadValue, quoted

_RECIPIENT = re.compile(r"age1[02-9ac-hj-np-z]{58}", re.ASCII)  # Bech32 of 32 bytes (age's specification)
_PRIME = 2**255 - 19
_MASK = 2**255 - 1  # the last bit is ignored
_LOW_ORDER = frozenset(  # of Curve25519, and what is the same modulo the prime: https://cr.yp.to/ecdh.html#validate
    {
        *(0, 1, _PRIME - 1, _PRIME, _PRIME + 1),
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    }
)
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"  # BIP 173
_BECH32_CHECKSUM = 6  # letters


def recipient(value: str) -> str:
    """Not one letter of it is wrong, and somebody has the key to it.

    Raises:
        BadValue: it is none, or anybody could read what is encrypted for it.
    """
    key = public_key(value) if _RECIPIENT.fullmatch(value) else None
    if key is None:
        secret = "AGE-SECRET-KEY-" in value.upper()
        fact = "is a secret key" if secret else f"{quoted(value)} is not an age recipient"
        hint = "only the public key belongs on this host: the line that begins with age1, of `age-keygen`"
        raise BadValue(fact, hint)
    if is_anybodys(key):
        raise BadValue(
            f"{quoted(value)} is a low-order key: anybody could read what is encrypted for it",
            "it is not a real key: check where you got it, and create one with age-keygen",
        )
    return value


def recipients_in(texts: Iterable[str]) -> tuple[str, ...]:
    """Those of a command line: several in a text are parted by commas, and each counts once. Raises as `recipient`."""
    return tuple(dict.fromkeys(recipient(one.strip()) for text in texts for one in text.split(",")))


def public_key(recipient: str) -> bytes | None:
    """The 32 bytes that an `age1…` stands for; None where it is none. pyrage says so, by its checksum too."""
    try:
        x25519.Recipient.from_str(recipient)
    except RecipientError:
        return None
    letters = recipient.lower().rpartition("1")[2][:-_BECH32_CHECKSUM]
    number = 0
    for letter in letters:
        number = number << 5 | _BECH32.index(letter)
    return (number >> (5 * len(letters)) % 8).to_bytes(5 * len(letters) // 8, "big")


def is_anybodys(key: bytes) -> bool:
    """Whether it is a point of low order (RFC 7748, 6.1): what is shared with it is zero, whoever shares it."""
    return int.from_bytes(key, "little") & _MASK in _LOW_ORDER
