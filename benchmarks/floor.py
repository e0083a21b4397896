"""The floor of a no-op run: Fabric in threads connects, starts Python with the agent's imports, closes.

Nothing that goes over SSH with Fabric and needs Python on the host can be faster. Arguments: a JSON
file {"hosts": [{"address", "port", "user", "key", "known_hosts"}], "imports": "json,os,sys"}.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import fabric


def visit(host: dict[str, str], command: str) -> str:
    connection = fabric.Connection(
        host["address"],
        user=host["user"],
        port=int(host["port"]),
        connect_kwargs={"key_filename": host["key"], "look_for_keys": False, "allow_agent": False},
    )
    connection.client.load_host_keys(host["known_hosts"])
    with connection:
        return connection.run(command, hide=True, in_stream=False, pty=False).stdout


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        task = json.load(file)
    command = f"python3 -S -E -c 'import {task['imports']}; print(1)'"
    with ThreadPoolExecutor(len(task["hosts"])) as pool:
        answers = list(pool.map(lambda host: visit(host, command), task["hosts"]))
    if [answer.strip() for answer in answers] != ["1"] * len(answers):
        raise SystemExit(f"floor: unexpected answers {answers}")


if __name__ == "__main__":
    main()
