"""What everything else stands on: errors, secrets, identifiers, data files. Imports nothing of fleet."""
