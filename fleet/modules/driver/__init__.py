"""What ``nvidia_driver`` is made of, by the question each part answers.

Which driver serves these cards (:mod:`.gpus`), which packages in which versions make it (:mod:`.packages`), who would
have to go for it (:mod:`.leave`), what is to be done (:mod:`.steps`), and what of a driver that somebody else
installed (:mod:`.preinstalled`). The module itself is :mod:`fleet.modules.nvidia_driver`.
"""
