/* tests/gpu/emulator/lex.c -- see lex.h. */
#include <config.h>

#include "lex.h"

#include <ctype.h>

static char peek(const ptx_lexer *l, size_t n) { return (size_t)(l->end - l->at) > n ? l->at[n] : 0; }

static void skip_blanks(ptx_lexer *l)
{
  while (l->at < l->end) {
    if (*l->at == '\n') l->line++;
    if (isspace((unsigned char)*l->at)) {
      l->at++;
    } else if (*l->at == '/' && peek(l, 1) == '/') {
      while (l->at < l->end && *l->at != '\n') l->at++;
    } else if (*l->at == '/' && peek(l, 1) == '*') {
      for (l->at += 2; l->at < l->end && !(*l->at == '*' && peek(l, 1) == '/'); l->at++)
        if (*l->at == '\n') l->line++;
      l->at += l->at < l->end ? 2 : 0;
    } else {
      return;
    }
  }
}

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.'; }

static unsigned digit(char c)
{
  return isdigit((unsigned char)c)    ? (unsigned)(c - '0')
         : isxdigit((unsigned char)c) ? (unsigned)(tolower(c) - 'a' + 10)
                                      : 99;
}

/* Integers in the bases of C, and floats as the hexadecimal digits of their bits. */
static void number(ptx_lexer *l, ptx_token *t)
{
  unsigned base = 10;
  char second = (char)tolower(peek(l, 1));
  if (*l->at == '0' && (second == 'x' || second == 'f' || second == 'd')) base = 16, l->at += 2;
  else if (*l->at == '0' && second == 'b') base = 2, l->at += 2;
  else if (*l->at == '0') base = 8;
  while (l->at < l->end && digit(*l->at) < base) t->value = t->value * base + digit(*l->at++);
  if (l->at < l->end && *l->at == 'U') l->at++;
}

ptx_token ptx_lex(ptx_lexer *l)
{
  skip_blanks(l);
  ptx_token t = {.kind = PTX_T_MARK, .text = l->at, .line = l->line};
  if (l->at >= l->end) {
    t.kind = PTX_T_END;
  } else if (isdigit((unsigned char)*l->at)) {
    t.kind = PTX_T_NUMBER;
    number(l, &t);
  } else if (in_word(*l->at)) {
    t.kind = PTX_T_WORD;
    while (in_word(peek(l, 0)) || (peek(l, 0) == ':' && peek(l, 1) == ':')) l->at += *l->at == ':' ? 2 : 1;
  } else if (*l->at == '"') {
    t.kind = PTX_T_STRING;
    for (l->at++; l->at < l->end && *l->at != '"' && *l->at != '\n'; l->at++) {}
    if (l->at < l->end) l->at++;
  } else {
    l->at++;
  }
  t.size = (size_t)(l->at - t.text);
  return t;
}
