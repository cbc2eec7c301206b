# The functions and data that C headers declare, a name a line.  Reads what `cc -E` makes of them; `within` is a pattern that the
# paths of the headers of interest match.  A declaration is text up to a semicolon outside braces; a body in braces is left out,
# and with it a static function.
/^#/ { if (split($0, quoted, "\"") > 1) of_interest = quoted[2] ~ within; next }
!of_interest { next }
{
  line = $0 "\n"
  for (i = 1; i <= length(line); i++) {
    c = substr(line, i, 1)
    if (c == "{") depth++
    else if (c == "}") { if (--depth == 0 && text ~ /^[ \n]*static/) text = "" }
    else if (depth == 0 && c == ";") { declared(text); text = "" }
    else if (depth == 0) text = text c
  }
}
function declared(text) {
  while (sub(/__attribute__ *\(\([^()]*(\([^()]*\))?[^()]*\)\)/, "", text)) {}
  gsub(/[ \n\t]+/, " ", text)
  if (text ~ /^ ?(typedef|static|_Static_assert) ?/ || text ~ /^ ?(struct|enum|union) [a-z_A-Z0-9]+ ?$/ || text ~ /^ ?(struct|enum|union)? ?$/) return
  if (match(text, / \*?[A-Za-z_][A-Za-z_0-9]* ?\(/)) text = substr(text, RSTART, RLENGTH - 1)
  gsub(/( ?\[[^]]*\])+ ?$/, "", text)
  gsub(/[* ]+$/, "", text)
  sub(/.*[ *]/, "", text)
  print text
}
