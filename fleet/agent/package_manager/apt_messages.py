"""What apt says, read: simulations, policy, progress, and its errors turned into reasons with remedies.

Pure functions over apt's output under ``LC_ALL=C.UTF-8``; golden tests hold captured outputs.
"""

from __future__ import annotations

import re

from fleet.agent.package_manager import Transaction

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from fleet.agent.protocol import Json

    Problem = Json  # {"reason", "what", "remedy", "transient", and what the reason is about}

_INST = re.compile(r"^Inst (\S+)(?: \[([^\]]+)\])? \((\S+)")
_REMV = re.compile(r"^(?:Remv|Purg) (\S+)(?: \[([^\]]+)\])?")


def parse_simulation(text: str) -> Transaction:
    """``apt-get -s install|remove``: its Inst and Remv lines."""
    installs: List[Tuple[str, Optional[str], str]] = []
    removes: List[Tuple[str, Optional[str]]] = []
    for line in text.splitlines():
        match = _INST.match(line)
        if match:
            installs.append((match.group(1), match.group(2), match.group(3)))
            continue
        match = _REMV.match(line)
        if match:
            removes.append((match.group(1), match.group(2)))
    return Transaction(installs, removes)


def parse_policy(text: str) -> Dict[str, Json]:
    """``apt-cache policy NAME…`` -> name -> {"installed", "candidate", "versions" newest first}."""
    packages: Dict[str, Json] = {}
    current: Optional[Json] = None
    for line in text.splitlines():
        if line and not line.startswith(" ") and line.endswith(":"):
            current = packages[line[:-1]] = {"installed": None, "candidate": None, "versions": []}
        elif current is None:
            continue
        elif line.startswith("  Installed: "):
            current["installed"] = _none(line[13:])
        elif line.startswith("  Candidate: "):
            current["candidate"] = _none(line[13:])
        elif re.match(r"^ (?:\*\*\*|   ) \S", line):
            current["versions"].append(line[5:].split()[0])
    return packages


def _none(text: str) -> Optional[str]:
    return None if text.strip() == "(none)" else text.strip()


def parse_madison(text: str) -> Dict[str, List[str]]:
    """``apt-cache madison NAME…`` -> name -> versions in apt's order (newest first), each once."""
    versions: Dict[str, List[str]] = {}
    for line in text.splitlines():
        columns = [column.strip() for column in line.split("|")]
        if len(columns) == 3 and columns[2].endswith("Packages"):
            known = versions.setdefault(columns[0], [])
            if columns[1] not in known:
                known.append(columns[1])
    return versions


class Progress:
    """Turns apt's output, as it comes, into lines such as "installing docker.io (4 of 11 packages)"."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self._total = total
        self._say = say
        self._rest = ""
        self._unpacked = 0
        self._configured = 0

    def feed(self, text: str) -> None:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            words = line.split()
            if line.startswith("Get:") and len(words) > 4:
                self._say("downloading %s" % words[4])
            elif line.startswith("Unpacking ") and len(words) > 1:
                self._unpacked += 1
                self._say("unpacking %s (%s)" % (words[1], self._count(self._unpacked)))
            elif line.startswith("Setting up ") and len(words) > 2:
                self._configured += 1
                self._say("installing %s (%s)" % (words[2], self._count(self._configured)))
            elif line.startswith("Removing ") and len(words) > 1:
                self._say("removing %s" % words[1])

    def _count(self, done: int) -> str:
        return "%d of %d packages" % (min(done, self._total), self._total)


# --- errors


_LOCK = re.compile(r"Could not get lock (\S+?)\.? (?:- open|It is held by process (\d+) \(([^)]*)\))")
_UNMET = re.compile(r"^ (\S+) : (.+)$", re.MULTILINE)
_MISSING = re.compile(
    r"E: (?:Unable to locate package|Package '?([^' ]+)'? has no installation candidate)\s*(\S*)"
)
_NO_VERSION = re.compile(r"E: Version '([^']+)' for '([^']+)' was not found")
_NO_KEY = re.compile(r"(?:GPG error: )?(\S+:/\S+ \S*) .*NO_PUBKEY ([0-9A-F]+)")
_CONFLICT = re.compile(r"E: Conflicting values set for option Signed-By regarding source (\S+ \S*): (.*)")
_SIZE = re.compile(
    r"^Err:\d+ (.+?)\s*$\n(?:.*\n)??\s*(?:File has unexpected size|Hash Sum mismatch)", re.MULTILINE
)
_NOT_FOUND = re.compile(
    r"^Err:\d+ (\S+:/[^\n]+?)\s*\n\s+404\s|Failed to fetch (\S+:/\S+)\s+404\s", re.MULTILINE
)
_NETWORK = re.compile(
    r"(Temporary failure resolving '[^']+'|Could not resolve '[^']+'|Could not connect to [^\n]+"
    r"|Cannot initiate the connection to [^\n]+|Connection timed out[^\n]*|Unable to connect to [^\n]+)"
)
_TIME = re.compile(r"Release file for (\S+) is (not valid yet|expired)")
_TLS = re.compile(r"(Certificate verification failed[^\n]*|server certificate verification failed[^\n]*)")
_UNSIGNED = re.compile(
    r"The repository '([^']+)' (?:is not signed|does not have a Release file|is no longer signed)"
)
_BAD_SIGNATURE = re.compile(r"(\S+:/\S+)[^\n]*(EXPKEYSIG|BADSIG|REVKEYSIG|EXPSIG) ([0-9A-F]+)")
_NO_REPOSITORY = re.compile(
    r"^(?:Err:\d+|E: Failed to fetch) (\S+:/\S+)[^\n]*?\s+Clearsigned file isn't valid", re.MULTILINE
)
_MALFORMED = re.compile(r"E: (Malformed [^\n]+)")


def explain(text: str) -> Optional[Problem]:
    """The first known fault in apt's output, most fundamental first; None when none is recognised."""
    for recognise in (_interrupted, _lock, _sources, _keys, _update, _transaction, _room):
        problem = recognise(text)
        if problem is not None:
            return problem
    return None


