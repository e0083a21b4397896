"""How each host is reached: inventory variables over ssh_config, bastions resolved, secrets fetched last.

:class:`Connector` answers for one inventory. ``check`` looks at every host without touching a secret, so a
broken way is found before any host is; ``settings`` gives the finished
:class:`~fleet.core.connection.ConnectionSettings`. ``docs/inventory.md`` has the table of variables.
"""

from __future__ import annotations

import getpass
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.core.connection import Become, ConnectionSettings, Deadlines, Endpoint, HostKeyPolicy
from fleet.core.errors import InputError, Position, Problem
from fleet.core.secret import Secret
from fleet.core.template import SecretTemplate, is_template
from fleet.core.yaml import Kind, Node
from fleet.inventory.fields import TRUE_WORDS, check_value, field_of
from fleet.inventory.ssh_args import Jump, SshArgs, SshArgsError, jumps_of, jumps_of_command, parse
from fleet.inventory.ssh_config import Entry, SshConfig

if TYPE_CHECKING:
    from fleet.inventory.model import Host, Inventory

ARGS = ("ansible_ssh_common_args", "ansible_ssh_args", "ansible_ssh_extra_args")
GLOBAL_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")


class Connector:
    """Builds connection settings for the hosts of one inventory; remembers those of bastions."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.home = Path.home()
        self.local_user = getpass.getuser()
        self.ssh_config = SshConfig.load(
            inventory.options.ssh_config, home=self.home, local_user=self.local_user
        )
        self._known: dict[tuple[str, bool], ConnectionSettings] = {}
        self._open: list[str] = []
        self._lock = threading.RLock()

    def check(self, problems: list[Problem]) -> None:
        """Work out every host's way, without secrets; what is wrong is added to ``problems``."""
        for host in self.inventory.hosts.values():
            try:
                self.way(host)
            except InputError as error:
                problems += error.problems

    def way(self, host: Host) -> ConnectionSettings:
        """The settings with every password left out: no secret is fetched, no command run."""
        return self._settings(host, with_secrets=False)

    def settings(self, host: Host) -> ConnectionSettings:
        """The settings, passwords included. Raises InputError at the variable that is wrong."""
        return self._settings(host, with_secrets=True)

    def _settings(self, host: Host, *, with_secrets: bool) -> ConnectionSettings:
        key = (host.name, with_secrets)
        with self._lock:
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = self._new(host, with_secrets)
        return found

    def _new(self, host: Host, with_secrets: bool) -> ConnectionSettings:
        if host.name in self._open:
            circle = " → ".join([*self._open[self._open.index(host.name) :], host.name])
            raise InputError([Problem(host.position, f"the jump hosts form a circle: {circle}")])
        self._open.append(host.name)
        try:
            return _Way(self, host, with_secrets).settings()
        finally:
            self._open.pop()

    def expanded(self, path: str, address: str = "", user: str = "") -> Path:
        """A path with ~ and ssh's tokens (%d %h %r %u %%) filled in; relative to the inventory's folder."""
        if "%" in path:
            tokens = {"%%": "%", "%d": str(self.home), "%h": address, "%r": user, "%u": self.local_user}
            for token, text in tokens.items():
                path = path.replace(token, text)
        if path.startswith("~/"):
            return self.home / path[2:]
        return self.inventory.inventory_dir / Path(path).expanduser()


