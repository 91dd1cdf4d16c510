#!/bin/bash
# Builds the Debian packages and uses them in a clean root made by debootstrap: the program alone, then the development
# package with a compiler. Needs root.
#   check_deb.sh [folder for the root, default a temporary one]
set -euo pipefail

cd "$(dirname "$0")/.."
build=build/deb
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clean=${1:-$work/root}

if [ "$(id -u)" -ne 0 ]; then
    echo "check_deb.sh: debootstrap and chroot need root" >&2
    exit 1
fi

cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DGDN_CUDA=OFF \
    -DGDN_BUILD_TESTS=OFF -DGDN_BUILD_EXAMPLES=OFF -DGDN_BUILD_BENCH=OFF
cmake --build "$build"
rm -f "$build"/*.deb
(cd "$build" && cpack -G DEB)

# A root with nothing but the base system, with this machine's apt settings, so that packages come from where they do here.
debootstrap --variant=minbase bookworm "$clean"
cp -r /etc/apt/. "$clean/etc/apt/"
mkdir -p "$clean/usr/share/keyrings" "$clean/opt/packages"
cp -r /usr/share/keyrings/. "$clean/usr/share/keyrings/"
cp /etc/resolv.conf "$clean/etc/resolv.conf"
cp "$build"/*.deb tests/install/consumer/consumer.c "$clean/opt/packages/"
cp examples/data/qwen3_next_layer.safetensors "$clean/opt/packages/"

in_root() {
    chroot "$clean" env DEBIAN_FRONTEND=noninteractive LC_ALL=C sh -euc "$1"
}

for package in "$build"/*.deb; do
    dpkg-deb --info "$package" | sed -n 's/^ \(Package\|Depends\|Installed-Size\): /  &/p'
    dpkg-deb --contents "$package" | awk '{ print "    " $6 $7 $8 }'
done
in_root 'apt-get -q update && cd /opt/packages && apt-get -q -y --no-install-recommends install ./libgdn0_*.deb ./gdn-tools_*.deb'
in_root 'gdn --version && gdn info && gdn prefill /opt/packages/qwen3_next_layer.safetensors'
in_root 'cd /opt/packages && apt-get -q -y --no-install-recommends install ./libgdn-dev_*.deb gcc pkg-config'
in_root 'cd /opt/packages && gcc consumer.c -o shared $(pkg-config --cflags --libs gdn) && ./shared'
in_root 'cd /opt/packages && gcc consumer.c -o static $(pkg-config --cflags --libs gdn-static) && ./static'
in_root 'apt-get -q -y purge libgdn0 libgdn-dev gdn-tools && ! find / -xdev -name "*gdn*" -not -path "/opt/*" -not -path "/proc/*" -not -path "/var/log/*" | grep .'
echo "the packages install, run, compile and go away on a clean root"
