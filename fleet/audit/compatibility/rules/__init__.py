"""The rules of the compatibility audit, one file per theme."""
