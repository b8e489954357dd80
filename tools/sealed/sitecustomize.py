"""Every Python that finds this folder on PYTHONPATH reaches this machine only, as one without a network.

`tools/stages.py` puts it there for tests, notebooks and book, so that what passes here passes anywhere.
"""

import errno
import socket
from typing import Any

HINT = "refused by tools/sealed: tests, notebooks and book do without a network"


def is_here(host: Any) -> bool:
    """Whether a host is this machine: no name at all, `localhost`, or a loopback address."""
    name = host.decode() if isinstance(host, bytes) else host
    return name in (None, "", "localhost", "::1", "0.0.0.0") or str(name).startswith("127.")


class Sealed(socket.socket):
    """The methods of a socket that lead away from here."""

    def connect(self, address: Any, connect: Any = socket.socket.connect) -> None:
        if isinstance(address, tuple) and not is_here(address[0]):
            raise OSError(errno.ENETUNREACH, f"{address[0]}: {HINT}")
        connect(self, address)

    def connect_ex(self, address: Any, connect_ex: Any = socket.socket.connect_ex) -> int:
        if isinstance(address, tuple) and not is_here(address[0]):
            return errno.ENETUNREACH
        return connect_ex(self, address)


def getaddrinfo(host: Any, *args: Any, known: Any = socket.getaddrinfo, **kwargs: Any) -> Any:
    """As without a name server."""
    if not is_here(host):
        raise socket.gaierror(socket.EAI_NONAME, f"{host}: {HINT}")
    return known(host, *args, **kwargs)


vars(socket)["getaddrinfo"] = getaddrinfo
for method in ("connect", "connect_ex"):
    setattr(socket.socket, method, vars(Sealed)[method])
