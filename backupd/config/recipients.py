"""Which texts name somebody who alone can read a backup: age's X25519 recipients.

Knows: `age1…` is Bech32 of a public key (age-encryption.org/v1). Imported where a recipient is named: most
configurations name none, and pyrage takes long to load.
"""

from pyrage import RecipientError, x25519

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
