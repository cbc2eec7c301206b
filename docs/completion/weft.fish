# Completion of the weft command for fish: words come from its own --help, so that they are never out of date.
function __weft_words
    set -l words (commandline -opc)
    set -l weft $words[1]
    set -l count (count $words)
    if test $count -eq 1
        $weft --help 2>/dev/null | sed -n 's/^  \([a-z]\{1,\}\)  *\(.*\)/\1\t\2/p'
    else if test $count -eq 2 -a "$words[2]" = coord
        $weft coord --help 2>/dev/null | sed -n 's/^  \([a-z]\{1,\}\)  *[A-Z[].*/\1/p'
    else if test $count -eq 2 -a "$words[2]" = bench
        echo collectives
    else
        set -l command $words[2]
        test "$words[2]" = coord; and set command coord $words[3]
        $weft $command --help 2>/dev/null | grep -o -- '^  --[a-z][a-z-]*\|, --[a-z-]*' | tr -d ' ,'
        echo --help
    end
end
complete -c weft -n 'test (count (commandline -opc)) -le 2' -x -a '(__weft_words)'
complete -c weft -n 'test (count (commandline -opc)) -gt 2' -a '(__weft_words)'
