"""What is in the simulated packages: files by path, and maintainer scripts. Names: :mod:`.packages`."""

from __future__ import annotations

from pathlib import Path

from fleet.lab.simulation.deb import Entry

_HOST = Path(__file__).parent / "host"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_UNITS = "lib/systemd/system"
_BUILTIN = (
    "overlay", "bridge", "br_netfilter", "veth", "loop", "ip_tables", "iptable_nat", "iptable_filter",
    "nf_nat", "nf_tables", "xt_conntrack", "configfs", "fuse", "ib_umad", "dm_mod", "tun",
)  # fmt: skip

Files = dict[str, Entry]


def _text(text: str, mode: int = 0o644) -> Entry:
    return Entry(text.encode(), mode)


def program(name: str, version: str = "") -> Entry:
    """A program of ``host/``, with ``@VERSION@`` replaced."""
    return _text((_HOST / name).read_text().replace("@VERSION@", version), 0o755)


def _library(name: str, driver: str, native: Path) -> Files:
    return {
        f"{_LIBRARIES}/{name}.so.{driver}": Entry((native / f"{name}.so.1").read_bytes()),
        f"{_LIBRARIES}/{name}.so.1": Entry(link=f"{name}.so.{driver}"),
    }


def nvml(driver: str, native: Path) -> Files:
    """The management library of ``driver``."""
    return _library("libnvidia-ml", driver, native)


def cuda(driver: str, native: Path) -> Files:
    """The driver library, which finds no device."""
    return _library("libcuda", driver, native)


def smi(native: Path) -> Files:
    """nvidia-smi."""
    return {"usr/bin/nvidia-smi": Entry((native / "nvidia-smi").read_bytes(), 0o755)}


def modprobe() -> Files:
    """nvidia-modprobe, which loads what it is asked for."""
    script = (
        '#!/bin/sh\nmodprobe nvidia || exit 1\nfor word in "$@"; do\n'
        "    case $word in -u) modprobe nvidia-uvm ;; esac\ndone\n"
    )
    return {"usr/bin/nvidia-modprobe": _text(script, 0o755)}


def _unit(description: str, command: str) -> Entry:
    return _text(
        f"[Unit]\nDescription={description}\nAfter=fleet-lab-modules.service\n\n"
        f"[Service]\nType=notify\nNotifyAccess=all\nExecStart={command}\n\n[Install]\nWantedBy=multi-user.target\n"
    )


def _daemon(name: str, driver: str, native: Path) -> Files:
    """A program that has the device files open, and the script with what it does beside."""
    return {
        f"usr/bin/{name}": Entry((native / "daemon").read_bytes(), 0o755),
        f"usr/lib/fleet-lab-gpu/daemons/{name}": program(name, driver),
    }


def persistenced(driver: str, native: Path) -> Files:
    """The persistence daemon and its unit."""
    return {
        **_daemon("nvidia-persistenced", driver, native),
        f"{_UNITS}/nvidia-persistenced.service": _unit(
            "NVIDIA Persistence Daemon", "/usr/bin/nvidia-persistenced --verbose"
        ),
    }


def fabric_manager(driver: str, native: Path) -> Files:
    """The fabric manager, its unit and its configuration."""
    configuration = "usr/share/nvidia/nvswitch/fabricmanager.cfg"
    return {
        **_daemon("nv-fabricmanager", driver, native),
        f"{_UNITS}/nvidia-fabricmanager.service": _unit(
            "NVIDIA fabric manager service", f"/usr/bin/nv-fabricmanager -c /{configuration}"
        ),
        configuration: _text("LOG_LEVEL=4\nFABRIC_MODE=0\nDAEMONIZE=1\n"),
    }


def service_scripts(unit: str, *, start: bool) -> dict[str, str]:
    """Maintainer scripts of a package with a service; ``start``: enabled and started on installation."""
    begin = f"deb-systemd-helper enable {unit} >/dev/null || true\n" if start else ""
    action = "restart" if start else "try-restart"
    running = "if [ -d /run/systemd/system ]; then\n    systemctl --system daemon-reload >/dev/null || true\n"
    return {
        "postinst": f'[ "$1" = configure ] || exit 0\n{begin}{running}'
        f"    deb-systemd-invoke {action} {unit} >/dev/null || true\nfi\n",
        "prerm": f'if [ "$1" = remove ] && [ -d /run/systemd/system ]; then\n'
        f"    deb-systemd-invoke stop {unit} >/dev/null || true\nfi\n",
        "postrm": f"{running}fi\n"
        f'if [ "$1" = purge ]; then\n    deb-systemd-helper purge {unit} >/dev/null || true\nfi\n',
    }


