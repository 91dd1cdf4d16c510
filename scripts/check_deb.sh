#!/bin/bash
# Builds the Debian packages and uses them in a clean root made by debootstrap: the program alone, then the CUDA module
# where nvcc is found (for one architecture, on a root without a driver), then the development package with a compiler. Needs
# root.
#   check_deb.sh [folder for the root, default a temporary one]
set -euo pipefail

cd "$(dirname "$0")/.."
build=build/deb
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clean=${1:-$work/root}

cuda=OFF
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then cuda=ON; fi
cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr "-DGDN_CUDA=$cuda" \
    -DGDN_CUDA_ARCHS=80 -DGDN_BUILD_TESTS=OFF -DGDN_BUILD_EXAMPLES=OFF -DGDN_BUILD_BENCH=OFF
cmake --build "$build" >/dev/null
rm -f "$build"/*.deb
(cd "$build" && cpack -G DEB >/dev/null)

scripts/clean_root.sh "$clean"
mkdir "$clean/opt/packages"
cp "$build"/*.deb tests/install/consumer/consumer.c "$clean/opt/packages/"
cp examples/data/qwen3_next_layer.safetensors "$clean/opt/packages/"

in_root() {
    chroot "$clean" env DEBIAN_FRONTEND=noninteractive LC_ALL=C sh -euc "$1"
}

for package in "$build"/*.deb; do
    dpkg-deb --info "$package" | sed -n 's/^ \(Package\|Depends\|Installed-Size\): /  &/p'
    dpkg-deb --contents "$package" | awk '{ print "    " $6 $7 $8 }'
done

install='apt-get -qq --no-install-recommends install'
# The tools' package must name the library's: alone it does not install.
in_root "cd /opt/packages && $install ./gdn-tools_*.deb 2>/dev/null" >/dev/null && { echo "gdn-tools installs without libgdn0"; exit 1; }
in_root "cd /opt/packages && $install ./libgdn0_*.deb ./gdn-tools_*.deb" >/dev/null
in_root 'gdn --version && gdn info && gdn prefill /opt/packages/qwen3_next_layer.safetensors'
# The module's package needs no NVIDIA software: on a root that has none it installs, and the program says what is missing.
if [ $cuda = ON ]; then
    in_root "cd /opt/packages && $install ./libgdn0-cuda_*.deb" >/dev/null
    in_root 'gdn info | grep "cuda .*not usable" && gdn verify "heads=2/4 dim=64 tokens=100" && apt-get -qq purge libgdn0-cuda >/dev/null'
fi
in_root "cd /opt/packages && $install ./libgdn-dev_*.deb gcc pkg-config" >/dev/null
in_root 'cd /opt/packages && gcc consumer.c -o shared $(pkg-config --cflags --libs gdn) && ./shared'
in_root 'cd /opt/packages && gcc consumer.c -o static $(pkg-config --cflags --libs gdn-static) && ./static'
in_root 'apt-get -qq purge libgdn0 libgdn-dev gdn-tools >/dev/null'
in_root '! find / -xdev -name "*gdn*" -not -path "/opt/*" -not -path "/proc/*" -not -path "/var/log/*" | grep .'
echo "the packages install, run, compile and go away on a clean root"
