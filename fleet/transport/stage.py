"""The one command line that starts the agent, whatever the login shell is.

``exec /bin/sh -c '…' …``: every shell passes single-quoted words on unchanged as long as they hold no
single quote, no newline, no backslash (fish), no ``!`` and no backtick (csh), so the scripts here have
none. ``sh`` (through sudo, if asked) tries one Python after the other until one can run the stage; an
unfit one leaves with exit code 97 before it has read anything. The stage travels compressed, as a
word of base64. Everything it says carries a nonce that the command line holds only in parts, so no
echo of the command line, message of the day or profile noise is taken for it. docs/protocol.md
describes the conversation.
"""

from __future__ import annotations

import base64
import shlex
import zlib
from collections.abc import Sequence

from fleet.transport.bundle import Bundle

STAGE_LIMIT = 1536

# What the agent needs of the standard library and a minimal Python may lack (python3-minimal does).
NEEDED = (
    "json hashlib zipimport struct socket select selectors signal subprocess shutil tempfile "
    "threading base64 fcntl pwd grp http urllib"
)

# Runs on any Python from 2.7 far enough to say that it is too old. sys.argv: -c, this, nonce, sha256,
# size.
STAGE = f"""\
import sys,os
a=sys.argv;v=sys.version_info
def say(w):os.write(1,("\\nFLEET-"+w+"\\n").encode())
def no(w):
 say("PYTHON-%s %s %d.%d.%d %s"%(a[2],w,v[0],v[1],v[2],sys.executable));sys.exit(97)
if v<(3,9):no("old")
m=[x for x in "{NEEDED}".split() if not any(f.find_spec(x,None) for f in sys.meta_path)]
if m:no("lacks:"+",".join(m))
d=os.environ.get("FLEET_AGENT_STATE_DIR","/var/lib/fleet")+"/agent/"+a[3]
h=os.path.isfile(d+"/fleet/agent/session.py");b=None
say("READY-%s %d"%(a[2],h))
if not h:
 import hashlib
 n=int(a[4]);b=bytearray()
 while len(b)<n:
  c=os.read(0,min(n-len(b),1<<20))
  if not c:sys.exit(0)
  b+=c
 b=bytes(b)
 if hashlib.sha256(b).hexdigest()!=a[3]:say("DAMAGED-"+a[2]);sys.exit(0)
 f=os.memfd_create("fleet");o=0
 while o<n:o+=os.write(f,b[o:])
 d="/proc/self/fd/%d"%f
sys.path.insert(0,d)
from fleet.agent import session
session.main(["--bundle",a[3]],b)
"""

PATHS = (
    "LC_ALL=C.UTF-8; export LC_ALL; "
    "PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export PATH; "
)

# $1 nonce, $2 stage, $3 interpreter or -, then the stage's arguments.
FINDER = (
    PATHS + "n=$1 s=$2 g=$3; shift 3; "
    '[ "$g" = - ] && g=python3,python3.13,python3.12,python3.11,python3.10,python3.9,'
    "/usr/libexec/platform-python; IFS=,; "
    'for p in $g; do p=$(command -v "$p") || continue; '
    '"$p" -I -S -c "import sys,zlib,binascii;exec(zlib.decompress(binascii.a2b_base64(sys.argv[1])))" '
    '"$s" "$n" "$@"; [ $? = 97 ] || exit 0; done; '
    "[ -r /etc/os-release ] && . /etc/os-release; "
    'echo; echo "FLEET-NOPYTHON-$n ${ID:-unknown} ${ID_LIKE:-}"'
)

# $1 nonce, $2 user, $3 script to run as that user, then its arguments.
ESCALATE = (
    PATHS + "n=$1 u=$2 s=$3; shift 3; "
    'command -v sudo >/dev/null 2>&1 || { echo; echo "FLEET-NOSUDO-$n"; exit 0; }; '
    'exec sudo -S -p "FLEET-SUDO-$n: " -H -u "$u" /bin/sh -c "$s" fleet "$n" "$@"'
)

# $1 nonce, $2 the distribution's command.
INSTALL = (
    PATHS + "DEBIAN_FRONTEND=noninteractive; export DEBIAN_FRONTEND; $2 </dev/null 1>&2; status=$?; echo; "
)
INSTALL += 'echo "FLEET-INSTALLED-$1 $status"'


def session_command(nonce: str, bundle: Bundle, *, python: str | None, become: str | None) -> str:
    """The line that finds a Python and starts the agent's session, as user ``become`` if given."""
    stage = base64.b64encode(zlib.compress(STAGE.encode(), 9)).decode()
    return _line(FINDER, nonce, [stage, python or "-", bundle.sha256, str(len(bundle.data))], become)


def install_command(nonce: str, command: str, *, become: str | None) -> str:
    """The line that runs ``command``, the distribution's way to install Python."""
    return _line(INSTALL, nonce, [command], become)


def _line(script: str, nonce: str, words: Sequence[str], become: str | None) -> str:
    start = [ESCALATE, "fleet", nonce, become, script] if become else [script, "fleet", nonce]
    return "exec /bin/sh -c " + " ".join(_quote(word) for word in [*start, *words])


def _quote(word: str) -> str:
    """``word`` in single quotes, or as it is if it is plain; what no quoting carries through is refused."""
    if any(char in word for char in "'\n\\!`"):
        raise ValueError(f"this cannot be passed through every login shell: {word!r}")
    quoted = shlex.quote(word)
    return quoted if quoted.startswith("'") or quoted == word else f"'{word}'"
