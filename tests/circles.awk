# tests/circles.awk -- the circles between the source files of a folder.
#
# One .c file depends on another if it names a function or a variable that the other defines for more than itself.  Files that
# depend on each other, directly or through others, form a circle: none of them can be understood or tested alone.  Prints each
# circle as one line of file names, relative to the variable `root` and sorted.  Input: the .c files of one folder and those below it.
function bare(line) # without strings, character constants and comments
{
  gsub(/\\./, "", line)
  gsub(/"[^"]*"/, " ", line)
  gsub(/'[^']*'/, " ", line)
  if (commented) {
    if (!match(line, /\*\//)) return ""
    line = substr(line, RSTART + 2)
    commented = 0
  }
  while (match(line, /\/\*/)) {
    rest = substr(line, RSTART + 2)
    line = substr(line, 1, RSTART - 1)
    if (!match(rest, /\*\//)) {
      commented = 1
      break
    }
    line = line " " substr(rest, RSTART + 2)
  }
  sub(/\/\/.*/, "", line)
  return line
}

FNR == 1 {
  file = FILENAME
  sub("^" root "/", "", file)
  files[++count] = file
  commented = 0
}
{
  line = bare($0)
  # A definition for all: at the line's begin, not static, a name before a parenthesis or an equals sign.
  if (line ~ /^[A-Za-z_]/ && line !~ /^(static|typedef|return|extern|goto|#)/ && line !~ /;[ \t]*$/) {
    head = line
    if (match(head, /[({=]/)) head = substr(head, 1, RSTART - 1)
    if (head ~ /[ *]/ && line ~ /[(=]/) {
      gsub(/\[[^]]*\]/, "", head)
      n = split(head, words, /[^A-Za-z0-9_]+/)
      name = words[n] != "" ? words[n] : words[n - 1]
      if (!(name in home)) home[name] = file
    }
  }
  n = split(line, words, /[^A-Za-z0-9_]+/)
  for (i = 1; i <= n; i++)
    if (words[i] != "") uses[file, words[i]] = 1
}

END {
  for (key in uses) {
    split(key, pair, SUBSEP)
    if (pair[2] in home && home[pair[2]] != pair[1]) {
      reach[pair[1], home[pair[2]]] = 1
      why[pair[1], home[pair[2]]] = why[pair[1], home[pair[2]]] " " pair[2]
    }
  }
  if (verbose)
    for (key in why) {
      split(key, pair, SUBSEP)
      print pair[1] " -> " pair[2] ":" why[key]
    }
  for (k = 1; k <= count; k++)
    for (i = 1; i <= count; i++)
      if ((files[i], files[k]) in reach)
        for (j = 1; j <= count; j++)
          if ((files[k], files[j]) in reach) reach[files[i], files[j]] = 1
  for (i = 1; i <= count; i++) {
    if (files[i] in told || !((files[i], files[i]) in reach)) continue
    circle = files[i]
    for (j = i + 1; j <= count; j++)
      if ((files[i], files[j]) in reach && (files[j], files[i]) in reach) {
        circle = circle " " files[j]
        told[files[j]] = 1
      }
    print circle
  }
}
