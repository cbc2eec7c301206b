#!/bin/sh
# Output that cannot be written is an error: exit 3 and a line on standard error, whatever the command.  A reader that leaves is none.
# Prints TAP.
weft=${WEFT_BUILDDIR:-build}/weft
tmp=$(mktemp -d) || exit 99
trap 'rm -r "$tmp"' EXIT
printf 'HloModule p\nENTRY main { x = f32[4,8] parameter(0)  ROOT y = f32[4,8] sine(x) }\n' >"$tmp/p.hlo"
n=0
result() { # OK NAME
  n=$((n + 1))
  if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; echo "# exit $got: $(cat "$tmp/err")"; fi
}
is_error() { # NAME: what ran was refused its output
  [ $got = 3 ] && grep -q "^weft.*: standard output" "$tmp/err"
  result $? "$1"
}
[ -w /dev/full ] && has_full=1
full() { # ARGS...
  if [ -z "$has_full" ]; then n=$((n + 1)); echo "ok $n - weft $* # SKIP no /dev/full"; return; fi
  timeout 60 "$weft" "$@" >/dev/full 2>"$tmp/err"; got=$?
  is_error "a full device: weft $*"
}
closed() { # ARGS...
  timeout 60 "$weft" "$@" >&- 2>"$tmp/err"; got=$?
  is_error "a closed standard output: weft $*"
}
for command in --help --version "run --help" info "run $tmp/p.hlo" "run $tmp/p.hlo --json" "inspect $tmp/p.hlo --memory" "inspect $tmp/p.hlo --thunks" \
    "inspect $tmp/p.hlo --emit stablehlo" "coord --help" "bench collectives --how devices --ops barrier --scale 0.01" \
    "bench collectives --how shm --ops barrier --scale 0.01" "launch -n 1 -- echo hello"; do
  full $command
done
for command in --help info "run $tmp/p.hlo" "inspect $tmp/p.hlo --emit hlo"; do closed $command; done
# Text for standard output does not go into an output file.
timeout 60 "$weft" run "$tmp/p.hlo" --output-dir "$tmp/out" >&- 2>"$tmp/err"; got=$?
"$weft" run "$tmp/p.hlo" --expect "$tmp/out" >"$tmp/said" 2>&1
result $? "a closed standard output is not the next file"
timeout 60 "$weft" run "$tmp/no-such-file.hlo" >/dev/null 2>"$tmp/err"; got=$?
[ $got = 2 ]; result $? "an exit status of its own stays"
"$weft" info >"$tmp/said" 2>"$tmp/err"; got=$?
[ $got = 0 ] && [ ! -s "$tmp/err" ]; result $? "output that is written is none"
# SIGPIPE ignored, as under some shells and supervisors: write fails with EPIPE.
( trap '' PIPE; { timeout 60 "$weft" info 2>"$tmp/err"; echo $? >"$tmp/code"; } | true; )
i=0; while [ ! -s "$tmp/code" ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
got=$(cat "$tmp/code"); [ "$got" = 3 -o "$got" = 0 ] && [ ! -s "$tmp/err" ]; result $? "nothing is said of a reader that leaves"
# More than one buffer of output: the first write fails, and the last one has nothing to say of it.
{ echo 'HloModule long'; echo 'ENTRY e {'; echo '  x0 = f32[] parameter(0)'
  for k in $(seq 1 400); do echo "  x$k = f32[] add(x$((k - 1)), x0)"; done; echo '}'; } >"$tmp/long.hlo"
rm -f "$tmp/code"
( trap '' PIPE; { sleep 0.2; timeout 60 "$weft" inspect "$tmp/long.hlo" --passes 2>"$tmp/err"; echo $? >"$tmp/code"; } | true; )
i=0; while [ ! -s "$tmp/code" ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
[ "$(cat "$tmp/code")" = 3 ] && [ ! -s "$tmp/err" ]; result $? "nor is anything said where the first of many writes fails"
echo "1..$n"
