"""Facts of the world as data: GPUs, drivers, CUDA, operating systems, Docker, the container toolkit.

The facts are YAML files in ``data/``, each entry with its source and whether it was verified. Importing this
package reads nothing. :func:`fleet.catalogue.catalogue.load` gives the whole, with a site's own entries laid
over it; the typed look-ups are in the module named after each file. ``fleet catalogue check`` runs
:mod:`fleet.catalogue.lint`.
"""
