"""The whole catalogue: typed tables, each built when first asked for; a site's own entries laid over.

:func:`load` is the way in. Next: :mod:`fleet.catalogue.gpus`, :mod:`~fleet.catalogue.drivers`,
:mod:`~fleet.catalogue.cuda`, :mod:`~fleet.catalogue.torch`, :mod:`~fleet.catalogue.images`,
:mod:`~fleet.catalogue.operating_systems`, :mod:`~fleet.catalogue.xids`.
"""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.catalogue.entries import Files, read_overlay

if TYPE_CHECKING:
    from fleet.catalogue.advisories import Advisories
    from fleet.catalogue.cuda import Cuda
    from fleet.catalogue.cudnn import Cudnn
    from fleet.catalogue.drivers import Drivers
    from fleet.catalogue.gpus import Architecture, Gpus
    from fleet.catalogue.images import Images
    from fleet.catalogue.operating_systems import Systems
    from fleet.catalogue.runtimes import Runtimes
    from fleet.catalogue.torch import TorchBuilds
    from fleet.catalogue.xids import Xids


class Catalogue:
    """Everything known. ``files`` gives the entries as they stand, with their provenance."""

    def __init__(self, files: Files) -> None:
        self.files = files

    @cached_property
    def gpus(self) -> Gpus:
        """GPUs and architectures."""
        from fleet.catalogue.gpus import Gpus

        return Gpus(self.files)

    @cached_property
    def drivers(self) -> Drivers:
        """Branches of the driver."""
        from fleet.catalogue.drivers import Drivers

        return Drivers(self.files)

    @cached_property
    def cuda(self) -> Cuda:
        """CUDA toolkits."""
        from fleet.catalogue.cuda import Cuda

        return Cuda(self.files)

    @cached_property
    def advisories(self) -> Advisories:
        """Weaknesses of what runs containers."""
        from fleet.catalogue.advisories import Advisories

        return Advisories(self.files)

    @cached_property
    def cudnn(self) -> Cudnn:
        """Which GPUs a cuDNN has code for."""
        from fleet.catalogue.cudnn import Cudnn

        return Cudnn(self.files)

    @cached_property
    def runtimes(self) -> Runtimes:
        """Branches of the engine, containerd and runc."""
        from fleet.catalogue.runtimes import Runtimes

        return Runtimes(self.files)

    @cached_property
    def torch(self) -> TorchBuilds:
        """Builds of torch."""
        from fleet.catalogue.torch import TorchBuilds

        return TorchBuilds(self.files)

    @cached_property
    def images(self) -> Images:
        """Images of containers."""
        from fleet.catalogue.images import Images

        return Images(self.files, self.torch)

    @cached_property
    def systems(self) -> Systems:
        """Distributions and releases."""
        from fleet.catalogue.operating_systems import Systems

        return Systems(self.files)

    @cached_property
    def xids(self) -> Xids:
        """Codes of errors in the kernel log: Xids, SXids, recovery actions."""
        from fleet.catalogue.xids import Xids

        return Xids(self.files)

    def architectures_of(self, branch: int) -> list[Architecture]:
        """The architectures that a branch of the driver knows, oldest first."""
        from fleet.catalogue.gpus import architectures_of

        return architectures_of(self.gpus.architectures.values(), branch)


@cache
def load(overlay: Path | None = None) -> Catalogue:
    """The shipped catalogue, with a site's directory laid over it.

    Raises InputError naming file, entry and position of everything wrong in the site's files.
    """
    if overlay is None:
        return Catalogue(Files())
    from fleet.catalogue.lint import check

    files = Files(read_overlay(overlay))
    check(files)
    return Catalogue(files)
