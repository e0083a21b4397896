"""The words of a playbook: which keys plays, tasks and blocks take, and what to write instead of others."""

from __future__ import annotations

PLAY_KEYS = (
    "name", "hosts", "defaults", "vars", "vars_files", "tasks", "pre_tasks", "post_tasks", "handlers",
    "serial", "max_fail_percentage", "any_errors_fatal", "tags", "become", "become_user", "gather_facts",
)  # fmt: skip
TASK_KEYS = (
    "name", "args", "when", "loop", "loop_control", "notify", "tags", "become", "become_user", "register",
    "ignore_errors", "vars", "timeout", "changed_when", "listen",
)  # fmt: skip
BLOCK_KEYS = ("name", "block", "when", "tags", "become", "become_user", "vars", "ignore_errors", "notify")
LOOP_CONTROL_KEYS = ("loop_var", "index_var", "label")

# Keys of Ansible that fleet does not take, and why or what to write.
REFUSED = {
    "always": "only block: is supported; a step that failed is converged by the next run",
    "async": "every step already survives a lost connection",
    "become_method": "root is had by sudo, once per connection",
    "check_mode": "run the whole playbook with --check",
    "collections": "modules are fleet's own; leave it out",
    "connection": "how a host is reached stands in the inventory",
    "delay": "write a command that waits for its condition, with timeout:",
    "delegate_to": "a task runs on its own host; write a play for the other host",
    "diff": "run the whole playbook with --diff",
    "environment": "write env: in command: or shell:",
    "failed_when": "write exit_codes: in command:, or assert: on the registered result",
    "force_handlers": "notifications that were not handled are kept on the host for the next run",
    "ignore_unreachable": "an unreachable host costs that host only",
    "import_playbook": "write the plays in one file",
    "local_action": "a task runs on its host",
    "module_defaults": "write the arguments in each task",
    "no_log": "mark the value as a secret (!secret, !vault) where it is loaded; it is then never shown",
    "poll": "every step already survives a lost connection",
    "port": "how a host is reached stands in the inventory",
    "remote_user": "how a host is reached stands in the inventory",
    "rescue": "only block: is supported; a step that failed is converged by the next run",
    "retries": "write a command that waits for its condition, with timeout:",
    "roles": "write the tasks in the playbook",
    "run_once": "write a play with hosts: first_host",
    "strategy": "hosts never wait for each other, but for serial:",
    "throttle": "write serial:",
    "until": "write a command that waits for its condition, with timeout:",
    "vars_prompt": "write the variable as !secret prompt in the inventory",
    "with_dict": "write loop: with the items filter: {{ a | items }}",
    "with_fileglob": "write loop: with the names",
    "with_first_found": "write the name",
    "with_items": "write loop:",
    "with_list": "write loop:",
    "with_nested": "write loop: with the list wanted",
    "with_sequence": "write loop: {{ range(1, 10) | list }}",
}
