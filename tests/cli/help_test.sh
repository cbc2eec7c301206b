#!/bin/sh
# Every command says how it is used when asked (standard output, exit 0), and what it did not understand (exit 2).
weft=${WEFT_BUILDDIR:-.}/weft
failed=0 n=0
check() { # NAME EXPECTED_CODE PATTERN ARGS...
  name=$1 code=$2 pattern=$3; shift 3; n=$((n + 1))
  out=$(timeout 20 "$weft" "$@" 2>&1); got=$?
  if [ $got = "$code" ] && printf '%s' "$out" | grep -q -e "$pattern"; then echo "ok $n - $name"
  else echo "not ok $n - $name"; echo "# weft $*: exit $got, wanted $code and \"$pattern\""; printf '%s\n' "$out" | sed 's/^/# /' | head -n 5; failed=1; fi
}
echo 1..17
check "weft" 0 '^Usage: weft COMMAND' --help
for command in run inspect info coord launch bench; do check "$command --help" 0 "^Usage: weft $command" $command --help; done
check "coord serve --help" 0 '--heartbeat-timeout' coord serve --help
for sub in status kv barrier; do check "coord $sub --help" 0 "^Usage: weft coord $sub" coord $sub --help; done
check "bench collectives --help" 0 '^[Uu]sage: weft bench collectives' bench collectives --help
check "no such command" 2 'no command "fly"' fly
check "no such option" 2 '--what' run --what x.hlo
check "no such subcommand" 2 'no subcommand "fly"' coord fly
check "coord without a subcommand" 2 'Usage' coord
check "a missing file" 2 'no-such-file.hlo' run no-such-file.hlo
exit $failed