def kernel_common() -> Files:
    """What goes with any flavour of the modules: nouveau is kept away."""
    return {
        "etc/modprobe.d/nvidia.conf": _text(
            "# Installed by the NVIDIA driver packages.\nblacklist nouveau\nblacklist nova_core\n"
            "options nvidia NVreg_PreserveVideoMemoryAllocations=0\n"
        )
    }


def initramfs_scripts() -> dict[str, str]:
    """Renew the initramfs, so that what is in modprobe.d counts at the next boot."""
    renew = "if command -v update-initramfs >/dev/null; then update-initramfs -u; fi\n"
    return {
        "postinst": f'[ "$1" = configure ] || exit 0\n{renew}',
        "postrm": f"case $1 in remove|purge) ;; *) exit 0 ;; esac\n{renew}",
    }


def firmware(driver: str) -> Files:
    """Firmware of the GPU system processor."""
    return {f"lib/firmware/nvidia/{driver}/gsp_ga10x.bin": _text("simulated\n")}


def dkms_source(driver: str, flavour: str) -> Files:
    """``/usr/src/nvidia-VERSION``: what the stand-in dkms turns into modules."""
    folder = f"usr/src/nvidia-{driver}"
    license_name = "Dual MIT/GPL" if flavour == "open" else "NVIDIA"
    modules = [("nvidia", ""), ("nvidia-uvm", "nvidia"), ("nvidia-modeset", "nvidia"),
               ("nvidia-drm", "nvidia-modeset"), ("nvidia-peermem", "nvidia")]  # fmt: skip
    files = {
        f"{folder}/dkms.conf": _text(
            f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{driver}"\nAUTOINSTALL="yes"\n'
        )
    }
    for name, depends in modules:
        files[f"{folder}/{name}.module"] = _text(
            f"version={driver}\nflavour={flavour}\nlicense={license_name}\ndepends={depends}\n"
        )
    return files


def dkms_scripts(driver: str) -> dict[str, str]:
    """Build for every kernel that has headers; a kernel without them is passed over, as dkms does."""
    return {
        "postinst": f"""\
[ "$1" = configure ] || exit 0
echo "Loading new nvidia-{driver} DKMS files..."
dkms add -m nvidia -v {driver}
running=$(uname -r)
for folder in /lib/modules/*; do
    kernel=${{folder##*/}}
    if [ -d "$folder/build" ]; then
        dkms install -m nvidia -v {driver} -k "$kernel"
    elif [ "$kernel" = "$running" ]; then
        echo "Module build for kernel $kernel was skipped since the"
        echo "kernel headers for this kernel do not seem to be installed."
    fi
done
""",
        "prerm": f"""\
case $1 in remove|upgrade|deconfigure) ;; *) exit 0 ;; esac
dkms remove -m nvidia -v {driver} --all
""",
    }


def pinning(pattern: str) -> Files:
    """Preferences of apt that keep the driver's packages at ``pattern``."""
    return {
        "etc/apt/preferences.d/nvidia-driver-pinning": _text(
            "Package: *nvidia* *cuda-drivers* libcuda1 libnvsdm*\n"
            f"Pin: version {pattern}\nPin-Priority: 1000\n\n"
            "Package: *nvidia-container* *nvidia-driver-pinning*\nPin: version *\nPin-Priority: 500\n"
        )
    }


def keyring(distribution: str, key: bytes, url: str) -> Files:
    """The key, the source and the preference of the CUDA repository at ``url``."""
    path = "usr/share/keyrings/cuda-archive-keyring.gpg"
    return {
        path: Entry(key),
        f"etc/apt/sources.list.d/cuda-{distribution}-x86_64.list": _text(
            f"deb [signed-by=/{path}] {url}/ /\n"
        ),
        "etc/apt/preferences.d/cuda-repository-pin-600": _text(
            "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n"
        ),
    }


def toolkit_base(version: str) -> Files:
    """nvidia-ctk and the runtime; since 1.18 with the units that keep the CDI specification fresh."""
    files = {
        "usr/bin/nvidia-ctk": program("nvidia-ctk", version),
        "usr/bin/nvidia-container-runtime": _text('#!/bin/sh\nexec runc "$@"\n', 0o755),
        "etc/nvidia-container-runtime/config.toml": _text(
            '[nvidia-container-cli]\nload-kmods = true\n\n[nvidia-container-runtime]\nmode = "auto"\n'
        ),
    }
    if _refreshes_cdi(version):
        command = "/usr/bin/nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"
        condition = "ExecCondition=/usr/bin/test -f /var/lib/fleet-lab-gpu/loaded.view\n"
        files[f"{_UNITS}/nvidia-cdi-refresh.service"] = _text(
            "[Unit]\nDescription=Refresh NVIDIA CDI specification file\nAfter=fleet-lab-modules.service\n\n"
            f"[Service]\nType=oneshot\n{condition}ExecStart={command}\n\n[Install]\nWantedBy=multi-user.target\n"
        )
        files[f"{_UNITS}/nvidia-cdi-refresh.path"] = _text(
            "[Unit]\nDescription=Trigger CDI refresh on NVIDIA driver install or uninstall\n\n"
            "[Path]\nPathChanged=/var/lib/fleet-lab-gpu/loaded.view\n\n[Install]\nWantedBy=multi-user.target\n"
        )
    return files


