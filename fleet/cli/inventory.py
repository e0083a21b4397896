"""``fleet inventory``: check an inventory, list it, draw it, explain one host's variables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fleet.core.connection import ConnectionSettings, Endpoint
    from fleet.core.yaml import Node
    from fleet.inventory import Host, Inventory


EXAMPLES = """\b
Examples:
  fleet inventory site.yaml                      is it valid, and who is in it?
  fleet inventory site.yaml --graph              groups and their hosts as a tree
  fleet inventory site.yaml --host gpu01         each variable of gpu01, and where it came from
  fleet inventory site.yaml --limit 'gpu:!rack_b' --json
  ansible-inventory -i hosts.ini --list | fleet inventory -

What is wrong is told with file:line:column, everything at once, exit 2. Secrets are not fetched."""


@click.command(epilog=EXAMPLES)
@click.argument("source", metavar="INVENTORY")
@click.option(
    "--limit", "-l", metavar="PATTERN", help="Only these hosts: names, globs, groups, a:&b, a:!b, @file."
)
@click.option("--graph", is_flag=True, help="Draw groups and their hosts as a tree.")
@click.option("--host", "name", metavar="NAME", help="Every variable of one host, and where each came from.")
@click.option("--json", "as_json", is_flag=True, help="The same facts as JSON.")
@click.option(
    "--vault-password-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Password of !vault values; a program is run. Default: $ANSIBLE_VAULT_PASSWORD_FILE.",
)
@click.option(
    "--ssh-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read this instead of ~/.ssh/config.",
)
def inventory(
    source: str,
    limit: str | None,
    graph: bool,
    name: str | None,
    as_json: bool,
    vault_password_file: Path | None,
    ssh_config: Path | None,
) -> None:
    """Check INVENTORY and list its hosts. Nothing is connected to.

    INVENTORY is a YAML file, or - for the JSON of ansible-inventory --list on standard input.
    """
    from fleet.inventory import LoadOptions, load_inventory
    from fleet.inventory.vault import read_password

    password = read_password(vault_password_file) if vault_password_file else None
    loaded = load_inventory(source, options=LoadOptions(vault_password=password, ssh_config=ssh_config))
    for note in loaded.notes:
        click.echo(f"note: {note}", err=True)
    if name is not None:
        host = _one(loaded, name)
        click.echo(_json(explained(host)) if as_json else "\n".join(_explanation(host)))
        return
    hosts = loaded.select(limit)
    if as_json:
        click.echo(_json({"hosts": [listed(host) for host in hosts], "groups": _groups(loaded, hosts)}))
    elif graph:
        click.echo("\n".join(_tree(loaded, hosts)))
    else:
        click.echo("\n".join([*_table(hosts), "", _count(hosts, loaded)]))


def _one(loaded: Inventory, name: str) -> Host:
    from fleet.core.errors import InputError

    found = loaded.select(name)
    if len(found) != 1:
        raise InputError(f'--host takes one host; "{name}" is {len(found)}', remedy="list them with --limit")
    return found[0]


# --- facts, as --json gives them ---------------------------------------------------------------------------


def listed(host: Host) -> dict[str, object]:
    """One host of the list. No secret is fetched."""
    way = host.inventory.connector.way(host)
    return {
        "name": host.name,
        "address": way.endpoint.address,
        "port": way.endpoint.port,
        "user": way.endpoint.user,
        "local": way.local,
        "jumps": [jump.shown for jump in way.jumps],
        "groups": list(host.groups),
    }


def explained(host: Host) -> dict[str, object]:
    """One host with its variables: value, origin and what it overrode; secrets masked."""
    variables = {
        name: {
            "value": shown(name, host),
            "from": str(host.origin(name)),
            "overrides": [str(older) for older in host.origin(name).overrides],
        }
        for name in sorted(host.variables)
        if name not in host.variables.magic
    }
    return {
        **listed(host),
        "connection": _connection(host.inventory.connector.way(host)),
        "variables": variables,
    }


def shown(name: str, host: Host) -> object:
    """A variable's value fit to be shown. A secret is not fetched: what stands there says where from."""
    from fleet.inventory.merge import value_of

    node = host.variables.assigned(name)[0].node
    return masked(host.variables[name] if node is None else value_of(name, node, _not_fetched))


def _not_fetched(_name: str, node: Node) -> object:
    """What stands for a tagged value."""
    from fleet.core.secret import MASK
    from fleet.core.yaml import plain

    if node.tag == "!unsafe":
        return plain(node)
    return f"{MASK} ({'encrypted file' if node.tag == '!decrypted' else node.tag})"


