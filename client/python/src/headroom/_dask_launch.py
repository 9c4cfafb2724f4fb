"""How the containers of Dask workers are started."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import site
import socket
import sys
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Union

import dask
from dask.utils import parse_bytes
from distributed.security import Security
from distributed.utils import get_ip

from headroom._container_session import ContainerEnd
from headroom._dask_memory import rung_resource
from headroom._http import RestClient
from headroom.errors import SettingsError, format_bytes

__all__ = [
    "Size",
    "WorkerLaunch",
    "application_name",
    "checked_options",
    "checked_size",
    "failed_start_sentence",
    "has_local_nodes",
    "own_address",
    "worker_stage",
]

#: A number of bytes, or a text such as ``2GiB``.
Size = Union[str, int]

#: Time between SIGTERM and SIGKILL. Milliseconds.
STOP_GRACE_MS = 5000


@dataclass
class WorkerLaunch:
    """The launch of workers, without what differs between them."""

    #: Python interpreter on the nodes.
    python: str
    #: Environment variables of the user.
    env: Mapping[str, str]
    #: Further keywords of the worker class.
    options: Mapping[str, Any]
    #: True if the nodes are on this host.
    is_local: bool
    #: Certificates of the connections.
    security: Security = field(default_factory=Security)

    def spec(self, scheduler: str, name: Any, nthreads: int, rung: int) -> Dict[str, Any]:
        """The launch of one worker, as in the REST interface."""
        options = dict(self.options)
        resources = dict(options.pop("resources", {}))
        resources.update({rung_resource(number): 1 for number in range(2, rung + 1)})
        files = {"headroom_dask_worker.py": _worker_program()}
        certificates = self._certificates()
        if certificates:
            files.update(certificates)
            options["security"] = {
                "tls_ca_file": "ca.pem",
                "tls_worker_cert": "cert.pem",
                "tls_worker_key": "key.pem",
                "require_encryption": True,
            }
        files["worker.json"] = json.dumps(
            {
                "scheduler": scheduler,
                "name": name,
                "nthreads": nthreads,
                "resources": resources,
                "worker_options": options,
            }
        )
        return {
            "command": [self.python, "headroom_dask_worker.py", "worker.json"],
            "env": self._environment(),
            "files": files,
            "stop_grace_ms": STOP_GRACE_MS,
        }

    def _certificates(self) -> Dict[str, str]:
        names = {
            "ca.pem": self.security.tls_ca_file,
            "cert.pem": self.security.tls_worker_cert,
            "key.pem": self.security.tls_worker_key,
        }
        return {
            name: value if "-----BEGIN" in value else Path(value).read_text(encoding="utf-8")
            for name, value in names.items()
            if value
        }

    def _environment(self) -> Dict[str, str]:
        settings: Dict[str, Any] = {}
        # Dask's nanny would set these before it starts a worker.
        for key in ("distributed.nanny.pre-spawn-environ", "distributed.nanny.environ"):
            settings.update(dask.config.get(key, default=None) or {})
        pairs = {name: str(value) for name, value in settings.items()}
        pairs["DASK_INTERNAL_INHERIT_CONFIG"] = dask.config.serialize(dask.config.global_config)
        if self.is_local:
            pairs["PYTHONPATH"] = os.pathsep.join(_import_path())
        pairs.update(self.env)
        return pairs


def _worker_program() -> str:
    found = importlib.util.find_spec("headroom._dask_worker")
    if found is None or found.origin is None:
        raise ImportError("the module headroom._dask_worker is missing; install headroom again")
    return Path(found.origin).read_text(encoding="utf-8")


def _import_path() -> List[str]:
    """The directories from which this process imports modules that are not installed."""
    installed = [*site.getsitepackages(), site.getusersitepackages(), sys.prefix, sys.base_prefix]
    found = []
    for entry in sys.path:
        directory = os.path.abspath(entry or ".")
        is_installed = any(directory.startswith(root + os.sep) for root in installed)
        if os.path.isdir(directory) and not is_installed and directory not in found:
            found.append(directory)
    return found


def has_local_nodes(client: RestClient) -> bool:
    """True if every node of the cluster is on this host."""
    if not client.settings.is_local:
        return False
    urls = [urllib.parse.urlsplit(node.get("url") or "") for node in client.get("/v1/nodes")]
    hosts = [url.hostname or "" for url in urls]
    return all(host in ("localhost", "::1", "") or host.startswith("127.") for host in hosts)


def own_address(client: RestClient) -> str:
    """The address of this host towards the resource manager."""
    parts = urllib.parse.urlsplit(client.current_address)
    if client.settings.is_local or parts.hostname is None:
        return str(get_ip())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((parts.hostname, parts.port or 7070))
        return str(probe.getsockname()[0])


def checked_size(key: str, value: Size) -> int:
    """A memory size of an argument. Bytes."""
    try:
        size = int(parse_bytes(value))
    except ValueError:
        size = 0
    if size < 1 << 20:
        raise SettingsError(f"{key} is {value!r}: give a size such as '2GiB'")
    return size


def checked_options(options: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Keywords of the worker class, which must have a JSON form."""
    for key, value in (options or {}).items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise SettingsError(
                f"worker_options[{key!r}] cannot be sent to a node ({error}): give numbers, texts, "
                "lists and dictionaries"
            ) from error
    return dict(options or {})


def application_name(text: str) -> str:
    """A name of an application, from any text.

    >>> application_name("my script!"), application_name("--")
    ('my-script', 'dask')
    """
    name = re.sub(r"[^A-Za-z0-9_-]", "-", text)[:48].strip("-_")
    return name or "dask"


def worker_stage(memory: int) -> str:
    """The name of all workers of a size, in bytes, as a stage of the job view.

    >>> worker_stage(2 << 30), worker_stage(1536 << 20)
    ('workers-2GiB', 'workers-1536MiB')
    """
    whole = memory % (1 << 30) == 0
    return f"workers-{memory >> 30}GiB" if whole else f"workers-{memory >> 20}MiB"


def failed_start_sentence(count: int, memory: int, end: ContainerEnd) -> str:
    """Describes workers that ended before they reached the scheduler, by the last one."""
    lines = [line.strip() for line in end.log_tail.splitlines() if line.strip()]
    last = lines[-1] if lines else "no output"
    if end.is_memory_failure:
        last = f"{format_bytes(memory)} of memory do not hold an idle worker; give more memory"
    return (
        f"{count} workers in a row ended before they reached the scheduler; the last one, "
        f"container {end.container} on {end.node}, {end.in_words}: {last}"
    )