def _problem(reason: str, what: str, remedy: str, transient: bool = False, **more: Any) -> Problem:
    return dict(more, reason=reason, what=what, remedy=remedy, transient=transient)


def _interrupted(text: str) -> Optional[Problem]:
    if "dpkg was interrupted" not in text:
        return None
    return _problem(
        "dpkg_interrupted",
        "an earlier package installation on this host was interrupted",
        "dpkg --configure -a",
    )


def _lock(text: str) -> Optional[Problem]:
    match = _LOCK.search(text)
    if match is None and "Unable to acquire the dpkg frontend lock" not in text:
        return None
    holder = None
    if match is not None and match.group(2):
        holder = {"pid": int(match.group(2)), "command": match.group(3)}
    who = "%(command)s (pid %(pid)d)" % holder if holder else "another process"
    return _problem(
        "lock_held",
        "the package lock is held by %s" % who,
        "wait until it has ended; do not delete the lock file",
        transient=True,
        holder=holder,
    )


def _sources(text: str) -> Optional[Problem]:
    match = _CONFLICT.search(text)
    if match is not None:
        keys = " and ".join(key.strip() or "none" for key in match.group(2).split("!="))
        return _problem(
            "signed_by_conflict",
            "two source lists give different keys for %s (%s); apt is unusable until one of them is gone"
            % (match.group(1).rstrip(":"), keys),
            "grep -rl %s /etc/apt/sources.list /etc/apt/sources.list.d  # remove all but one"
            % match.group(1).split()[0].rstrip("/"),
            repository=match.group(1),
        )
    match = _MALFORMED.search(text)
    if match is not None:
        return _problem("malformed_source", match.group(1), "correct or remove that source list")
    return None


def _keys(text: str) -> Optional[Problem]:
    match = _NO_KEY.search(text)
    if match is not None:
        repository = match.group(1).split()[0]
        return _problem(
            "no_public_key",
            "%s is signed by key %s, which this host does not trust" % (repository, match.group(2)),
            "give the repository's current key, with its fingerprint pinned, to apt_repository",
            key=match.group(2),
            repository=repository,
        )
    match = _BAD_SIGNATURE.search(text)
    if match is not None:
        return _problem(
            "bad_signature",
            "the signature of %s is not acceptable: %s by key %s"
            % (match.group(1), match.group(2), match.group(3)),
            "get the repository's current key from its publisher and pin its fingerprint",
            key=match.group(3),
            repository=match.group(1),
        )
    return None


