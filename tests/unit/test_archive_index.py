"""The index of a backup's members: what is read is what was written, and anything else is refused with a sentence."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backupd.archive.index import Member, from_bytes, to_bytes
from backupd.errors import VerificationError

NAMES = st.text(st.characters(codec="utf-8") | st.just("\udcff"), min_size=1)
MEMBERS = st.builds(Member, NAMES, st.integers(0, 1 << 50), st.integers(1, 1 << 50))


@given(st.dictionaries(st.text(max_size=20), st.lists(MEMBERS, max_size=4).map(tuple), max_size=3))
@settings(max_examples=30)
def test_index_is_read_as_it_was_written(objects: dict[str, tuple[Member, ...]]) -> None:
    assert from_bytes(to_bytes(objects)) == objects


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"schema":1}',
        b'{"schema":1,"objects":[]}',
        b'{"schema":2,"objects":{}}',
        b'{"schema":1,"objects":{},"more":1}',
        b'{"schema":1,"objects":{"data-1.tar.zst":{}}}',
        b'{"schema":1,"objects":{"data-1.tar.zst":[["a",0]]}}',
        b'{"schema":1,"objects":{"data-1.tar.zst":[["a",-1,512]]}}',
        b'{"schema":1,"objects":{"data-1.tar.zst":[["a",0,0]]}}',
        b'{"schema":1,"objects":{"data-1.tar.zst":[["a",true,512]]}}',
        b'{"schema":1,"objects":{"data-1.tar.zst":[["a",0,1.5]]}}',
        b'{"schema":1,"objects":{"data-1.tar.zst":[[1,0,512]]}}',
        b"[" * 100_000,
    ],
)
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(VerificationError, match="the index of the members cannot be understood") as refused:
        from_bytes(content)
    assert refused.value.hint
