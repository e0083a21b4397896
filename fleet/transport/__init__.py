"""How the controller reaches the agent: SSH by Fabric, one exec per connection, JSON lines.

:class:`Connector` opens connections, :class:`AgentConnection` is one of them; nothing else of this
package is needed outside. Read :mod:`fleet.transport.connector` (what happens in order), then
:mod:`fleet.transport.ssh` (host keys, bastions, authentication), :mod:`fleet.transport.bootstrap`
(shell, sudo, Python, ready marker) and :mod:`fleet.transport.agent_connection` (the protocol client).
docs/security.md and docs/decisions/0002-transport.md say why it is so.
"""

from fleet.transport.agent_connection import AgentConnection
from fleet.transport.bundle import Bundle
from fleet.transport.connector import Connector

__all__ = ["AgentConnection", "Bundle", "Connector"]
