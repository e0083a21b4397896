"""The twelve steps of the no-op benchmark, for pyinfra."""

from io import StringIO

from pyinfra.operations import apt, files, server, systemd

apt.packages(packages=["docker.io", "iptables", "ca-certificates"])
files.directory(path="/etc/docker", mode="755")
files.put(src=StringIO('{"log-driver": "json-file"}\n'), dest="/etc/docker/daemon.json", mode="644")
files.put(src=StringIO("blacklist nouveau\noptions nouveau modeset=0\n"), dest="/etc/modprobe.d/nouveau.conf")
systemd.service(service="docker", running=True, enabled=True)
server.user(user="dev", uid=1000, shell="/bin/bash")
files.directory(path="/data", user="dev")
files.line(path="/etc/profile.d/cuda.sh", line="export CUDA_HOME=/usr/local/cuda")
files.put(
    src=StringIO("Package: nvidia-*\nPin: version 535*\nPin-Priority: 1001\n"),
    dest="/etc/apt/preferences.d/nvidia",
)
files.put(src=StringIO("PasswordAuthentication no\n"), dest="/etc/ssh/sshd_config.d/10-fleet.conf")
files.put(src=StringIO("vm.swappiness=10\n"), dest="/etc/sysctl.d/99-fleet.conf")
files.directory(path="/opt/fleet")
