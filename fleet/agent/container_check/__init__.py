"""What the container check sees and keeps: :mod:`.seen` asks host and container, :mod:`.record` remembers.

The check itself is the resource :mod:`fleet.agent.resources.container_check`.
"""
