#!/bin/sh
# Every command prints its usage on request (standard output, exit 0), and names an argument that it does not know (exit 2).
weft=${WEFT_BUILDDIR:-.}/weft
failed=0 n=0
check() { # NAME EXPECTED_CODE PATTERN ARGS...
  name=$1 code=$2 pattern=$3; shift 3; n=$((n + 1))
  out=$(timeout 20 "$weft" "$@" 2>&1); got=$?
  if [ $got = "$code" ] && printf '%s' "$out" | grep -q -e "$pattern"; then echo "ok $n - $name"
  else echo "not ok $n - $name"; echo "# weft $*: exit $got, wanted $code and \"$pattern\""; printf '%s\n' "$out" | sed 's/^/# /' | head -n 5; failed=1; fi
}
echo 1..48
check "weft" 0 '^Usage: weft COMMAND' --help
for command in run compile inspect info coord launch bench; do check "$command --help" 0 "^Usage: weft $command" $command --help; done
check "weft version" 0 '^weft [0-9]' version
check "weft version --help" 0 '^Usage: weft version' version --help
check "weft version with a word" 2 'expected no arguments' version now
check "info --json" 0 '"name": "WEFT_THREADS"' info --json
check "a table of collectives" 0 ' f32 all-reduce *sum .* 0$' bench collectives --how devices --ops all-reduce --max-bytes 64 --scale 0.01
check "coord serve --help" 0 '--heartbeat-timeout' coord serve --help
for sub in status kv barrier; do check "coord $sub --help" 0 "^Usage: weft coord $sub" coord $sub --help; done
check "bench collectives --help" 0 '^Usage: weft bench collectives' bench collectives --help
check "no such command" 2 'no command "fly"' fly
check "no such option" 2 '--what' run --what x.hlo
check "no such subcommand" 2 'no subcommand "fly"' coord fly
check "coord without a subcommand" 2 'Usage' coord
check "a missing file" 2 'no-such-file.hlo' run no-such-file.hlo
check "help of a command by name" 0 '^Usage: weft inspect' help inspect
check "a command that is nearly one" 2 'did you mean run' rnu x.hlo
check "an option that is nearly one" 2 'did you mean --repeat' run --repat 3 x.hlo
check "an option without its value" 2 '--input: expected FILE.npy' run x.hlo --input
check "a switch with a value" 2 '--quiet takes no value' run x.hlo --quiet=yes
check "a tolerance below nothing" 2 'expected a number of 0 or more' run x.hlo --rtol=-1
check "a comparison with nothing known" 2 'expected `reference` or the file' run x.hlo --compare refrence
check "a flight recorder that is none" 2 'no flight recorder' inspect --flight "$0"
WEFT_TREADS=2 check "a setting that is nearly one" 2 'did you mean WEFT_THREADS' run no-such-file.hlo
WEFT_COLLECTIVE_PROVIDER=tcp check "a variable that is no setting" 2 'WEFT_COLLECTIVE_PROVIDER is set, which is no setting' run no-such-file.hlo
WEFT_THREADS=-4 check "a number out of its range" 2 'WEFT_THREADS: expected 0..4096, got "-4"' run no-such-file.hlo
WEFT_COLLECTIVE_TRANSPORT=avian check "a word that is none of the known" 2 'WEFT_COLLECTIVE_TRANSPORT: expected auto|shm|fabric' bench collectives
WEFT_COLLECTIVE_ALGORITHM=rnig check "a word of a list that is made" 2 'expected auto|direct|' launch -n 1 -- true
WEFT_THREADS=-4 WEFT_COLLECTIVE_RING=1 check "info says what is refused" 0 'expected 8K..1G, got "1"' info
check "info says what is allowed" 0 'WEFT_COLLECTIVE_ORDER .*Allowed fast|rank' info
check "an operation that is none" 2 'no operation "foo"; expected some of all-reduce, all-gather,.* barrier, memcpy, wait' bench collectives --ops all-reduce,foo
# Every option that --help lists is in the man page, and bash completes it.
n=$((n + 1)); missing=
for command in run compile inspect launch 'bench collectives'; do
  for option in $("$weft" $command --help | grep -o -e '^  --[a-z-]*' -e ', --[a-z-]*' | tr -d ' ,'); do
    sed 's/\\-/-/g' "${WEFT_SRCDIR:-.}/docs/man/weft.1" | grep -q -e "$option" || missing="$missing $command:$option"
  done
done
if [ -z "$missing" ]; then echo "ok $n - the man page has every option"; else echo "not ok $n - the man page has every option"; echo "#$missing"; failed=1; fi
# The variables of the manifest for Kubernetes are settings.
n=$((n + 1)); missing=
for name in $(grep -o 'WEFT_[A-Z_]*' "${WEFT_SRCDIR:-.}/docs/kubernetes/job.yaml" | sort -u); do
  "$weft" info --json | grep -q "\"name\": \"$name\"" || missing="$missing $name"
done
if [ -z "$missing" ]; then echo "ok $n - the manifest for Kubernetes names settings"; else echo "not ok $n - the manifest for Kubernetes names settings"; echo "#$missing"; failed=1; fi
complete() { # EXPECTED WORDS...
  expected=$1; shift; n=$((n + 1))
  if ! command -v bash >/dev/null; then echo "ok $n - completion # SKIP no bash"; return; fi
  got=$(bash -c 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weft; echo "${COMPREPLY[*]}"' \
    "${WEFT_SRCDIR:-.}/docs/completion/weft" "$weft" "$@")
  if [ "$got" = "$expected" ]; then echo "ok $n - completion of \"$*\""; else echo "not ok $n - completion of \"$*\""; echo "# got \"$got\", wanted \"$expected\""; failed=1; fi
}
complete_fish() {
  n=$((n + 1))
  if ! command -v fish >/dev/null; then echo "ok $n - completion by fish # SKIP no fish"; return; fi
  got=$(ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0 timeout 60 fish --no-config -c 'source $argv[1]; complete -C "$argv[2] run --r"' "${WEFT_SRCDIR:-.}/docs/completion/weft.fish" "$weft" 2>/dev/null | sort | tr '\n' ' ')
  case $got in *--repeat*--rtol*) echo "ok $n - completion by fish" ;; *) echo "not ok $n - completion by fish"; echo "# got \"$got\""; failed=1 ;; esac
}
# The first completion in a shell loads the file, and must offer words already.
complete_zsh() {
  n=$((n + 1))
  if ! command -v zsh >/dev/null; then echo "ok $n - completion by zsh # SKIP no zsh"; return; fi
  # LeakSanitizer stops a program's threads by SIGSTOP when the program ends. zsh sends SIGCONT to a program that has closed its
  # output, which removes a SIGSTOP, and LeakSanitizer then waits for ever.
  got=$(ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0 timeout 60 zsh -fc 'fpath=($1); autoload -Uz _weft; compadd() { print -r -- $* }; words=($2 run --r); CURRENT=3; _weft' - \
    "${WEFT_SRCDIR:-.}/docs/completion" "$weft" 2>&1)
  case $got in *--repeat*) echo "ok $n - completion by zsh" ;; *) echo "not ok $n - completion by zsh"; echo "# got \"$got\""; failed=1 ;; esac
}
complete launch l
complete_fish
complete_zsh
complete "--rtol --repeat" run --r
complete "serve status" coord s
complete "--heartbeat-timeout --help" coord serve --he
complete --max-bytes bench collectives --ma
exit $failed
