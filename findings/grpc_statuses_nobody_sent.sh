#!/bin/sh
# gRPC's client tells PERMISSION_DENIED and RESOURCE_EXHAUSTED for calls that the server carried out.
#
# Version: grpcio 1.85.1 against a server made of h2 4.3.0, on Python 3.11.
# Behaviour: the server reads the whole request of a unary call, then ends the stream in another way
#   than by a gRPC status. The client makes a status by itself, and nothing in the error says that no
#   server wrote the status. RST_STREAM with ENHANCE_YOUR_CALM (11) becomes RESOURCE_EXHAUSTED, with
#   INADEQUATE_SECURITY (12) PERMISSION_DENIED; an HTTP 401 becomes UNAUTHENTICATED, 403
#   PERMISSION_DENIED, 404 UNIMPLEMENTED; a reply beyond the size limit, sent with status OK, becomes
#   RESOURCE_EXHAUSTED.
# Consequence: a gNMI client that takes these codes for the switch's refusal of a Set believes that
#   nothing has changed, though a gateway, a proxy or the client's own limit made the code after the
#   switch had carried out the Set. gRPC's list of codes names seven that no library makes
#   (INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE,
#   DATA_LOSS); any other code leaves open what was done.
# Output seen:
#   RST_STREAM 11: RESOURCE_EXHAUSTED, request read: True
#   RST_STREAM 12: PERMISSION_DENIED, request read: True
#   HTTP 401: UNAUTHENTICATED, request read: True
#   HTTP 403: PERMISSION_DENIED, request read: True
#   HTTP 404: UNIMPLEMENTED, request read: True
#   OK with a long reply: RESOURCE_EXHAUSTED, request read: True
#
# Exits with 0 as long as that is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check grpcio==1.85.1 h2==4.3.0
"$folder/venv/bin/python" - <<'PROGRAM'
import socket
import struct
import sys
import threading

import grpc
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded

LIMIT = 1000
REQUEST = b"set this"
read = []


def serve(listener, answer):
    peer, _ = listener.accept()
    with peer:
        http = H2Connection(H2Configuration(client_side=False))
        http.initiate_connection()
        peer.sendall(http.data_to_send())
        body = b""
        while data := peer.recv(65536):
            for event in http.receive_data(data):
                if isinstance(event, DataReceived):
                    body += event.data
                if isinstance(event, StreamEnded):
                    read.append(body[5:] == REQUEST)
                    answer(http, event.stream_id)
            peer.sendall(http.data_to_send())


def reset(error):
    return lambda http, stream: http.reset_stream(stream, error_code=error)


def status(code):
    return lambda http, stream: http.send_headers(
        stream, [(":status", str(code)), ("content-type", "text/plain")], end_stream=True
    )


def long_reply(http, stream):
    http.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
    http.send_data(stream, struct.pack("!BI", 0, LIMIT + 1) + bytes(LIMIT + 1))
    http.send_headers(stream, [("grpc-status", "0")], end_stream=True)


def told(answer):
    """The code that a client gets of a call that is answered so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
        options = [("grpc.max_receive_message_length", LIMIT), ("grpc.enable_retries", 0)]
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with grpc.insecure_channel(address, options) as channel:
            try:
                channel.unary_unary("/gnmi.gNMI/Set")(REQUEST, timeout=30)
            except grpc.RpcError as error:
                return error.code().name
    return "OK"


answers = {
    "RST_STREAM 11": (reset(11), "RESOURCE_EXHAUSTED"),
    "RST_STREAM 12": (reset(12), "PERMISSION_DENIED"),
    "HTTP 401": (status(401), "UNAUTHENTICATED"),
    "HTTP 403": (status(403), "PERMISSION_DENIED"),
    "HTTP 404": (status(404), "UNIMPLEMENTED"),
    "OK with a long reply": (long_reply, "RESOURCE_EXHAUSTED"),
}
as_seen = True
for name, (answer, expected) in answers.items():
    read.clear()
    code = told(answer)
    print(f"{name}: {code}, request read: {read == [True]}")
    as_seen &= code == expected and read == [True]
sys.exit(not as_seen)
PROGRAM
