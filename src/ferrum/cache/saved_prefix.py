"""A prefix in a file: its token ids, the content of its blocks, and what both are worth to.

ferrum-kv 1 NEWLINE
length of the header, 8 bytes, little-endian
header, JSON: the fields of SavedPrefixHeader
token ids, 4 bytes each, little-endian
content of the blocks, one after the other
SHA-256 of everything before
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from ferrum.core.errors import PrefixNotSaved, UnusableSavedPrefix

_MAGIC: Final = b"ferrum-kv 1\n"
_MOST_HEADER_BYTES: Final = 4096
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
_TOKEN_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class SavedPrefixHeader:
    """``identity`` of the model and ``layout_id`` of its blocks must be those of whoever restores it.

    ``is_salted``: it was kept apart from others' prompts, and must not be shared with all when it comes back.
    """

    identity: str
    layout_id: str
    block_tokens: int
    block_bytes: int
    num_blocks: int
    is_salted: bool = False

    @property
    def num_tokens(self) -> int:
        return self.num_blocks * self.block_tokens

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values."""
        return self.num_blocks * self.block_bytes

    @property
    def file_bytes(self) -> int:
        """How long the file is that begins with it."""
        return _file_bytes(self, len(self.written()))

    def written(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def write_saved_prefix(
    path: Path, header: SavedPrefixHeader, token_ids: Sequence[int], blocks: Iterable[bytes]
) -> None:
    """Readable by the owner alone, as it holds what somebody wrote; it appears whole or not at all.

    Raises PrefixNotSaved.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            _write(file, header, token_ids, blocks)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except OSError as error:
        raise PrefixNotSaved(str(path), f"cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _file_bytes(header: SavedPrefixHeader, header_bytes: int) -> int:
    """``header_bytes``: how long the header is as it stands in the file."""
    content = header.num_tokens * _TOKEN_BYTES + header.kv_bytes
    return len(_MAGIC) + 8 + header_bytes + content + _DIGEST_BYTES


def _write(
    file: BinaryIO, header: SavedPrefixHeader, token_ids: Sequence[int], blocks: Iterable[bytes]
) -> None:
    assert len(token_ids) == header.num_tokens
    digest = hashlib.sha256()
    written = header.written()
    ids = struct.pack(f"<{len(token_ids)}i", *token_ids)
    for part in (_MAGIC, struct.pack("<Q", len(written)), written, ids):
        file.write(part)
        digest.update(part)
    for content in blocks:
        assert len(content) == header.block_bytes
        file.write(content)
        digest.update(content)
    file.write(digest.digest())


class SavedPrefixReader:
    """An open file of a saved prefix; close it, or use it in a with-statement.

    Header and token ids are read and checked when it is built; ``blocks`` reads the content, and only when it
    has come to its end is everything known to be as it was written. Raises UnusableSavedPrefix.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = hashlib.sha256()
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise UnusableSavedPrefix(str(path), f"cannot be read: {error.strerror}") from None
        try:
            self.header = self._read_header()
            ids = self._read(self.header.num_tokens * _TOKEN_BYTES)
            self.token_ids: tuple[int, ...] = struct.unpack(f"<{self.header.num_tokens}i", ids)
        except BaseException:
            self._file.close()
            raise

    def blocks(self) -> Iterator[bytes]:
        for _ in range(self.header.num_blocks):
            yield self._read(self.header.block_bytes)
        expected = self._digest.digest()
        if self._file.read(_DIGEST_BYTES + 1) != expected:
            raise self._unusable("its content is not what was saved; save it again")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> SavedPrefixReader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _read_header(self) -> SavedPrefixHeader:
        if self._read_some(len(_MAGIC)) != _MAGIC:
            raise self._unusable("is no saved prefix of this version of Ferrum")
        (length,) = struct.unpack("<Q", self._read(8))
        if length > _MOST_HEADER_BYTES:
            raise self._unusable(f"has a header of {length} bytes; at most {_MOST_HEADER_BYTES} are possible")
        header = self._parsed(self._read(length))
        size = os.fstat(self._file.fileno()).st_size
        expected = _file_bytes(header, length)
        if size != expected:
            raise self._unusable(f"has {size} bytes and should have {expected}; it is cut off or damaged")
        return header

    def _parsed(self, written: bytes) -> SavedPrefixHeader:
        try:
            values: dict[str, Any] = json.loads(written)
            header = SavedPrefixHeader(**values)
        except (ValueError, TypeError):
            raise self._unusable("has a header that cannot be read; it is damaged") from None
        counts = (header.block_tokens, header.block_bytes, header.num_blocks)
        is_possible = all(type(count) is int and count > 0 for count in counts)
        if not is_possible or type(header.is_salted) is not bool:
            raise self._unusable("has a header with impossible values; it is damaged")
        return header

    def _read(self, count: int) -> bytes:
        content = self._read_some(count)
        if len(content) != count:
            raise self._unusable("ends too early; it is cut off or damaged")
        return content

    def _read_some(self, count: int) -> bytes:
        content = self._file.read(count)
        self._digest.update(content)
        return content

    def _unusable(self, problem: str) -> UnusableSavedPrefix:
        return UnusableSavedPrefix(str(self._path), problem)
