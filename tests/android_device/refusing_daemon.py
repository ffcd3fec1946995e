"""Speaks just enough of adb's protocol to ask for a key and accept none.

A message is a header of six little-endian words (command, two arguments, length, checksum of the
data, command inverted) and data. The host says CNXN, the device AUTH with a token; after its
signatures the host offers its public key, and waits for the owner of the device for ever.
"""

from __future__ import annotations

import os
import socketserver
import struct
import sys

_HEADER = struct.Struct("<4s5I")
_TOKEN = 1


class _Host(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while header := self.request.recv(_HEADER.size, 0x100):
            command, kind, _, length, *_ = _HEADER.unpack(header)
            if length:
                self.request.recv(length, 0x100)
            if command == b"CNXN" or (command == b"AUTH" and kind == 2):
                self._ask()

    def _ask(self) -> None:
        token = os.urandom(20)
        (word,) = struct.unpack("<I", b"AUTH")
        fields = (b"AUTH", _TOKEN, 0, len(token), sum(token), word ^ 0xFFFFFFFF)
        self.request.sendall(_HEADER.pack(*fields) + token)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True


if __name__ == "__main__":
    with _Server(("127.0.0.1", int(sys.argv[1])), _Host) as server:
        server.serve_forever()
