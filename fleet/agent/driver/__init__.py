"""NVIDIA's kernel modules on this host: what is there, why they do not build or load, who keeps them loaded.

Pure readings of what tools and the kernel say (:mod:`.build_errors`, :mod:`.kernel_log`), and what is done
about it (:mod:`.load`, :mod:`.unload`, :mod:`.services`, :mod:`.postponed`). The resources of the same
subject are ``nvidia_modules``, ``initramfs`` and ``cdi_specification``.
"""
