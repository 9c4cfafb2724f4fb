"""The forms of calls and results that travel between the client and the node.

Shared by both sides, so it imports the standard library only, and little of it.

A task's input is one JSON object (see :class:`CallInput`). Its value is a JSON header line and
then one line for each call: the outcome, pickled, in base64. Lines are appended as calls end, so
the value of a killed attempt names the call that it was in.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

__all__ = [
    "CallInput",
    "ErrorParts",
    "StoreReference",
    "parse_value",
    "read_reference",
    "value_header",
    "write_reference",
]

#: Version of these forms.
FORM_VERSION = 1
#: Largest value of a task. Bytes of text.
MAX_VALUE_BYTES = 16 << 10
#: End of the name of a file with the outcomes of a task with several calls.
PROGRESS_SUFFIX = ".progress"
#: Exit code of a call whose allocation failed.
MEMORY_EXIT_CODE = 3


class StoreReference(NamedTuple):
    """A file in the directory that client and nodes share."""

    path: str
    sha256: str
    size: int

    def to_json(self) -> Dict[str, Any]:
        """The JSON form."""
        return {"path": self.path, "sha256": self.sha256, "size": self.size}

    @classmethod
    def of_json(cls, value: Dict[str, Any]) -> StoreReference:
        """Reads the JSON form."""
        return cls(str(value["path"]), str(value["sha256"]), int(value["size"]))


def write_reference(path: str, data: bytes) -> StoreReference:
    """Writes a file under a temporary name and renames it."""
    beside = f"{path}.{os.getpid()}.part"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(beside, path)
    except BaseException:
        try:
            os.unlink(beside)
        except OSError:
            pass
        raise
    return StoreReference(path, hashlib.sha256(data).hexdigest(), len(data))


def read_reference(reference: StoreReference) -> bytes:
    """Reads a file and checks its content before anything else sees it."""
    with open(reference.path, "rb") as file:
        data = file.read()
    if hashlib.sha256(data).hexdigest() != reference.sha256:
        raise OSError(
            f"{reference.path} has other content than was written "
            f"({len(data)} bytes instead of {reference.size})"
        )
    return data


def encode_payload(data: Optional[bytes], reference: Optional[StoreReference]) -> Any:
    """A payload in JSON: base64 text, or a reference."""
    if reference is not None:
        return reference.to_json()
    return base64.b64encode(data or b"").decode()


def decode_payload(value: Any) -> bytes:
    """The bytes of a payload."""
    if isinstance(value, dict):
        return read_reference(StoreReference.of_json(value))
    return base64.b64decode(value)


class CallInput(NamedTuple):
    """The input of a task."""

    #: Python version of the client, such as ``3.11``.
    python: str
    #: The pickled function if it differs from the stage's: base64 or a reference.
    function: Any
    #: The pickled list of ``(args, kwargs)``: base64 or a reference.
    calls: Any
    #: Number of calls.
    length: int
    #: Directory for large results; empty without one.
    store: str
    #: Name for files of this task.
    key: str

    def to_text(self) -> str:
        """The text of the input file."""
        value: Dict[str, Any] = {
            "headroom": FORM_VERSION,
            "python": self.python,
            "calls": self.calls,
            "count": self.length,
            "key": self.key,
        }
        if self.function is not None:
            value["function"] = self.function
        if self.store:
            value["store"] = self.store
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def of_text(cls, text: str) -> CallInput:
        """Reads the text of the input file."""
        value = json.loads(text)
        if value.get("headroom") != FORM_VERSION:
            raise ValueError(
                f"the client sends calls of version {value.get('headroom')}, "
                f"and the package headroom of this node reads version {FORM_VERSION}"
            )
        return cls(
            python=str(value["python"]),
            function=value.get("function"),
            calls=value["calls"],
            length=int(value["count"]),
            store=str(value.get("store") or ""),
            key=str(value["key"]),
        )


class ErrorParts(NamedTuple):
    """An exception that is built without a call of its ``__init__``."""

    kind: Any
    args: Tuple[Any, ...]
    state: Dict[str, Any]

    def build(self) -> BaseException:
        """The exception."""
        error: BaseException = self.kind.__new__(self.kind, *self.args)
        error.args = self.args
        error.__dict__.update(self.state)
        return error


def value_header(reference: Optional[StoreReference] = None, complete: bool = True) -> str:
    """The first line of a value. ``complete`` is false if calls were left out."""
    header: Dict[str, Any] = {"headroom": FORM_VERSION}
    if reference is not None:
        header["store"] = reference.to_json()
    if not complete:
        header["partial"] = True
    return json.dumps(header, separators=(",", ":")) + "\n"


#: The header of most values.
_PLAIN_HEADER = value_header()


def encode_outcome(pickled: bytes) -> str:
    """A pickled outcome as a line."""
    return base64.b64encode(pickled).decode() + "\n"


def decode_outcomes(lines: List[str]) -> List[bytes]:
    """The pickled outcomes of complete lines; a torn last line is ignored."""
    found: List[bytes] = []
    for line in lines:
        if not line.endswith("\n"):
            break
        try:
            found.append(base64.b64decode(line, validate=False))
        except (binascii.Error, ValueError):
            break
    return found


def parse_value(text: str) -> Tuple[List[bytes], Optional[StoreReference], bool]:
    """The pickled outcomes of a value, the file with them instead, and whether calls were left
    out."""
    first, *rest = text.splitlines(keepends=True) or [""]
    if first == _PLAIN_HEADER:
        return decode_outcomes(rest), None, False
    header = json.loads(first)
    reference = header.get("store")
    partial = bool(header.get("partial"))
    if reference is not None:
        return [], StoreReference.of_json(reference), partial
    return decode_outcomes(rest), None, partial


def parse_stored(data: bytes) -> List[bytes]:
    """The pickled outcomes of a stored value."""
    return decode_outcomes(data.decode("ascii").splitlines(keepends=True))
