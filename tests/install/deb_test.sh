#!/bin/bash
# Packages of Debian (`make deb`) in a root file system of their own.  Prints TAP.
#
#   tests/install/deb_test.sh FOLDER [ROOT]     FOLDER has the *.deb; ROOT a bare Debian (debootstrap), which is changed: apt installs there
#
# Without ROOT dpkg unpacks them into an empty folder, and the command runs with this machine's libraries.
folder=$(readlink -f "${1:?a folder with *.deb}") root=${2-}
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
n=0 failed=0
report() { # NAME STATUS: the log is shown if it failed
  n=$((n + 1))
  if [ "$2" = 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; sed 's/^/# /' "$work/log" | tail -n 20; failed=1; fi
}
packages=$(ls "$folder"/{weft,libweft0,libweft-runtime0,libweft-dev,python3-weft,weft-doc}_*.deb) || exit 99
example=/usr/share/doc/weft-doc/examples/train.hlo
if [ -n "$root" ]; then
  mkdir -p "$root/packages" && cp $packages "$root/packages"
  chroot "$root" sh -c 'apt-get update -q && apt-get install -y -q --no-install-recommends /packages/*.deb' >"$work/log" 2>&1
  report "apt installs them into a bare root" $?
  run() { chroot "$root" "$@"; }
else
  root=$work/root
  mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/var/log"
  touch "$root/var/lib/dpkg/status"
  dpkg --root="$root" --force-depends --unpack $packages >"$work/log" 2>&1 # their scripts would want Python there
  report "dpkg unpacks them into an empty root" $?
  example=$root$example
  run() { LD_LIBRARY_PATH=$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH) PYTHONPATH=$root/usr/lib/python3/dist-packages PATH=$root/usr/bin:$PATH "$@"; }
fi
run weft version >"$work/log" 2>&1 && grep -q '^weft [0-9]' "$work/log"; report "weft version" $?
run weft run "$example" >"$work/log" 2>&1 && grep -q 'result 0' "$work/log"; report "weft run of an installed example" $?
run weft launch -n 2 -- weft version >"$work/log" 2>&1; report "weft launch" $?
run python3 -c 'import weft; print(weft.library_path())' >"$work/log" 2>&1 && grep -q 'pjrt_weft.so' "$work/log"; report "Python finds the plugin" $?
[ -e "$root"/usr/share/man/man1/weft.1.gz ] && [ -e "$root"/usr/share/bash-completion/completions/weft ] && [ -e "$root"/usr/share/doc/weft-doc/docs/jax.md.gz -o -e "$root"/usr/share/doc/weft-doc/docs/jax.md ]
report "the manual is there" $?
echo "1..$n"
exit $failed