def masked(value: object) -> object:
    """The value with every secret in it masked."""
    from fleet.core.secret import Secret

    if isinstance(value, Secret):
        return str(value)
    if isinstance(value, dict):
        return {str(key): masked(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked(item) for item in value]
    return value


def _connection(way: ConnectionSettings) -> dict[str, object]:
    endpoint = way.endpoint
    return {
        "address": endpoint.shown,
        "local": way.local,
        "jumps": [jump.shown for jump in way.jumps],
        "proxy_command": way.proxy_command,
        "keys": [str(path) for path in endpoint.key_files],
        "known_hosts": [str(path) for path in endpoint.known_hosts],
        "host_keys": endpoint.host_key_policy.value,
        "become": way.become.user if way.become.enabled else None,
        "python": way.python,
        "connect_timeout_seconds": way.deadlines.connect,
    }


def _groups(loaded: Inventory, hosts: list[Host]) -> dict[str, object]:
    kept = {host.name for host in hosts}
    return {
        group.name: {
            "hosts": [host for host in group.hosts if host in kept],
            "children": list(group.children),
        }
        for group in loaded.groups.values()
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


# --- text --------------------------------------------------------------------------------------------------


def _table(hosts: Iterable[Host]) -> list[str]:
    from fleet.report.columns import Cell, Column, table
    from fleet.report.style import text_of

    rows = []
    for host in hosts:
        way = host.inventory.connector.way(host)
        words = (host.name, _address(way), way.endpoint.user, ", ".join(host.groups))
        rows.append([Cell(word) for word in words])
    headings = [Column(heading) for heading in ("host", "address", "user", "groups")]
    return [text_of(line) for line in table(headings, rows)]


def _address(way: ConnectionSettings) -> str:
    if way.local:
        return "local"
    by = f" by way of {_shortest(way.jumps[-1])}" if way.jumps else ""
    return f"{_at(way.endpoint)}{by}" + (" by way of a ProxyCommand" if way.proxy_command else "")


def _at(endpoint: Endpoint) -> str:
    if endpoint.port == 22:
        return endpoint.address
    return (
        f"[{endpoint.address}]:{endpoint.port}"
        if ":" in endpoint.address
        else f"{endpoint.address}:{endpoint.port}"
    )


def _shortest(endpoint: Endpoint) -> str:
    return f"{endpoint.user}@{_at(endpoint)}"


def _count(hosts: list[Host], loaded: Inventory) -> str:
    groups = len({group for host in hosts for group in host.groups if group != "ungrouped"})
    of = f" of {len(loaded.hosts)}" if len(hosts) != len(loaded.hosts) else ""
    many = "host" if len(loaded.hosts) == 1 else "hosts"
    return f"{len(hosts)}{of} {many} · {groups} {'group' if groups == 1 else 'groups'}"


def _tree(loaded: Inventory, hosts: list[Host]) -> list[str]:
    """Groups with their own hosts, children below their parents, as far as they hold chosen hosts."""
    kept = {host.name for host in hosts}
    lines: list[str] = []

    def draw(name: str, indent: str) -> None:
        group = loaded.groups[name]
        lines.append(f"{indent}@{name}:")
        for child in group.children:
            inside = loaded.groups[child].hosts
            if kept.intersection(inside) or not (inside or child == "ungrouped"):
                draw(child, indent + "  ")
        in_children = {host for child in group.children for host in loaded.groups[child].hosts}
        lines.extend(
            f"{indent}  {host}" for host in group.own_hosts if host in kept and host not in in_children
        )

    draw("all", "")
    return lines


def _explanation(host: Host) -> list[str]:
    facts = explained(host)
    lines = [f"{host.name}  ({host.position})", f"groups: {', '.join(host.groups)}", "", "connection"]
    connection = facts["connection"]
    assert isinstance(connection, dict)
    lines += [
        f"  {key.replace('_', ' '):24}  {_plain(value)}"
        for key, value in connection.items()
        if value not in (None, [])
    ]
    lines += ["", "variables"]
    variables = facts["variables"]
    assert isinstance(variables, dict)
    for name, facts_of in variables.items():
        lines.append(f"  {name}: {_plain_value(facts_of['value'])}")
        lines.append(f"      from {facts_of['from']}")
        lines += [f"      instead of the one from {older}" for older in facts_of["overrides"]]
    return lines


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else _plain_value(value)


def _plain_value(value: object) -> str:
    """A value on one line, texts as they are, the rest as JSON."""
    return (
        value
        if isinstance(value, str) and "\n" not in value
        else json.dumps(value, ensure_ascii=False, default=str)
    )
