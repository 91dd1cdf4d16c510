#!/bin/sh
# Makes a folder into a bare Debian 12, nothing installed, to chroot into: by debootstrap, with this machine's apt
# settings, so that its packages come from where this machine's do. Needs root.
#   clean_root.sh <folder>
set -eu

root=$1
if [ "$(id -u)" -ne 0 ]; then
    echo "clean_root.sh: debootstrap and chroot need root" >&2
    exit 1
fi
debootstrap --variant=minbase bookworm "$root" >"$root.log" 2>&1 || {
    tail "$root.log" >&2
    exit 1
}
rm -rf "$root/etc/apt" "$root.log"
cp -r /etc/apt "$root/etc/apt"
mkdir -p "$root/usr/share/keyrings"
cp -r /usr/share/keyrings/. "$root/usr/share/keyrings/"
cp /etc/resolv.conf "$root/etc/resolv.conf"
chroot "$root" apt-get -qq update