def _update(text: str) -> Optional[Problem]:
    match = _TIME.search(text)
    if match is not None:
        return _problem(
            "release_time",
            "the release file of %s is %s" % (match.group(1), match.group(2)),
            "check this host's clock (timedatectl), then whether the mirror is kept up to date",
        )
    match = _TLS.search(text)
    if match is not None:
        return _problem(
            "tls",
            match.group(1).strip(),
            "install the authority of that server's certificate (ca-certificates), or check the host's clock",
        )
    match = _SIZE.search(text)
    if match is not None or "Mirror sync in progress" in text or "Hash Sum mismatch" in text:
        where = match.group(1) if match is not None else "a repository"
        return _problem(
            "mirror_sync",
            "%s is being changed while we read it (size or hash mismatch)" % where,
            "run again in some minutes; if it stays, ask whoever keeps the mirror",
            transient=True,
        )
    match = _NOT_FOUND.search(text)
    if match is not None:
        return _problem(
            "not_found",
            "%s is not on the server (404)" % (match.group(1) or match.group(2)),
            "check the repository's address, suite and component; if the lists are old: apt-get update",
        )
    match = _NO_REPOSITORY.search(text)
    if match is not None:
        return _problem(
            "no_repository",
            "%s answers with a page that is no repository" % match.group(1),
            "curl -s %s | head  # a proxy, a login page, or a server that has nothing for this release"
            % match.group(1),
            repository=match.group(1),
        )
    match = _NETWORK.search(text)
    if match is not None:
        return _problem(
            "network",
            match.group(1).strip(),
            "check DNS, proxy and firewall between this host and the repository",
            transient=True,
        )
    match = _UNSIGNED.search(text)
    if match is not None:
        return _problem(
            "unsigned",
            "the repository %s has no valid signed release file" % match.group(1).strip(),
            "check its address and suite, and pin its key with apt_repository",
        )
    return None


def _transaction(text: str) -> Optional[Problem]:
    if "Held packages were changed" in text:
        names = _listed(text, "The following held packages will be changed:")
        return _problem(
            "held_package",
            "these packages are on hold: %s" % ", ".join(names),
            "apt-mark unhold %s  # if the hold is not wanted any more" % " ".join(names),
            packages=names,
        )
    if "Packages were downgraded" in text:
        names = _listed(text, "The following packages will be DOWNGRADED:")
        return _problem(
            "downgrade_refused",
            "this would downgrade %s" % ", ".join(names),
            "set allow_downgrade: true if that is meant",
            packages=names,
        )
    if "unmet dependencies" in text:
        unmet = ["%s: %s" % (name, " ".join(rest.split())) for name, rest in _UNMET.findall(text)]
        return _problem(
            "unmet_dependency",
            "unmet dependencies: %s" % "; ".join(unmet),
            "name every package of the set with its version, or check which repository has the missing one",
            unmet=unmet,
        )
    match = _NO_VERSION.search(text)
    if match is not None:
        return _problem(
            "version_not_offered",
            "no repository of this host offers %s in version %s" % (match.group(2), match.group(1)),
            "apt-cache policy %s  # shows the versions there are" % match.group(2),
        )
    match = _MISSING.search(text)
    if match is not None:
        name = match.group(1) or match.group(2)
        return _problem(
            "not_offered",
            "no repository of this host offers %s" % name,
            "check the name, and that the repository that holds it is configured",
        )
    return None


def _room(text: str) -> Optional[Problem]:
    if "You don't have enough free space in" in text or "No space left on device" in text:
        return _problem(
            "no_space",
            "there is not enough room for the packages",
            "df -h /var /usr /boot ; apt-get clean",
        )
    return None


def _listed(text: str, heading: str) -> List[str]:
    """The indented names that follow one of apt's headings."""
    names: List[str] = []
    _, _, rest = text.partition(heading + "\n")
    for line in rest.splitlines():
        if not line.startswith(" "):
            break
        names += line.split()
    return names


def refresh_problem(text: str) -> Optional[Problem]:
    """What went wrong in an ``apt-get update``, which may well exit 0; None for a full success."""
    text = _without_translations(text)
    problem = explain(text)
    if problem is not None:
        return problem
    for line in text.splitlines():
        failed = line.startswith(("E: ", "W: Failed to fetch"))
        if failed or "Some index files failed to download" in line:
            return _problem(
                "refresh_failed",
                "the package lists could not be refreshed: %s" % line.strip(),
                "run apt-get update on the host and read what it says",
            )
    return None


def _without_translations(text: str) -> str:
    """``text`` less the errors for translated descriptions: newer apt tries them in every compression of a
    repository that has none, and says Err for each before it ignores them."""
    kept: List[str] = []
    dropping = False
    for line in text.splitlines():
        dropping = (dropping and line.startswith(" ")) or (
            line.startswith("Err:") and " Translation-" in line
        )
        if not dropping:
            kept.append(line)
    return "\n".join(kept) + "\n"
