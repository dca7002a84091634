"""A user of the client's machine that listens at ports which a pool's tunnels had. Needs no part of Skyward.

`python tests/impostor.py CERT KEY PORT ...` becomes another user if possible, and prints `ready`. It binds each port as
soon as it is free, and prints `took PORT`. It answers its callers in turn with silence, with noise, and as a TLS server
with that certificate; it prints received bytes as `heard KIND HEX`. It ends with its standard input.
"""

import contextlib
import os
import socket
import ssl
import sys
import threading
import time

NOBODY = 65534


def take(port: int) -> socket.socket:
    """Listen at a port, as soon as it is free."""
    while True:
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen()
        except OSError:
            listener.close()
            time.sleep(0.005)
        else:
            print("took", port, flush=True)
            return listener


def serve(port: int, context: ssl.SSLContext) -> None:
    """Bind a port, and serve its callers."""
    listener, turn = take(port), 0
    while True:
        caller, _ = listener.accept()
        turn += 1
        threading.Thread(target=hear, args=(caller, turn % 3, context), daemon=True).start()


def hear(caller: socket.socket, turn: int, context: ssl.SSLContext) -> None:
    """Read the bytes of a caller to the end."""
    kind, said = ("silence", "noise", "tls")[turn], b""
    caller.settimeout(20)
    with contextlib.suppress(OSError), caller:
        if kind == "noise":
            caller.sendall(os.urandom(4096))
        heard = context.wrap_socket(caller, server_side=True) if kind == "tls" else caller
        with heard:
            while data := heard.recv(65536):
                said += data
    print("heard", kind, said.hex(), flush=True)


def main() -> None:
    """Run the command line."""
    cert, key, *ports = sys.argv[1:]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    print("ready", flush=True)
    for port in ports:
        threading.Thread(target=serve, args=(int(port), context), daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
