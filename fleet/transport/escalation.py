"""What sudo said, and what to do about it: sudo's and sudo-rs's words to clear errors. Pure."""

from __future__ import annotations

from fleet.core.errors import BecomeFailed
from fleet.transport.text import last_words

# (one of these in sudo's words, what it means, what to do about it). The first that fits is taken.
_REASONS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("not in the sudoers file", "is not allowed to", "may not run sudo", "i'm afraid i can't do that"),
        "sudo does not permit it to this user",
        "add the user to sudoers on the host (usermod -aG sudo USER), or log in as root",
    ),
    (
        ("no new privileges",),
        "the no_new_privs flag is set there, so sudo cannot work",
        "start sshd outside that container or unit restriction (NoNewPrivileges=), or log in as root",
    ),
    (
        ("must have a tty", "no tty present"),
        "sudo there demands a terminal (requiretty)",
        "put 'Defaults:USER !requiretty' into sudoers on the host",
    ),
    (
        ("nosuid", "must be owned by uid 0", "effective uid is not 0", "setuid root"),
        "sudo is damaged there (not set-user-id root, or on a nosuid file system)",
        "repair its owner and mode on the host: chown root:root, chmod 4755",
    ),
    (
        ("unknown user", "user not found"),
        "the user to become does not exist there",
        "check ansible_become_user",
    ),
    (
        ("account validation failure", "account has expired", "password expired", "is your account locked"),
        "PAM refuses the account (expired or locked)",
        "renew the account's password on the host (chage -l USER shows its state)",
    ),
    (
        ("syntax error", "parse error", "unable to open /etc/sudoers"),
        "the sudoers file is damaged there",
        "repair it on the host with visudo -c",
    ),
)


def no_sudo() -> BecomeFailed:
    """There is no sudo on the host."""
    return BecomeFailed("there is no sudo", remedy="install sudo on the host, or log in as root")


def password_needed(user: str) -> BecomeFailed:
    """sudo asks and we have nothing to say."""
    return BecomeFailed(
        f"sudo needs a password to become {user}", remedy="give it with -K or ansible_become_password"
    )


def wrong_password(user: str) -> BecomeFailed:
    """sudo asked again; we do not, accounts get locked for that."""
    return BecomeFailed(
        f"sudo did not accept the password to become {user} (it was sent once)",
        remedy="correct ansible_become_password or what is typed for -K",
    )


def explain(words: bytes) -> BecomeFailed | None:
    """The reason in sudo's standard error, or None if it gives none that is known."""
    text = words.decode("utf-8", "replace").lower().replace("\u2019", "'")
    for signs, meaning, remedy in _REASONS:
        if any(sign in text for sign in signs):
            return BecomeFailed(f"{meaning} (sudo said: {last_words(words, 1)})", remedy=remedy)
    if "sudo:" in text:
        return BecomeFailed(
            f"sudo failed: {last_words(words, 2)}", remedy="run sudo -v as that user on the host"
        )
    return None