def cdi_refresh_scripts(version: str) -> dict[str, str]:
    """Enable these units where there are any."""
    if not _refreshes_cdi(version):
        return {}
    return {
        "postinst": '[ "$1" = configure ] || exit 0\n'
        "for unit in nvidia-cdi-refresh.path nvidia-cdi-refresh.service; do\n"
        "    deb-systemd-helper enable $unit >/dev/null || true\ndone\n"
        "if [ -d /run/systemd/system ]; then\n    systemctl --system daemon-reload || true\n"
        "    deb-systemd-invoke start nvidia-cdi-refresh.path nvidia-cdi-refresh.service || true\nfi\n"
    }


def _refreshes_cdi(version: str) -> bool:
    return tuple(map(int, version.split("."))) >= (1, 18, 0)


def runtime_hook() -> Files:
    """The hook by which ``docker run --gpus`` gives GPUs to a container."""
    return {"usr/bin/nvidia-container-runtime-hook": program("nvidia-container-runtime-hook")}


def nvidia_docker2() -> Files:
    """What the old package left on hosts: a daemon.json of its own and a wrapper."""
    return {
        "usr/bin/nvidia-docker": _text('#!/bin/sh\nexec docker "$@"\n', 0o755),
        "etc/docker/daemon.json": _text(
            '{\n    "runtimes": {\n        "nvidia": {\n            "args": [],\n'
            '            "path": "nvidia-container-runtime"\n        }\n    }\n}\n'
        ),
    }


def kernel_image(release: str) -> Files:
    """A kernel that cannot boot: its image, what is built in, and nouveau."""
    modules = f"lib/modules/{release}"
    return {
        f"boot/vmlinuz-{release}": _text("simulated\n"),
        f"boot/config-{release}": _text("CONFIG_MODULES=y\n"),
        f"{modules}/modules.builtin": _text("".join(f"{name}\n" for name in _BUILTIN)),
        f"{modules}/kernel/drivers/gpu/drm/nouveau/nouveau.ko": _text(
            f"license=GPL and additional rights\nvermagic={release}\nsigner=Debian Secure Boot CA\n"
        ),
    }


def kernel_image_scripts(release: str) -> dict[str, str]:
    """An initramfs with it, and a reboot wanted where another kernel runs."""
    return {
        "postinst": f"""\
[ "$1" = configure ] || exit 0
if command -v update-initramfs >/dev/null; then update-initramfs -c -k {release}; fi
if [ -d /lib/modules/{release}/build ] && command -v dkms >/dev/null; then dkms autoinstall -k {release} || true; fi
if [ "$(cat /proc/sys/kernel/osrelease)" != {release} ] && [ -d /run/systemd/system ]; then
    echo "*** System restart required ***" > /run/reboot-required
    echo linux-image-{release} >> /run/reboot-required.pkgs
fi
""",
        "postrm": f"rm -f /boot/initrd.img-{release}\n",
    }


def kernel_headers(release: str) -> Files:
    """Headers, as far as dkms looks."""
    return {
        f"usr/src/linux-headers-{release}/Makefile": _text("# simulated\n"),
        f"lib/modules/{release}/build": Entry(link=f"/usr/src/linux-headers-{release}"),
    }


def kernel_headers_scripts(release: str) -> dict[str, str]:
    """dkms builds what it has for a kernel whose headers arrive."""
    return {
        "postinst": '[ "$1" = configure ] || exit 0\n'
        f"if command -v dkms >/dev/null; then dkms autoinstall -k {release} || true; fi\n"
    }


def references(program: Path) -> Files:
    """What counts who has the devices open, and the unit that keeps the modules' counts right."""
    return {
        "usr/lib/fleet-lab-gpu/references": Entry(program.read_bytes(), 0o755),
        f"{_UNITS}/fleet-lab-references.service": _text(
            "[Unit]\nDescription=Keep the modules' reference counts right\nAfter=fleet-lab-modules.service\n\n"
            "[Service]\nExecStart=/usr/lib/fleet-lab-gpu/references watch\nRestart=always\n\n"
            "[Install]\nWantedBy=multi-user.target\n"
        ),
    }


def dkms() -> Files:
    """The stand-in for dkms."""
    return {"usr/sbin/dkms": program("dkms")}
