"""A stand-in for fleet.agent.session: speaks the protocol, does as the test's requests say."""

import json
import os
import sys
import threading


def say(message):
    os.write(1, (json.dumps(message) + "\n").encode())


def hello(bundle):
    return {
        "type": "hello",
        "protocol": int(os.environ.get("STUB_PROTOCOL", "1")),
        "python": ".".join(map(str, sys.version_info[:3])),
        "uid": os.getuid(),
        "pid": os.getpid(),
        "path": sys.path[0],
        "bundle_sent": bundle is not None,
        "locale": os.environ.get("LC_ALL"),
    }


def answer(request, size):
    number, method, params = request["id"], request["method"], request["params"]
    if method == "echo":
        say({"type": "response", "id": number, "result": params})
    elif method == "size":
        say({"type": "response", "id": number, "result": size})
    elif method == "fail":
        say({"type": "response", "id": number, "error": params})
    elif method == "records":
        for seq in range(1, params["count"] + 1):
            kind = "end" if seq == params["count"] else "result"
            say({"type": "record", "record": {"seq": seq, "kind": kind}})
        say({"type": "response", "id": number, "result": {"sent": params["count"]}})
    elif method == "raw":
        os.write(1, params["text"].encode("latin-1"))
    elif method == "flood":
        line = (json.dumps({"type": "record", "record": {"pad": "x" * 60000}}) + "\n").encode()
        while True:
            os.write(1, line)
    elif method == "endless":
        while True:
            os.write(1, b"x" * 65536)
    elif method == "stderr":
        os.write(2, params["text"].encode())
        os._exit(3)
    elif method == "deaf":  # answers no more and reads no more, but lives
        say({"type": "response", "id": number, "result": {}})
        threading.Event().wait(60)
    elif method == "bye":
        say({"type": "response", "id": number, "result": {}})
        sys.exit(0)


def main(arguments, bundle):
    say(hello(bundle))
    while True:
        line = sys.stdin.buffer.readline()
        if not line:
            return
        message = json.loads(line)
        if message["type"] == "request":
            answer(message, len(line))
        elif os.environ.get("STUB_ANSWER_BEATS", "1") == "1":
            say({"type": "beat"})
