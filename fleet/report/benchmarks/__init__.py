"""What ``fleet bench`` shows: one model, told as a table and as a JSON document.

:class:`~fleet.report.benchmarks.benched.Benched` is the model; ``table.py`` and ``document.py`` tell the same of it.
"""
