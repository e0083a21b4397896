"""A user is there with these properties, or is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.core.secret import Secret
from fleet.modules.base import Answers, Argument, ArgumentProblem, Context, Facts, Json, given

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

ARGUMENTS = {
    "name": Argument("plain", required=True, description="the login name"),
    "uid": Argument("integer", description="the number"),
    "groups": Argument("list", description="supplementary groups"),
    "append": Argument("boolean", default=True, description="keep other groups the user is in"),
    "shell": Argument("path", description="the login shell"),
    "home": Argument("path", description="the home directory"),
    "create_home": Argument("boolean", default=True, aliases=("createhome",)),
    "system": Argument("boolean", default=False, description="take a number of the system range"),
    "password": Argument(description="the password's crypt(5) hash; a secret"),
    "state": Argument(default="present", choices=("present", "absent")),
    "generate_ssh_key": Argument(refused="make the key where it is used and copy: the public part"),
    "remove": Argument(refused="fleet does not delete home directories; write file: state: absent for it"),
    "update_password": Argument(
        refused="the hash given is the hash wanted; leave password: out to keep the old one"
    ),
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """A password in plain text is refused: it must be a hash."""
    password = args.get("password")
    if isinstance(password, str) and "{{" not in password and not password.startswith(("$", "!", "*")):
        message = (
            "password must be a crypt hash ($6$…), not the password itself; make one with: openssl passwd -6"
        )
        return [ArgumentProblem(message, "password")]
    return []


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``user`` step; the hash travels as a secret."""
    wanted = given(args, ("name", "uid", "groups", "shell", "home", "create_home", "system", "state"))
    if args.get("groups") is not None:
        wanted["append"] = args["append"]
    password = args.get("password")
    if password is not None:
        named = f"password hash of user {args['name']}"
        secret = password if isinstance(password, Secret) else Secret(str(password), named)
        wanted["password_hash"] = secret
    return [context.step("user", "user", wanted)]