class _Way:
    """Reads one host's variables into settings."""

    def __init__(self, connector: Connector, host: Host, with_secrets: bool) -> None:
        self.connector = connector
        self.host = host
        self.with_secrets = with_secrets
        self.variables = host.variables

    def settings(self) -> ConnectionSettings:
        self._refuse_unchecked_keys()
        args = self._args()
        address = self._text("ansible_host", "ansible_ssh_host")
        user = self._text("ansible_user", "ansible_ssh_user") or args.options.get("user")
        names = (self.host.name,) if address is None else (self.host.name, address)
        entry = self.connector.ssh_config.entry(*names, user=user)
        endpoint = self._endpoint(args, entry, address or entry.hostname or self.host.name, user)
        local = self._text("ansible_connection") == "local"
        jumps, command = ((), None) if local else self._jumps(args, entry, endpoint)
        python = self._text("ansible_python_interpreter")
        return ConnectionSettings(
            name=self.host.name,
            endpoint=endpoint,
            jumps=jumps,
            proxy_command=command,
            become=self._become(),
            python=None
            if python in (None, "auto", "auto_silent", "auto_legacy", "auto_legacy_silent")
            else python,
            deadlines=self._deadlines(args, entry),
            local=local,
        )

    def _endpoint(self, args: SshArgs, entry: Entry, address: str, user: str | None) -> Endpoint:
        user = user or entry.user or self.connector.local_user
        key = self._text("ansible_ssh_private_key_file", "ansible_private_key_file")
        keys = ([key] if key else []) + args.identity_files + list(entry.identity_files)
        only = args.options.get("identitiesonly")
        return Endpoint(
            address=address,
            port=self._port(args) or entry.port or 22,
            user=user,
            password=self._secret("ansible_password", "ansible_ssh_pass", "ansible_ssh_password"),
            key_files=tuple(dict.fromkeys(self.connector.expanded(path, address, user) for path in keys)),
            identities_only=(only.lower() == "yes") if only else bool(entry.identities_only),
            known_hosts=self._known_hosts(args, entry),
            host_key_policy=self._policy(args, entry),
            host_key_alias=args.options.get("hostkeyalias") or entry.host_key_alias,
        )

    def _port(self, args: SshArgs) -> int | None:
        text = self._text("ansible_port", "ansible_ssh_port") or args.options.get("port")
        if text is None:
            return None
        if not text.isdigit() or not 1 <= int(text) <= 65535:
            raise self._args_error(SshArgsError(f'the port must be a number from 1 to 65535, not "{text}"'))
        return int(text)

    def _known_hosts(self, args: SshArgs, entry: Entry) -> tuple[Path, ...]:
        given = self._value("fleet_known_hosts")
        if isinstance(given, (list, tuple)):
            paths = [str(path) for path in given]
        elif given is not None:
            paths = [str(given)]
        elif "userknownhostsfile" in args.options:
            paths = args.options["userknownhostsfile"].split()
        else:
            paths = [path for path in entry.known_hosts if path != "/dev/null"]
        usual = [self.connector.home / ".ssh" / "known_hosts"]
        return (*([self.connector.expanded(path) for path in paths] or usual), GLOBAL_KNOWN_HOSTS)

    def _policy(self, args: SshArgs, entry: Entry) -> HostKeyPolicy:
        if self.connector.inventory.options.accept_new:
            return HostKeyPolicy.ACCEPT_NEW
        said = args.options.get("stricthostkeychecking") or entry.strict or ""
        # "no" in ssh_config is not followed: the user may want it for other hosts, and fleet asks to be told.
        return HostKeyPolicy.ACCEPT_NEW if said.lower() == "accept-new" else HostKeyPolicy.STRICT

    def _deadlines(self, args: SshArgs, entry: Entry) -> Deadlines:
        text = self._text("fleet_connect_timeout", "ansible_ssh_timeout", "ansible_timeout")
        text = text or args.options.get("connecttimeout")
        if text is None:
            return Deadlines() if entry.connect_timeout is None else Deadlines(connect=entry.connect_timeout)
        try:
            return Deadlines(connect=float(text))
        except ValueError:
            raise self._args_error(SshArgsError(f'ConnectTimeout must be seconds, not "{text}"')) from None

    def _become(self) -> Become:
        self._text("ansible_become_method")
        fallback = self.connector.inventory.options.become_password if self.with_secrets else None
        password = self._secret("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass")
        return Become(
            enabled=self._bool("ansible_become"),
            user=self._text("ansible_become_user") or "root",
            password=password or fallback,
        )

    # --- bastions -------------------------------------------------------------------------------------

    def _jumps(
        self, args: SshArgs, entry: Entry, endpoint: Endpoint
    ) -> tuple[tuple[Endpoint, ...], str | None]:
        """The bastions on the way, or a command that makes the connection."""
        try:
            jumps, command = self._written_jumps(args, entry)
            passed = self._passed(jumps, endpoint)
        except SshArgsError as error:
            raise self._args_error(error) from None
        # A bastion in the inventory often inherits "jump over the bastion": its own way ends before it.
        for index, jump in enumerate(passed):
            if (jump.address, jump.port) == (endpoint.address, endpoint.port):
                return passed[:index], None
        return passed, command

    def _written_jumps(self, args: SshArgs, entry: Entry) -> tuple[tuple[Jump, ...], str | None]:
        given = self._value("fleet_jump")
        if given is not None:
            texts = given if isinstance(given, (list, tuple)) else [given]
            return _unless_none(",".join(str(_revealed(text)) for text in texts)), None
        for jump, command in (
            (args.options.get("proxyjump"), args.options.get("proxycommand")),
            (entry.proxy_jump, entry.proxy_command),
        ):
            if jump is not None:
                return _unless_none(jump), None
            if command is not None:
                understood = jumps_of_command(command)
                if understood is not None:
                    return understood, None
                return (), None if command.strip().lower() == "none" else command
        return (), None

    def _passed(self, jumps: tuple[Jump, ...], endpoint: Endpoint) -> tuple[Endpoint, ...]:
        """Endpoints in the order passed; only the first bastion's own bastions are asked for, as ssh does."""
        passed: list[Endpoint] = []
        for index, jump in enumerate(jumps):
            way = self._bastion(jump, endpoint, (self.host.name,))
            passed += way if index == 0 else way[-1:]
        return tuple(passed)

    def _bastion(self, jump: Jump, endpoint: Endpoint, seen: tuple[str, ...]) -> list[Endpoint]:
        """The bastion, behind those needed to reach it: a host of the inventory, or one of ssh_config."""
        if jump.host == self.host.name:
            return [replace(endpoint, user=jump.user or endpoint.user, port=jump.port or endpoint.port)]
        if jump.host in self.connector.inventory.hosts:
            host = self.connector.inventory.hosts[jump.host]
            found = self.connector.settings(host) if self.with_secrets else self.connector.way(host)
            if found.proxy_command is not None:
                raise SshArgsError(f"the bastion {host.name} needs a ProxyCommand ({found.proxy_command})")
            last = replace(
                found.endpoint, user=jump.user or found.endpoint.user, port=jump.port or found.endpoint.port
            )
            return [*found.jumps, last]
        if jump.host in seen:
            circle = " → ".join([*seen[seen.index(jump.host) :], jump.host])
            raise InputError([Problem(self.host.position, f"the jump hosts form a circle: {circle}")])
        entry = self.connector.ssh_config.entry(jump.host, user=jump.user)
        before: list[Endpoint] = []
        outers = _proxy_of(entry)
        if (
            outers and outers[-1].host == jump.host
        ):  # "Host *" with ProxyJump covers the bastion too; ssh skips it
            outers = ()
        for index, outer in enumerate(outers):
            way = self._bastion(outer, endpoint, (*seen, jump.host))
            before += way if index == 0 else way[-1:]
        return [*before, self._outside(jump, entry, endpoint)]

    def _outside(self, jump: Jump, entry: Entry, endpoint: Endpoint) -> Endpoint:
        """A bastion that is not in the inventory. It is offered the host's own keys where it has none."""
        address = entry.hostname or jump.host
        user = jump.user or entry.user or self.connector.local_user
        keys = [*jump.identity_files, *entry.identity_files]
        return Endpoint(
            address=address,
            port=jump.port or entry.port or 22,
            user=user,
            key_files=tuple(self.connector.expanded(key, address, user) for key in keys)
            or endpoint.key_files,
            identities_only=bool(entry.identities_only),
            known_hosts=endpoint.known_hosts,
            host_key_policy=endpoint.host_key_policy,
            host_key_alias=entry.host_key_alias,
        )

    # --- variables ------------------------------------------------------------------------------------

    def _args(self) -> SshArgs:
        """All arguments of ssh that the inventory gives, joined."""
        texts = [text for text in map(self._text, ARGS) if text]
        if not texts:
            return _NO_ARGS
        try:
            return parse(" ".join(texts))
        except SshArgsError as error:
            raise self._args_error(error) from None

    def _args_error(self, error: SshArgsError) -> InputError:
        """The error at the variable that holds the arguments (or names the bastion)."""
        name = next((name for name in ("fleet_jump", *ARGS) if self.variables.get(name) is not None), None)
        message = f"{name}: {error}" if name else f"ssh_config: {error}"
        if error.remedy:
            message += f"; {error.remedy}"
        return InputError([Problem(self._position(name) if name else self.host.position, message)])

    def _refuse_unchecked_keys(self) -> None:
        for name in ("ansible_host_key_checking", "ansible_ssh_host_key_checking"):
            if name in self.variables and not self._bool(name):
                message = (
                    f"{name}: host keys are always checked; to pin new ones on first use give --accept-new"
                )
                raise InputError([Problem(self._position(name), message)])

    def _position(self, name: str) -> Position | None:
        return self.host.origin(name).position

    def _value(self, *names: str) -> object:
        """The first of the variables that is set, rendered and checked; None if none is."""
        for name in names:
            if name not in self.variables:
                continue
            raw = self.variables[name]
            if raw is None:
                continue
            if (
                is_template(raw)
                or isinstance(raw, SecretTemplate)
                or not isinstance(raw, (str, int, bool, float))
            ):
                value = self.host.templar.render(raw, self._position(name))
                self._check(name, value)
            else:
                value = raw
                if name in self.connector.inventory.options.extra_vars:
                    self._check(name, value)
            if value is not None:
                return value
        return None

    def _check(self, name: str, value: object) -> None:
        """Check a rendered value against the table of fields."""
        known = field_of(name)
        if known is None or isinstance(value, (list, dict)):
            return
        plain = _revealed(value)
        node = Node(_KINDS.get(type(plain), Kind.TEXT), "", 1, 1, str(plain), plain)
        problems: list[Problem] = []
        check_value(name, known.type, node, problems)
        if problems:
            message = problems[0].message
            if isinstance(value, Secret):
                message = (
                    f"{name} must be {known.type.value}; the secret it is taken from holds something else"
                )
            raise InputError([Problem(self._position(name), message)])

    def _text(self, *names: str) -> str | None:
        value = _revealed(self._value(*names))
        return None if value is None else str(value)

    def _bool(self, name: str) -> bool:
        value = _revealed(self._value(name))
        return value.lower() in TRUE_WORDS if isinstance(value, str) else bool(value)

    def _secret(self, *names: str) -> Secret | None:
        if not self.with_secrets:
            return None
        value = self._value(*names)
        if value is None or isinstance(value, Secret):
            return value
        return Secret(str(value), names[0])


_NO_ARGS = SshArgs()
_KINDS: dict[type, Kind] = {bool: Kind.BOOL, int: Kind.INT, float: Kind.FLOAT, type(None): Kind.NULL}


def _revealed(value: object) -> object:
    """Text of a field that is not a secret, though it may come from an encrypted file."""
    return value.reveal() if isinstance(value, Secret) else value


def _unless_none(text: str) -> tuple[Jump, ...]:
    return () if text.strip().lower() in ("none", "") else jumps_of(text)


def _proxy_of(entry: Entry) -> tuple[Jump, ...]:
    if entry.proxy_jump is not None:
        return _unless_none(entry.proxy_jump)
    if entry.proxy_command is not None:
        understood = jumps_of_command(entry.proxy_command)
        if understood is not None:
            return understood
        if entry.proxy_command.strip().lower() != "none":
            raise SshArgsError(f"a bastion that needs a ProxyCommand of its own ({entry.proxy_command})")
    return ()
